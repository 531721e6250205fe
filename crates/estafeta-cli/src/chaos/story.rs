//! Why things happened: the fault behind a loss, and everything that is known of one message.

use super::LEASE;
use super::attack::Blow;
use super::judge::{Evidence, TakeOver};
use super::plan::Kind;
use crate::record::{Line, Step};

/// The fault that a take-over after such a silence is put down to: Redis, where that was away meanwhile.
pub fn cause_of_take_over(blows: &[Blow], take_over: &TakeOver) -> Option<Kind> {
    let away = |blow: &&Blow| {
        matches!(blow.kind, Kind::RedisKill | Kind::RedisStall)
            && blow.from_ms <= take_over.at_ms
            && blow.until_ms + take_over.silence_ms >= take_over.at_ms
    };
    let outage = blows.iter().rfind(away).map(|blow| blow.kind);
    outage.or_else(|| cause(blows, take_over.from, take_over.at_ms))
}

/// The fault that most likely made this copy lose what it had: the last one that hit it, or else Redis.
pub fn cause(blows: &[Blow], copy: usize, at_ms: u64) -> Option<Kind> {
    // A fault is felt for some time after its end.
    let aftermath = 4 * u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
    let felt = |blow: &&Blow| blow.from_ms <= at_ms && at_ms <= blow.until_ms + aftermath;
    let own = |blow: &&Blow| blow.victims.contains(&copy);
    let of_redis = |blow: &&Blow| blow.victims.is_empty();
    let last = blows.iter().filter(felt).rfind(own).or_else(|| blows.iter().filter(felt).rfind(of_redis));
    last.map(|blow| blow.kind)
}

/// What the witnesses know of a message, and what was done to them meanwhile.
pub fn story(evidence: &Evidence, blows: &[Blow], id: u64) -> Vec<String> {
    let mut story = testimony(evidence, id);
    let first = story.first().map_or(0, |(at, _)| *at);
    let last = story.iter().map(|(at, _)| *at).filter(|at| *at < u64::MAX).max().unwrap_or(0);
    let near = blows.iter().filter(|blow| blow.until_ms + 2000 > first && blow.from_ms < last + 2000);
    story.extend(near.map(|blow| (blow.from_ms, format!("({})", blow.what))));
    story.sort();
    let tell = |(at, told): (u64, String)| match at {
        u64::MAX => format!("at the end: {told}"),
        at => format!("{:+.3} s: {told}", (at as f64 - first as f64) / 1000.0),
    };
    story.into_iter().map(tell).collect()
}

/// Everything the witnesses know of one message, in order of time, by the clock of this machine.
fn testimony(evidence: &Evidence, id: u64) -> Vec<(u64, String)> {
    let mut story = Vec::new();
    for (copy, record) in evidence.records.iter().enumerate() {
        let copy = copy + 1;
        for Line { at_ms, step } in record {
            let told = match step {
                Step::Published { epoch, messages } if messages.iter().any(|(other, _)| *other == id) => {
                    format!("copy {copy} has published it in epoch {epoch}")
                }
                Step::Began { id: other, attempt, .. } if *other == id => {
                    format!("copy {copy} begins to handle it, attempt {attempt}")
                }
                Step::Settled { done, .. } if done.contains(&id) => {
                    format!("copy {copy} has settled it as done")
                }
                Step::Settled { failed, .. } if failed.contains(&id) => {
                    format!("copy {copy} has settled it as an error")
                }
                _ => continue,
            };
            story.push((*at_ms, told));
        }
    }
    story.sort();
    for entry in evidence.journal.iter().filter(|entry| entry.ids.contains(&id)) {
        let outcome = if entry.errors.contains(&id) { "an error" } else { "done" };
        story.push((u64::MAX, format!("the journal has it as {outcome}, by member {}", entry.member)));
    }
    story
}

#[cfg(test)]
mod tests {
    use estafeta::{JournalEntry, MemberId};

    use super::*;

    #[test]
    fn a_loss_is_put_down_to_what_hit_its_copy_last() {
        let blow = |kind, from_ms, victims: &[usize]| Blow {
            kind,
            from_ms,
            until_ms: from_ms + 10,
            victims: victims.to_vec(),
            what: String::new(),
        };
        let blows = [
            blow(Kind::Kill, 1000, &[1]),
            blow(Kind::Freeze, 2000, &[1, 2]),
            blow(Kind::RedisKill, 3000, &[]),
            blow(Kind::Cut, 9000, &[1]),
        ];
        assert_eq!(cause(&blows, 1, 1500), Some(Kind::Kill));
        assert_eq!(cause(&blows, 1, 3500), Some(Kind::Freeze));
        assert_eq!(cause(&blows, 0, 3500), Some(Kind::RedisKill));
        assert_eq!(cause(&blows, 0, 900), None);
        assert_eq!(cause(&blows, 2, 8900), None, "too long ago");
        let take_over = |at_ms, silence_ms| TakeOver { at_ms, from: 1, silence_ms };
        assert_eq!(cause_of_take_over(&blows, &take_over(3100, 50)), Some(Kind::Freeze));
        assert_eq!(cause_of_take_over(&blows, &take_over(3100, 200)), Some(Kind::RedisKill));
    }

    #[test]
    fn the_story_of_a_message_is_told_in_order_with_what_was_done_meanwhile() {
        let line = |at_ms, step| Line { at_ms, step };
        let evidence = Evidence {
            journal: vec![JournalEntry { member: MemberId(3), ids: vec![6, 7], errors: vec![7] }],
            records: vec![
                vec![line(5000, Step::Published { epoch: 5, messages: vec![(6, 1), (7, 2)] })],
                vec![line(5010, Step::Began { id: 7, attempt: 1, epoch: 5, digest: 2 })],
                vec![
                    line(5300, Step::Began { id: 7, attempt: 2, epoch: 5, digest: 2 }),
                    line(5310, Step::Settled { member: 3, done: vec![6], failed: vec![7] }),
                ],
            ],
            ..Evidence::default()
        };
        let killed = Blow {
            kind: Kind::Kill,
            from_ms: 5020,
            until_ms: 6000,
            victims: vec![1],
            what: "copy 2 killed".into(),
        };
        let told = story(&evidence, &[killed], 7);
        let expected = [
            "+0.000 s: copy 1 has published it in epoch 5",
            "+0.010 s: copy 2 begins to handle it, attempt 1",
            "+0.020 s: (copy 2 killed)",
            "+0.300 s: copy 3 begins to handle it, attempt 2",
            "+0.310 s: copy 3 has settled it as an error",
            "at the end: the journal has it as an error, by member 3",
        ];
        assert_eq!(told, expected);
    }
}
