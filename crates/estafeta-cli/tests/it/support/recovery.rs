//! What a ring must do under every fault, and how a test waits for it.
//!
//! While a fault lasts, no message is lost, settled twice or published by two generators. When it is over, the nodes
//! work as one ring again without help. A test injects a fault, waits until the nodes have noticed it, ends the fault,
//! and calls [`ProgramRing::assert_recovered`]. Nodes report a fault of Redis with the line "lost Redis at ", and
//! its end with "Redis is back". So a test counts these lines before the fault ([`misses_of`]) and waits for more of
//! them ([`await_misses`], [`await_back`]).

use std::time::Duration;

use estafeta_testbed::{Process, Signal, eventually};
use serde_json::Value;

use super::{ProgramRing, SOON};

/// Arguments of nodes that a fault should meet in the middle of their work.
pub const BUSY: [&str; 3] = ["--interval", "5ms", "--journal"];

/// Arguments of nodes that hold a message most of the time. Their lease is short, so a test need not wait long for its
/// end.
pub const SLOW_HANDLERS: [&str; 7] =
    ["--interval", "20ms", "--journal", "--work-per-char", "2ms", "--lease", "500ms"];

/// The number of messages that have their outcome.
pub fn settled(status: &Value) -> u64 {
    ["done", "errorsKept", "errorsTaken"].map(|count| status[count].as_u64().unwrap()).iter().sum()
}

fn times_printed(node: &Process, start: &str) -> usize {
    node.stdout_lines().iter().filter(|line| line.starts_with(start)).count()
}

/// How often this node has reported that Redis does not serve it.
pub fn misses(node: &Process) -> usize {
    times_printed(node, "lost Redis at ")
}

/// Waits until every node has reported an end for each time it reported that Redis does not serve it.
#[track_caller]
pub fn await_back(nodes: &[Process]) {
    eventually(SOON, "every node has Redis back", || {
        nodes.iter().all(|node| times_printed(node, "Redis is back") == misses(node)).then_some(())
    });
}

/// How often each node has reported so far that Redis does not serve it. Taken before a fault, for [`await_misses`].
pub fn misses_of(nodes: &[Process]) -> Vec<usize> {
    nodes.iter().map(misses).collect()
}

/// Waits until every node has reported once more than `before` that Redis does not serve it.
#[track_caller]
pub fn await_misses(nodes: &[Process], before: &[usize]) {
    eventually(SOON, "every node misses Redis", || {
        misses_of(nodes).iter().zip(before).all(|(now, before)| now > before).then_some(())
    });
}

/// Asserts that none of these nodes was ever declared dead.
#[track_caller]
pub fn assert_never_given_up(nodes: &[Process]) {
    for node in nodes {
        let lines = node.stdout_lines();
        assert!(!lines.iter().any(|line| line.starts_with("the ring gave this node up")), "{lines:?}");
    }
}

/// Waits until one of the nodes reports that Redis does not serve it for this reason.
#[track_caller]
pub fn await_complaint(nodes: &[Process], reason: &str) {
    let complains = |line: &String| line.starts_with("lost Redis at ") && line.contains(reason);
    eventually(SOON, &format!("a node complains of {reason}"), || {
        nodes.iter().any(|node| node.stdout_lines().iter().any(complains)).then_some(())
    });
}

impl ProgramRing {
    /// Waits until more messages have their outcome.
    #[track_caller]
    pub fn await_progress(&self) {
        let before = settled(&self.status());
        self.eventually(SOON, "messages flow", |status| settled(status) > before + 2);
    }

    /// Freezes this node while it holds a message.
    #[track_caller]
    pub fn freeze_with_a_message(&self, node: &Process) {
        let pid = u64::from(node.pid());
        let holds = |status: &Value| {
            let members = status["members"].as_array().unwrap();
            members.iter().any(|member| member["pid"] == pid && member["inFlight"].as_u64() > Some(0))
        };
        eventually(SOON, "the node holds a message", || {
            node.freeze();
            let caught = holds(&self.status());
            if !caught {
                node.thaw();
            }
            caught.then_some(())
        });
    }

    /// The epoch of the generator, as soon as there is one.
    pub fn epoch(&self) -> u64 {
        let status = self.eventually(SOON, "a generator", |status| !status["generator"].is_null());
        status["generator"]["epoch"].as_u64().unwrap()
    }

    /// Waits until the ring has recorded an event of this kind.
    #[track_caller]
    pub fn await_event(&self, kind: &str) {
        let mut connection = self.redis.connect();
        eventually(SOON, &format!("the event {kind}"), || {
            let mut call = redis::cmd("XRANGE");
            let events: Vec<(String, Vec<String>)> =
                call.arg("{estafeta}:events").arg("-").arg("+").query(&mut connection).unwrap();
            events.iter().any(|(_, fields)| fields[1] == kind).then_some(())
        });
    }

    /// Asserts that no member was buried and the office never passed on.
    #[track_caller]
    pub fn assert_no_node_given_up(&self) {
        let status = self.status();
        assert_eq!((&status["buried"], &status["takeovers"]), (&0.into(), &0.into()), "{status}");
    }

    /// Kills a handler and waits for its burial. This proves that the failure detectors believe in deaths again. No
    /// other member may be buried.
    #[track_caller]
    pub fn assert_only_the_dead_are_buried(&self, nodes: &mut Vec<Process>) {
        let generator = self.generator(nodes).pid();
        let at = nodes.iter().position(|node| node.pid() != generator).unwrap();
        nodes.remove(at).kill();
        self.eventually(SOON, "the dead one is buried", |status| status["buried"].as_u64() > Some(0));
        self.await_progress();
        let status = self.status();
        assert_eq!((&status["buried"], &status["takeovers"]), (&1.into(), &0.into()), "{status}");
        assert_never_given_up(nodes);
    }

    /// How long the office was vacant, or its holder silent, before the last take-over, as Redis recorded it.
    pub fn last_silence(&self) -> Duration {
        let status = self.status();
        let events = status["events"].as_array().unwrap();
        let take_over = events.iter().rfind(|event| event["kind"] == "tookOver").unwrap();
        Duration::from_millis(take_over["silenceMs"].as_u64().unwrap())
    }

    /// The end of every test with a fault. None of the nodes may have ended. They work as one ring again, and stop on a
    /// signal. Two new nodes finish what is left. After that every message has exactly one outcome.
    #[track_caller]
    pub fn assert_recovered(&self, nodes: &[Process]) {
        for node in nodes {
            assert!(node.is_running(), "{node:?} ended by itself: {:?}", node.stderr_lines());
        }
        self.assert_survivors_recovered(nodes);
    }

    /// Like [`assert_recovered`](Self::assert_recovered), if some of the nodes were meant to end.
    #[track_caller]
    pub fn assert_survivors_recovered(&self, nodes: &[Process]) {
        let alive: Vec<_> = nodes.iter().filter(|node| node.is_running()).collect();
        self.eventually(SOON, "one generator, and all nodes well", |status| {
            let members = status["members"].as_array().unwrap();
            let generators = members.iter().filter(|member| member["role"] == "generator").count();
            let well = members.iter().filter(|member| member["state"] == "alive").count();
            (generators, well, members.len()) == (1, alive.len(), alive.len())
        });
        if alive.len() > 1 {
            self.await_progress();
        }
        for node in &alive {
            node.signal(Signal::SIGTERM);
        }
        for node in &alive {
            assert!(node.wait(SOON).success(), "{node:?}: {:?}", node.stderr_lines());
        }
        self.finish();
    }

    /// Two new nodes publish a few more messages and settle all that wait. After that, Redis holds nothing of the nodes
    /// that are gone.
    #[track_caller]
    pub fn finish(&self) {
        let count = self.status()["published"].as_u64().unwrap() + 10;
        let limit = count.to_string();
        let args = ["--interval", "1ms", "--journal", "--until-done", "--limit", &limit];
        for node in self.nodes(2, &args) {
            assert!(node.wait(SOON).success(), "{node:?}: {:?}", node.stderr_lines());
        }
        let status = self.status();
        let lost = status["lost"].as_u64().unwrap();
        assert_eq!((&status["published"], settled(&status) + lost), (&count.into(), count), "{status}");
        self.assert_each_once_but(count, lost);
        self.success(&["cleanTemp"]);
        assert_eq!(self.status()["members"].as_array().unwrap().len(), 0);
        let left = self.redis_cli(&["KEYS", "{estafeta}:[mi]*:*"]);
        let left: Vec<String> = redis::from_redis_value(left).unwrap();
        assert!(left.is_empty(), "of members that are gone: {left:?}");
    }
}
