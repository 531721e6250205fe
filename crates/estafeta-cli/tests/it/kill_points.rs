//! A node or a publisher is killed right before and right after each of its first calls to Redis.
//!
//! A proxy counts what passes and kills the process at the chosen piece of data, which it does not pass on. A kill on
//! the way up is before the call: the call never reaches Redis. A kill on the way down is after the call: Redis has
//! executed it, and the process never receives the reply. In both cases the ring must recover, and every message must
//! get exactly one outcome.
//!
//! The nodes of the demo join, lead, publish and handle. The workers of `chaos` also retry, snooze and delay messages,
//! fail as a source, submit and cancel. The judge of `chaos` says whether all of that happened once.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use estafeta::Ring;
use estafeta_lab::chaos::real_work;
use estafeta_lab::proxy::Direction;
use estafeta_testbed::{DataDir, Process, Signal, eventually};

use crate::support::line::Line;
use crate::support::{ProgramRing, SOON};

/// Enough calls for the join, the first sweep, and so much work that every step occurs.
const CALLS: usize = 60;
/// The kills are spread over this many rings, because each ring needs time to notice a death.
const RINGS: usize = 6;

/// Arguments of the victims. A message may lose any number of handlers. At its start a node waits half a lease for an
/// answer. On a loaded machine it must not give up before it is killed.
const VICTIM: [&str; 8] =
    ["run", "--interval", "1ms", "--journal", "--max-deaths", "1000000", "--lease", "6s"];

/// Runs the program and kills it at the `nth` piece of data in this direction. That piece is not passed on. Returns
/// false if the program ended before, which must be a success.
fn kill_or_finish(ring: &ProgramRing, direction: Direction, nth: usize, args: &[&str]) -> bool {
    let victim: Arc<OnceLock<Process>> = Arc::default();
    let (seen, process) = (AtomicUsize::new(0), Arc::clone(&victim));
    let line = Line::tapped(&ring.redis, move |way, _| {
        if way == direction && seen.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            process.wait().kill();
        }
    });
    let started = line.start(args);
    let victim = victim.get_or_init(|| started);
    let status = victim.wait(SOON);
    assert!(
        status.signal() == Some(9) || status.success(),
        "{args:?} at {direction:?} {nth}: {status}, {:?}",
        victim.stderr_lines()
    );
    status.signal() == Some(9)
}

fn kill_at(ring: &ProgramRing, direction: Direction, nth: usize, args: &[&str]) {
    assert!(kill_or_finish(ring, direction, nth, args), "killed at {direction:?} {nth}");
}

fn kill_at_each_call(direction: Direction, with: impl Fn(&ProgramRing) -> Vec<Process> + Sync) {
    thread::scope(|scope| {
        for first in 1..=RINGS {
            let with = &with;
            scope.spawn(move || {
                let ring = ProgramRing::new();
                let others = with(&ring);
                for nth in (first..=CALLS).step_by(RINGS) {
                    kill_at(&ring, direction, nth, &VICTIM);
                }
                if others.is_empty() {
                    ring.finish();
                } else {
                    ring.assert_recovered(&others);
                }
            });
        }
    });
}

/// No other node is in the ring, so each victim generates until it is killed.
fn no_other_node(_: &ProgramRing) -> Vec<Process> {
    Vec::new()
}

/// Another node generates already, so each victim handles until it is killed.
fn one_generator(ring: &ProgramRing) -> Vec<Process> {
    let generator = ring.node(&["--interval", "2ms", "--journal"]);
    generator.wait_for_line(SOON, |line| line.starts_with("generated"));
    vec![generator]
}

#[test]
fn a_generator_killed_right_before_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Up, no_other_node);
}

#[test]
fn a_generator_killed_right_after_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Down, no_other_node);
}

#[test]
fn a_handler_killed_right_before_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Up, one_generator);
}

#[test]
fn a_handler_killed_right_after_any_call_leaves_nothing_behind() {
    kill_at_each_call(Direction::Down, one_generator);
}

#[test]
fn an_upgrade_killed_around_any_call_leaves_a_ring_that_works() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(2, &["--interval", "2ms", "--journal"]);
    ring.await_progress();
    for direction in [Direction::Up, Direction::Down] {
        let kills =
            (1..=CALLS).take_while(|nth| kill_or_finish(&ring, direction, *nth, &["upgrade"])).count();
        assert!((1..CALLS).contains(&kills), "{direction:?}: {kills}");
    }
    ring.assert_recovered(&nodes);
}

/// A ring of workers of `chaos`. The bodies of their messages are plans.
struct WorkRing {
    ring: ProgramRing,
    records: DataDir,
}

impl WorkRing {
    fn new() -> Self {
        Self { ring: ProgramRing::new(), records: DataDir::new() }
    }

    /// The arguments of a worker, whose record has this name.
    fn args(&self, role: &str, number: usize) -> Vec<String> {
        let (number, record) = (number.to_string(), self.record(role, number));
        let words =
            ["chaos-worker", role, "--lanes", "8", "--number", &number, "--record", record.to_str().unwrap()];
        words.map(ToOwned::to_owned).to_vec()
    }

    fn record(&self, role: &str, number: usize) -> PathBuf {
        self.records.path().join(format!("{role}-{number}"))
    }

    fn start(&self, role: &str, number: usize, options: &[&str]) -> Process {
        let args = self.args(role, number);
        let args: Vec<&str> = args.iter().map(String::as_str).chain(options.iter().copied()).collect();
        self.ring.start(&args)
    }

    fn kill_at(&self, direction: Direction, nth: usize, role: &str) {
        let args = self.args(role, nth);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        kill_at(&self.ring, direction, nth, &args);
    }

    /// Waits until the `life`th process of a worker has recorded a step of this kind.
    fn await_step(&self, role: &str, number: usize, life: usize, kind: &str) {
        eventually(SOON, kind, || {
            let text = std::fs::read_to_string(self.record(role, number)).unwrap_or_default();
            text.split(" started ").nth(life)?.contains(&format!(" {kind} ")).then_some(())
        });
    }

    fn stop(worker: &Process) {
        worker.signal(Signal::SIGTERM);
        assert!(worker.wait(SOON).success(), "{:?}", worker.stderr_lines());
    }

    /// Two new nodes handle what is left. Then the judge of chaos compares all records with Redis.
    fn finish(&self) {
        let published = self.ring.status()["published"].to_string();
        let nodes = [1001, 1002].map(|number| self.start("node", number, &["--limit", &published]));
        for node in nodes {
            assert!(node.wait(SOON).success(), "{:?}", node.stderr_lines());
        }
        let of_role = |role: &str| -> Vec<PathBuf> {
            let all = std::fs::read_dir(self.records.path()).unwrap().map(|entry| entry.unwrap().path());
            all.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(role)).collect()
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let breaches = runtime.block_on(async {
            let redis = self.ring.redis.url().parse().unwrap();
            let ring = Ring::connect(redis, "estafeta".parse().unwrap()).await.unwrap();
            real_work::judge_ring(&ring, &of_role("node"), &of_role("publisher")).await.unwrap()
        });
        assert_eq!(breaches, [""; 0]);
        self.ring.status();
    }
}

fn in_each_ring(act: impl Fn(&WorkRing, &mut dyn Iterator<Item = usize>) + Sync) {
    thread::scope(|scope| {
        for first in 1..=RINGS {
            let act = &act;
            scope.spawn(move || {
                let ring = WorkRing::new();
                act(&ring, &mut (first..=CALLS).step_by(RINGS));
                ring.finish();
            });
        }
    });
}

/// Kills publishers, and lets each of them continue where it was killed.
fn kill_publishers(direction: Direction) {
    in_each_ring(|ring, kills| {
        for nth in kills {
            ring.kill_at(direction, nth, "publisher");
            let again = ring.start("publisher", nth, &[]);
            ring.await_step("publisher", nth, 2, "receipts");
            WorkRing::stop(&again);
        }
    });
}

/// Kills nodes that retry, snooze and get delayed messages. They generate if no other node is there.
fn kill_nodes(direction: Direction, with_generator: bool) {
    in_each_ring(|ring, kills| {
        let publisher = ring.start("publisher", 1, &[]);
        let generator = with_generator.then(|| {
            let generator = ring.start("node", 1000, &[]);
            ring.await_step("node", 1000, 1, "published");
            generator
        });
        for nth in kills {
            ring.kill_at(direction, nth, "node");
        }
        WorkRing::stop(&publisher);
        generator.iter().for_each(WorkRing::stop);
    });
}

#[test]
fn a_publisher_killed_right_before_any_call_loses_and_repeats_nothing() {
    kill_publishers(Direction::Up);
}

#[test]
fn a_publisher_killed_right_after_any_call_loses_and_repeats_nothing() {
    kill_publishers(Direction::Down);
}

#[test]
fn a_handler_of_planned_messages_killed_right_before_any_call_keeps_every_plan() {
    kill_nodes(Direction::Up, true);
}

#[test]
fn a_handler_of_planned_messages_killed_right_after_any_call_keeps_every_plan() {
    kill_nodes(Direction::Down, true);
}

#[test]
fn a_generator_whose_source_fails_killed_right_before_any_call_leaves_nothing_behind() {
    kill_nodes(Direction::Up, false);
}

#[test]
fn a_generator_whose_source_fails_killed_right_after_any_call_leaves_nothing_behind() {
    kill_nodes(Direction::Down, false);
}
