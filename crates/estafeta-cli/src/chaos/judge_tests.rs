use estafeta::MemberId;

use super::*;

/// A ring of three copies with one take-over, an error, a kill and a repeat, in which everything is right.
fn peace() -> Evidence {
    let record = |steps: Vec<Step>| {
        (1..).zip(steps).map(|(at, step)| Line { at_ms: at * 10, step }).collect::<Vec<_>>()
    };
    let began = |id, attempt| Step::Began { id, attempt, epoch: 5, digest: id * 100 };
    Evidence {
        published: 4,
        journal: vec![
            JournalEntry { member: MemberId(2), ids: vec![1, 2], errors: vec![2] },
            JournalEntry { member: MemberId(3), ids: vec![3], errors: vec![] },
            JournalEntry { member: MemberId(3), ids: vec![4], errors: vec![] },
        ],
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
                Step::Began { id: 4, attempt: 1, epoch: 6, digest: 400 },
                Step::Settled { member: 3, done: vec![4], failed: vec![] },
                Step::Left,
            ]),
        ],
        readers: vec![Reading { errors: vec![(2, 200)], whole: true }],
        complete: true,
    }
}

/// What is found after one thing was changed.
fn breaches(change: impl FnOnce(&mut Evidence)) -> String {
    let mut evidence = peace();
    change(&mut evidence);
    let breaches: Vec<_> = judge(&evidence).breaches.into_iter().map(|breach| breach.what).collect();
    breaches.join("; ")
}

fn step(evidence: &mut Evidence, copy: usize, line: usize) -> &mut Step {
    &mut evidence.records[copy][line].step
}

#[test]
fn a_ring_that_kept_its_promises_is_acquitted() {
    let findings = judge(&peace());
    assert_eq!(findings.breaches, []);
    assert_eq!((findings.errors, findings.epochs), (1, 2));
    assert_eq!(findings.take_overs, [TakeOver { at_ms: 60, from: 0, silence_ms: 30 }]);
    assert_eq!(findings.repeats, [Repeat { at_ms: 20, first: 1 }]);
    assert_eq!(findings.bodies_compared, 4);
}

#[test]
fn lost_and_repeated_outcomes_are_found() {
    let lost = breaches(|evidence| evidence.journal[1].ids.clear());
    assert!(lost.contains("#3 has no outcome"), "{lost}");
    assert!(lost.contains("#3 was settled by member 3, and the journal does not know"), "{lost}");
    let twice = breaches(|evidence| {
        evidence.journal.push(JournalEntry { member: MemberId(3), ids: vec![1], errors: vec![] });
    });
    assert!(twice.contains("#1 has two outcomes, by member 2 and by member 3"), "{twice}");
    let invented = breaches(|evidence| evidence.journal[2].ids.push(5));
    assert!(invented.contains("#5 has an outcome but was never published"), "{invented}");
}

#[test]
fn records_that_contradict_the_journal_are_found() {
    let other = breaches(|evidence| evidence.journal[0].errors.clear());
    assert!(other.contains("#2: member 2 wrote down an error, the journal has done by member 2"), "{other}");
    let thief = breaches(|evidence| evidence.journal[2].member = MemberId(2));
    assert!(thief.contains("#4: member 3 wrote down done, the journal has done by member 2"), "{thief}");
    let twice = breaches(|evidence| {
        *step(evidence, 1, 4) = Step::Settled { member: 2, done: vec![3], failed: vec![] }
    });
    assert!(twice.contains("#3 was settled twice"), "{twice}");
    let forgotten = breaches(|evidence| *step(evidence, 2, 4) = Step::BecameHandler);
    assert!(forgotten.contains("member 3, which left in good order and knows nothing of it"), "{forgotten}");
    let killed = breaches(|evidence| {
        evidence.records[2].truncate(4);
    });
    assert_eq!(killed, "", "one that was killed may have missed its last step");
}

#[test]
fn two_generators_are_found() {
    let late = breaches(|evidence| {
        *step(evidence, 0, 2) = Step::Published { epoch: 5, messages: vec![(1, 100), (2, 200), (4, 400)] };
        *step(evidence, 1, 6) = Step::Published { epoch: 6, messages: vec![(3, 300)] };
    });
    assert!(late.contains("#4 was published in epoch 5, after epoch 6 had begun"), "{late}");
    let both = breaches(|evidence| {
        *step(evidence, 1, 6) = Step::Published { epoch: 6, messages: vec![(3, 300), (4, 400)] };
    });
    assert!(both.contains("#3 was published in epoch 5 and in epoch 6"), "{both}");
    let same = breaches(|evidence| {
        *step(evidence, 1, 5) = Step::TookOffice { epoch: 5, from: Some(1), silence_ms: 1 };
    });
    assert!(same.contains("copies 1 and 2 were both in office in epoch 5"), "{same}");
}

#[test]
fn changed_bodies_and_double_hand_outs_are_found() {
    let body = breaches(|evidence| {
        *step(evidence, 2, 3) = Step::Began { id: 4, attempt: 1, epoch: 6, digest: 401 };
    });
    assert!(body.contains("#4 changed its body on the way"), "{body}");
    let double = breaches(|evidence| {
        *step(evidence, 2, 1) = Step::Began { id: 3, attempt: 1, epoch: 5, digest: 300 };
    });
    assert!(double.contains("#3 was handed out twice under attempt 1"), "{double}");
}

#[test]
fn outcomes_of_what_was_never_begun_are_found() {
    let untouched = breaches(|evidence| *step(evidence, 2, 3) = Step::BecameHandler);
    assert!(untouched.contains("#4 was settled by member 3, which never began to handle it"), "{untouched}");
    let given_up = breaches(|evidence| {
        evidence.journal[1].errors = vec![3];
        evidence.records[2].truncate(1);
        evidence.journal.pop();
        evidence.published = 3;
        *step(evidence, 1, 6) = Step::BecameHandler;
        evidence.readers[0].errors.push((3, 300));
    });
    assert_eq!(given_up, "", "what became an error because its handlers died needs no handler");
}

#[test]
fn numbers_and_epochs_that_do_not_fit_are_found() {
    let twins = breaches(|evidence| *step(evidence, 2, 0) = Step::Joined { member: 2 });
    assert!(twins.contains("two copies joined as member 2"), "{twins}");
    let uncounted = breaches(|evidence| {
        *step(evidence, 1, 6) = Step::Published { epoch: 6, messages: vec![(4, 400), (5, 500)] };
    });
    assert!(uncounted.contains("#5 was published, and the ledger does not count it"), "{uncounted}");
    let usurper = breaches(|evidence| {
        *step(evidence, 2, 5) = Step::Published { epoch: 5, messages: vec![(3, 300)] };
        *step(evidence, 0, 2) = Step::Published { epoch: 5, messages: vec![(1, 100), (2, 200)] };
    });
    assert!(usurper.contains("#3 was published in epoch 5 by a copy that was not in office"), "{usurper}");
    let other = breaches(|evidence| {
        *step(evidence, 2, 3) = Step::Began { id: 4, attempt: 1, epoch: 5, digest: 400 };
    });
    assert!(other.contains("#4 was published in epoch 6 and handed out as of epoch 5"), "{other}");
    let unrecorded = breaches(|evidence| {
        // The publisher was killed before it could write; the handlers know.
        *step(evidence, 0, 2) = Step::Published { epoch: 5, messages: vec![(1, 100), (2, 200)] };
        for (copy, line) in [(1, 4), (2, 1)] {
            let attempt = if copy == 1 { 1 } else { 2 };
            *step(evidence, copy, line) = Step::Began { id: 3, attempt, epoch: 7, digest: 300 };
        }
    });
    assert!(unrecorded.contains("#4 was published in epoch 6, after epoch 7 had begun"), "{unrecorded}");
}

#[test]
fn errors_that_nobody_or_two_were_given_are_found() {
    let reading = |digest, whole| Reading { errors: vec![(2, digest)], whole };
    let nobody = breaches(|evidence| evidence.readers.clear());
    assert!(nobody.contains("the error #2 never came out of getErrors"), "{nobody}");
    let two = breaches(|evidence| evidence.readers.push(reading(200, true)));
    assert!(two.contains("the error #2 came out of getErrors again"), "{two}");
    let after = breaches(|evidence| evidence.readers.push(reading(200, false)));
    assert!(after.contains("the error #2 came out of getErrors again"), "{after}");
    let before = breaches(|evidence| evidence.readers.insert(0, reading(200, false)));
    assert_eq!(before, "", "what one printed that was cut short may come again");
    let body = breaches(|evidence| evidence.readers[0] = reading(201, true));
    assert!(body.contains("#2 changed its body on the way"), "{body}");
    let no_error = breaches(|evidence| evidence.readers[0].errors.push((1, 100)));
    assert!(no_error.contains("#1 came out of getErrors and is no error"), "{no_error}");
}

#[test]
fn a_run_that_broke_off_may_miss_things_but_not_contradict() {
    let half = breaches(|evidence| {
        evidence.complete = false;
        evidence.journal.truncate(1);
        evidence.readers.clear();
        evidence.records[2].truncate(2);
    });
    assert_eq!(half, "");
    let contradiction = breaches(|evidence| {
        evidence.complete = false;
        evidence.journal.push(JournalEntry { member: MemberId(3), ids: vec![1], errors: vec![] });
    });
    assert!(contradiction.contains("#1 has two outcomes"), "{contradiction}");
}
