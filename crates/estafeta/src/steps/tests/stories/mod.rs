//! Every interleaving: random stories of joins, deaths, lost replies and late arrivals, told with the real scripts on a
//! real Redis.
//!
//! Scripts are atomic, so whatever can happen to a ring is an order of script calls, and a story is such an order. After
//! each call everything that is in Redis is compared with a [`model`] in plain Rust that made the same step, and with
//! [`laws`] that are read from Redis alone. A story that breaks something is shrunk to the few steps that matter and
//! printed as a list of calls.
//!
//! Each story grows from a number. `cargo test` tells the same stories every time, until 200,000 calls were made, or as
//! many as `ESTAFETA_STORIES_CALLS` says. With `ESTAFETA_STORIES_FOR=10m` (`make soak`) it tells others for so long, and
//! `ESTAFETA_STORY=17` tells number 17 alone.

mod accident;
mod answer;
mod call;
mod copy;
mod deeds;
mod keyspace;
mod laws;
mod model;
mod step;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use proptest::strategy::Strategy as _;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use step::{Flaw, Missed, Step, Story};
use world::{Stage, Tally};

const CALLS: u64 = 200_000;
const TELLERS: u64 = 2;
/// Every answer that a script can give, each of which must have been given this often.
const OFTEN: u64 = 50;
const ANSWERS: [(&str, &str); 46] = [
    ("join", "joined"),
    ("join", "schema"),
    ("beat", "stands"),
    ("beat", "stands, overslept"),
    ("beat", "lost"),
    ("lead", "leads"),
    ("lead", "follows"),
    ("lead", "lost"),
    ("resign", "resigned"),
    ("publish", "published"),
    ("publish", "already"),
    ("publish", "expected"),
    ("publish", "full"),
    ("publish", "limit"),
    ("publish", "fenced"),
    ("turn", "holds"),
    ("turn", "idle"),
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
    ("wake", "rung"),
    ("resolve", "resolved"),
    ("resolve", "resolved none"),
    ("snapshot", "snapshot"),
    ("snapshot", "changed"),
    ("effect", "buried because it was missed"),
    ("effect", "heir called"),
    ("accident", "connected"),
    ("accident", "disconnected"),
    ("accident", "expired"),
    ("accident", "ahead"),
    ("accident", "member forgotten"),
    ("accident", "epoch forgotten"),
    ("accident", "epoch moved"),
    ("accident", "due moved"),
    ("accident", "bell heard"),
];

#[test]
fn every_story_ends_well() {
    if let Some(number) = setting("ESTAFETA_STORY") {
        let number = number.parse().expect("ESTAFETA_STORY is the number of a story");
        if let Err(story) = tell(&mut Stage::new(), number) {
            panic!("{story}");
        }
        return;
    }
    let soak = setting("ESTAFETA_STORIES_FOR")
        .map(|time| humantime::parse_duration(&time).expect("ESTAFETA_STORIES_FOR is a time such as 10m"));
    let start = if soak.is_some() { rand::random::<u64>() >> 16 } else { 0 };
    let sample = setting("ESTAFETA_STORIES_CALLS").map(|calls| calls.parse().expect("a number of calls"));
    let tellers = Tellers::new(start, soak, sample.unwrap_or(CALLS));
    std::thread::scope(|scope| {
        for _ in 0..TELLERS {
            scope.spawn(|| tellers.tell_on());
        }
    });
    if let Some(story) = tellers.failed.into_inner().unwrap() {
        panic!("{story}");
    }
    let tally = tellers.tally.into_inner().unwrap();
    let calls = tellers.calls.into_inner();
    if soak.is_some() {
        say(&format!("{calls} calls, all well"));
    } else if sample.is_none() {
        assert!(calls >= CALLS, "only {calls} calls were made");
        let rare: Vec<_> = ANSWERS.iter().filter(|kind| tally.get(kind).is_none_or(|n| *n < OFTEN)).collect();
        assert!(rare.is_empty(), "hardly ever happened: {rare:?} in {tally:#?}");
    }
}

/// An error tells when it was made, and nothing about a step that came after it in the same millisecond.
#[test]
fn a_step_is_not_dated_by_an_error_that_was_there_before() {
    let (flaw, heard) = (Flaw::None, true);
    let turn = |settles| Step::Turn { copy: 1, lane: 0, settles, fails: 1, wants: 1, flaw, heard };
    let join = Step::Join { reader: false, lanes: 1, max_attempts: 4, presence: false };
    let mut steps = vec![
        join.clone(),
        join,
        Step::Lead { copy: 0, renew: false, more_known: false, missed: Missed::Never, heard },
    ];
    for _ in 0..200 {
        let publish = Step::Publish { copy: 0, count: 1, room: 1, flaw, heard };
        let bury = Step::Bury { victim: 0, judge: None, missed: Missed::Never };
        steps.extend([publish, turn(0), turn(1), Step::Ahead { copy: 0 }, bury]);
    }
    let told = Stage::new().tell(&Story { journal: false, steps });
    let tally = told.unwrap_or_else(|story| panic!("{}", story.split("and then").last().unwrap_or_default()));
    assert_eq!(tally.get(&("turn", "holds")), Some(&200), "an error in each round: {tally:?}");
}

/// Threads that tell one story after another, each on a Redis of its own.
struct Tellers {
    next: AtomicU64,
    calls: AtomicU64,
    enough: u64,
    /// How long to go on, if not until there were enough calls.
    until: Option<Instant>,
    over: AtomicBool,
    tally: Mutex<Tally>,
    failed: Mutex<Option<String>>,
    said: Mutex<Instant>,
}

impl Tellers {
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
            said: Mutex::new(now),
        }
    }

    fn tell_on(&self) {
        let mut stage = Stage::new();
        while !self.is_over() {
            match tell(&mut stage, self.next.fetch_add(1, Ordering::Relaxed)) {
                Ok(told) => self.count(told),
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

    fn count(&self, told: Tally) {
        let is_call = |script| !["accident", "effect"].contains(&script);
        let calls = told.iter().filter(|((script, _), _)| is_call(*script)).map(|(_, n)| n).sum();
        let so_far = self.calls.fetch_add(calls, Ordering::Relaxed) + calls;
        let mut tally = self.tally.lock().unwrap();
        for (kind, count) in told {
            *tally.entry(kind).or_default() += count;
        }
        let mut said = self.said.lock().unwrap();
        if self.until.is_some() && said.elapsed() >= Duration::from_secs(10) {
            *said = Instant::now();
            say(&format!("{so_far} calls so far, all well"));
        }
    }
}

/// Tells the story that grows from this number; one that ends badly is shrunk and comes back as text.
fn tell(stage: &mut Stage, number: u64) -> Result<Tally, String> {
    // By default proptest cuts and simplifies four times as often as it would have told stories.
    let config = Config { failure_persistence: None, cases: 5_000, ..Config::default() };
    let shrinks = config.max_shrink_iters > 0;
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let story = step::story().new_tree(&mut runner).expect("any story will do");
    let told = Mutex::new((stage, Tally::new()));
    let outcome = runner.run_one(story, |story| {
        let (stage, tally) = &mut *told.lock().unwrap();
        *tally = stage.tell(&story).map_err(TestCaseError::fail)?;
        Ok(())
    });
    match outcome {
        Ok(_) => Ok(told.into_inner().unwrap().1),
        Err(TestError::Abort(reason)) => Err(reason.to_string()),
        Err(TestError::Fail(reason, story)) => {
            let stage = told.into_inner().unwrap().0;
            let shorter = if shrinks { cut(stage, story) } else { None };
            let reason = shorter.unwrap_or_else(|| reason.to_string());
            Err(format!(
                "story {number} ends badly, cut to the steps that matter:\n{reason}\n  to tell it again:\n    \
                 ESTAFETA_STORY={number} cargo test -p estafeta --lib every_story_ends_well\n"
            ))
        }
    }
}

/// Leaves out every step that is not needed for a bad end. proptest does so before it makes the steps themselves simpler,
/// after which more of them may turn out to be idle.
fn cut(stage: &mut Stage, mut story: Story) -> Option<String> {
    let mut reason = None;
    let mut at = story.steps.len();
    while at > 0 {
        at -= 1;
        let mut shorter = story.clone();
        shorter.steps.remove(at);
        if let Err(still) = stage.tell(&shorter) {
            (story, reason) = (shorter, Some(still));
        }
    }
    reason
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[allow(clippy::print_stderr)]
fn say(words: &str) {
    eprintln!("{words}");
}
