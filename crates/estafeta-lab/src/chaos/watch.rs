//! Takes snapshots of a ring during the whole run: does each one balance, and which node is in office?

use std::time::Duration;

use anyhow::{Result, bail};
use estafeta::{Health, MemberView, Ring, Role, Snapshot};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::node::NodeTemplate;
use crate::clock::now_ms;
use crate::text::grouped;

/// The ring at one moment.
#[derive(Clone, Copy, Debug)]
pub struct CountSample {
    pub at_ms: u64,
    pub published: u64,
    pub settled: u64,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub samples: Vec<CountSample>,
    /// The count of published messages fell from the first number to the second.
    pub fell: Option<(u64, u64)>,
    /// Descriptions of the snapshots that did not balance.
    pub unbalanced: Vec<String>,
    /// By how much Redis' clock is ahead of the clock of this machine, at most.
    pub clock_ahead_ms: Option<i64>,
}

impl Seen {
    /// Redis looked at its clock after it was asked. The least difference is the best estimate.
    fn note_clock(&mut self, asked_ms: u64, redis_ms: u64) {
        let ahead = redis_ms.cast_signed() - asked_ms.cast_signed();
        self.clock_ahead_ms = Some(self.clock_ahead_ms.map_or(ahead, |least| least.min(ahead)));
    }

    pub fn note(&mut self, snapshot: &Snapshot) {
        let (published, settled) = (snapshot.published, settled(snapshot));
        if let Some(before) = self.samples.last().filter(|before| before.published > published) {
            self.fell.get_or_insert((before.published, published));
        }
        self.samples.push(CountSample { at_ms: now_ms(), published, settled });
        if !snapshot.balanced {
            let waiting = snapshot.waiting + snapshot.later;
            let counts = [published, waiting, snapshot.in_flight, settled].map(grouped);
            let [published, waiting, in_flight, settled] = counts;
            self.unbalanced.push(format!(
                "{published} published, but {waiting} waiting, {in_flight} in flight and {settled} settled"
            ));
        }
    }
}

fn settled(snapshot: &Snapshot) -> u64 {
    snapshot.done + snapshot.cancelled + snapshot.errors_kept + snapshot.errors_taken
}

/// The current state of the ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    /// The process id of the generator, if it is alive.
    pub generator: Option<u64>,
    pub published: u64,
    /// Those messages that generators have published.
    pub generated: u64,
    pub settled: u64,
    /// All members except readers.
    pub members: usize,
    /// Those members that are alive.
    pub nodes: usize,
    /// No message waits or is in flight, although by the balance some should.
    pub message_lost: bool,
}

pub struct RingWatch {
    pub ring: Ring,
    pub template: NodeTemplate,
    pub glance: watch::Sender<Glance>,
}

const PACE: Duration = Duration::from_millis(50);

impl RingWatch {
    /// Watches until `stop` is cancelled. Fails if a foreign member is in the ring, because no record would show its
    /// work.
    pub async fn run(self, stop: CancellationToken) -> Result<Seen> {
        let mut seen = Seen::default();
        while !stop.is_cancelled() {
            let asked_ms = now_ms();
            // Redis may not answer while it is under attack.
            if let Ok(snapshot) = self.ring.snapshot(0).await {
                seen.note_clock(asked_ms, snapshot.time_ms);
                self.note(&snapshot, &mut seen)?;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PACE) => {}
            }
        }
        Ok(seen)
    }

    fn note(&self, snapshot: &Snapshot, seen: &mut Seen) -> Result<()> {
        if let Some(member) = self.template.foreign_member_in(snapshot) {
            let MemberView { id, host, pid, .. } = member;
            bail!(
                "a foreign node joined the ring (member {id} of {host}, pid {pid}): expected only nodes of chaos"
            );
        }
        seen.note(snapshot);
        let nodes = || snapshot.members.iter().filter(|member| member.role != Role::Reader);
        let alive = || nodes().filter(|member| member.state == Health::Alive);
        self.glance.send_replace(Glance {
            generator: alive().find(|member| member.role == Role::Generator).map(|generator| generator.pid),
            published: snapshot.published,
            generated: snapshot.published.saturating_sub(snapshot.submitted),
            settled: settled(snapshot),
            members: nodes().count(),
            nodes: alive().count(),
            message_lost: !snapshot.balanced && snapshot.waiting + snapshot.later + snapshot.in_flight == 0,
        });
        Ok(())
    }
}
