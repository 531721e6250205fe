use estafeta::MemberId;

use super::*;

/// A flawless run of three nodes with one take-over, an error, a kill and a repeat.
fn flawless_run() -> Evidence {
    let record = |steps: Vec<Step>| {
        (1..).zip(steps).map(|(at, step)| RecordLine { at_ms: at * 10, step }).collect::<Vec<_>>()
    };
    let began = |id, delivery| Step::Began { id, delivery, epoch: 5, digest: id * 100 };
    Evidence {
        published: 4,
        journal: vec![entry(2, &[1, 2], &[2]), entry(3, &[3], &[]), entry(3, &[4], &[])],
        records: vec![
            record(vec![
                Step::Joined { member: 1 },
                Step::TookOffice { epoch: 5, from: None, silence_ms: 0 },
                Step::Published { epoch: 5, messages: vec![(1, 100), (2, 200), (3, 300)] },
            ]),
            record(vec![
                Step::Joined { member: 2 },
                began(1, 1),
                began(2, 1),
                Step::Settled { member: 2, done: vec![1], failed: vec![2] },
                began(3, 1),
                Step::TookOffice { epoch: 6, from: Some(1), silence_ms: 120 },
                Step::Published { epoch: 6, messages: vec![(4, 400)] },
            ]),
            record(vec![
                Step::Joined { member: 3 },
                began(3, 2),
                Step::Settled { member: 3, done: vec![3], failed: vec![] },
                Step::Began { id: 4, delivery: 1, epoch: 6, digest: 400 },
                Step::Settled { member: 3, done: vec![4], failed: vec![] },
                Step::Left,
            ]),
        ],
        readers: vec![ReaderOutput {
            errors: vec![PrintedLetter::sample(2, 200)],
            whole: true,
            ..ReaderOutput::default()
        }],
        complete: true,
        ..Evidence::default()
    }
}

/// All breaches of a flawless run after one change, in the order in which they are reported.
fn breaches(change: impl FnOnce(&mut Evidence)) -> Vec<String> {
    let mut evidence = flawless_run();
    change(&mut evidence);
    judge(&evidence).breaches.into_iter().map(|breach| breach.what).collect()
}

const NOTHING: [&str; 0] = [];

fn step(evidence: &mut Evidence, node: usize, line: usize) -> &mut Step {
    &mut evidence.records[node][line].step
}

fn entry(member: u64, ids: &[u64], errors: &[u64]) -> JournalEntry {
    JournalEntry::sample(MemberId(member), ids, errors)
}

fn published(epoch: u64, ids: &[u64]) -> Step {
    Step::Published { epoch, messages: ids.iter().map(|id| (*id, id * 100)).collect() }
}

#[test]
fn a_flawless_run_has_no_breaches_and_its_figures_are_right() {
    let findings = judge(&flawless_run());
    assert_eq!(findings.breaches, []);
    assert_eq!((findings.errors, findings.epochs), (1, 2));
    assert_eq!(findings.take_overs, [TakeOver { at_ms: 60, from: 0, silence_ms: 30 }]);
    assert_eq!(findings.repeats, [Repeat { at_ms: 20, first: 1 }]);
    assert_eq!(findings.bodies_compared, 4);
}

#[test]
fn a_message_without_an_outcome_is_found() {
    assert_eq!(breaches(|evidence| evidence.published = 5), ["#5 has no outcome"]);
    assert_eq!(
        breaches(|evidence| evidence.journal[1].ids.clear()),
        ["#3 has no outcome", "#3 was settled by member 3, but is not in the journal"]
    );
}

#[test]
fn a_second_outcome_is_found_even_if_it_is_the_same() {
    let again = breaches(|evidence| evidence.journal.push(entry(2, &[1], &[])));
    assert_eq!(again, ["#1 has two outcomes, by member 2 and by member 2"]);
    let by_another = breaches(|evidence| evidence.journal.push(entry(3, &[1], &[])));
    assert_eq!(
        by_another,
        [
            "#1 has two outcomes, by member 2 and by member 3",
            "#1: member 2 recorded done, but the journal has done by member 3",
            "#1 was settled by member 3, which never began to handle it",
        ]
    );
}

#[test]
fn an_outcome_of_a_message_that_no_node_began_is_found_even_if_another_message_of_its_step_failed() {
    let unbegun = breaches(|evidence| drop(evidence.records[1].remove(1)));
    assert_eq!(unbegun, ["#1 was settled by member 2, which never began to handle it"]);
}

#[test]
fn an_error_that_a_reader_printed_without_an_outcome_is_found_even_if_the_run_broke_off() {
    let invented = breaches(|evidence| {
        evidence.complete = false;
        evidence.readers[0].errors.push(PrintedLetter::sample(99, 9900));
    });
    assert_eq!(invented, ["getErrors printed #99, which is no error"]);
}

#[test]
fn an_outcome_of_a_message_that_was_never_published_is_found() {
    let invented = breaches(|evidence| {
        evidence.journal[2].ids.push(5);
        evidence.records[2].insert(
            4,
            RecordLine { at_ms: 45, step: Step::Began { id: 5, delivery: 1, epoch: 6, digest: 500 } },
        );
        *step(evidence, 2, 5) = Step::Settled { member: 3, done: vec![4, 5], failed: vec![] };
    });
    assert_eq!(
        invented,
        ["#5 has an outcome but was never published", "#5 was published, but the ledger does not count it"]
    );
    let zero = breaches(|evidence| evidence.journal.push(entry(9, &[0], &[0])));
    assert_eq!(zero, ["#0 has an outcome but was never published", "getErrors never printed the error #0"]);
}

#[test]
fn records_that_contradict_the_journal_are_found() {
    let other = breaches(|evidence| evidence.journal[0].errors.clear());
    assert_eq!(
        other,
        [
            "#2: member 2 recorded an error, but the journal has done by member 2",
            "getErrors printed #2, which is no error"
        ]
    );
    let thief = breaches(|evidence| evidence.journal[2].member = MemberId(2));
    assert_eq!(
        thief,
        [
            "#4: member 3 recorded done, but the journal has done by member 2",
            "#4 was settled by member 2, which never began to handle it"
        ]
    );
    let twice = breaches(|evidence| {
        let again = Step::Settled { member: 3, done: vec![3], failed: vec![] };
        evidence.records[2].push(RecordLine { at_ms: 99, step: again });
    });
    assert_eq!(twice, ["#3 was settled twice, according to the records of the nodes"]);
}

#[test]
fn a_node_that_left_in_good_order_must_have_recorded_all_that_it_settled() {
    let forgotten = breaches(|evidence| *step(evidence, 2, 4) = Step::BecameHandler);
    assert_eq!(forgotten, ["#4 was settled by member 3, which left in good order but did not record that"]);
    let killed = breaches(|evidence| {
        evidence.records[2].truncate(4);
    });
    assert_eq!(killed, NOTHING, "a killed node may not have recorded its last step");
}

#[test]
fn a_publish_after_a_later_term_began_is_found() {
    let late = breaches(|evidence| {
        *step(evidence, 0, 2) = published(5, &[1, 2, 4]);
        *step(evidence, 1, 6) = published(6, &[3]);
        for (node, line) in [(1, 4), (2, 1)] {
            let delivery = if node == 1 { 1 } else { 2 };
            *step(evidence, node, line) = Step::Began { id: 3, delivery, epoch: 6, digest: 300 };
        }
        *step(evidence, 2, 3) = Step::Began { id: 4, delivery: 1, epoch: 5, digest: 400 };
    });
    assert_eq!(late, ["#4 was published in epoch 5, after epoch 6 had begun"]);
    let unrecorded = breaches(|evidence| {
        // The publisher was killed before it could record that. The handlers know the epoch.
        *step(evidence, 0, 2) = published(5, &[1, 2]);
        for (node, line) in [(1, 4), (2, 1)] {
            let delivery = if node == 1 { 1 } else { 2 };
            *step(evidence, node, line) = Step::Began { id: 3, delivery, epoch: 7, digest: 300 };
        }
    });
    assert_eq!(unrecorded, ["#4 was published in epoch 6, after epoch 7 had begun"]);
}

#[test]
fn two_generators_are_found() {
    let both = breaches(|evidence| *step(evidence, 1, 6) = published(6, &[3, 4]));
    assert_eq!(
        both,
        [
            "#3 was published in epoch 5 and in epoch 6",
            "#3 was published in epoch 6, but handed out with epoch 5",
            "#3 was published in epoch 6, but handed out with epoch 5",
        ]
    );
    let same = breaches(|evidence| {
        *step(evidence, 1, 5) = Step::TookOffice { epoch: 5, from: Some(1), silence_ms: 1 };
    });
    assert_eq!(
        same,
        [
            "nodes 1 and 2 were both in office in epoch 5",
            "#1 was published in epoch 5 by a node that was not in office",
            "#2 was published in epoch 5 by a node that was not in office",
            "#3 was published in epoch 5 by a node that was not in office",
        ]
    );
    let usurper = breaches(|evidence| {
        *step(evidence, 0, 2) = published(5, &[1, 2]);
        evidence.records[2].insert(0, RecordLine { at_ms: 5, step: published(5, &[3]) });
    });
    assert_eq!(usurper, ["#3 was published in epoch 5 by a node that was not in office"]);
}

#[test]
fn a_node_that_was_killed_before_it_recorded_its_office_may_have_published() {
    let mut evidence = flawless_run();
    evidence.records[1].remove(5);
    let findings = judge(&evidence);
    assert_eq!((findings.breaches, findings.epochs), (vec![], 2));
    let two = breaches(|evidence| {
        evidence.records[1].remove(5);
        evidence.published = 5;
        evidence.journal.push(entry(3, &[5], &[]));
        evidence.records[0].push(RecordLine { at_ms: 50, step: published(6, &[5]) });
        let steps = [
            Step::Began { id: 5, delivery: 1, epoch: 6, digest: 500 },
            Step::Settled { member: 3, done: vec![5], failed: vec![] },
        ];
        evidence.records[2].extend(steps.map(|step| RecordLine { at_ms: 70, step }));
    });
    assert_eq!(two, ["#5 was published in epoch 6 by a node that was not in office"], "but only one of them");
}

#[test]
fn a_changed_body_is_found_and_reported_once() {
    let body = breaches(|evidence| {
        *step(evidence, 2, 3) = Step::Began { id: 4, delivery: 1, epoch: 6, digest: 401 };
    });
    assert_eq!(body, ["the body of #4 has changed"]);
    let seen_by_two = breaches(|evidence| {
        *step(evidence, 1, 4) = Step::Began { id: 3, delivery: 1, epoch: 5, digest: 301 };
        *step(evidence, 2, 1) = Step::Began { id: 3, delivery: 2, epoch: 5, digest: 301 };
    });
    assert_eq!(seen_by_two, ["the body of #3 has changed"]);
}

#[test]
fn a_body_counts_as_compared_when_a_second_witness_saw_it() {
    let mut evidence = flawless_run();
    // Only its publisher saw the body of #4. Three witnesses saw that of #3.
    evidence.records[2].truncate(3);
    assert_eq!(judge(&evidence).bodies_compared, 3);
}

#[test]
fn a_message_handed_out_twice_under_one_delivery_number_is_found() {
    let double = breaches(|evidence| {
        *step(evidence, 2, 1) = Step::Began { id: 3, delivery: 1, epoch: 5, digest: 300 };
    });
    assert_eq!(double, ["#3 was handed out twice under delivery 1"]);
    let to_one_node = breaches(|evidence| {
        let again = Step::Began { id: 4, delivery: 1, epoch: 6, digest: 400 };
        evidence.records[2].insert(4, RecordLine { at_ms: 41, step: again });
    });
    assert_eq!(to_one_node, ["#4 was handed out twice under delivery 1"]);
}

#[test]
fn each_further_delivery_is_a_repeat_of_the_one_before() {
    let mut evidence = flawless_run();
    let third = Step::Began { id: 3, delivery: 3, epoch: 5, digest: 300 };
    evidence.records[0].push(RecordLine { at_ms: 35, step: third });
    let findings = judge(&evidence);
    assert_eq!(findings.breaches, []);
    assert_eq!(findings.repeats, [Repeat { at_ms: 20, first: 1 }, Repeat { at_ms: 35, first: 2 }]);
}

#[test]
fn an_outcome_from_a_member_that_never_began_the_message_is_found() {
    let untouched = breaches(|evidence| *step(evidence, 2, 3) = Step::BecameHandler);
    assert_eq!(untouched, ["#4 was settled by member 3, which never began to handle it"]);
    let by_another = breaches(|evidence| {
        let began = evidence.records[2].remove(3);
        evidence.records[1].push(began);
    });
    assert_eq!(by_another, ["#4 was settled by member 3, which never began to handle it"]);
    let nameless = breaches(|evidence| {
        evidence.records[2].remove(0);
    });
    assert_eq!(nameless, NOTHING, "a node may be killed before it recorded its number");
    let given_up = breaches(|evidence| {
        evidence.journal[1].errors = vec![3];
        evidence.records[2].truncate(1);
        evidence.journal.pop();
        evidence.published = 3;
        *step(evidence, 1, 6) = Step::BecameHandler;
        evidence.readers[0].errors.push(PrintedLetter::sample(3, 300));
    });
    assert_eq!(given_up, NOTHING, "what became an error because its handlers died needs no handler");
}

#[test]
fn member_numbers_ids_and_epochs_that_contradict_each_other_are_found() {
    let twins = breaches(|evidence| {
        evidence.records[2].insert(0, RecordLine { at_ms: 1, step: Step::Joined { member: 1 } });
    });
    assert_eq!(twins, ["two nodes joined as member 1"]);
    let uncounted = breaches(|evidence| *step(evidence, 1, 6) = published(6, &[4, 5]));
    assert_eq!(uncounted, ["#5 was published, but the ledger does not count it"]);
    let other = breaches(|evidence| {
        *step(evidence, 2, 3) = Step::Began { id: 4, delivery: 1, epoch: 5, digest: 400 };
    });
    assert_eq!(other, ["#4 was published in epoch 6, but handed out with epoch 5"]);
}

#[test]
fn the_silence_before_a_take_over_is_measured_from_the_last_publish_of_any_node() {
    let take_over = |epoch, from| Step::TookOffice { epoch, from: Some(from), silence_ms: 7 };
    let mut evidence = flawless_run();
    // One take-over before the first publish, and one after that of the flawless run, at the very moment of a publish.
    evidence.records[2].insert(0, RecordLine { at_ms: 12, step: take_over(4, 2) });
    evidence.records[0].push(RecordLine { at_ms: 70, step: take_over(8, 3) });
    let findings = judge(&evidence);
    assert_eq!(
        findings.take_overs,
        [
            TakeOver { at_ms: 12, from: 1, silence_ms: 0 },
            TakeOver { at_ms: 60, from: 0, silence_ms: 30 },
            TakeOver { at_ms: 70, from: 2, silence_ms: 0 },
        ]
    );
    assert_eq!(findings.epochs, 4);
}

#[test]
fn errors_that_no_reader_or_two_readers_printed_are_found() {
    let reading = |digest, whole| ReaderOutput {
        errors: vec![PrintedLetter::sample(2, digest)],
        whole,
        ..ReaderOutput::default()
    };
    let no_reader = breaches(|evidence| evidence.readers.clear());
    assert_eq!(no_reader, ["getErrors never printed the error #2"]);
    for whole in [true, false] {
        let two = breaches(|evidence| evidence.readers.push(reading(200, whole)));
        assert_eq!(two, ["getErrors printed the error #2 again"]);
    }
    let before = breaches(|evidence| evidence.readers.insert(0, reading(200, false)));
    assert_eq!(before, NOTHING, "what a killed reader printed may come out again");
    let only_by_one_cut_short = breaches(|evidence| evidence.readers = vec![reading(200, false)]);
    assert_eq!(only_by_one_cut_short, NOTHING, "a killed reader may have removed what it printed");
    let body = breaches(|evidence| evidence.readers[0] = reading(201, true));
    assert_eq!(body, ["the body of #2 has changed"]);
    let no_error = breaches(|evidence| evidence.readers[0].errors.push(PrintedLetter::sample(1, 100)));
    assert_eq!(no_error, ["getErrors printed #1, which is no error"]);
}

#[test]
fn a_run_that_broke_off_may_leave_gaps_but_no_contradictions() {
    let half = breaches(|evidence| {
        evidence.complete = false;
        evidence.journal.truncate(1);
        evidence.readers.clear();
        evidence.records[2].truncate(2);
    });
    assert_eq!(half, NOTHING);
    let contradiction = breaches(|evidence| {
        evidence.complete = false;
        evidence.journal.push(entry(2, &[1], &[]));
    });
    assert_eq!(contradiction, ["#1 has two outcomes, by member 2 and by member 2"]);
}

#[test]
fn breaches_are_in_the_order_of_their_messages() {
    let mixed = breaches(|evidence| {
        evidence.published = 6;
        evidence.readers.clear();
        evidence.records[2].insert(0, RecordLine { at_ms: 1, step: Step::Joined { member: 1 } });
    });
    assert_eq!(
        mixed,
        [
            "two nodes joined as member 1",
            "getErrors never printed the error #2",
            "#5 has no outcome",
            "#6 has no outcome",
        ]
    );
}

/// A run in which a replica was promoted at 80 ms. It lacked everything since 35 ms: node 1 had published #4 and #5, and
/// node 2 had settled #3 and #4. Another message got the id 4. The ring counts #5 as lost.
fn rolled_back_run() -> Evidence {
    let line = |at_ms, step| RecordLine { at_ms, step };
    let began = |id, epoch, digest| Step::Began { id, delivery: 1, epoch, digest };
    let settled = |member, id| Step::Settled { member, done: vec![id], failed: vec![] };
    Evidence {
        published: 6,
        lost: 1,
        reported_losses: 1,
        losses: Losses::During(vec![(35, 75)]),
        journal: vec![entry(2, &[1], &[]), entry(2, &[2], &[2]), entry(3, &[3, 4], &[]), entry(3, &[6], &[])],
        records: vec![
            vec![
                line(10, Step::Joined { member: 1 }),
                line(11, Step::TookOffice { epoch: 5, from: None, silence_ms: 0 }),
                line(12, published(5, &[1, 2, 3])),
                line(40, published(5, &[4, 5])),
                line(90, Step::TookOffice { epoch: 7, from: Some(3), silence_ms: 0 }),
                line(95, published(7, &[6])),
            ],
            vec![
                line(10, Step::Joined { member: 2 }),
                line(20, began(1, 5, 100)),
                line(21, began(2, 5, 200)),
                line(22, Step::Settled { member: 2, done: vec![1], failed: vec![2] }),
                line(45, began(3, 5, 300)),
                line(50, began(4, 5, 400)),
                line(55, settled(2, 3)),
                line(60, settled(2, 4)),
            ],
            vec![
                line(70, Step::Joined { member: 3 }),
                line(80, Step::TookOffice { epoch: 6, from: Some(1), silence_ms: 0 }),
                line(81, Step::Published { epoch: 6, messages: vec![(4, 444)] }),
                line(85, began(3, 5, 300)),
                line(86, began(4, 6, 444)),
                line(88, Step::Settled { member: 3, done: vec![3, 4], failed: vec![] }),
                line(96, began(6, 7, 600)),
                line(97, settled(3, 6)),
            ],
        ],
        readers: vec![ReaderOutput {
            errors: vec![PrintedLetter { id: 2, epoch: 5, digest: 200 }],
            whole: true,
            from_ms: 100,
            until_ms: 101,
            ..ReaderOutput::default()
        }],
        complete: true,
        ..Evidence::default()
    }
}

fn breaches_after_a_loss(change: impl FnOnce(&mut Evidence)) -> Vec<String> {
    let mut evidence = rolled_back_run();
    change(&mut evidence);
    judge(&evidence).breaches.into_iter().map(|breach| breach.what).collect()
}

#[test]
fn what_redis_lost_while_a_replica_was_promoted_is_no_breach_if_it_is_counted() {
    let findings = judge(&rolled_back_run());
    assert_eq!(findings.breaches, []);
    assert_eq!((findings.lost, findings.outcomes_lost, findings.epochs), (1, 2, 3));
    assert_eq!(findings.bodies_compared, 6, "an id with two epochs has two bodies");
}

#[test]
fn a_loss_that_the_ring_did_not_count_or_report_once_is_found() {
    let uncounted = breaches_after_a_loss(|evidence| (evidence.lost, evidence.reported_losses) = (0, 0));
    let expected = "1 messages have no outcome, but the ring counts 0 as lost and 0 as cancelled";
    assert_eq!(uncounted, [expected]);
    for reported in [0, 2] {
        let what = format!("the ring counts 1 lost messages, but its events report {reported}");
        assert_eq!(breaches_after_a_loss(|evidence| evidence.reported_losses = reported), [what]);
    }
    let counted_in_vain = breaches(|evidence| (evidence.lost, evidence.reported_losses) = (1, 2));
    assert_eq!(counted_in_vain, ["the ring counts 1 lost messages, but its events report 2"]);
}

#[test]
fn a_loss_at_another_time_than_that_of_a_promotion_is_found() {
    let published = breaches_after_a_loss(|evidence| evidence.records[0][3].at_ms = 30);
    let why = "although a process reported it at 30 ms, when nothing could be lost";
    assert!(published.contains(&format!("#5 has no outcome, {why}")), "{published:?}");
    let begun = breaches_after_a_loss(|evidence| evidence.records[1][5].at_ms = 30);
    assert_eq!(begun, ["#4 was published in epoch 6, but handed out with epoch 5"]);
    let settled = breaches_after_a_loss(|evidence| evidence.records[1][6].at_ms = 30);
    let expected = [
        "#3: member 2 recorded done, but the journal has done by member 3",
        "#3 was settled twice, according to the records of the nodes",
    ];
    assert_eq!(settled, expected);
    let handed_out = breaches_after_a_loss(|evidence| evidence.records[1][4].at_ms = 30);
    assert_eq!(handed_out, ["#3 was handed out twice under delivery 1"]);
    let by_a_replaced_server = breaches_after_a_loss(|evidence| {
        evidence.records[1][4].at_ms = 30;
        evidence.losses = Losses::During(vec![(35, 75), (84, 86)]);
    });
    assert_eq!(by_a_replaced_server, [""; 0], "the second one may be lost as well");
    let nothing_moved = breaches_after_a_loss(|evidence| evidence.losses = Losses::During(vec![]));
    assert!(nothing_moved.len() > 5, "{nothing_moved:?}");
}

#[test]
fn an_id_that_two_messages_of_one_epoch_have_is_found_even_after_a_loss() {
    let same_epoch = breaches_after_a_loss(|evidence| {
        evidence.records[2][2].step = Step::Published { epoch: 5, messages: vec![(4, 444)] };
    });
    assert!(same_epoch.contains(&"#4 was published in epoch 5 and in epoch 5".to_owned()), "{same_epoch:?}");
    let body = breaches_after_a_loss(|evidence| {
        evidence.records[2][4].step = Step::Began { id: 4, delivery: 1, epoch: 6, digest: 445 };
    });
    assert_eq!(body, ["the body of #4 has changed"]);
    let after_a_later_term = breaches_after_a_loss(|evidence| {
        evidence.records[0][5].step = published(5, &[6]);
        evidence.records[2][6].step = Step::Began { id: 6, delivery: 1, epoch: 5, digest: 600 };
    });
    assert_eq!(after_a_later_term, ["#6 was published in epoch 5, after epoch 6 had begun"]);
}

#[test]
fn an_error_may_be_printed_again_only_if_a_reader_took_it_while_a_replica_was_promoted() {
    let again = |from_ms, until_ms| {
        breaches_after_a_loss(|evidence| {
            let errors = evidence.readers[0].errors.clone();
            let first = ReaderOutput { errors, whole: true, from_ms, until_ms, ..ReaderOutput::default() };
            evidence.readers.insert(0, first);
        })
    };
    assert_eq!(again(70, 78), NOTHING);
    assert_eq!(again(80, 90), ["getErrors printed the error #2 again"]);
    let invented = breaches_after_a_loss(|evidence| {
        evidence.readers[0].errors.push(PrintedLetter { id: 1, epoch: 5, digest: 100 });
    });
    assert_eq!(invented, ["getErrors printed #1, which is no error"]);
}

#[test]
fn what_was_confirmed_is_never_lost() {
    let unseen = |evidence: &mut Evidence| {
        evidence.losses = Losses::Unconfirmed;
        (evidence.published, evidence.lost, evidence.reported_losses) = (5, 1, 1);
    };
    assert_eq!(breaches(unseen), NOTHING, "nobody was told of #5");
    let reported = breaches(|evidence| {
        unseen(evidence);
        *step(evidence, 1, 6) = published(6, &[4, 5]);
    });
    assert_eq!(reported, ["#5 has no outcome, although a process reported it"]);
    let uncounted = breaches(|evidence| {
        unseen(evidence);
        (evidence.lost, evidence.reported_losses) = (0, 0);
    });
    assert_eq!(uncounted, ["1 messages have no outcome, but the ring counts 0 as lost and 0 as cancelled"]);
    let settled_twice = breaches(|evidence| {
        unseen(evidence);
        evidence.records[1]
            .push(RecordLine { at_ms: 80, step: Step::Settled { member: 2, done: vec![3], failed: vec![] } });
    });
    let expected = [
        "#3: member 2 recorded done, but the journal has done by member 3",
        "#3 was settled twice, according to the records of the nodes",
    ];
    assert_eq!(settled_twice, expected);
}
