//! Random interleavings of script calls, run with the real scripts on a real Redis.
//!
//! Redis runs one script at a time, so everything that can happen to a ring is some order of script calls. A *story* is
//! one such order, made up at random. It contains joins, deaths, lost replies and late arrivals. After each call,
//! everything in Redis is compared with a [`model`] in plain Rust that made the same step. It must also obey the
//! [`laws`], which are invariants of Redis' contents alone. If a story breaks something, it is shrunk to the steps that
//! matter and printed as a list of calls.
//!
//! - [`step`] makes up stories. A step names no member and no message, so any step can be cut out of a story.
//! - [`actions`] turns a step into a call, according to what a [`simulated_node`] knows. A step that no node can make
//!   is skipped. If a node does not receive an answer, it sends the same call again. A [`simulated_publisher`] may also
//!   give up.
//! - [`accident`] lists what happens without a script call: a lease runs out, a connection breaks, Redis forgets a key.
//! - [`call`] builds the bytes of each call. [`answer`] reads the replies word for word.
//! - [`world`] sends the calls, has the model make the same steps, and compares. The story fails if Redis returns an
//!   error, if an answer or a key differs from the model, or if a law is broken.
//! - [`keyspace`] reads all of Redis as plain values.
//!
//! Each story is made from a number. `cargo test` runs the same stories every time, until they have made 300,000 calls
//! or as many as `ESTAFETA_STORIES_CALLS` requests. With `ESTAFETA_STORIES_FOR=10m` (`make soak`) it runs new stories
//! for that long. `ESTAFETA_STORY=17` runs only story 17.

mod accident;
mod actions;
mod answer;
mod call;
mod keyspace;
mod laws;
mod model;
mod simulated_node;
mod simulated_publisher;
mod step;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::strategy::Strategy as _;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use step::{Flaw, SeenAbsent, Story, StoryStep};
use world::{Coverage, StoryEnv};

const CALLS: u64 = 300_000;
const WORKERS: u64 = 2;
/// How often each kind in [`ANSWERS`] must occur.
const OFTEN: u64 = 50;
/// Every answer that a script can give, and the effects and accidents that must occur.
const ANSWERS: [(&str, &str); 136] = [
    ("join", "joined"),
    ("join", "schema"),
    ("join", "application"),
    ("join", "requires"),
    ("join", "lacks"),
    ("beat", "stands"),
    ("beat", "stands, overslept"),
    ("beat", "lost"),
    ("lead", "leads"),
    ("lead", "follows"),
    ("lead", "lost"),
    ("resign", "resigned"),
    ("report", "noted"),
    ("report", "resigned"),
    ("report", "fenced"),
    ("complain", "noted"),
    ("complain", "quiet"),
    ("complain", "lost"),
    ("publish", "published"),
    ("publish", "published, duplicates"),
    ("publish", "already"),
    ("publish", "already, duplicates"),
    ("publish", "reused"),
    ("publish", "behind"),
    ("publish", "full"),
    ("publish", "limit"),
    ("publish", "paused"),
    ("publish", "fenced"),
    ("submit", "submitted"),
    ("submit", "submitted, duplicates"),
    ("submit", "already"),
    ("submit", "reused"),
    ("submit", "full"),
    ("submit", "paused"),
    ("submit", "late"),
    ("submit", "schema"),
    ("submit", "application"),
    ("submit", "requires"),
    ("submit", "lacks"),
    ("cancel", "cancelled"),
    ("cancel", "cancelled none"),
    ("cancel", "already"),
    ("cancel", "already none"),
    ("cancel", "late"),
    ("cancel", "schema"),
    ("cancel", "application"),
    ("cancel", "requires"),
    ("turn", "claims"),
    ("turn", "idle"),
    ("turn", "paused"),
    ("turn", "bad effects"),
    ("turn", "late"),
    ("turn", "lost"),
    ("take", "holds"),
    ("take", "idle"),
    ("take", "lost"),
    ("suspects", "suspects"),
    ("bury", "buried"),
    ("bury", "buried, returned"),
    ("bury", "buried, gave up"),
    ("bury", "alive"),
    ("bury", "gone"),
    ("leave", "left"),
    ("leave", "left, returned"),
    ("wake", "woken"),
    ("pause", "paused"),
    ("pause", "resumed"),
    ("pause", "missing"),
    ("limit", "limited"),
    ("limit", "unlimited"),
    ("limit", "changed"),
    ("limit", "missing"),
    ("resolve", "resolved"),
    ("resolve", "resolved none"),
    ("sample", "sampled"),
    ("sample", "other"),
    ("sample", "fenced"),
    ("snapshot", "snapshot"),
    ("snapshot", "changed"),
    ("effect", "buried because it was missed"),
    ("effect", "heir called"),
    ("effect", "let others lead"),
    ("effect", "generator claims"),
    ("effect", "idle member called"),
    ("effect", "passed over"),
    ("effect", "claims shown again"),
    ("effect", "part of a pack"),
    ("effect", "divided pack"),
    ("effect", "unstarted messages returned"),
    ("effect", "reserve"),
    ("effect", "numbered anew"),
    ("effect", "duplicates left out"),
    ("effect", "generated for later"),
    ("effect", "open message cancelled"),
    ("effect", "last death without a burial"),
    ("effect", "checkpoint moved"),
    ("effect", "ticks moved"),
    ("effect", "published without messages"),
    ("effect", "open messages published"),
    ("effect", "open message done"),
    ("effect", "open message became an error"),
    ("effect", "open message postponed"),
    ("effect", "lost open message removed"),
    ("effect", "plan replaced"),
    ("effect", "published for later"),
    ("effect", "effects applied"),
    ("effect", "bad effect"),
    ("effect", "bad effects shown again"),
    ("effect", "forwarded"),
    ("effect", "forwarded to itself"),
    ("effect", "single name freed"),
    ("effect", "single duplicate"),
    ("effect", "retry"),
    ("effect", "death without a burial"),
    ("effect", "snooze"),
    ("effect", "delayed message moved"),
    ("effect", "first in line learns the time"),
    ("effect", "caller learns the time"),
    ("effect", "samples joined"),
    ("effect", "later samples removed"),
    ("effect", "latencies handed over before"),
    ("accident", "history moved"),
    ("accident", "time passed"),
    ("accident", "pause over"),
    ("accident", "rate opens"),
    ("effect", "limited"),
    ("accident", "connected"),
    ("accident", "disconnected"),
    ("accident", "expired"),
    ("accident", "ahead"),
    ("accident", "member forgotten"),
    ("accident", "epoch forgotten"),
    ("accident", "epoch moved"),
    ("accident", "due moved"),
    ("accident", "key ended"),
    ("accident", "open message lost"),
];

#[test]
fn every_story_ends_well() {
    if let Some(number) = setting("ESTAFETA_STORY") {
        let number = number.parse().expect("ESTAFETA_STORY is the number of a story");
        if let Err(story) = run_story(&mut StoryEnv::new(), number) {
            panic!("{story}");
        }
        return;
    }
    let soak = setting("ESTAFETA_STORIES_FOR")
        .map(|time| humantime::parse_duration(&time).expect("ESTAFETA_STORIES_FOR is a time such as 10m"));
    let start = if soak.is_some() { rand::random::<u64>() >> 16 } else { 0 };
    let sample = setting("ESTAFETA_STORIES_CALLS").map(|calls| calls.parse().expect("a number of calls"));
    let workers = StoryThreads::new(start, soak, sample.unwrap_or(CALLS));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| workers.run_stories());
        }
    });
    if let Some(story) = workers.failed.into_inner().unwrap() {
        panic!("{story}");
    }
    let tally = workers.tally.into_inner().unwrap();
    let calls = workers.calls.into_inner();
    if soak.is_some() {
        print_line(&format!("{calls} calls, all well"));
    } else if sample.is_none() {
        assert!(calls >= CALLS, "only {calls} calls were made");
        let rare: Vec<_> = ANSWERS.iter().filter(|kind| tally.get(kind).is_none_or(|n| *n < OFTEN)).collect();
        assert!(rare.is_empty(), "hardly ever happened: {rare:?} in {tally:#?}");
    }
}

/// An error contains the time at which it was made. That is not the time of a later step, even in the same millisecond.
#[test]
fn an_older_error_does_not_date_a_step_of_the_same_millisecond() {
    let (flaw, answered) = (Flaw::None, true);
    // Each message in its hand stays, or fails.
    let turn = |fates| StoryStep::Turn { node: 1, fates, lanes: 1, each: 1, reserve: 0, flaw, answered };
    let join = StoryStep::Join {
        reader: false,
        foreign: false,
        lanes: 1,
        max_deaths: 4,
        presence: false,
        duties: 0,
    };
    let mut steps = vec![
        join.clone(),
        join,
        StoryStep::Lead { node: 0, renew: false, more_known: false, missed: SeenAbsent::Never, answered },
    ];
    for _ in 0..200 {
        let publish = StoryStep::Publish { node: 0, count: 1, moves: 0, room: 1, flaw, answered };
        let bury = StoryStep::Bury { victim: 0, detector: None, missed: SeenAbsent::Never };
        steps.extend([publish, turn(0), turn(7), StoryStep::Ahead { node: 0 }, bury]);
    }
    let run = StoryEnv::new().run(&Story { journal: false, steps });
    let tally = run.unwrap_or_else(|story| panic!("{}", story.split("and then").last().unwrap_or_default()));
    assert_eq!(tally.get(&("turn", "claims")), Some(&200), "an error in each round: {tally:?}");
}

/// Threads that run one story after another, each on its own Redis.
struct StoryThreads {
    next: AtomicU64,
    calls: AtomicU64,
    enough: u64,
    /// When to stop. If it is not set, the number of calls decides.
    until: Option<Instant>,
    over: AtomicBool,
    tally: Mutex<Coverage>,
    failed: Mutex<Option<String>>,
    last_report: Mutex<Instant>,
}

impl StoryThreads {
    fn new(start: u64, soak: Option<Duration>, enough: u64) -> Self {
        let now = Instant::now();
        Self {
            next: AtomicU64::new(start),
            calls: AtomicU64::new(0),
            enough,
            until: soak.map(|time| now + time),
            over: AtomicBool::new(false),
            tally: Mutex::default(),
            failed: Mutex::default(),
            last_report: Mutex::new(now),
        }
    }

    fn run_stories(&self) {
        let mut env = StoryEnv::new();
        while !self.is_over() {
            match run_story(&mut env, self.next.fetch_add(1, Ordering::Relaxed)) {
                Ok(tally) => self.count(tally),
                Err(story) => {
                    self.over.store(true, Ordering::Relaxed);
                    self.failed.lock().unwrap().get_or_insert(story);
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let enough = match self.until {
            Some(until) => Instant::now() >= until,
            None => self.calls.load(Ordering::Relaxed) >= self.enough,
        };
        enough || self.over.load(Ordering::Relaxed)
    }

    fn count(&self, counts: Coverage) {
        let is_call = |script| !["accident", "effect"].contains(&script);
        let calls = counts.iter().filter(|((script, _), _)| is_call(*script)).map(|(_, n)| n).sum();
        let so_far = self.calls.fetch_add(calls, Ordering::Relaxed) + calls;
        let mut tally = self.tally.lock().unwrap();
        for (kind, count) in counts {
            *tally.entry(kind).or_default() += count;
        }
        let mut last_report = self.last_report.lock().unwrap();
        if self.until.is_some() && last_report.elapsed() >= Duration::from_secs(10) {
            *last_report = Instant::now();
            print_line(&format!("{so_far} calls so far, all well"));
        }
    }
}

/// Runs the story with this number. If it fails, it is shrunk and returned as text.
fn run_story(env: &mut StoryEnv, number: u64) -> Result<Coverage, String> {
    // By default proptest shrinks a failure at most four times as often as it has cases.
    let config = Config { failure_persistence: None, cases: 5_000, ..Config::default() };
    let shrinks = config.max_shrink_iters > 0;
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let story = step::story().new_tree(&mut runner).expect("any story will do");
    let run = Mutex::new((env, Coverage::new()));
    let outcome = runner.run_one(story, |story| {
        let (env, tally) = &mut *run.lock().unwrap();
        *tally = env.run(&story).map_err(TestCaseError::fail)?;
        Ok(())
    });
    match outcome {
        Ok(_) => Ok(run.into_inner().unwrap().1),
        Err(TestError::Abort(reason)) => Err(reason.to_string()),
        Err(TestError::Fail(reason, story)) => {
            let env = run.into_inner().unwrap().0;
            let shorter = if shrinks { cut(env, story) } else { None };
            let reason = shorter.unwrap_or_else(|| reason.to_string());
            Err(format!(
                "story {number} ends badly, cut to the steps that matter:\n{reason}\n  to tell it again:\n    \
                 ESTAFETA_STORY={number} cargo test -p estafeta --lib every_story_ends_well\n"
            ))
        }
    }
}

/// Leaves out every step that the failure does not need. proptest does that before it simplifies the steps. After that,
/// more of them may turn out to be needless.
fn cut(env: &mut StoryEnv, mut story: Story) -> Option<String> {
    let mut reason = None;
    let mut at = story.steps.len();
    while at > 0 {
        at -= 1;
        let mut shorter = story.clone();
        shorter.steps.remove(at);
        if let Err(still) = env.run(&shorter) {
            (story, reason) = (shorter, Some(still));
        }
    }
    reason
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[allow(clippy::print_stderr)]
fn print_line(line: &str) {
    eprintln!("{line}");
}
