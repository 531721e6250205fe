//! Looks at the ring all the while, from outside: does the balance add up in every snapshot, and who is in office?

use std::time::Duration;

use anyhow::{Result, bail};
use estafeta::{Endpoint, Health, MemberView, Ring, RingName, Role, Snapshot};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::copy::Pids;
use super::now_ms;

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
    /// Snapshots whose balance did not add up, told.
    pub unbalanced: Vec<String>,
}

/// What is known of the ring right now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    pub generator: Option<u64>,
    pub published: u64,
    /// Members that are alive, readers of errors aside.
    pub copies: usize,
    /// Nothing waits or is in flight, although the balance says that something should.
    pub bereft: bool,
}

pub struct Watch {
    pub endpoint: Endpoint,
    pub ring: RingName,
    pub pids: Pids,
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
            *ring = Ring::connect(self.endpoint.clone(), self.ring.clone()).await.ok();
        }
        let snapshot = ring.as_ref()?.snapshot(0).await.ok();
        if snapshot.is_none() {
            *ring = None;
        }
        snapshot
    }

    fn note(&self, snapshot: &Snapshot, seen: &mut Seen) -> Result<()> {
        let stranger = {
            let pids = self.pids.lock().expect("no panic while held");
            let is_ours = |pid: u64| u32::try_from(pid).is_ok_and(|pid| pids.contains(&pid));
            snapshot.members.iter().find(|member| !is_ours(member.pid)).cloned()
        };
        if let Some(member) = stranger {
            bail!(
                "a stranger joined the ring (member {} of {}, pid {}): chaos needs a ring of its own",
                member.id,
                member.host,
                member.pid
            );
        }
        let errors = snapshot.errors_kept + snapshot.errors_taken;
        seen.samples.push(Sample {
            at_ms: now_ms(),
            published: snapshot.published,
            settled: snapshot.done + errors,
        });
        if !snapshot.balanced {
            seen.unbalanced.push(format!(
                "published {} but waiting {} + in flight {} + done {} + errors {errors}",
                snapshot.published, snapshot.waiting, snapshot.in_flight, snapshot.done
            ));
        }
        let generator = snapshot.generator.as_ref().map(|generator| generator.pid);
        let works = |member: &&MemberView| member.role != Role::Reader && member.state == Health::Well;
        let copies = snapshot.members.iter().filter(works).count();
        let bereft = !snapshot.balanced && snapshot.waiting + snapshot.in_flight == 0;
        self.glance.send_replace(Glance { generator, published: snapshot.published, copies, bereft });
        Ok(())
    }
}
