//! Explains what happened: the fault behind a loss, and everything that is known about one message.

use super::LEASE;
use super::attack::InjectedFault;
use super::judge::{Evidence, TakeOver};
use super::plan::FaultKind;
use crate::record::{RecordLine, Step};
use crate::text::counted;

/// Returns the fault that explains a take-over. If Redis was away during the silence, its fault does. Otherwise see
/// [`cause`].
pub fn cause_of_take_over(faults: &[InjectedFault], take_over: &TakeOver) -> Option<FaultKind> {
    let away = |fault: &&InjectedFault| {
        (fault.kind == FaultKind::RedisKill || fault.kind.may_move_ring())
            && fault.from_ms <= take_over.at_ms
            && fault.until_ms + take_over.silence_ms >= take_over.at_ms
    };
    let outage = faults.iter().rfind(away).map(|fault| fault.kind);
    outage.or_else(|| cause(faults, take_over.from, take_over.at_ms))
}

/// Returns the fault that most likely made this node lose what it had. It is the last fault that hit the node, or else
/// the last one that hit Redis.
pub fn cause(faults: &[InjectedFault], node: usize, at_ms: u64) -> Option<FaultKind> {
    // A fault has effects for some time after its end.
    let aftermath = 4 * u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    let felt = |fault: &&InjectedFault| fault.from_ms <= at_ms && at_ms <= fault.until_ms + aftermath;
    let own = |fault: &&InjectedFault| fault.victims.contains(&node);
    let of_redis = |fault: &&InjectedFault| fault.victims.is_empty();
    let last = faults.iter().filter(felt).rfind(own).or_else(|| faults.iter().filter(felt).rfind(of_redis));
    last.map(|fault| fault.kind)
}

/// Lists what the witnesses know about a message, and the faults of that time.
pub fn story(evidence: &Evidence, faults: &[InjectedFault], id: u64) -> Vec<String> {
    let mut story = testimony(evidence, id);
    let first = story.first().map_or(0, |(at, _)| *at);
    let last = story.iter().map(|(at, _)| *at).filter(|at| *at < u64::MAX).max().unwrap_or(0);
    let near = faults.iter().filter(|fault| fault.until_ms + 2000 > first && fault.from_ms < last + 2000);
    story.extend(near.map(|fault| (fault.from_ms, format!("({})", fault.what))));
    story.sort();
    let line = |(at, what): (u64, String)| match at {
        u64::MAX => format!("at the end: {what}"),
        at => format!("{:+.3} s: {what}", (at as f64 - first as f64) / 1000.0),
    };
    story.into_iter().map(line).collect()
}

/// Lists everything that the witnesses know about one message, in order of time by the clock of this machine.
fn testimony(evidence: &Evidence, id: u64) -> Vec<(u64, String)> {
    let mut story = Vec::new();
    for (node, record) in evidence.records.iter().enumerate() {
        let node = node + 1;
        for RecordLine { at_ms, step } in record {
            let what = match step {
                Step::Published { epoch, messages } if messages.iter().any(|(other, _)| *other == id) => {
                    format!("node {node} has published it in epoch {epoch}")
                }
                Step::Began { id: other, delivery, .. } if *other == id => {
                    format!("node {node} begins to handle it, delivery {delivery}")
                }
                Step::Attempt { id: other, delivery, failures, snoozes, .. } if *other == id => {
                    format!(
                        "node {node} begins to handle it, delivery {delivery}, after {} and {}",
                        counted((*snoozes).into(), "snooze"),
                        counted((*failures).into(), "failure")
                    )
                }
                Step::Postponed { ids, .. } if ids.contains(&id) => format!("node {node} has postponed it"),
                Step::Settled { done, .. } if done.contains(&id) => {
                    format!("node {node} has settled it as done")
                }
                Step::Settled { failed, .. } if failed.contains(&id) => {
                    format!("node {node} has settled it as an error")
                }
                _ => continue,
            };
            story.push((*at_ms, what));
        }
    }
    story.extend(testimony_of_publishers(evidence, id));
    story.sort();
    for entry in evidence.journal.iter().filter(|entry| entry.ids.contains(&id)) {
        let outcome = if entry.errors.contains(&id) { "an error" } else { "done" };
        story.push((u64::MAX, format!("the journal has it as {outcome}, by member {}", entry.member)));
    }
    story
}

fn testimony_of_publishers(evidence: &Evidence, id: u64) -> Vec<(u64, String)> {
    let mut story = Vec::new();
    let records = evidence.work.iter().flat_map(|work| &work.publishers);
    for (record, number) in records.zip(1..) {
        for RecordLine { at_ms, step } in record {
            let what = match step {
                Step::Receipts { call, receipts } => {
                    let Some((_, is_duplicate)) = receipts.iter().find(|(other, _)| *other == id) else {
                        continue;
                    };
                    let what = if *is_duplicate { "published it again" } else { "has published it" };
                    format!("publisher {number} {what} in call {call}")
                }
                Step::Cancels { call, id: other } if *other == id => {
                    let answer = record.iter().find_map(|line| match line.step {
                        Step::Cancelled { call: other, is_cancelled } if other == *call => Some(is_cancelled),
                        _ => None,
                    });
                    let answer = match answer {
                        Some(true) => "and it is",
                        Some(false) => "too late",
                        None => "and gets no answer",
                    };
                    format!("publisher {number} cancels it, {answer}")
                }
                _ => continue,
            };
            story.push((*at_ms, what));
        }
    }
    story
}

#[cfg(test)]
mod tests {
    use estafeta::{JournalEntry, MemberId};

    use super::*;

    #[test]
    fn a_loss_is_attributed_to_the_last_fault_that_hit_its_node_or_else_redis() {
        let fault = |kind, from_ms, victims: &[usize]| InjectedFault {
            kind,
            from_ms,
            until_ms: from_ms + 10,
            victims: victims.to_vec(),
            what: String::new(),
        };
        let faults = [
            fault(FaultKind::Kill, 1000, &[1]),
            fault(FaultKind::Freeze, 2000, &[1, 2]),
            fault(FaultKind::RedisKill, 3000, &[]),
            fault(FaultKind::Cut, 9000, &[1]),
        ];
        assert_eq!(cause(&faults, 1, 1500), Some(FaultKind::Kill));
        assert_eq!(cause(&faults, 1, 3500), Some(FaultKind::Freeze));
        assert_eq!(cause(&faults, 0, 3500), Some(FaultKind::RedisKill));
        assert_eq!(cause(&faults, 0, 900), None);
        assert_eq!(cause(&faults, 2, 8900), None, "too long ago");
        let take_over = |at_ms, silence_ms| TakeOver { at_ms, from: 1, silence_ms };
        assert_eq!(cause_of_take_over(&faults, &take_over(3100, 50)), Some(FaultKind::Freeze));
        assert_eq!(cause_of_take_over(&faults, &take_over(3100, 200)), Some(FaultKind::RedisKill));
    }

    #[test]
    fn the_story_of_a_message_lists_its_steps_and_the_faults_in_order_of_time() {
        let line = |at_ms, step| RecordLine { at_ms, step };
        let evidence = Evidence {
            journal: vec![JournalEntry::sample(MemberId(3), [6, 7], [7])],
            records: vec![
                vec![line(5000, Step::Published { epoch: 5, messages: vec![(6, 1), (7, 2)] })],
                vec![line(5010, Step::Began { id: 7, delivery: 1, epoch: 5, digest: 2 })],
                vec![
                    line(5300, Step::Began { id: 7, delivery: 2, epoch: 5, digest: 2 }),
                    line(5310, Step::Settled { member: 3, done: vec![6], failed: vec![7] }),
                ],
            ],
            ..Evidence::default()
        };
        let killed = InjectedFault {
            kind: FaultKind::Kill,
            from_ms: 5020,
            until_ms: 6000,
            victims: vec![1],
            what: "node 2 killed".into(),
        };
        let lines = story(&evidence, &[killed], 7);
        let expected = [
            "+0.000 s: node 1 has published it in epoch 5",
            "+0.010 s: node 2 begins to handle it, delivery 1",
            "+0.020 s: (node 2 killed)",
            "+0.300 s: node 3 begins to handle it, delivery 2",
            "+0.310 s: node 3 has settled it as an error",
            "at the end: the journal has it as an error, by member 3",
        ];
        assert_eq!(lines, expected);
    }
}
