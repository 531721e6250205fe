//! A check-up of a Redis: whether a ring can keep its promises there.
//!
//! What the server reports about itself is judged in [`assess`], which sends nothing. What a server could get wrong without
//! reporting it is tried in [`trial`] and [`pace`]: rights, presence, the clock, and round trips. A trial writes only to keys that no
//! ring has, and deletes them in the same step. So nothing is left behind, even if this process is killed.

mod assess;
mod facts;
mod pace;
mod trial;

use std::time::Duration;

use self::trial::Rights;
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::redis::{Endpoint, Store, Way};

/// What a check-up of a Redis found about one subject.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerFinding {
    /// The subject, as one word in camelCase: `version`, `minReplicas`.
    pub subject: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What that means for the promises of a ring.
    pub meaning: String,
    /// How to mend it, if it needs mending.
    pub remedy: Option<String>,
    /// What was measured: names in camelCase, which end with the unit, and numbers.
    pub figures: Vec<(&'static str, f64)>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Good,
    /// The server does not show it, or it could not be tried.
    Unknown,
    /// The ring keeps its promises, but less well than it could.
    Warning,
    /// A promise of the ring does not hold on this server.
    Broken,
}

impl Severity {
    /// The severity as one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Broken => "broken",
        }
    }
}

impl ServerFinding {
    fn new(
        subject: &'static str,
        severity: Severity,
        found: impl Into<String>,
        meaning: impl Into<String>,
    ) -> Self {
        let (found, meaning) = (found.into(), meaning.into());
        Self { subject, severity, found, meaning, remedy: None, figures: Vec::new() }
    }

    fn good(subject: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(subject, Severity::Good, found, meaning)
    }

    fn unknown(subject: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(subject, Severity::Unknown, found, meaning)
    }

    fn warning(subject: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(subject, Severity::Warning, found, meaning)
    }

    fn broken(subject: &'static str, found: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self::new(subject, Severity::Broken, found, meaning)
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    fn figures(self, figures: impl Into<Vec<(&'static str, f64)>>) -> Self {
        Self { figures: figures.into(), ..self }
    }

    /// The finding as one line for a log.
    fn sentence(&self) -> String {
        let remedy = self.remedy.iter().map(|remedy| format!(": {remedy}"));
        format!("{} ({}){}", self.meaning, self.found, remedy.collect::<String>())
    }
}

impl Store {
    /// Returns a warning, with its remedy, for each setting of the server that may lose messages. Settings that the server
    /// does not show are not judged.
    pub async fn server_warnings(&self) -> Result<Vec<String>> {
        let facts = self.server_facts().await?;
        Ok(assess::warnings(&facts))
    }
}

/// Examines the server that a store is connected to. Opens a second connection for a moment. Nodes with this lease are to
/// use the server.
pub(super) async fn examine(
    store: &Store,
    endpoint: &Endpoint,
    patience: Duration,
    lease: Duration,
) -> Result<Vec<ServerFinding>> {
    let facts = store.server_facts().await?;
    let member = Incarnation::random();
    let rights = match facts.is_replica() {
        true => Rights::NotTried("a replica accepts no writes".into()),
        false => store.try_rights(member).await?,
    };
    let sentinels = store.subscribers(assess::SENTINEL_CHANNEL).await.unwrap_or(0);
    let (witness, open) = Store::open(endpoint.clone(), store.ring().clone(), patience).await?;
    let other = witness.server_facts().await?;
    let presence = trial::try_presence(store, witness, open, member).await?;
    let pace = store.measure_pace().await?;
    let through_sentinels = matches!(endpoint.way(), Way::Sentinel(_));
    Ok(vec![
        assess::version(&facts),
        assess::topology(&facts, &other, sentinels, through_sentinels),
        assess::persistence(&facts),
        assess::eviction(&facts),
        assess::memory(&facts),
        assess::replicas(&facts),
        assess::min_replicas(&facts, &rights),
        rights.finding(),
        presence.finding(),
        pace.clock(),
        pace.round_trip(lease),
    ])
}

/// Whether Redis refused a call, but is there.
fn is_refusal(error: &Error) -> Option<&str> {
    match error {
        Error::Refused { reason, .. } => Some(reason),
        _ => None,
    }
}
