//! Schedules: each tick is published once, whatever happens to generators and to the clock.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use estafeta::{Config, Endpoint, Job, Missed, Node, Schedule};
use estafeta_testbed::{Clock, Process, RedisServer};

use crate::support::{Notices, RunningNode, SOON, endpoint, eventually, ring};

/// Where the ring is, for a node in a child process.
const URL: &str = "ESTAFETA_TEST_SCHEDULES";

fn settings(redis: Endpoint) -> Config {
    Config::new(redis, "estafeta".parse().unwrap())
}

fn every_second() -> Schedule<String> {
    let entry = Schedule::cron("every second", "* * * * * *", "UTC").unwrap();
    entry.each(|tick| [tick.name().to_owned()])
}

/// The ticks that were handled, with the body of the message and in seconds since 1970.
#[derive(Clone, Default)]
struct SeenTicks(Arc<Mutex<Vec<(String, u64)>>>);

impl SeenTicks {
    /// The ticks whose messages had this body.
    fn of(&self, body: &str) -> Vec<u64> {
        let seen = self.0.lock().unwrap();
        seen.iter().filter(|(of, _)| of == body).map(|(_, tick)| *tick).collect()
    }

    /// Starts a node that handles, and generates if it gets a schedule.
    fn start(&self, config: Config, schedule: Option<Schedule<String>>) -> RunningNode {
        let (notices, seen) = (Notices::new(), self.clone());
        let heard = notices.clone();
        let mut node = Node::with(config).observe(move |notice| heard.add(notice));
        if let Some(schedule) = schedule {
            node = node.generate(schedule);
        }
        let node = node.handle_with(seen, async |seen, job: Job<String>| {
            let tick = job.tick().expect("a schedule made it").duration_since(SystemTime::UNIX_EPOCH)?;
            assert!(job.published() >= SystemTime::UNIX_EPOCH + tick, "no message is older than its tick");
            seen.0.lock().unwrap().push((job.body, tick.as_secs()));
            Ok(())
        });
        RunningNode::spawn(node, notices)
    }
}

/// Runs a node that only generates, in a child process that another test starts. As one of the tests it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn run_a_scheduling_node_for_the_other_test() {
    let Ok(url) = std::env::var(URL) else { return };
    let node = Node::with(settings(url.parse().unwrap())).generate(every_second());
    node.until(std::future::pending()).await.unwrap();
}

fn start_generator(redis: &RedisServer) -> Process {
    let program = std::env::current_exe().unwrap();
    let name = "schedules::run_a_scheduling_node_for_the_other_test";
    Process::spawn(&program, ["--exact", name, "--nocapture"], [(URL, redis.url())])
}

/// Waits until it is this many milliseconds before the next full second of Redis' clock.
async fn until_before_the_next_second(redis: &RedisServer, ms: u64) {
    let (_, us): (u64, u64) = redis::cmd("TIME").query(&mut redis.connect()).unwrap();
    let wait = (2_000 - ms - us / 1000) % 1000;
    tokio::time::sleep(Duration::from_millis(wait)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_is_published_once_although_its_generator_is_killed_just_before_it() {
    let redis = RedisServer::start();
    let seen = SeenTicks::default();
    let handler = seen.start(settings(endpoint(&redis)), None);
    handler.notices.wait_for("Joined").await;
    let ring = ring(&redis).await;
    let mut generators = vec![start_generator(&redis), start_generator(&redis)];
    eventually(&ring, "a tick", |snapshot| snapshot.published > 0).await;
    for _ in 0..3 {
        let before = ring.snapshot(0).await.unwrap().published;
        let snapshot = eventually(&ring, "a generator", |snapshot| snapshot.generator.is_some()).await;
        let number = snapshot.generator.map(|generator| generator.member);
        let pid = snapshot.members.iter().find(|member| Some(member.id) == number).map(|member| member.pid);
        let at = generators.iter().position(|process| Some(u64::from(process.pid())) == pid).unwrap();
        until_before_the_next_second(&redis, 50).await;
        generators.remove(at).kill();
        generators.push(start_generator(&redis));
        eventually(&ring, "it goes on", |snapshot| snapshot.published > before + 2).await;
    }
    let published = ring.snapshot(0).await.unwrap().published;
    eventually(&ring, "all are done", |snapshot| snapshot.done >= published).await;
    handler.stop().await.unwrap();
    let ticks = seen.of("every second");
    let expected: Vec<u64> = (ticks[0]..).take(ticks.len()).collect();
    assert_eq!(ticks, expected, "each second once, and in order");
}

/// Moves the clock of Redis to this moment, such as `2027-03-28T01:00:01Z`.
fn move_clock(clock: &Clock, moment: &str) {
    let moment: jiff::Timestamp = moment.parse().unwrap();
    clock.set(moment.as_second() - jiff::Timestamp::now().as_second());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nightly_entry_comes_once_over_a_gap_and_over_an_overlap_in_two_zones() {
    // The entry, when the test begins, to which moments it moves the clock, and the runs that must come.
    let cases = [
        (
            ("30 2 * * *", "Europe/Berlin"),
            "2027-03-27T02:00:00Z",
            ["2027-03-28T00:59:50Z", "2027-03-28T01:00:01Z", "2027-03-29T00:30:01Z"],
            ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"],
        ),
        (
            ("30 1 * * *", "America/New_York"),
            "2027-11-06T12:00:00Z",
            ["2027-11-07T05:30:01Z", "2027-11-07T06:30:01Z", "2027-11-08T06:30:01Z"],
            ["2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"],
        ),
        (
            ("30 2 * * *", "Europe/Berlin"),
            "2027-10-30T12:00:00Z",
            ["2027-10-31T00:30:01Z", "2027-10-31T01:30:01Z", "2027-11-01T01:30:01Z"],
            ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"],
        ),
    ];
    for ((expression, zone), begins, moments, runs) in cases {
        let clock = Clock::new();
        let redis = clock.of(RedisServer::builder()).start();
        move_clock(&clock, begins);
        let nightly = Schedule::cron("nightly", expression, zone).unwrap().missed(Missed::Last);
        let schedule = nightly.body("report".to_owned()).and(every_second());
        let seen = SeenTicks::default();
        let node = seen.start(settings(endpoint(&redis)), Some(schedule));
        let stored = || -> Option<u64> {
            redis::cmd("HGET").arg("{estafeta}:ticks").arg("nightly").query(&mut redis.connect()).unwrap()
        };
        estafeta_testbed::eventually(SOON, "its beginning is stored", &stored);
        let runs = runs.map(|run| run.parse::<jiff::Timestamp>().unwrap().as_second() as u64);
        for moment in moments {
            move_clock(&clock, moment);
            let now = moment.parse::<jiff::Timestamp>().unwrap().as_second() as u64;
            // A run that was due before would have come before this tick.
            let has_passed = || seen.of("every second").iter().any(|tick| *tick > now).then_some(());
            estafeta_testbed::eventually(SOON, "the moment has passed", has_passed);
            let due: Vec<u64> = runs.iter().copied().filter(|run| *run <= now).collect();
            assert_eq!(seen.of("report"), due, "{zone} at {moment}");
        }
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_entries_of_one_name_are_refused_before_the_node_joins() {
    let redis = RedisServer::start();
    let node = Node::with(settings(endpoint(&redis))).generate(every_second().and(every_second()));
    let error = node.until(std::future::pending()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "schedule: expected entries with different names, got 'every second, every second'"
    );
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_fails_holds_up_no_other_entry() {
    let redis = RedisServer::start();
    let ms = Duration::from_millis;
    let bad = [
        Schedule::every("too many", ms(100)).unwrap().each(|_| vec!["x".to_owned(); 1001]),
        Schedule::every("panics", ms(100)).unwrap().each(|_| -> [String; 1] { panic!("no idea") }),
    ];
    let [many, panics] = bad;
    let schedule = many.and(panics).and(every_second());
    let seen = SeenTicks::default();
    let node = seen.start(settings(endpoint(&redis)), Some(schedule));
    estafeta_testbed::eventually(SOON, "three ticks", || (seen.of("every second").len() >= 3).then_some(()));
    let ticks = seen.of("every second");
    assert_eq!(ticks, (ticks[0]..).take(ticks.len()).collect::<Vec<_>>(), "no tick is missing");
    let reasons = [
        "schedule entry 'too many': batch: expected at most 1000 messages, got 1001",
        "schedule entry 'panics': the function panicked: no idea",
    ];
    for reason in reasons {
        let failed = node.notices.all().into_iter().find(|line| line.contains(reason));
        assert!(failed.is_some_and(|line| line.starts_with("SourceFailed")), "{:?}", node.notices.all());
    }
    node.stop().await.unwrap();
}
