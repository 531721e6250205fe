//! Nodes in a test: ends the term of a generator, and waits until the ring looks as expected.

use std::time::{Duration, Instant};

use super::{PAUSE, TestRing, in_vain};
use crate::error::Result;
use crate::identity::Incarnation;
use crate::inspect::Snapshot;
use crate::steps::Bury;

/// The member in office, and the epoch of its term.
type TermInOffice = (Incarnation, u64);

impl TestRing {
    /// Ends the term of the generator as if it had died, and waits until the next term has begun. The ring buries the
    /// generator: what it publishes from then on is refused, and the messages in its hand go back to the queue with one
    /// more death. Its node then joins again, like one that was frozen.
    ///
    /// The next generator is another node, usually the one that joined first. If there is only one node, it becomes the
    /// generator again.
    ///
    /// If no node is in office, this function waits for one first. It fails after 30 s without one.
    pub async fn take_over(&self) -> Result<()> {
        let (generator, epoch) = self.term(|_| true).await?;
        self.bury(generator).await?;
        self.term(|(_, next)| next > epoch).await.map(drop)
    }

    /// Waits until the function returns true for a snapshot of the ring, and returns that snapshot. Fails after 30 s.
    ///
    /// ```no_run
    /// # async fn example(ring: estafeta::testing::TestRing) -> Result<(), estafeta::Error> {
    /// ring.wait_until(|ring| ring.done == 10 && ring.errors_kept == 0).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_until(&self, mut fits: impl FnMut(&Snapshot) -> bool) -> Result<Snapshot> {
        let started = Instant::now();
        loop {
            let snapshot = self.ring.snapshot(0).await?;
            if fits(&snapshot) {
                return Ok(snapshot);
            }
            if started.elapsed() > self.patience {
                let terms: Vec<_> =
                    snapshot.balance().iter().map(|(name, count)| format!("{count} {name}")).collect();
                let (published, members) = (snapshot.published, snapshot.members.len());
                let got = format!("{published} published, {}, {members} members", terms.join(", "));
                return Err(in_vain("another state of the ring", self.patience, got));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits for a term that fits.
    async fn term(&self, fits: impl Fn(TermInOffice) -> bool) -> Result<TermInOffice> {
        let started = Instant::now();
        let mut query = redis::cmd("HMGET");
        query.arg(&self.ring.store().keys().ledger).arg("member").arg("epoch");
        loop {
            let (member, epoch): (Option<String>, Option<u64>) = self.ring.store().read(&query).await?;
            let term = member.and_then(|member| member.parse().ok()).zip(epoch);
            if let Some(term) = term.filter(|term| fits(*term)) {
                return Ok(term);
            }
            if started.elapsed() > self.patience {
                return Err(in_vain("a node in office", self.patience, "none"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Buries a member, even if it is alive. If a beat of that member prolongs its lease in between, this function
    /// tries again.
    pub(super) async fn bury(&self, member: Incarnation) -> Result<()> {
        let store = self.ring.store();
        let mut expire = redis::cmd("ZADD");
        expire.arg(&store.keys().members).arg("XX").arg(0).arg(member.to_string());
        loop {
            store.send(&expire).await?;
            if !matches!(store.bury(member, 0, Duration::ZERO, None).await?, Bury::Alive) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_in_vain_ends_with_what_was_found() {
        let ring = TestRing::start().await.unwrap();
        let ring = TestRing { patience: Duration::from_millis(20), ..ring };
        ring.publish(&1).await.unwrap();
        let error = ring.take_over().await.unwrap_err().to_string();
        assert_eq!(error, "test ring: expected a node in office within 20ms, got none");
        let error = ring.wait_until(|ring| ring.done == 1).await.unwrap_err().to_string();
        let got = "1 published, 1 waiting, 0 in flight, 0 done, 0 errors kept, 0 errors taken, 0 members";
        assert_eq!(error, format!("test ring: expected another state of the ring within 20ms, got {got}"));
    }
}
