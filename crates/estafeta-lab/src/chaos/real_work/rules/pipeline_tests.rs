use estafeta::{JournalEntry, MemberId};

use super::super::super::effects::WrittenEffects;
use super::super::super::evidence::{Letter, RingCounts, WorkEvidence};
use super::super::super::findings::WorkFindings;
use super::*;
use crate::chaos::judge::{self, Evidence, PrintedLetter, ReaderOutput};
use crate::record::{RecordLine, Step, digest};

const NOTHING: [&str; 0] = [];

fn attempt(id: u64, body: &str) -> RecordLine {
    let epoch = if is_from_outside(body) { 1000 } else { 5 };
    let (delivery, failures, snoozes, published_ms) = (1, 0, 0, 1000);
    let body = body.to_owned();
    RecordLine {
        at_ms: 1000 + id,
        step: Step::Attempt { id, delivery, epoch, failures, snoozes, published_ms, body },
    }
}

/// What a ring left in which one node handled these messages, one after another. Those in `errors` became errors.
fn ring(bodies: &[&str], errors: &[u64]) -> Evidence {
    let ids = || 1..=bodies.len() as u64;
    let line = |step| RecordLine { at_ms: 900, step };
    let office = Step::TookOffice { epoch: 5, from: None, silence_ms: 0 };
    let mut record = vec![line(Step::Joined { member: 1 }), line(office)];
    record.extend(ids().zip(bodies).map(|(id, body)| attempt(id, body)));
    let letter =
        |id: &u64| Letter { id: *id, failures: 1, snoozes: 0, reason: "fatal, as planned".to_owned() };
    let entry = |id| {
        let errors: Vec<u64> = errors.iter().copied().filter(|error| *error == id).collect();
        JournalEntry::sample(MemberId(1), [id], errors)
    };
    let journal: Vec<JournalEntry> = ids().map(entry).collect();
    let outside = bodies.iter().filter(|body| is_from_outside(body)).count() as u64;
    Evidence {
        published: bodies.len() as u64,
        journal,
        records: vec![record],
        readers: vec![ReaderOutput {
            errors: errors
                .iter()
                .map(|id| PrintedLetter::sample(*id, digest(bodies[*id as usize - 1].as_bytes())))
                .collect(),
            letters: errors.iter().map(letter).collect(),
            whole: true,
            ..ReaderOutput::default()
        }],
        complete: true,
        work: Some(WorkEvidence {
            counts: RingCounts { submitted: outside, ..RingCounts::default() },
            ..WorkEvidence::default()
        }),
        ..Evidence::default()
    }
}

/// The first ring: three lines, of which the second one fails for good. A message of a publisher came between them.
fn lines() -> Evidence {
    let mut evidence = ring(&["g-1/done", "g-2/fatal", "p1-1-0/done", "g-3/done"], &[2]);
    let submits = Step::Submits { call: 1, messages: vec![(None, "p1-1-0/done".to_owned())] };
    let work = work(&mut evidence);
    work.publishers = vec![vec![RecordLine { at_ms: 1000, step: submits }]];
    work.feed = Some(FeedEvidence {
        lines: ["g-1/done", "g-2/fatal", "g-3/done"].map(ToOwned::to_owned).to_vec(),
        size: 38,
        checkpoint: Some(38),
    });
    work.written = WrittenEffects {
        totals: [("total-1", 2), ("total-3", 4), ("total-4", 5)].map(|(name, n)| (name.to_owned(), n)).into(),
        stream: vec![1, 3],
        last: Some(4),
        results: [(1, "1".to_owned())].into(),
        fed: 4,
    };
    evidence
}

/// The second ring, to which two messages of the first one forwarded others.
fn totals() -> Evidence {
    let mut evidence = ring(&["f1/done", "f3/fatal"], &[2]);
    let work = work(&mut evidence);
    work.forwards = vec![(1, "f1/done".to_owned()), (3, "f3/fatal".to_owned())];
    work.written.totals.insert("total-1".to_owned(), 2);
    (work.written.stream, work.written.results) = (vec![1], [(1, "1".to_owned())].into());
    evidence
}

fn work(evidence: &mut Evidence) -> &mut WorkEvidence {
    evidence.work.as_mut().unwrap()
}

fn feed(evidence: &mut Evidence) -> &mut FeedEvidence {
    work(evidence).feed.as_mut().unwrap()
}

fn breaches(mut evidence: Evidence, change: impl FnOnce(&mut Evidence)) -> Vec<String> {
    change(&mut evidence);
    judge::judge(&evidence).breaches.into_iter().map(|breach| breach.what).collect()
}

/// Makes one more message of the ring, which becomes an error.
fn add_error(evidence: &mut Evidence, body: &str) {
    evidence.published += 1;
    let id = evidence.published;
    evidence.journal.push(JournalEntry::sample(MemberId(1), [id], [id]));
    evidence.records[0].push(attempt(id, body));
    evidence.readers[0].errors.push(PrintedLetter::sample(id, digest(body.as_bytes())));
    work(evidence).counts.submitted += u64::from(is_from_outside(body));
}

#[test]
fn a_flawless_pipeline_has_no_breaches_and_its_figures_are_right() {
    let (first, second) = (judge::judge(&lines()), judge::judge(&totals()));
    assert_eq!((first.breaches, second.breaches), (vec![], vec![]));
    let (first, second) = (first.work.unwrap(), second.work.unwrap());
    assert_eq!((first.lines, first.forwarded, second.lines, second.forwarded), (3, 0, 0, 2));
    let mut both = first;
    both += second;
    let facts = both.facts();
    let expected = "3 lines of the file and 2 forwards, each published once".to_owned();
    assert!(facts.contains(&("pipeline", expected)), "{facts:?}");
    let of_publishers = "1 messages, 0 of them cancelled; 0 duplicates recognised".to_owned();
    assert!(facts.contains(&("publishers", of_publishers)), "forwards are none of theirs: {facts:?}");
    assert_eq!((&both.json()["lines"], &both.json()["forwarded"]), (&3.into(), &2.into()));
    assert!(!WorkFindings::default().facts().iter().any(|(name, _)| *name == "pipeline"));
}

#[test]
fn a_line_that_was_lost_is_found() {
    let lost = |complete| {
        breaches(lines(), |evidence| {
            evidence.complete = complete;
            feed(evidence).lines.push("g-4/fatal".to_owned());
        })
    };
    assert_eq!(lost(true), ["line 4 of the file reached no handler"]);
    assert_eq!(lost(false), NOTHING, "it may have come later");
    let first = breaches(lines(), |evidence| {
        feed(evidence).lines.insert(0, "g-0/fatal".to_owned());
        work(evidence).written.fed = 6;
    });
    assert_eq!(first, ["line 1 of the file reached no handler"]);
}

#[test]
fn a_line_that_was_published_twice_is_found() {
    let twice = |complete| {
        breaches(lines(), |evidence| {
            evidence.complete = complete;
            add_error(evidence, "g-2/fatal");
        })
    };
    assert_eq!(twice(true), ["line 2 was published 2 times: as #2 and #5"]);
    assert_eq!(twice(false), twice(true), "no gap explains that");
}

#[test]
fn lines_that_were_published_in_another_order_are_found() {
    let swapped = breaches(lines(), |evidence| {
        evidence.records[0][2] = attempt(1, "g-3/done");
        evidence.records[0][5] = attempt(4, "g-1/done");
    });
    assert_eq!(
        swapped,
        [
            "#2 is line 2 of the file, but came after line 3",
            "#4 is line 1 of the file, but came after line 3"
        ]
    );
}

#[test]
fn a_message_of_the_generator_that_is_no_line_is_found() {
    let foreign = breaches(lines(), |evidence| add_error(evidence, "g-9/fatal"));
    assert_eq!(foreign, ["#5 has a body that is no line of the file: g-9/fatal"]);
}

#[test]
fn a_checkpoint_that_is_not_the_end_of_the_file_is_found() {
    let checkpoint = |checkpoint, complete| {
        breaches(lines(), |evidence| {
            evidence.complete = complete;
            feed(evidence).checkpoint = checkpoint;
        })
    };
    assert_eq!(checkpoint(Some(29), true), ["the checkpoint is 29, but the file has 38 bytes"]);
    assert_eq!(checkpoint(Some(39), true), ["the checkpoint is 39, but the file has 38 bytes"]);
    assert_eq!(checkpoint(None, true), ["the checkpoint is missing, but the file has 38 bytes"]);
    assert_eq!(checkpoint(None, false), NOTHING);
}

#[test]
fn a_sum_that_does_not_follow_from_the_lines_is_found() {
    let fed = |fed, complete| {
        breaches(lines(), |evidence| {
            evidence.complete = complete;
            work(evidence).written.fed = fed;
        })
    };
    assert_eq!(fed(3, true), ["fed is 3 in Redis, but the lines that end as done add up to 4"]);
    assert_eq!(fed(6, true), ["fed is 6 in Redis, but the lines that end as done add up to 4"]);
    assert_eq!(fed(0, false), NOTHING);
}

#[test]
fn a_forward_that_is_missing_is_found() {
    let missing = |complete| {
        breaches(totals(), |evidence| {
            evidence.complete = complete;
            work(evidence).forwards.push((4, "f4/done".to_owned()));
        })
    };
    let expected = "#4 of the ring before is done, but what it forwards, f4/done, reached no handler";
    assert_eq!(missing(true), [expected]);
    assert_eq!(missing(false), NOTHING);
}

#[test]
fn a_forward_that_was_published_twice_and_one_of_a_message_that_is_not_done_are_found() {
    let twice = breaches(totals(), |evidence| add_error(evidence, "f3/fatal"));
    assert_eq!(twice, ["f3/fatal was published 2 times: as #2 and #3"]);
    let of_an_error = breaches(totals(), |evidence| add_error(evidence, "f2/fatal"));
    assert_eq!(of_an_error, ["#3 has a body that nobody sent"]);
}
