//! The network between one node and Redis fails. Each node has its own line to Redis, with a proxy in it.
//!
//! A line can be slow, pass a few bytes at a time, be cut, go silent, or lose the reply to a step that Redis has
//! applied. If a line is cut, or stays silent until the lease of its node ends, the ring replaces the node. The node
//! joins again when the line works. If a line is only slow, or is silent for less than the lease, no node is replaced.

use std::time::Duration;

use estafeta_lab::proxy::LinkCondition;
use estafeta_testbed::{Process, eventually};

use crate::support::line::Line;
use crate::support::recovery::{BUSY, SLOW_HANDLERS, await_back, await_misses, misses_of};
use crate::support::{ProgramRing, SOON};

/// Like [`BUSY`], with a lease that does not end merely because the line or the machine is slow.
const LONG_LEASE: [&str; 5] = ["--interval", "5ms", "--journal", "--lease", "10s"];

struct ProxiedRing {
    ring: ProgramRing,
    nodes: Vec<Process>,
    lines: Vec<Line>,
}

impl ProxiedRing {
    fn new(args: &[&str]) -> Self {
        let ring = ProgramRing::new();
        let lines: Vec<_> = (0..3).map(|_| Line::to(&ring.redis)).collect();
        let nodes = lines.iter().map(|line| line.node(args)).collect();
        ring.await_progress();
        Self { ring, nodes, lines }
    }

    fn set_all(&self, condition: LinkCondition) {
        self.lines.iter().for_each(|line| line.proxy.set(condition));
    }

    /// The index of the generator among the nodes, or of a handler.
    fn index_of_node(&self, generates: bool) -> usize {
        let generator = self.ring.generator(&self.nodes).pid();
        self.nodes.iter().position(|node| (node.pid() == generator) == generates).unwrap()
    }

    /// Disturbs the line of the generator until the node is replaced, then the line of a handler until it is buried.
    /// Both nodes join again.
    fn disturb_until_given_up(&self, condition: LinkCondition) {
        for generates in [true, false] {
            let at = self.index_of_node(generates);
            let (epoch, before) = (self.ring.epoch(), self.ring.status());
            self.lines[at].proxy.set(condition);
            self.ring.eventually(SOON, "the node is given up", |status| {
                let replaced = status["generator"]["epoch"].as_u64() > Some(epoch);
                status["buried"].as_u64() > before["buried"].as_u64() && (replaced || !generates)
            });
            self.ring.await_progress();
            self.lines[at].proxy.set(LinkCondition::Clear);
            self.nodes[at].wait_for_line(SOON, |line| line.starts_with("the ring gave this node up"));
        }
        self.ring.assert_recovered(&self.nodes);
    }
}

#[test]
fn a_ring_with_slow_lines_works_and_no_node_is_given_up() {
    let proxied = ProxiedRing::new(&LONG_LEASE);
    proxied.set_all(LinkCondition::Lag(Duration::from_millis(100)));
    proxied.ring.await_progress();
    proxied.lines[0].proxy.set(LinkCondition::Clear);
    proxied.ring.await_progress();
    proxied.ring.assert_no_node_given_up();
    proxied.set_all(LinkCondition::Clear);
    proxied.ring.assert_recovered(&proxied.nodes);
}

#[test]
fn a_ring_with_lines_that_pass_a_few_bytes_at_a_time_works() {
    // Each step takes half a second or longer this way.
    let proxied = ProxiedRing::new(&LONG_LEASE);
    proxied.set_all(LinkCondition::Trickle);
    proxied.ring.await_progress();
    proxied.ring.assert_no_node_given_up();
    proxied.set_all(LinkCondition::Clear);
    proxied.ring.assert_recovered(&proxied.nodes);
}

#[test]
fn a_node_whose_line_is_cut_is_replaced_and_comes_back() {
    ProxiedRing::new(&SLOW_HANDLERS).disturb_until_given_up(LinkCondition::Closed);
}

#[test]
fn a_node_whose_line_is_half_open_is_replaced_and_comes_back() {
    ProxiedRing::new(&SLOW_HANDLERS).disturb_until_given_up(LinkCondition::Silent);
}

/// The node gets no error, and Redis still counts the dead connection as its presence. Only its own timeout can save
/// it.
#[test]
fn a_node_whose_connection_dies_silently_is_back_before_its_lease_ends() {
    let proxied = ProxiedRing::new(&["--interval", "5ms", "--journal", "--lease", "6s"]);
    for generates in [true, false] {
        let at = proxied.index_of_node(generates);
        let before = misses_of(&proxied.nodes[at..=at]);
        proxied.lines[at].kill_open_connections_silently();
        await_misses(&proxied.nodes[at..=at], &before);
        await_back(&proxied.nodes);
    }
    proxied.ring.await_progress();
    proxied.ring.assert_no_node_given_up();
}

#[test]
fn a_ring_recovers_each_time_all_its_lines_are_cut() {
    let proxied = ProxiedRing::new(&BUSY);
    for _ in 0..3 {
        let before = misses_of(&proxied.nodes);
        proxied.set_all(LinkCondition::Closed);
        await_misses(&proxied.nodes, &before);
        proxied.set_all(LinkCondition::Clear);
        await_back(&proxied.nodes);
        proxied.ring.await_progress();
    }
    proxied.ring.assert_recovered(&proxied.nodes);
}

#[test]
fn a_reply_that_is_lost_after_its_step_was_applied_changes_nothing() {
    let proxied = ProxiedRing::new(&BUSY);
    for round in 1..=15 {
        for line in &proxied.lines {
            line.proxy.lose_a_reply();
        }
        eventually(SOON, "the answers are lost", || {
            proxied.lines.iter().all(|line| line.proxy.replies_lost() >= round).then_some(())
        });
    }
    proxied.ring.assert_recovered(&proxied.nodes);
}
