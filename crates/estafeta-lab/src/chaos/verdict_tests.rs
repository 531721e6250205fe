use estafeta::{JournalEntry, MemberId};

use super::super::judge::{PrintedLetter, ReaderOutput};
use super::super::real_work::evidence::RingCounts;
use super::super::watch::CountSample;
use super::*;
use crate::record::{RecordLine, Step};

/// What a flawless run of two nodes left: node 1 was killed, and node 2 took over.
struct FlawlessRun {
    options: ChaosOptions,
    ring: JudgedRing,
    faults: Vec<InjectedFault>,
    times: RunTimes,
    failure: Option<String>,
}

fn flawless_run() -> FlawlessRun {
    let line = |at_ms, step| RecordLine { at_ms, step };
    let began = |id, delivery, epoch| Step::Began { id, delivery, epoch, digest: id };
    let settled = |done: &[u64], failed: &[u64]| Step::Settled {
        member: 2,
        done: done.to_vec(),
        failed: failed.to_vec(),
    };
    let office = |epoch, from| Step::TookOffice { epoch, from, silence_ms: 0 };
    let entry = |ids: &[u64], errors: &[u64]| JournalEntry::sample(MemberId(2), ids, errors);
    let last = r#"{"ring": "x", "timeMs": 9000, "generator": null, "members": [], "waiting": 0, "inFlight": 0,
        "published": 3, "done": 2, "errorsKept": 0, "errorsTaken": 1, "balanced": true, "takeovers": 1,
        "returned": 1, "fenced": 0, "buried": 1, "retried": 0, "dropped": 0, "events": []}"#;
    FlawlessRun {
        options: ChaosOptions {
            workload: Workload::Demo,
            mixed: None,
            nodes: 2,
            length: Duration::from_secs(5),
            kinds: vec![FaultKind::Kill, FaultKind::RedisKill],
            seed: 7,
            topology: Some(Topology::Single),
            durability: Durability::Memory,
            rings: vec!["x".parse().unwrap()],
            redis: None,
        },
        ring: JudgedRing {
            evidence: Evidence {
                published: 3,
                journal: vec![entry(&[1, 2], &[2]), entry(&[3], &[])],
                records: vec![
                    vec![
                        line(10, Step::Joined { member: 1 }),
                        line(20, office(1, None)),
                        line(30, Step::Published { epoch: 1, messages: vec![(1, 1), (2, 2), (3, 3)] }),
                        line(40, began(3, 1, 1)),
                    ],
                    vec![
                        line(10, Step::Joined { member: 2 }),
                        line(35, began(1, 1, 1)),
                        line(36, began(2, 1, 1)),
                        line(37, settled(&[1], &[2])),
                        line(1300, office(2, Some(1))),
                        line(1310, began(3, 2, 1)),
                        line(1320, settled(&[3], &[])),
                        line(8000, Step::Left),
                    ],
                ],
                readers: vec![ReaderOutput {
                    errors: vec![PrintedLetter::sample(2, 2)],
                    whole: true,
                    ..ReaderOutput::default()
                }],
                complete: true,
                ..Evidence::default()
            },
            seen: Seen {
                samples: vec![CountSample { at_ms: 50, published: 3, settled: 2 }],
                fell: None,
                unbalanced: Vec::new(),
                clock_ahead_ms: Some(0),
            },
            last: serde_json::from_str(last).unwrap(),
        },
        faults: vec![InjectedFault {
            kind: FaultKind::Kill,
            from_ms: 1000,
            until_ms: 2000,
            victims: vec![0],
            what: "node 1 killed".into(),
        }],
        times: RunTimes {
            recovery: Some(Duration::from_millis(1500)),
            drain: Some(Duration::from_millis(2500)),
            recovered_ms: Some(7000),
            stopped_ms: Some(7100),
            attack: Some((1000, 6000)),
            standstill: Duration::ZERO,
        },
        failure: None,
    }
}

/// The verdict on a flawless run after one change.
fn verdict(change: impl FnOnce(&mut FlawlessRun)) -> Verdict {
    let mut run = flawless_run();
    change(&mut run);
    Verdict::new(&run.options, &[run.ring], &run.faults, run.times, run.failure)
}

fn breaches(change: impl FnOnce(&mut FlawlessRun)) -> Vec<String> {
    let verdict = verdict(change);
    assert_eq!(verdict.is_good(), verdict.breaches.is_empty());
    verdict.breaches.into_iter().map(|breach| breach.what).collect()
}

#[test]
fn each_thing_that_is_wrong_with_a_run_is_a_breach() {
    assert_eq!(breaches(|_| {}), [""; 0]);
    assert_eq!(breaches(|run| run.failure = Some("it hung".into())), ["it hung"]);
    assert_eq!(
        breaches(|run| run.ring.seen.fell = Some((5000, 3))),
        ["Redis lost data: the count of published messages fell from 5,000 to 3"]
    );
    assert_eq!(
        breaches(|run| run.ring.seen.unbalanced = vec!["a".into(), "b".into()]),
        ["2 snapshots did not add up; the first: a"],
        "even if the last snapshot is balanced"
    );
    type Leave = fn(&mut Snapshot);
    let leaves: [(Leave, &str); 3] = [
        (|last| last.waiting = 1, "left at the end: 1 message waiting, 0 in flight, 0 errors kept"),
        (|last| last.in_flight = 1, "left at the end: 0 messages waiting, 1 in flight, 0 errors kept"),
        (
            |last| last.errors_kept = 1000,
            "left at the end: 0 messages waiting, 0 in flight, 1,000 errors kept",
        ),
    ];
    for (leave, expected) in leaves {
        assert_eq!(breaches(|run| leave(&mut run.ring.last)), [expected]);
        let broken_off = |run: &mut FlawlessRun| {
            leave(&mut run.ring.last);
            run.ring.evidence.complete = false;
        };
        assert_eq!(breaches(broken_off), [""; 0], "a run that broke off may leave something");
    }
    assert_eq!(breaches(|run| run.ring.evidence.published = 4), ["#4 has no outcome"]);
}

#[test]
fn all_breaches_are_reported_and_the_run_is_called_broken() {
    let broken = verdict(|run| {
        run.failure = Some("it hung".into());
        run.ring.seen.unbalanced = vec!["a".into()];
        run.ring.evidence.published = 4;
    });
    let reported: Vec<&str> = broken.breaches.iter().map(|breach| breach.what.as_str()).collect();
    assert_eq!(reported, ["it hung", "1 snapshot did not add up; the first: a", "#4 has no outcome"]);
    assert!(broken.sentence().starts_with("3 promises broken"), "{}", broken.sentence());
    let json = broken.json();
    assert_eq!((&json["verdict"], &json["broken"]), (&json!("broken"), &json!(3)));
    assert_eq!(json["breaches"][2], json!({"what": "#4 has no outcome", "message": 4}));
    assert_eq!(broken.stories.len(), 1);
    let mut text = Vec::new();
    broken.write(&mut text, Paint(false)).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("BROKEN: 3 promises") && text.contains("it hung"), "{text}");
}

#[test]
fn losses_count_for_the_fault_that_explains_them_and_take_overs_only_until_the_recovery() {
    let cells = |verdict: &Verdict| -> Vec<String> {
        verdict.table().iter().skip(1).map(|row| row.join(" ")).collect()
    };
    let good = verdict(|_| {});
    assert_eq!(
        cells(&good),
        [
            "kill 1 1 1,270 ms 1,270 ms 1,270 ms 1",
            "redis-kill 0 0 - - - 0",
            "all 1 1 1,270 ms 1,270 ms 1,270 ms 1",
        ]
    );
    let unexplained = verdict(|run| run.faults.clear());
    assert_eq!(cells(&unexplained)[2], "no fault 0 1 1,270 ms 1,270 ms 1,270 ms 1");
    let afterwards = verdict(|run| run.times.recovered_ms = Some(1299));
    assert_eq!(cells(&afterwards)[0], "kill 1 0 - - - 1", "the office passes on when all nodes stop");
    let at_the_end = verdict(|run| run.times.recovered_ms = Some(1300));
    assert_eq!(cells(&at_the_end)[0], cells(&good)[0]);
    let never = verdict(|run| run.times.recovered_ms = None);
    assert_eq!(cells(&never)[0], cells(&good)[0]);
}

#[test]
fn a_run_on_servers_that_can_lose_something_names_them_and_what_they_lost() {
    let lossy = |durability: Durability, lost: u64| {
        verdict(|run| {
            (run.options.topology, run.options.durability) = (Some(Topology::Sentinel), durability);
            run.ring.evidence.losses = run.options.losses(vec![(0, 1500), (5000, 7000)]);
            let evidence = &mut run.ring.evidence;
            (evidence.published, evidence.lost, evidence.reported_losses) = (3 + lost, lost, lost);
            run.ring.last.lost = lost;
            run.ring.seen.fell = Some((9, 8));
        })
    };
    let fact = |verdict: &Verdict| {
        let facts = verdict.facts();
        facts.into_iter().find_map(|(name, fact)| (name == "losses").then_some(fact)).unwrap()
    };
    let memory = lossy(Durability::Memory, 2);
    assert_eq!(memory.breaches, []);
    assert_eq!(memory.sentence(), "each of 3 messages has exactly one outcome, and 2 are counted as lost");
    assert_eq!(
        fact(&memory),
        "Redis lost 2 messages, which the ring counted and reported, and 0 outcomes of others"
    );
    assert!(memory.setting().contains("on an ephemeral Redis with sentinels for"), "{}", memory.setting());
    let json = memory.json();
    assert_eq!((&json["topology"], &json["lost"]), (&"sentinel".into(), &2.into()));
    let risk = serde_json::json!({"atRiskMs": 1500, "attackMs": 5000, "percent": 30});
    assert_eq!(json["risk"], risk);
    let named = |verdict: &Verdict| verdict.facts().into_iter().find(|(name, _)| *name == "risk");
    assert_eq!(
        named(&memory).unwrap().1,
        "a promotion could lose what was reported in 1.5 s of the attack, which took 5.0 s (30 %)"
    );
    let all = lossy(Durability::AllReplicas, 1);
    assert_eq!(all.breaches, []);
    assert_eq!(all.sentence(), "each of 3 messages has exactly one outcome, and 1 is counted as lost");
    assert_eq!(fact(&all), "Redis lost 1 message that no process had reported, and 0 outcomes");
    assert_eq!((named(&all), &all.json()["risk"]), (None, &Value::Null), "nothing is excused");
    assert!(
        all.call.starts_with("estafeta chaos --topology sentinel --durability replicas=all "),
        "{}",
        all.call
    );
}

#[test]
fn a_good_run_is_reported_in_full() {
    let good = verdict(|run| run.times.standstill = Duration::from_millis(1500));
    let json = good.json();
    let expected = json!({
        "verdict": "good", "call": "estafeta chaos --workload demo --nodes 2 --for 5s --faults kill,redis-kill --seed 7",
        "seed": 7, "workload": "demo", "work": null, "upgrade": null, "nodes": 2, "redis": "an ephemeral Redis", "topology": "single",
        "durability": "memory", "forMs": 5000, "messages": 3, "errors": 1, "lost": 0, "outcomesLost": 0, "risk": null, "terms": 2, "faultsInjected": 1,
        "faults": [
            {"kind": "kill", "injected": 1, "takeovers": 1,
             "takeoverMs": {"p50": 1270, "p99": 1270, "max": 1270}, "repeats": 1},
            {"kind": "redis-kill", "injected": 0, "takeovers": 0,
             "takeoverMs": {"p50": null, "p99": null, "max": null}, "repeats": 0},
            {"kind": null, "injected": 0, "takeovers": 0,
             "takeoverMs": {"p50": null, "p99": null, "max": null}, "repeats": 0},
        ],
        "repeats": 1, "takeovers": 1, "takeoverMs": {"p50": 1270, "p99": 1270, "max": 1270}, "snapshots": 1,
        "unbalanced": 0, "bodiesCompared": 3, "readers": 1, "recoveryMs": 1500, "drainMs": 2500,
        "standstillMs": 1500, "broken": 0, "breaches": [], "stories": [],
    });
    assert_eq!(json, expected);
    assert_eq!(good.sentence(), "each of 3 messages has exactly one outcome");
    let facts = |verdict: &Verdict| -> Vec<String> {
        verdict.facts().into_iter().map(|(name, fact)| format!("{name}: {fact}")).collect()
    };
    let seen = facts(&good);
    let expected = [
        "recovery: all nodes at work 1.5 s after the last fault (limit: 10 s)",
        "queue: empty 2.5 s after the last fault (limit: 30 s)",
        "settings: workload demo, durability memory, lease 1 s, 4 lanes or 1 lane per node, 1 to 3 ms of work per message",
        "machine: chaos could not run for 1.5 s, and the times above include that",
    ];
    for fact in expected {
        assert!(seen.iter().any(|seen| seen == fact), "{fact}: {seen:?}");
    }
    let stuck = verdict(|run| run.times.drain = None);
    assert!(facts(&stuck).contains(&"queue: not empty (limit: 30 s after the last fault)".into()));
    let unbalanced = verdict(|run| run.ring.seen.unbalanced = vec!["a".into()]);
    assert!(facts(&unbalanced).contains(&"snapshots: 1 checked, and 1 of them did NOT add up".into()));
}

#[test]
fn the_workload_with_publishers_reports_what_they_did_and_counts_no_cancelled_message() {
    let work = |cancelled| {
        let mut good = verdict(|run| run.options.workload = Workload::Work);
        let counts = RingCounts { retries: 3000, snoozes: 2, cancelled, submitted: 2 };
        good.work = Some(WorkFindings {
            counts,
            effects: 8,
            delayed: 4,
            duplicates: 5,
            timed: 6,
            latest_ms: 7,
            ..WorkFindings::default()
        });
        good
    };
    let good = work(1);
    assert_eq!(good.sentence(), "each of 2 messages has exactly one outcome");
    assert_eq!(good.setting(), "2 nodes and 3 publishers on an ephemeral Redis for 5 s, seed 7");
    let facts = good.facts();
    let expected = [
        ("publishers", "2 messages, 1 of them cancelled; 5 duplicates recognised"),
        ("plans", "3,000 retries, 2 snoozes and 8 effects; 4 messages were delayed"),
        (
            "times",
            "nothing came early; of 6 due on the healthy ring, the latest came 7 ms late (limit: 3000 ms)",
        ),
    ];
    for (name, fact) in expected {
        assert!(facts.contains(&(name, fact.to_owned())), "{fact}: {facts:?}");
    }
    let json = json!({"submitted": 2, "cancelled": 1, "duplicates": 5, "retries": 3000, "snoozes": 2, "effects": 8, "delayed": 4,
        "timed": 6, "latestMs": 7, "lines": 0, "forwarded": 0});
    assert_eq!(good.json()["work"], json);
}

#[test]
fn a_pipeline_is_judged_ring_by_ring_and_each_breach_names_its_ring() {
    let pipeline = |change: fn(&mut JudgedRing, &mut JudgedRing)| {
        let (mut first, mut second) = (flawless_run(), flawless_run().ring);
        first.options.workload = Workload::Pipeline;
        first.options.rings = Workload::Pipeline.rings(&first.options.rings[0]).unwrap();
        change(&mut first.ring, &mut second);
        let FlawlessRun { options, ring, faults, times, failure } = first;
        Verdict::new(&options, &[ring, second], &faults, times, failure)
    };
    let good = pipeline(|_, _| {});
    assert!(good.is_good());
    assert_eq!(good.sentence(), "each of 6 messages has exactly one outcome");
    assert_eq!(
        good.setting(),
        "2 nodes in each of two rings and 3 publishers on an ephemeral Redis for 5 s, seed 7"
    );
    let json = good.json();
    let counts = ["errors", "terms", "repeats", "takeovers", "snapshots", "bodiesCompared", "readers"];
    assert_eq!(counts.map(|count| json[count].as_u64().unwrap()), [2, 4, 2, 2, 2, 6, 2]);
    let broken = pipeline(|first, second| {
        first.evidence.published = 4;
        second.evidence.published = 4;
        second.seen.unbalanced = vec!["a".into()];
    });
    let reported: Vec<&str> = broken.breaches.iter().map(|breach| breach.what.as_str()).collect();
    let expected = [
        "lines: #4 has no outcome",
        "totals: 1 snapshot did not add up; the first: a",
        "totals: #4 has no outcome",
    ];
    assert_eq!(reported, expected);
    let stories: Vec<String> = broken.stories.iter().map(MessageStory::subject).collect();
    assert_eq!(stories, ["#4 of lines", "#4 of totals"]);
    assert_eq!((&broken.json()["stories"][1]["ring"], &json["unbalanced"]), (&json!("totals"), &json!(0)));
    let mut text = Vec::new();
    broken.write(&mut text, Paint(false)).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("the story of #4 of totals"));
}

#[test]
fn only_the_first_five_broken_messages_get_a_story_and_each_gets_one() {
    let broken = verdict(|run| {
        run.ring.evidence.published = 12;
        run.ring.evidence.records[0][3].step = Step::Began { id: 3, delivery: 2, epoch: 1, digest: 9 };
    });
    let stories: Vec<u64> = broken.stories.iter().map(|story| story.message).collect();
    assert_eq!(stories, [3, 4, 5, 6, 7]);
}
