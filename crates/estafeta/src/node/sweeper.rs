//! Buries dead members, so that the messages they held go back to the queue.
//!
//! The [`FailureDetector`] looks at the members and remembers which ones it missed, and since when. It asks Redis to
//! bury members that stayed away for the grace period or whose lease expired. `bury` checks again itself. A decision
//! can therefore be late, but a wrong one costs no more than a repeated delivery. The generator runs the failure
//! detector all the time. Every node runs it once when it joins, in case all others died. `cleanTemp` runs it on
//! demand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::state::MemberState;
use crate::config::Config;
use crate::error::Result;
use crate::identity::{Incarnation, MemberId};
use crate::observer::{Notice, Observer};
use crate::redis::Store;
use crate::steps::{Bury, Facts, Health, Suspects};

/// A member that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burial {
    /// Its number.
    pub member: MemberId,
    /// Messages that it held and that went back where they came from.
    pub returned: u64,
    /// Messages that became dead letters because too many nodes died with them.
    pub gave_up: u64,
}

pub(crate) struct FailureDetector {
    store: Store,
    config: Arc<Config>,
    /// Where the failure detector reads its own identity, if it is a member that can oversleep.
    state: Option<watch::Receiver<MemberState>>,
    suspected: HashMap<Incarnation, Suspicion>,
}

/// What the failure detector remembers about a member that did not look alive.
struct Suspicion {
    facts: Facts,
    /// Since when the member has been missed without a break, in Redis' time.
    absent_since_ms: Option<u64>,
}

impl FailureDetector {
    pub fn new(store: Store, config: Arc<Config>, state: Option<watch::Receiver<MemberState>>) -> Self {
        Self { store, config, state, suspected: HashMap::new() }
    }

    /// Looks at all members once. Returns which ones were buried, and whether any is missed whose grace period is not
    /// over.
    pub async fn look(&mut self) -> Result<(Vec<Burial>, bool)> {
        let Suspects { now_ms, needs_wakeup, list } = self.store.suspects(self.config.lease).await?;
        if needs_wakeup {
            self.store.wake().await?;
        }
        self.suspected.retain(|member, _| list.iter().any(|(suspect, _)| suspect == member));
        if !self.store.connection().is_settled(self.config.settling()) {
            self.suspected.clear();
            return Ok((Vec::new(), true));
        }
        let (mut burials, mut undecided) = (Vec::new(), false);
        for (suspect, health) in list {
            match self.decide(suspect, health, now_ms).await? {
                Decision::Buried(burial) => burials.push(burial),
                Decision::Undecided => undecided = true,
                Decision::Alive => {}
            }
        }
        Ok((burials, undecided))
    }

    async fn decide(&mut self, suspect: Incarnation, health: Health, now_ms: u64) -> Result<Decision> {
        if !self.suspected.contains_key(&suspect) {
            // A member whose record was half deleted has no facts. `bury` handles that case.
            let facts = self.store.facts(suspect).await?.unwrap_or_default();
            self.suspected.insert(suspect, Suspicion { facts, absent_since_ms: None });
        }
        let suspicion = self.suspected.get_mut(&suspect).expect("it was just put there");
        let grace = self.config.grace;
        if health == Health::Absent && suspicion.facts.lanes > 0 {
            if !suspicion.facts.presence {
                return Ok(Decision::Alive);
            }
            let since = *suspicion.absent_since_ms.get_or_insert(now_ms);
            if Duration::from_millis(now_ms.saturating_sub(since)) < grace {
                return Ok(Decision::Undecided);
            }
        } else {
            suspicion.absent_since_ms = None;
            if health == Health::Ahead && suspicion.facts.lease > self.config.lease {
                return Ok(Decision::Alive);
            }
        }
        let since = suspicion.absent_since_ms.unwrap_or(0);
        let detector = self.state.as_ref().and_then(|state| state.borrow().identity());
        let detector = detector.map(|detector| detector.incarnation);
        Ok(match self.store.bury(suspect, since, grace, detector).await? {
            Bury::Buried { number, returned, gave_up } => {
                Decision::Buried(Burial { member: number, returned, gave_up })
            }
            Bury::Alive | Bury::Gone => Decision::Alive,
        })
    }

    /// Looks until every missed member is either back or buried, or until `end`.
    pub async fn sweep(&mut self, end: &CancellationToken) -> Result<Vec<Burial>> {
        let mut burials = Vec::new();
        loop {
            let (found, undecided) = self.look().await?;
            burials.extend(found);
            if !undecided || end.is_cancelled() {
                return Ok(burials);
            }
            tokio::time::sleep(self.config.grace / 4).await;
        }
    }
}

enum Decision {
    Buried(Burial),
    /// The member is missed, but not for long enough.
    Undecided,
    Alive,
}

pub(crate) struct Sweeper<O> {
    pub detector: FailureDetector,
    pub interval: Duration,
    pub observer: Arc<O>,
    pub state: watch::Receiver<MemberState>,
}

impl<O: Observer> Sweeper<O> {
    pub async fn run(mut self, end: CancellationToken) -> Result<()> {
        let burials = self.detector.sweep(&end).await?;
        self.tell(&burials);
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                _ = self.state.wait_for(|state| state.epoch().is_some()) => {}
            }
            let (burials, _) = self.detector.look().await?;
            self.tell(&burials);
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                () = tokio::time::sleep(self.interval) => {}
            }
        }
    }

    fn tell(&self, burials: &[Burial]) {
        for &Burial { member, returned, gave_up } in burials {
            self.observer.notice(Notice::Buried { member, returned, gave_up });
        }
    }
}
