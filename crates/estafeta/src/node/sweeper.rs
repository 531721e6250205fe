//! Buries dead members, so that the messages they held go back to the queue.
//!
//! The [`FailureDetector`] looks at the members and remembers which ones it missed, and since when. It asks Redis to
//! bury members that stayed away for the grace period or whose lease expired. `bury` checks again itself. A decision
//! can therefore be late, but a wrong one costs no more than a repeated delivery. The generator runs the failure
//! detector all the time. Every node runs it once when it joins, in case all others died. `cleanTemp` runs it on
//! demand.
//!
//! A ring may have no living generator: all its nodes may be forbidden to generate, or the only node that could is dead.
//! All nodes then share the watch. Each looks after a random pause that grows with the number of members, so the cost is
//! about that of a generator. No node has a special part that another one would have to take over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::state::MemberState;
use crate::config::Config;
use crate::error::Result;
use crate::identity::{Incarnation, MemberId};
use crate::observer::{Notice, Observers};
use crate::redis::Store;
use crate::steps::{Bury, Facts, Health, Suspects};

/// A member that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The members of which it has warned, because their keys are damaged.
    damaged: HashSet<Incarnation>,
}

/// What the failure detector remembers about a member that did not look alive.
struct Suspicion {
    facts: Facts,
    /// Since when the member has been missed without a break, in Redis' time.
    absent_since_ms: Option<u64>,
}

impl FailureDetector {
    pub fn new(store: Store, config: Arc<Config>, state: Option<watch::Receiver<MemberState>>) -> Self {
        Self { store, config, state, suspected: HashMap::new(), damaged: HashSet::new() }
    }

    /// Looks at all members once. Returns which ones were buried, and whether any is missed whose grace period is not
    /// over.
    pub async fn look(&mut self) -> Result<(Vec<Burial>, bool)> {
        let Suspects { now_ms, needs_wakeup, list } = self.store.suspects(self.config.lease).await?;
        if needs_wakeup {
            self.store.wake().await?;
        }
        self.suspected.retain(|member, _| list.iter().any(|(suspect, _)| suspect == member));
        self.damaged.retain(|member| list.iter().any(|(suspect, _)| suspect == member));
        if !self.store.connection().is_trusted(self.config.trust_delay()) {
            self.suspected.clear();
            return Ok((Vec::new(), !list.is_empty()));
        }
        let (mut burials, mut undecided) = (Vec::new(), false);
        for (suspect, health) in list {
            match self.decide(suspect, health, now_ms).await? {
                SuspectDecision::Buried(burial) => burials.push(burial),
                SuspectDecision::Undecided => undecided = true,
                SuspectDecision::Alive => {}
            }
        }
        Ok((burials, undecided))
    }

    async fn decide(&mut self, suspect: Incarnation, health: Health, now_ms: u64) -> Result<SuspectDecision> {
        if !self.suspected.contains_key(&suspect) {
            let facts = match self.store.facts(suspect).await? {
                Ok(facts) => facts,
                Err(damage) => return Ok(self.skip(suspect, &damage)),
            };
            self.suspected.insert(suspect, Suspicion { facts, absent_since_ms: None });
        }
        let suspicion = self.suspected.get_mut(&suspect).expect("it was just put there");
        let grace = self.config.grace;
        if health == Health::Absent && suspicion.facts.lanes > 0 {
            if !suspicion.facts.presence {
                return Ok(SuspectDecision::Alive);
            }
            let since = *suspicion.absent_since_ms.get_or_insert(now_ms);
            if Duration::from_millis(now_ms.saturating_sub(since)) < grace {
                return Ok(SuspectDecision::Undecided);
            }
        } else {
            suspicion.absent_since_ms = None;
            if health == Health::Ahead && suspicion.facts.lease > self.config.lease {
                return Ok(SuspectDecision::Alive);
            }
        }
        let since = suspicion.absent_since_ms.unwrap_or(0);
        let detector = self.state.as_ref().and_then(|state| state.borrow().identity());
        let detector = detector.map(|detector| detector.incarnation);
        Ok(match self.store.bury_unless_damaged(suspect, since, grace, detector).await? {
            Ok(Bury::Buried { number, returned, gave_up }) => {
                SuspectDecision::Buried(Burial { member: number, returned, gave_up })
            }
            Ok(Bury::Alive | Bury::Gone) => SuspectDecision::Alive,
            Err(damage) => self.skip(suspect, &damage),
        })
    }

    /// Leaves a member alone that a foreign client has damaged, and warns of it once. Others may be dead as well.
    fn skip(&mut self, suspect: Incarnation, damage: &str) -> SuspectDecision {
        if self.damaged.insert(suspect) {
            let key = self.store.keys().member(suspect);
            tracing::warn!("cannot judge the member with the key {key}: {damage}");
        }
        SuspectDecision::Alive
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

enum SuspectDecision {
    Buried(Burial),
    /// The member is missed, but not for long enough.
    Undecided,
    Alive,
}

pub(crate) struct Sweeper {
    pub detector: FailureDetector,
    pub config: Arc<Config>,
    pub observers: Arc<Observers>,
    pub state: watch::Receiver<MemberState>,
    /// The number of members while the ring has no living generator, and None otherwise.
    pub unguarded: watch::Receiver<Option<u64>>,
}

impl Sweeper {
    pub async fn run(mut self, end: CancellationToken) -> Result<()> {
        let burials = self.detector.sweep(&end).await?;
        self.tell(&burials);
        let mut undecided = false;
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                () = self.next_look(undecided) => {}
            }
            let found;
            (found, undecided) = self.detector.look().await?;
            self.tell(&found);
            if self.state.borrow().epoch().is_some() {
                tokio::select! {
                    () = end.cancelled() => return Ok(()),
                    () = tokio::time::sleep(self.config.sweep) => {}
                }
            }
        }
    }

    /// Waits until this node has to look at the members: at once if it is the generator, and after a random pause if
    /// the ring has no living generator. `undecided`: its last look missed a member, and must be confirmed when the
    /// grace period is over.
    async fn next_look(&mut self, undecided: bool) {
        loop {
            tokio::select! {
                () = changes(&mut self.state, |state| state.epoch().is_some()) => return,
                () = changes(&mut self.unguarded, Option::is_some) => {}
            }
            let members = self.unguarded.borrow().unwrap_or(1);
            let pause = match undecided {
                true => self.config.grace,
                false => shared_pause(self.config.sweep, members, rand::random()),
            };
            tokio::select! {
                () = changes(&mut self.state, |state| state.epoch().is_some()) => return,
                () = changes(&mut self.unguarded, Option::is_none) => {}
                () = tokio::time::sleep(pause) => return,
            }
        }
    }

    fn tell(&self, burials: &[Burial]) {
        for &Burial { member, returned, gave_up } in burials {
            self.observers.notice(Notice::Buried { member, returned, gave_up });
        }
    }
}

/// Waits until the value is as described. If the heartbeat has ended, it never will be.
async fn changes<T>(value: &mut watch::Receiver<T>, fits: impl FnMut(&T) -> bool) {
    if value.wait_for(fits).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// How long one of `members` nodes pauses if all of them look for dead members. Together they look about twice per
/// `sweep`, however many they are. `chance` is a random number from 0 to 1. Random pauses keep the nodes apart.
fn shared_pause(sweep: Duration, members: u64, chance: f64) -> Duration {
    sweep.mul_f64(members.max(1) as f64 / 2.0 * (0.5 + chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_share_the_watch_look_twice_per_sweep_together() {
        let sweep = Duration::from_millis(100);
        for members in [1, 2, 3, 1000] {
            let pause = |chance| shared_pause(sweep, members, chance).as_secs_f64();
            let (shortest, mean, longest) = (pause(0.0), pause(0.5), pause(1.0));
            assert!(
                (members as f64 / mean - 20.0).abs() < 1e-6,
                "20 looks per second with {members} members"
            );
            assert!(shortest * 2.0 <= mean && mean * 1.5 <= longest + 1e-9, "{shortest} {mean} {longest}");
        }
        assert_eq!(shared_pause(sweep, 0, 0.5), shared_pause(sweep, 1, 0.5), "a list that was just emptied");
    }
}
