use estafeta::{JournalEntry, MemberId};

use super::super::effects::WrittenEffects;
use super::super::evidence::RingCounts;
use super::*;
use crate::chaos::judge::{self, PrintedLetter, ReaderOutput};

const PLANS: [(u64, &str); 6] = [
    (1, "g1/done"),
    (2, "g2/snooze:1/retry:1/done"),
    (3, "p1-1-0/delay:100/done"),
    (4, "p1-2-0/delay:1000/done"),
    (5, "p1-2-0-new/fatal"),
    (6, "p1-6-0/hopeless"),
];

fn line(at_ms: u64, step: Step) -> RecordLine {
    RecordLine { at_ms, step }
}

/// An attempt at a message. Publishers publish at 1000 ms, and the epoch of their messages is that time.
fn attempt(id: u64, delivery: u32, snoozes: u32, failures: u32) -> Step {
    let body = PLANS.iter().find(|(other, _)| *other == id).unwrap().1.to_owned();
    let epoch = if is_from_outside(&body) { 1000 } else { 5 };
    Step::Attempt { id, delivery, epoch, failures, snoozes, published_ms: 1000, body }
}

fn submits(call: u64, messages: &[(&str, &str)]) -> Step {
    let key = |key: &str| (!key.is_empty()).then(|| key.to_owned());
    Step::Submits {
        call,
        messages: messages.iter().map(|(name, body)| (key(name), (*body).to_owned())).collect(),
    }
}

fn receipts(call: u64, receipts: &[(u64, bool)]) -> Step {
    Step::Receipts { call, receipts: receipts.to_vec() }
}

fn entry(ids: &[u64], errors: &[u64]) -> JournalEntry {
    JournalEntry::sample(MemberId(1), ids, errors)
}

/// One node handled everything as planned. Publisher 1 published a delayed message twice, cancelled another one, used
/// its key again, and was killed before it learnt that #6 was published.
fn flawless_run() -> Evidence {
    let node = vec![
        line(900, Step::Joined { member: 1 }),
        line(950, Step::TookOffice { epoch: 5, from: None, silence_ms: 0 }),
        line(1010, attempt(1, 1, 0, 0)),
        line(1020, attempt(2, 1, 0, 0)),
        line(1080, attempt(2, 2, 1, 0)),
        line(1100, attempt(3, 1, 0, 0)),
        line(1130, attempt(2, 3, 1, 1)),
        line(1200, attempt(5, 1, 0, 0)),
        line(1300, attempt(6, 1, 0, 0)),
        line(1340, attempt(6, 2, 0, 1)),
        line(1420, attempt(6, 3, 0, 2)),
        line(1580, attempt(6, 4, 0, 3)),
    ];
    let publisher = vec![
        line(1000, submits(1, &[("a", PLANS[2].1)])),
        line(1001, receipts(1, &[(3, false)])),
        line(1002, submits(2, &[("a", PLANS[2].1)])),
        line(1003, receipts(2, &[(3, true)])),
        line(1004, submits(3, &[("b", PLANS[3].1)])),
        line(1005, receipts(3, &[(4, false)])),
        line(1006, Step::Cancels { call: 4, id: 4 }),
        line(1007, Step::Cancelled { call: 4, is_cancelled: true }),
        line(1008, submits(5, &[("b", PLANS[4].1)])),
        line(1009, receipts(5, &[(5, false)])),
        line(1010, Step::Cancels { call: 6, id: 3 }),
        line(1100, Step::Cancelled { call: 6, is_cancelled: false }),
        line(1101, submits(7, &[("", PLANS[5].1)])),
    ];
    let letter = |id, failures, reason: &str| Letter { id, failures, snoozes: 0, reason: reason.to_owned() };
    let digest =
        |id: u64| PrintedLetter::sample(id, crate::record::digest(PLANS[id as usize - 1].1.as_bytes()));
    Evidence {
        published: 6,
        journal: vec![entry(&[1, 2, 3], &[]), entry(&[5], &[5]), entry(&[6], &[6])],
        records: vec![node],
        readers: vec![ReaderOutput {
            errors: vec![digest(5), digest(6)],
            letters: vec![letter(5, 1, "fatal, as planned"), letter(6, 4, "failed, as planned")],
            whole: true,
            ..ReaderOutput::default()
        }],
        complete: true,
        work: Some(WorkEvidence {
            publishers: vec![publisher],
            counts: RingCounts { retries: 4, snoozes: 1, cancelled: 1, submitted: 4 },
            // #1, #2 and #3 are done.
            written: WrittenEffects {
                totals: [("total-1", 2), ("total-2", 3), ("total-3", 4)]
                    .map(|(name, n)| (name.to_owned(), n))
                    .into(),
                stream: vec![1, 3],
                last: Some(2),
                results: [(1, "1".to_owned())].into(),
                fed: 0,
            },
            healthy: Some((500, 9000)),
            ..WorkEvidence::default()
        }),
        ..Evidence::default()
    }
}

fn breaches(change: impl FnOnce(&mut Evidence)) -> Vec<String> {
    let mut evidence = flawless_run();
    change(&mut evidence);
    judge::judge(&evidence).breaches.into_iter().map(|breach| breach.what).collect()
}

fn node(evidence: &mut Evidence) -> &mut Vec<RecordLine> {
    &mut evidence.records[0]
}

fn work(evidence: &mut Evidence) -> &mut WorkEvidence {
    evidence.work.as_mut().unwrap()
}

fn written(evidence: &mut Evidence) -> &mut WrittenEffects {
    &mut work(evidence).written
}

fn publisher(evidence: &mut Evidence) -> &mut Vec<RecordLine> {
    &mut work(evidence).publishers[0]
}

const NOTHING: [&str; 0] = [];

/// The breaches of a flawless run after one change, if Redis may have lost what it acknowledged from 1015 to 1090 ms.
fn breaches_after_a_loss(change: impl FnOnce(&mut Evidence)) -> Vec<String> {
    breaches(|evidence| {
        evidence.losses = Losses::During(vec![(1015, 1090)]);
        evidence.cancelled = 1;
        change(evidence);
    })
}

#[test]
fn a_message_whose_attempt_was_lost_goes_through_its_stages_again() {
    assert_eq!(breaches_after_a_loss(|_| {}), NOTHING);
    let again = |lost_ms: u64, snooze_ms: u64| {
        breaches_after_a_loss(|evidence| {
            // The second attempt was lost, and with it the snooze.
            node(evidence)[4].at_ms = lost_ms;
            node(evidence).insert(5, line(1095, attempt(2, 2, 0, 0)));
            node(evidence).insert(6, line(1095 + snooze_ms, attempt(2, 3, 1, 0)));
            node(evidence)[8] = line(1155 + snooze_ms, attempt(2, 4, 1, 1));
        })
    };
    assert_eq!(again(1080, 60), NOTHING);
    let kept = again(1091, 60).join("; ");
    assert!(kept.contains("#2 came with 0 snoozes and 0 failures where its plan"), "{kept}");
    let early = again(1080, 1).join("; ");
    assert!(early.contains("#2 came ") && early.contains(" ms before its time"), "{early}");
    let skipped = breaches_after_a_loss(|evidence| drop(node(evidence).remove(4))).join("; ");
    assert!(skipped.contains("#2 came with 1 snooze and 1 failure where its plan"), "{skipped}");
    let other_plan = breaches_after_a_loss(|evidence| {
        node(evidence).insert(5, line(1085, attempt(2, 2, 5, 0)));
    });
    let other_plan = other_plan.join("; ");
    assert!(other_plan.contains("#2 came with 5 snoozes and 0 failures where its plan"), "{other_plan}");
}

#[test]
fn a_publish_that_was_lost_is_no_breach_only_at_the_time_of_a_promotion() {
    // A message with the key of #3 was published before, as #9, and a node began to handle it.
    let lost = |at_ms: u64| {
        breaches_after_a_loss(|evidence| {
            let publisher = publisher(evidence);
            publisher.insert(0, line(at_ms, submits(90, &[("a", PLANS[2].1)])));
            publisher.insert(1, line(at_ms, receipts(90, &[(9, false)])));
            let body = PLANS[2].1.to_owned();
            let (id, delivery, epoch, failures, snoozes, published_ms) = (9, 1, 900, 0, 0, 900);
            let attempt = Step::Attempt { id, delivery, epoch, failures, snoozes, published_ms, body };
            node(evidence).insert(2, line(at_ms, attempt));
        })
    };
    assert_eq!(lost(1050), NOTHING);
    let kept = lost(1000).join("; ");
    assert!(kept.contains("p1-1-0/delay:100/done was published 2 times: as #3 and #9"), "{kept}");
    assert!(kept.contains("p1-1-0/delay:100/done has 2 receipts of a publish"), "{kept}");
}

#[test]
fn a_cancellation_that_was_lost_is_no_breach_only_at_the_time_of_a_promotion() {
    let handled_after_all = |at_ms: u64| {
        breaches_after_a_loss(|evidence| {
            let cancelled = &mut publisher(evidence)[7];
            *cancelled = line(at_ms, Step::Cancelled { call: 4, is_cancelled: true });
            evidence.cancelled = 0;
            work(evidence).counts.cancelled = 0;
            work(evidence).written.totals.insert("total-4".to_owned(), 5);
            work(evidence).written.last = Some(4);
            evidence.journal.push(entry(&[4], &[]));
            node(evidence).push(line(2100, attempt(4, 1, 0, 0)));
        })
    };
    assert_eq!(handled_after_all(1050), NOTHING);
    let kept = handled_after_all(1007).join("; ");
    assert!(kept.contains("#4 was cancelled, but a node began to handle it"), "{kept}");
    assert!(kept.contains("#4 was cancelled, but has an outcome"), "{kept}");
}

/// The earlier message keeps its key if Redis lost the cancellation.
#[test]
fn a_key_that_is_still_taken_is_no_breach_only_if_its_cancellation_may_be_lost() {
    let refused = |at_ms: u64| {
        breaches_after_a_loss(|evidence| {
            let record = publisher(evidence);
            record[7] = line(at_ms, Step::Cancelled { call: 4, is_cancelled: true });
            record[9] = line(at_ms + 1, Step::Refused { call: 5 });
        })
    };
    let what = "call 5 was refused, although the earlier message with its key was cancelled";
    assert!(!refused(1050).iter().any(|breach| breach == what));
    assert!(refused(1007).iter().any(|breach| breach == what));
    assert!(
        refused(1050).iter().any(|breach| breach == "#5 has a body that nobody sent"),
        "it was not published"
    );
}

#[test]
fn a_flawless_run_has_no_breaches_and_its_figures_are_right() {
    let findings = judge::judge(&flawless_run());
    assert_eq!(findings.breaches, []);
    assert_eq!(findings.repeats, [], "a retry is no repeat");
    let expected = WorkFindings {
        counts: RingCounts { retries: 4, snoozes: 1, cancelled: 1, submitted: 4 },
        effects: 7,
        delayed: 1,
        duplicates: 1,
        timed: 6,
        latest_ms: 0,
        ..WorkFindings::default()
    };
    assert_eq!(findings.work, Some(expected));
}

#[test]
fn a_lost_node_repeats_a_stage_and_that_counts_as_a_repeat() {
    let mut evidence = flawless_run();
    node(&mut evidence)[6].step = attempt(2, 4, 1, 1);
    node(&mut evidence).insert(6, line(1129, attempt(2, 3, 1, 1)));
    let findings = judge::judge(&evidence);
    assert_eq!(findings.breaches, []);
    assert_eq!(findings.repeats.len(), 1);
}

#[test]
fn a_stage_that_was_skipped_or_repeated_or_ended_wrongly_is_found() {
    let plan = "g2/snooze:1/retry:1/done";
    let skipped = breaches(|evidence| drop(node(evidence).remove(4)));
    assert_eq!(
        skipped,
        [
            "the ring counts 4 retries, but the records show 3",
            "the ring counts 1 snoozes, but the records show 0",
            &format!(
                "#2 came with 1 snooze and 1 failure where its plan, {plan}, allows 0 snoozes and 0 failures or the \
                 next stage"
            ),
        ]
    );
    let first = breaches(|evidence| node(evidence)[2].step = attempt(1, 1, 0, 1));
    assert_eq!(
        first,
        [
            "#1 came with 0 snoozes and 1 failure where its plan, g1/done, allows 0 snoozes and 0 failures or the next stage"
        ]
    );
    let too_soon = breaches(|evidence| drop(node(evidence).remove(6)));
    assert_eq!(
        too_soon[2],
        format!(
            "#2 got its outcome with 1 snooze and 0 failures, but its plan, {plan}, ends with 1 snooze and 1 failure"
        ),
        "{too_soon:?}"
    );
    let done = breaches(|evidence| {
        evidence.journal[1].errors.clear();
        evidence.readers[0].errors.remove(0);
        written(evidence).totals.insert("total-5".to_owned(), 6);
        written(evidence).stream.push(5);
    });
    assert_eq!(done, ["#5 is done, against its plan, p1-2-0-new/fatal"]);
    let failed = breaches(|evidence| evidence.journal[0].errors.push(1));
    assert!(failed.contains(&"#1 is an error, against its plan, g1/done".to_owned()), "{failed:?}");
}

#[test]
fn an_error_with_other_counts_or_another_reason_is_found() {
    let error = "the error #6 has 3 failures, 0 snoozes and the reason 'failed, as planned', against its plan, p1-6-0/hopeless";
    assert_eq!(breaches(|evidence| evidence.readers[0].letters[1].failures = 3), [error]);
    assert_eq!(breaches(|evidence| evidence.readers[0].letters[1].snoozes = 1).len(), 1);
    assert_eq!(breaches(|evidence| evidence.readers[0].letters[0].reason.clear()).len(), 1);
}

#[test]
fn a_message_that_came_before_its_time_is_found() {
    let early = |at_ms| {
        breaches(|evidence| {
            node(evidence)[5].at_ms = at_ms;
            // The cancellation was answered before that.
            publisher(evidence).truncate(11);
            publisher(evidence).push(line(1101, submits(7, &[("", PLANS[5].1)])));
        })
    };
    assert_eq!(early(1097), ["#3 came 3 ms before its time"]);
    assert_eq!(early(1098), NOTHING);
    let snoozed = breaches(|evidence| node(evidence)[4].at_ms = 1077);
    assert_eq!(snoozed, ["#2 came 3 ms before its time"]);
    let retried = breaches(|evidence| node(evidence)[6].at_ms = 1080 + 27);
    assert_eq!(retried, ["#2 came 3 ms before its time"]);
    let ahead = breaches(|evidence| work(evidence).clock_ahead_ms = -3);
    assert_eq!(ahead[..1], ["#3 came 3 ms before its time"], "by Redis' clock");
}

#[test]
fn a_message_that_came_late_is_found_only_on_the_healthy_ring() {
    let late = |at_ms, healthy| {
        breaches(|evidence| {
            node(evidence)[5].at_ms = at_ms;
            work(evidence).healthy = healthy;
        })
    };
    assert_eq!(late(4101, Some((500, 9000))), ["#3 came 3001 ms late on the healthy ring (limit: 3000 ms)"]);
    assert_eq!(late(4100, Some((500, 9000))), NOTHING);
    assert_eq!(late(4101, None), NOTHING);
    assert_eq!(late(4101, Some((601, 9000))), NOTHING, "it was due in the first half second");
    assert_eq!(late(4101, Some((500, 4099))), NOTHING, "there was not enough time left");
    assert_eq!(late(4101, Some((600, 4100))).len(), 1);
    let stalled = breaches(|evidence| {
        node(evidence)[5].at_ms = 4101;
        work(evidence).standstill_ms = 1;
    });
    assert_eq!(stalled, NOTHING);
}

#[test]
fn a_message_that_was_published_twice_is_found() {
    let twice = breaches(|evidence| {
        let Step::Attempt { body, .. } = &mut node(evidence)[7].step else { panic!("no attempt") };
        *body = PLANS[2].1.to_owned();
        evidence.readers.clear();
    });
    let expected = "p1-1-0/delay:100/done was published 2 times: as #3 and #5";
    assert!(twice.contains(&expected.to_owned()), "{twice:?}");
    assert!(
        twice
            .contains(&"the receipt of p1-2-0-new/fatal names #5, which is p1-1-0/delay:100/done".to_owned())
    );
    let new = breaches(|evidence| publisher(evidence)[3].step = receipts(2, &[(3, false)]));
    assert_eq!(new, ["p1-1-0/delay:100/done has 2 receipts of a publish and 0 of duplicates"]);
    let none = breaches(|evidence| publisher(evidence)[1].step = receipts(1, &[(3, true)]));
    assert_eq!(none, ["p1-1-0/delay:100/done has 0 receipts of a publish and 2 of duplicates"]);
    let unanswered = breaches(|evidence| drop(publisher(evidence).remove(1)));
    assert_eq!(unanswered, NOTHING, "the first call was applied, but has no receipt");
    let missing = breaches(|evidence| publisher(evidence)[1].step = receipts(1, &[]));
    assert_eq!(missing, ["1 messages from p1-1-0/delay:100/done on have 0 receipts"]);
}

#[test]
fn a_key_with_two_messages_and_a_message_that_nobody_sent_are_found() {
    let reused = breaches(|evidence| publisher(evidence)[8].step = submits(5, &[("a", PLANS[4].1)]));
    assert_eq!(reused, ["the key a has several messages: #3 and #5"]);
    let unsent = breaches(|evidence| drop(publisher(evidence).pop()));
    assert_eq!(unsent, ["#6 has a body that nobody sent"]);
}

#[test]
fn a_call_that_was_applied_in_part_is_found() {
    let part = |complete| {
        breaches(|evidence| {
            evidence.complete = complete;
            publisher(evidence)[12].step = submits(7, &[("", PLANS[5].1), ("", "p1-6-1/done")]);
        })
    };
    assert_eq!(part(true), ["of 2 messages in one call from p1-6-0/hopeless on, 1 were published"]);
    assert_eq!(part(false), NOTHING, "the rest may have come later");
    let none = breaches(|evidence| publisher(evidence).push(line(1, submits(8, &[("", "p1-7-0/done")]))));
    assert_eq!(none, NOTHING);
}

#[test]
fn a_cancelled_message_that_was_handled_is_found() {
    let handled = breaches(|evidence| node(evidence).push(line(2000, attempt(4, 1, 0, 0))));
    assert_eq!(handled, ["#4 was cancelled, but a node began to handle it"]);
    let settled = breaches(|evidence| {
        evidence.journal[0].ids.push(4);
        node(evidence).push(line(2000, attempt(4, 1, 0, 0)));
        work(evidence).counts.cancelled = 0;
        written(evidence).totals.insert("total-4".to_owned(), 5);
    });
    assert_eq!(
        settled,
        ["#4 was cancelled, but a node began to handle it", "#4 was cancelled, but has an outcome"]
    );
    let unanswered = breaches(|evidence| drop(publisher(evidence).remove(7)));
    assert_eq!(unanswered, NOTHING, "nobody knows whether it was cancelled");
    let refused =
        breaches(|evidence| publisher(evidence)[7].step = Step::Cancelled { call: 4, is_cancelled: false });
    assert_eq!(
        refused,
        [
            "the ring counts 1 cancelled messages, but the records show 0",
            "#4 has no outcome",
            "the key b has several messages: #4 and #5"
        ]
    );
}

#[test]
fn a_message_that_was_not_due_must_be_cancelled() {
    let refused = |at_ms| breaches(|evidence| publisher(evidence)[11].at_ms = at_ms);
    assert_eq!(refused(1097), ["#3 could not be cancelled 3 ms before its time"]);
    assert_eq!(refused(1098), NOTHING);
}

#[test]
fn counts_of_the_ring_that_differ_from_the_records_are_found() {
    let counts = RingCounts { retries: 5, snoozes: 0, cancelled: 2, submitted: 3 };
    assert_eq!(
        breaches(|evidence| work(evidence).counts = counts),
        [
            "the ring counts 5 retries, but the records show 4",
            "the ring counts 0 snoozes, but the records show 1",
            "the ring counts 2 cancelled messages, but the records show 1",
            "the ring counts 3 messages of publishers, but the records show 4",
        ]
    );
    let broken_off = breaches(|evidence| {
        evidence.complete = false;
        work(evidence).counts = counts;
    });
    assert_eq!(broken_off, NOTHING);
}

#[test]
fn an_effect_that_was_lost_or_applied_twice_is_found() {
    let total = |name: &str, n: Option<i64>| {
        breaches(|evidence| {
            let totals = &mut written(evidence).totals;
            totals.remove(name);
            totals.extend(n.map(|n| (name.to_owned(), n)));
        })
    };
    assert_eq!(total("total-2", None), ["total-2 is 0 in Redis, but the messages that are done add up to 3"]);
    assert_eq!(
        total("total-2", Some(6)),
        ["total-2 is 6 in Redis, but the messages that are done add up to 3"]
    );
    assert_eq!(
        total("total-7", Some(8)),
        ["total-7 is 8 in Redis, but the messages that are done add up to 0"]
    );
    let broken_off = breaches(|evidence| {
        evidence.complete = false;
        *written(evidence) = WrittenEffects::default();
    });
    assert_eq!(broken_off, NOTHING);
}

#[test]
fn an_entry_of_the_stream_that_is_missing_doubled_or_misplaced_is_found() {
    let stream = |ids: &[u64], steps: &[&[u64]]| {
        breaches(|evidence| {
            let steps = steps.iter().map(|ids| entry(ids, &[]));
            evidence.journal.splice(..1, steps);
            written(evidence).stream = ids.to_vec();
        })
    };
    let (one_step, two_steps): (&[&[u64]], &[&[u64]]) = (&[&[1, 2, 3]], &[&[1, 2], &[3]]);
    assert_eq!(stream(&[3, 1], one_step), NOTHING, "the order within a step is unknown");
    assert_eq!(stream(&[1, 3], two_steps), NOTHING);
    let misplaced = "done holds #1 where one step appended #3";
    assert_eq!(stream(&[3, 1], two_steps), [misplaced]);
    assert_eq!(stream(&[3], two_steps), ["done has 1 entries, but 2 were appended"]);
    let doubled = stream(&[1, 3, 3], two_steps);
    let expected = ["done has 3 entries, but 2 were appended", "done holds #3 where one step appended #1"];
    assert_eq!(doubled, expected);
    assert_eq!(stream(&[3, 3], one_step), ["done holds #3 and #3 where one step appended #1 and #3"]);
    assert_eq!(stream(&[5, 3], one_step), ["done holds #5 and #3 where one step appended #1 and #3"]);
}

#[test]
fn only_the_oldest_entries_of_a_stream_may_be_missing() {
    let kept = |ids: std::ops::Range<u64>| {
        let found = breaches(|evidence| {
            evidence.journal.extend((0..400).map(|step| entry(&[1001 + 2 * step], &[])));
            written(evidence).stream = ids.map(|step| 1001 + 2 * step).collect();
        });
        found.into_iter().filter(|what| what.starts_with("done ")).collect::<Vec<_>>()
    };
    assert_eq!(kept(100..400), NOTHING);
    assert_eq!(kept(101..400), ["done has 299 entries, but 402 were appended"]);
    assert_eq!(kept(99..399), ["done holds #1797 where one step appended #1799"]);
}

#[test]
fn a_key_without_the_value_of_the_last_step_that_set_it_is_found() {
    let last = |id| breaches(|evidence| written(evidence).last = id);
    assert_eq!(last(Some(4)), ["last holds #4, but the last step set #2"]);
    assert_eq!(last(None), ["last holds nothing, but the last step set #2"]);
    let unset = breaches(|evidence| evidence.journal[0].errors = vec![2]);
    assert!(unset.contains(&"last holds #2, but the last step set nothing".to_owned()), "{unset:?}");
    let of_many = breaches(|evidence| evidence.journal[0].ids = vec![4, 2, 1, 3]);
    assert!(!of_many.iter().any(|what| what.starts_with("last ")), "{of_many:?}");
}

#[test]
fn a_result_that_is_missing_or_wrong_is_found() {
    let results = |results: &[(u64, &str)]| {
        let results = results.iter().map(|(id, result)| (*id, (*result).to_owned())).collect();
        breaches(|evidence| written(evidence).results = results)
    };
    assert_eq!(results(&[]), ["#1 is done, but its result is missing"]);
    assert_eq!(results(&[(1, "2")]), ["#1 has the result '2', which no handler gave it"]);
    assert_eq!(results(&[(1, "1"), (3, "3")]), ["#3 has the result '3', which no handler gave it"]);
    let failed = breaches(|evidence| evidence.journal[0].errors = vec![1]);
    assert!(failed.contains(&"#1 has the result '1', which no handler gave it".to_owned()), "{failed:?}");
}
