//! Looks at the ring all the while, from outside: does the balance add up in every snapshot, and who is in office?

use std::time::Duration;

use anyhow::{Result, bail};
use estafeta::{Health, MemberView, Ring, Role, Snapshot};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::copy::Family;
use crate::duration::now_ms;

/// The ring at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub at_ms: u64,
    pub published: u64,
    pub settled: u64,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub samples: Vec<Sample>,
    /// The count of published messages fell from the first to the second.
    pub fell: Option<(u64, u64)>,
    /// Snapshots whose balance did not add up, told.
    pub unbalanced: Vec<String>,
}

impl Seen {
    pub fn note(&mut self, snapshot: &Snapshot) {
        let (published, settled) = (snapshot.published, settled(snapshot));
        if let Some(before) = self.samples.last().filter(|before| before.published > published) {
            self.fell.get_or_insert((before.published, published));
        }
        self.samples.push(Sample { at_ms: now_ms(), published, settled });
        if !snapshot.balanced {
            let (waiting, in_flight) = (snapshot.waiting, snapshot.in_flight);
            self.unbalanced.push(format!(
                "{published} published, but {waiting} wait, {in_flight} are in flight and {settled} settled"
            ));
        }
    }
}

fn settled(snapshot: &Snapshot) -> u64 {
    snapshot.done + snapshot.errors_kept + snapshot.errors_taken
}

/// What is known of the ring right now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    /// The process in office, if it is well.
    pub generator: Option<u64>,
    pub published: u64,
    pub settled: u64,
    /// Members, readers of errors aside.
    pub members: usize,
    /// Those among them that are well.
    pub copies: usize,
    /// Nothing waits or is in flight, although the balance says that something should.
    pub bereft: bool,
}

pub struct Watch {
    pub family: Family,
    pub glance: watch::Sender<Glance>,
}

const PACE: Duration = Duration::from_millis(50);

impl Watch {
    /// Looks until told to stop. Fails if a stranger is in the ring: it is not ours alone.
    pub async fn run(self, stop: CancellationToken) -> Result<Seen> {
        let mut seen = Seen::default();
        let mut ring = None;
        while !stop.is_cancelled() {
            if let Some(snapshot) = self.look(&mut ring).await {
                self.note(&snapshot, &mut seen)?;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PACE) => {}
            }
        }
        Ok(seen)
    }

    /// None while Redis does not answer.
    async fn look(&self, ring: &mut Option<Ring>) -> Option<Snapshot> {
        if ring.is_none() {
            *ring = Ring::connect(self.family.endpoint.clone(), self.family.ring.clone()).await.ok();
        }
        let snapshot = ring.as_ref()?.snapshot(0).await.ok();
        if snapshot.is_none() {
            *ring = None;
        }
        snapshot
    }

    fn note(&self, snapshot: &Snapshot, seen: &mut Seen) -> Result<()> {
        if let Some(member) = self.family.stranger_in(snapshot) {
            let MemberView { id, host, pid, .. } = member;
            bail!(
                "a stranger joined the ring (member {id} of {host}, pid {pid}): chaos needs a ring of its own"
            );
        }
        seen.note(snapshot);
        let copies = || snapshot.members.iter().filter(|member| member.role != Role::Reader);
        let well = || copies().filter(|member| member.state == Health::Well);
        self.glance.send_replace(Glance {
            generator: well().find(|member| member.role == Role::Generator).map(|generator| generator.pid),
            published: snapshot.published,
            settled: settled(snapshot),
            members: copies().count(),
            copies: well().count(),
            bereft: !snapshot.balanced && snapshot.waiting + snapshot.in_flight == 0,
        });
        Ok(())
    }
}
