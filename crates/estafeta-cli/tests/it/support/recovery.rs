//! What every fault is held to: while it lasts nothing is lost, repeated or published by two; when it is over there is
//! one generator and an empty queue.

use std::time::Duration;

use estafeta_testbed::{Process, Signal, eventually};
use serde_json::Value;

use super::{SOON, TestRing};

/// Arguments of copies that a fault is to meet in the middle of their work.
pub const BUSY: [&str; 3] = ["--interval", "5ms", "--journal"];

/// Arguments of copies that hold a message in hand for most of the time, with the lease that a test need not wait long for.
pub const LABORIOUS: [&str; 7] =
    ["--interval", "20ms", "--journal", "--work-per-char", "2ms", "--lease", "500ms"];

/// Messages that have their outcome.
pub fn settled(status: &Value) -> u64 {
    ["done", "errors_kept", "errors_taken"].map(|count| status[count].as_u64().unwrap()).iter().sum()
}

fn times_said(copy: &Process, words: &str) -> usize {
    copy.stdout_lines().iter().filter(|line| line.starts_with(words)).count()
}

/// How often this copy has said that it misses Redis.
pub fn misses(copy: &Process) -> usize {
    times_said(copy, "Redis does not serve us")
}

/// Waits until every copy that said it misses Redis has said that it is back.
#[track_caller]
pub fn await_back(copies: &[Process]) {
    eventually(SOON, "every copy has Redis back", || {
        copies.iter().all(|copy| times_said(copy, "Redis is back") == misses(copy)).then_some(())
    });
}

/// How often each copy has said so far that it misses Redis; taken before a fault, for [`await_misses`].
pub fn misses_of(copies: &[Process]) -> Vec<usize> {
    copies.iter().map(misses).collect()
}

/// Waits until every copy has said, once more than before, that it misses Redis.
#[track_caller]
pub fn await_misses(copies: &[Process], before: &[usize]) {
    eventually(SOON, "every copy misses Redis", || {
        misses_of(copies).iter().zip(before).all(|(now, before)| now > before).then_some(())
    });
}

/// None of these copies was ever declared dead.
#[track_caller]
pub fn assert_never_given_up(copies: &[Process]) {
    for copy in copies {
        let lines = copy.stdout_lines();
        assert!(!lines.iter().any(|line| line.starts_with("the ring gave this copy up")), "{lines:?}");
    }
}

/// Waits until one of the copies says that Redis does not serve it, for this reason.
#[track_caller]
pub fn await_complaint(copies: &[Process], reason: &str) {
    let complains = |line: &String| line.starts_with("Redis does not serve us") && line.contains(reason);
    eventually(SOON, &format!("a copy complains of {reason}"), || {
        copies.iter().any(|copy| copy.stdout_lines().iter().any(complains)).then_some(())
    });
}

impl TestRing {
    /// Waits until some more messages have their outcome.
    #[track_caller]
    pub fn flows(&self) {
        let before = settled(&self.status());
        self.eventually(SOON, "messages flow", |status| settled(status) > before + 2);
    }

    /// Freezes this copy at a moment in which it holds a message.
    #[track_caller]
    pub fn freeze_in_hand(&self, copy: &Process) {
        let pid = u64::from(copy.pid());
        let holds = |status: &Value| {
            let members = status["members"].as_array().unwrap();
            members.iter().any(|member| member["pid"] == pid && member["in_flight"].as_u64() > Some(0))
        };
        eventually(SOON, "the copy holds a message", || {
            copy.freeze();
            let caught = holds(&self.status());
            if !caught {
                copy.thaw();
            }
            caught.then_some(())
        });
    }

    /// The epoch of the generator, once there is one; it only grows.
    pub fn epoch(&self) -> u64 {
        let status = self.eventually(SOON, "a generator", |status| !status["generator"].is_null());
        status["generator"]["epoch"].as_u64().unwrap()
    }

    /// Waits until the ring has told of this kind of event.
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

    /// Nobody was buried, and the office has been with the same copy all the time.
    #[track_caller]
    pub fn assert_nobody_given_up(&self) {
        let status = self.status();
        assert_eq!((&status["buried"], &status["takeovers"]), (&0.into(), &0.into()), "{status}");
    }

    /// Kills a copy that handles. Its burial proves that the judges believe in deaths again, and it must be the only one.
    #[track_caller]
    pub fn assert_only_the_dead_are_buried(&self, copies: &mut Vec<Process>) {
        let generator = self.generator(copies).pid();
        let at = copies.iter().position(|copy| copy.pid() != generator).unwrap();
        copies.remove(at).kill();
        self.eventually(SOON, "the dead one is buried", |status| status["buried"].as_u64() > Some(0));
        self.flows();
        let status = self.status();
        assert_eq!((&status["buried"], &status["takeovers"]), (&1.into(), &0.into()), "{status}");
        assert_never_given_up(copies);
    }

    /// How long nobody was in office before the last take-over, as Redis recorded it.
    pub fn last_silence(&self) -> Duration {
        let status = self.status();
        let mut events = status["events"].as_array().unwrap().iter();
        let taken = events.find(|event| event["kind"] == "took-over").unwrap();
        let fields = taken["fields"].as_array().unwrap();
        let silence = fields.iter().find(|field| field[0] == "silence").unwrap();
        Duration::from_millis(silence[1].as_str().unwrap().parse().unwrap())
    }

    /// The end of every story. All copies, none of which has ended, work as one ring again and stop when told to; two
    /// others finish what is left, and then every message has had one outcome.
    #[track_caller]
    pub fn assert_recovered(&self, copies: &[Process]) {
        for copy in copies {
            assert!(copy.is_running(), "{copy:?} ended by itself: {:?}", copy.stderr_lines());
        }
        self.assert_survivors_recovered(copies);
    }

    /// [`assert_recovered`](Self::assert_recovered) where some of the copies were meant to end.
    #[track_caller]
    pub fn assert_survivors_recovered(&self, copies: &[Process]) {
        let alive: Vec<_> = copies.iter().filter(|copy| copy.is_running()).collect();
        self.eventually(SOON, "one generator, and all copies well", |status| {
            let members = status["members"].as_array().unwrap();
            let generators = members.iter().filter(|member| member["role"] == "generator").count();
            let well = members.iter().filter(|member| member["state"] == "well").count();
            (generators, well, members.len()) == (1, alive.len(), alive.len())
        });
        if alive.len() > 1 {
            self.flows();
        }
        for copy in &alive {
            copy.signal(Signal::SIGTERM);
        }
        for copy in &alive {
            assert!(copy.wait(SOON).success(), "{copy:?}: {:?}", copy.stderr_lines());
        }
        self.finish();
    }

    /// Two new copies publish a few more messages and settle all that wait. Nothing is left then of those that are gone.
    #[track_caller]
    pub fn finish(&self) {
        let count = self.status()["published"].as_u64().unwrap() + 10;
        let limit = count.to_string();
        let args = ["--interval", "1ms", "--journal", "--until-done", "--limit", &limit];
        for copy in self.copies(2, &args) {
            assert!(copy.wait(SOON).success(), "{copy:?}: {:?}", copy.stderr_lines());
        }
        let status = self.status();
        assert_eq!((&status["published"], settled(&status)), (&count.into(), count), "{status}");
        self.assert_each_once(count);
        self.success(&["cleanTemp"]);
        assert_eq!(self.status()["members"].as_array().unwrap().len(), 0);
        let left = self.redis_cli(&["KEYS", "{estafeta}:[mi]*:*"]);
        let left: Vec<String> = redis::from_redis_value(left).unwrap();
        assert!(left.is_empty(), "of members that are gone: {left:?}");
    }
}
