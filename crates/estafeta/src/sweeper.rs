//! Buries dead members, so that what they held goes back to the queue.
//!
//! The [`Judge`] looks, remembers whom it missed and since when, and asks Redis to bury those who stayed away for the
//! grace, or whose lease ran out. `bury` looks again itself, so a verdict can be late but not wrong by more than a
//! repeat. The generator judges all the time; every copy does so once when it joins, in case all others died; and
//! `cleanTemp` does it on demand.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error::Result;
use crate::member_id::{Incarnation, MemberId};
use crate::observer::{Notice, Observer};
use crate::standing::Standing;
use crate::store::{Bury, Facts, Health, Store, Suspects};

/// A member that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burial {
    /// Its number.
    pub member: MemberId,
    /// What it held and went back where it came from.
    pub returned: u64,
    /// What became an error because its attempts are used up.
    pub gave_up: u64,
}

pub(crate) struct Judge {
    store: Store,
    config: Arc<Config>,
    /// Where the judge finds out who it is, if it is a member that can oversleep.
    standing: Option<watch::Receiver<Standing>>,
    suspected: HashMap<Incarnation, Evidence>,
}

/// What the judge remembers of a member that did not look well.
struct Evidence {
    facts: Facts,
    /// Since when it has been missed without a break, in Redis' time.
    absent_since_ms: Option<u64>,
}

impl Judge {
    pub fn new(store: Store, config: Arc<Config>, standing: Option<watch::Receiver<Standing>>) -> Self {
        Self { store, config, standing, suspected: HashMap::new() }
    }

    /// One look at everybody. Says who was buried, and whether somebody is missed whose grace is not over yet.
    pub async fn look(&mut self) -> Result<(Vec<Burial>, bool)> {
        let Suspects { now_ms, unrung, list } = self.store.suspects(self.config.lease).await?;
        if unrung {
            self.store.ring_bell().await?;
        }
        self.suspected.retain(|member, _| list.iter().any(|(suspect, _)| suspect == member));
        if !self.store.link().is_settled(self.config.settling()) {
            self.suspected.clear();
            return Ok((Vec::new(), true));
        }
        let (mut burials, mut undecided) = (Vec::new(), false);
        for (suspect, health) in list {
            match self.try_one(suspect, health, now_ms).await? {
                Verdict::Buried(burial) => burials.push(burial),
                Verdict::Undecided => undecided = true,
                Verdict::Alive => {}
            }
        }
        Ok((burials, undecided))
    }

    async fn try_one(&mut self, suspect: Incarnation, health: Health, now_ms: u64) -> Result<Verdict> {
        if !self.suspected.contains_key(&suspect) {
            // One that somebody deleted half of has no facts; `bury` knows what to do about it.
            let facts = self.store.facts(suspect).await?.unwrap_or_default();
            self.suspected.insert(suspect, Evidence { facts, absent_since_ms: None });
        }
        let evidence = self.suspected.get_mut(&suspect).expect("it was just put there");
        let grace = self.config.grace;
        if health == Health::Absent && evidence.facts.lanes > 0 {
            if !evidence.facts.presence {
                return Ok(Verdict::Alive);
            }
            let since = *evidence.absent_since_ms.get_or_insert(now_ms);
            if Duration::from_millis(now_ms.saturating_sub(since)) < grace {
                return Ok(Verdict::Undecided);
            }
        } else {
            evidence.absent_since_ms = None;
            if health == Health::Ahead && evidence.facts.lease > self.config.lease {
                return Ok(Verdict::Alive);
            }
        }
        let since = evidence.absent_since_ms.unwrap_or(0);
        let judge = self.standing.as_ref().and_then(|standing| standing.borrow().identity());
        let judge = judge.map(|judge| judge.incarnation);
        Ok(match self.store.bury(suspect, &evidence.facts, since, grace, judge).await? {
            Bury::Buried { number, returned, gave_up } => {
                Verdict::Buried(Burial { member: number, returned, gave_up })
            }
            Bury::Alive | Bury::Gone => Verdict::Alive,
        })
    }

    /// Looks until everybody who was missed is either back or buried, or until `end`.
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

enum Verdict {
    Buried(Burial),
    /// Missed, but not for long enough.
    Undecided,
    Alive,
}

pub(crate) struct Sweeper<O> {
    pub judge: Judge,
    pub interval: Duration,
    pub observer: Arc<O>,
    pub standing: watch::Receiver<Standing>,
}

impl<O: Observer> Sweeper<O> {
    pub async fn run(mut self, end: CancellationToken) -> Result<()> {
        let burials = self.judge.sweep(&end).await?;
        self.tell(&burials);
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                _ = self.standing.wait_for(|standing| standing.epoch().is_some()) => {}
            }
            let (burials, _) = self.judge.look().await?;
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
