//! Nodes in a test ring.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use estafeta::testing::TestRing;
use estafeta::{Batch, Failure, Feed, Job};

use super::HOUR;

/// The lines 0, 1, 2 ... and so on, each in a batch. The checkpoint is the number of lines.
struct Lines {
    at: usize,
    opened: Arc<Mutex<Vec<Option<usize>>>>,
}

const LINES: usize = 60;

impl Feed for Lines {
    type Body = String;
    type Checkpoint = usize;

    async fn open(&mut self, from: Option<usize>) -> Result<(), Failure> {
        self.opened.lock().unwrap().push(from);
        self.at = from.unwrap_or(0);
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<String, usize>, Failure> {
        if self.at == LINES {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        self.at += 1;
        Ok(Batch::one(format!("line {}", self.at)).checkpoint(self.at))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_publishes_each_line_once_across_take_overs() {
    // With a long lease, no node is taken for dead because the machine is busy.
    let ring = TestRing::start().await.unwrap().configure(|config| config.lease = HOUR);
    let opened = Arc::<Mutex<Vec<_>>>::default();
    for _ in 0..2 {
        let lines = Lines { at: 0, opened: Arc::clone(&opened) };
        tokio::spawn(ring.node().generate(lines).until(std::future::pending()));
    }
    for lines in [10, 30] {
        ring.wait_until(|ring| ring.published >= lines).await.unwrap();
        ring.take_over().await.unwrap();
    }
    let snapshot = ring.wait_until(|ring| ring.published == LINES as u64).await.unwrap();
    let expected: Vec<String> = (1..=LINES).map(|line| format!("line {line}")).collect();
    assert_eq!(ring.published::<String>().await.unwrap(), expected);
    assert_eq!((snapshot.buried, snapshot.takeovers), (2, 2));
    let opened = opened.lock().unwrap();
    assert!(matches!(opened[..], [None, Some(10..), Some(30..)]), "{opened:?}");
}

#[tokio::test]
async fn a_node_alone_takes_over_from_itself() {
    let ring = TestRing::start().await.unwrap();
    let lines = Lines { at: 0, opened: Arc::default() };
    let node = ring.node().generate(lines).handle(async |_: Job<String>| Ok(()));
    tokio::spawn(node.until(std::future::pending()));
    // Perhaps nobody is in office yet.
    for _ in 0..2 {
        let before = ring.ring().snapshot(0).await.unwrap().generator.map(|generator| generator.epoch);
        ring.take_over().await.unwrap();
        let after = ring.ring().snapshot(0).await.unwrap().generator.map(|generator| generator.epoch);
        assert!(after > before, "{before:?} {after:?}");
    }
    let snapshot = ring.wait_until(|ring| ring.done == LINES as u64).await.unwrap();
    assert_eq!(snapshot.published, LINES as u64);
    assert!(snapshot.buried >= 2);
}
