//! Who may look, and who may change something.

use std::time::Duration;

use anyhow::{Result, bail};
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::{Choice, ConstantTimeEq as _};
use tokio::sync::Mutex;

/// A shorter secret is refused: it could be guessed.
const SHORTEST_SECRET: usize = 8;
/// How long a failed login takes. All failed logins wait for each other, so there are at most four per second.
const PENALTY: Duration = Duration::from_millis(250);
/// The name of a visitor where nobody has to log in.
const ANYBODY: &str = "web";

/// What a login allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Look, retry and drop errors, pause and resume.
    Change,
    /// Only look.
    Look,
}

/// A name with its secret.
pub struct Login {
    name: String,
    secret: String,
    right: Right,
}

impl Login {
    /// Reads logins, one per line: `NAME:SECRET`, or only the secret. Empty lines do not count. `place` names the file or
    /// the variable in errors.
    pub fn parse_all(text: &str, right: Right, place: &str) -> Result<Vec<Self>> {
        let default_name = if right == Right::Change { "admin" } else { "viewer" };
        let mut logins = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, secret) = line.split_once(':').unwrap_or((default_name, line));
            if name.is_empty() || secret.len() < SHORTEST_SECRET {
                bail!(
                    "{place}: expected lines NAME:SECRET with secrets of at least {SHORTEST_SECRET} characters"
                );
            }
            logins.push(Self { name: name.to_owned(), secret: secret.to_owned(), right });
        }
        if logins.is_empty() {
            bail!("{place}: expected a secret, got nothing");
        }
        Ok(logins)
    }
}

/// All logins. Without any, every visitor may do everything.
#[derive(Default)]
pub struct Logins {
    all: Vec<Login>,
    failing: Mutex<()>,
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub name: String,
    pub right: Right,
    /// Whether the request carried a bearer token. A browser never sends one by itself.
    pub has_token: bool,
}

/// What a request carried to prove who sent it.
enum Proof {
    Basic { name: String, secret: String },
    Bearer(String),
}

impl Logins {
    pub fn new(all: Vec<Login>) -> Self {
        Self { all, failing: Mutex::new(()) }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns who sent a request. None if it carries no valid login and needs one.
    pub async fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        if self.is_empty() {
            return Some(Visitor { name: ANYBODY.to_owned(), right: Right::Change, has_token: false });
        }
        if !headers.contains_key(header::AUTHORIZATION) {
            return None;
        }
        let visitor = Proof::of(headers).and_then(|proof| self.find(&proof));
        if visitor.is_none() {
            let _one_at_a_time = self.failing.lock().await;
            tokio::time::sleep(PENALTY).await;
        }
        visitor
    }

    /// Compares with every login, so that the time shows nothing about which one was nearly right.
    fn find(&self, proof: &Proof) -> Option<Visitor> {
        let mut found = None;
        for login in &self.all {
            let is_equal = match proof {
                Proof::Basic { name, secret } => is_same(name, &login.name) & is_same(secret, &login.secret),
                Proof::Bearer(token) => is_same(token, &login.secret),
            };
            if bool::from(is_equal) {
                found = Some(login);
            }
        }
        let has_token = matches!(proof, Proof::Bearer(_));
        found.map(|login| Visitor { name: login.name.clone(), right: login.right, has_token })
    }
}

fn is_same(given: &str, wanted: &str) -> Choice {
    given.as_bytes().ct_eq(wanted.as_bytes())
}

impl Proof {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let (scheme, value) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("bearer") {
            return Some(Self::Bearer(value.trim().to_owned()));
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
        let (name, secret) = decoded.split_once(':')?;
        Some(Self::Basic { name: name.to_owned(), secret: secret.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_login_per_line_and_a_secret_alone_has_the_name_of_its_right() {
        let read = |text| Login::parse_all(text, Right::Look, "F");
        let logins = read("\nanna:long:enough\n  right-secret \n").unwrap();
        let seen: Vec<_> = logins.iter().map(|login| (login.name.as_str(), login.secret.as_str())).collect();
        assert_eq!(seen, [("anna", "long:enough"), ("viewer", "right-secret")]);
        for bad in ["", " \n", "short", "anna:short", ":long-enough"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
