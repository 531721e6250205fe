//! Several nodes that work on one ring while its Redis moves, and what became of each message.

use std::time::Duration;

use estafeta::{Config, Ring, Snapshot};

use super::{Counter, Keep, RunningNode, eventually};

/// Nodes that handle what one of them generates.
pub struct LiveRing {
    pub config: Config,
    pub nodes: Vec<RunningNode>,
    pub ring: Ring,
}

/// Settings for a ring at this address: ticks are fast, and the generator handles, too.
pub fn config_at(url: &str) -> Config {
    let mut config = Config::on(url, "estafeta").unwrap();
    config.interval = Duration::from_millis(10);
    config
}

impl LiveRing {
    /// Starts nodes, and waits until all of them are members and messages flow.
    pub async fn start(config: Config, nodes: usize) -> Self {
        let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await.unwrap();
        let mut live = Self { config, nodes: Vec::new(), ring };
        for _ in 0..nodes {
            live.add_node();
        }
        eventually(&live.ring, "all nodes work", |ring| ring.members.len() == nodes && ring.done > 10).await;
        live
    }

    pub fn add_node(&mut self) {
        self.nodes.push(RunningNode::start(self.config.clone(), Counter(0), Keep::default()));
    }

    /// Waits until `count` more messages are done.
    pub async fn progress(&self, count: u64) -> Snapshot {
        let before = self.snapshot().await.done;
        eventually(&self.ring, "messages are done", |ring| ring.done > before + count).await
    }

    pub async fn snapshot(&self) -> Snapshot {
        eventually(&self.ring, "a snapshot", |_| true).await
    }

    /// Stops all nodes. Every message must have exactly one outcome, and no node may have been taken for dead.
    pub async fn end_with_all_handled_once(mut self) {
        let mut lines = Vec::new();
        for node in std::mem::take(&mut self.nodes) {
            let notices = node.notices.clone();
            node.stop().await.unwrap();
            lines.extend(notices.all());
        }
        let after = self.snapshot().await;
        assert_eq!((after.buried, after.lost, after.in_flight), (0, 0, 0), "{after:?}");
        assert!(!lines.iter().any(|line| line.starts_with("DeclaredDead")), "{after:?}");
        let mut ids: Vec<u64> = lines.iter().filter_map(|line| handled_id(line)).collect();
        ids.sort_unstable();
        let (count, first) = (ids.len() as u64, ids.first().copied());
        ids.dedup();
        assert_eq!(ids.len() as u64, count, "handled twice");
        assert_eq!((count, first), (after.done, Some(1)), "{after:?}");
        assert_eq!(after.published, after.done + after.waiting, "{after:?}");
    }
}

fn handled_id(line: &str) -> Option<u64> {
    line.strip_prefix("handled #")?.split('.').next()?.parse().ok()
}
