//! Tries what a server could get wrong without reporting it: the rights of the user, and presence.

use std::time::{Duration, Instant};

use tokio_util::sync::DropGuard;

use super::{ServerFinding, is_refusal};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::redis::{CallError, Store};
use crate::steps::Script;

static PROBE: Script = Script::new(
    "probe",
    || concat!("#!lua flags=allow-oom\n", include_str!("probe.lua")).to_owned(),
    || redis::Script::new(PROBE.code()).get_hash().to_owned(),
);

pub(super) static SUBSCRIBERS: Script = Script::new(
    "subscribers",
    || concat!("#!lua flags=no-writes\n", include_str!("subscribers.lua")).to_owned(),
    || redis::Script::new(SUBSCRIBERS.code()).get_hash().to_owned(),
);

/// How many commands are tried: those of the rule in `docs/keyspace.md`. The connection has tried INFO already.
const TRIED: usize = 46;

/// Without these, nodes work, but some commands do not.
const DISPENSABLE: [&str; 2] = ["scan", "unlink"];

/// Redis notices the end of a connection on this machine at once. Over a network it may take a little.
const NOTICE: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(5);

/// Which commands the user may run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rights {
    /// The refused commands, each with what Redis said.
    Tried(Vec<(String, String)>),
    /// Something else was in the way.
    NotTried(String),
}

impl Rights {
    pub(super) fn obstacle(&self) -> Option<&str> {
        match self {
            Self::NotTried(reason) => Some(reason),
            Self::Tried(_) => None,
        }
    }

    pub(super) fn finding(&self) -> ServerFinding {
        let refused = match self {
            Self::NotTried(reason) => {
                let found = format!("not tried: {reason}");
                return ServerFinding::unknown("rights", found, "nodes may lack a right that they need");
            }
            Self::Tried(refused) => refused,
        };
        let Some((_, reason)) = refused.first() else {
            let found = format!("all {TRIED} commands that estafeta uses");
            return ServerFinding::good("rights", found, "nodes and all commands work under this user");
        };
        let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
        let found = format!("refused: {} ({reason})", names.join(" "));
        let finding = match names.iter().all(|name| DISPENSABLE.contains(name)) {
            true => ServerFinding::warning("rights", found, "reset, rings and results do not work"),
            false => ServerFinding::broken("rights", found, "nodes cannot work under this user"),
        };
        finding.remedy("give the user the rule in docs/keyspace.md")
    }
}

/// What becomes of the subscription by which a member shows that it is alive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Scripts see it, and they saw its end so soon after the connection was closed.
    Noticed(Duration),
    /// Scripts see it, but its end was not seen in time.
    Stays,
    /// It was accepted, but scripts of another connection do not see it.
    Unseen,
    /// It was not accepted.
    Unsupported,
    /// Scripts may not look.
    NotTried(String),
}

impl Presence {
    pub(super) fn finding(&self) -> ServerFinding {
        let (subject, by_lease) =
            ("presence", "leases alone decide which nodes are dead, so a take-over takes as long as a lease");
        match self {
            Self::Noticed(after) => ServerFinding::good(
                subject,
                format!("scripts see a subscription, and its end after {} ms", after.as_millis()),
                "the death of a process is noticed at once",
            )
            .figures([("noticedMs", after.as_secs_f64() * 1000.0)]),
            Self::Stays => ServerFinding::warning(
                subject,
                format!("the subscription of a closed connection is still counted after {NOTICE:?}"),
                by_lease,
            )
            .remedy("connect without a proxy"),
            Self::Unseen => ServerFinding::broken(
                subject,
                "scripts do not see the subscription of another connection",
                "living nodes look dead to others, which bury them again and again",
            )
            .remedy("connect to the master without a proxy, or switch off Config::presence"),
            Self::Unsupported => {
                ServerFinding::warning(subject, "subscriptions over RESP3 are refused", by_lease)
                    .remedy("connect without a proxy, and allow SUBSCRIBE")
            }
            Self::NotTried(reason) => {
                ServerFinding::unknown(subject, format!("not tried: {reason}"), by_lease)
            }
        }
    }
}

impl Store {
    /// Tries every command that estafeta uses, on keys and channels of `member`, which is no member of the ring.
    pub(super) async fn try_rights(&self, member: Incarnation) -> Result<Rights> {
        let keys = [self.keys().probe(member), self.keys().probe(Incarnation::random())];
        let mut refused = Vec::new();
        let mut direct = [redis::cmd("SCAN"), redis::cmd("UNLINK"), redis::cmd("SCRIPT")];
        direct[0].arg(0).arg("MATCH").arg(&keys[0]).arg("COUNT").arg(1);
        direct[1].arg(&keys[0]);
        direct[2].arg("LOAD").arg(PROBE.code());
        for (name, command) in ["scan", "unlink", "script|load"].into_iter().zip(&direct) {
            match self.send(command).await {
                Ok(_) => {}
                Err(error) => match is_refusal(&error) {
                    Some(reason) if is_missing_right(reason) => refused.push((name.into(), reason.into())),
                    Some(reason) => return Ok(Rights::NotTried(reason.into())),
                    None => return Err(error),
                },
            }
        }
        if let Some(reason) = self.refusal_to_subscribe(member).await {
            refused.push(reason);
        }
        let mut call = PROBE.call(&[("one", &keys[0]), ("another", &keys[1])]);
        call.arg("channel", self.keys().wakeup(member));
        match self.run(&PROBE, &call).await {
            Ok(mut reply) => {
                while !reply.is_empty() {
                    refused.push((reply.text()?, reply.text()?));
                }
            }
            Err(error) => match is_refusal(&error) {
                // If the script could not be loaded, this is no news.
                Some(_) if refused.iter().any(|(name, _)| name == "script|load") => {}
                Some(reason) if is_missing_right(reason) => refused.push(("evalsha".into(), reason.into())),
                Some(reason) => return Ok(Rights::NotTried(reason.into())),
                None => return Err(error),
            },
        }
        Ok(Rights::Tried(refused))
    }

    /// Subscribes to the channel of `member` and unsubscribes again. Returns what is refused, if something is.
    async fn refusal_to_subscribe(&self, member: Incarnation) -> Option<(String, String)> {
        let session = self.connection().current().filter(|session| session.speaks_resp3)?;
        let (mut connection, channel) = (session.connection.clone(), self.keys().alive(member));
        let missing = |name: &str, answer: Result<(), CallError>| match answer {
            Err(CallError::Refused(reason)) if is_missing_right(&reason) => Some((name.to_owned(), reason)),
            _ => None,
        };
        let subscribed = session.answer(connection.subscribe(channel.clone()), ANSWER).await;
        let refusal = missing("subscribe", subscribed);
        if refusal.is_some() {
            return refusal;
        }
        missing("unsubscribe", session.answer(connection.unsubscribe(channel), ANSWER).await)
    }

    /// Counts the subscribers of a channel, as the scripts of a ring do.
    pub(super) async fn subscribers(&self, channel: &str) -> Result<u64> {
        let mut call = SUBSCRIBERS.call::<String>(&[]);
        call.arg("channel", channel);
        self.run(&SUBSCRIBERS, &call).await?.number()
    }
}

/// Lets `witness` show that `member` is alive, then closes its connection. `store` looks on.
pub(super) async fn try_presence(
    store: &Store,
    witness: Store,
    open: DropGuard,
    member: Incarnation,
) -> Result<Presence> {
    if !witness.show_presence(member).await? {
        return Ok(Presence::Unsupported);
    }
    let channel = store.keys().alive(member);
    match store.subscribers(&channel).await {
        Ok(0) => return Ok(Presence::Unseen),
        Ok(_) => {}
        Err(error) => match is_refusal(&error) {
            Some(reason) => return Ok(Presence::NotTried(reason.into())),
            None => return Err(error),
        },
    }
    drop((witness, open));
    let closed = Instant::now();
    while closed.elapsed() < NOTICE {
        if store.subscribers(&channel).await? == 0 {
            return Ok(Presence::Noticed(closed.elapsed()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(Presence::Stays)
}

/// Whether Redis refuses a call because of the rights of the user, and for no other reason.
fn is_missing_right(reason: &str) -> bool {
    reason.starts_with("NOPERM") || reason.contains("unknown command")
}
