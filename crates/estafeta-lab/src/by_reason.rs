//! Groups errors by their reasons, in bounded memory.
//!
//! Reasons that differ only in their long numbers are one group: each run of four or more digits counts as `#`. Shorter
//! numbers stay, because they are often codes: a status of HTTP, an exit status. A group whose errors all have the same
//! reason shows it as it is. Of a long reason, only the beginning counts. Once there are as many groups as fit, errors
//! with new reasons are counted together.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use estafeta::{DeadLetter, Ring};
use serde::Serialize;

use crate::escape::escape;
use crate::message_id::MessageId;
use crate::report::json_line;
use crate::text::{grouped, moment};

/// How many errors are in memory at once.
const CHUNK: u64 = 200;

/// How many groups are kept, besides that of the other reasons.
const MOST_GROUPS: usize = 1000;
/// How many characters of a reason count.
const MOST_CHARACTERS: usize = 1000;
/// A number of at most so many digits may be a code, and stays.
const CODE_DIGITS: usize = 3;

/// All errors, by their reasons.
#[derive(Default)]
pub struct Reasons {
    /// By the reason with its numbers replaced.
    groups: HashMap<String, ReasonGroup>,
    /// The errors that found no room.
    others: Option<ReasonGroup>,
}

/// The errors of one reason.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonGroup {
    /// What is shown. None for the other reasons.
    pub reason: Option<String>,
    pub count: u64,
    pub first_ms: u64,
    pub last_ms: u64,
    /// The message that failed last.
    #[serde(rename = "exampleId", serialize_with = "id_only")]
    pub example: MessageId,
}

impl Reasons {
    /// Reads all errors that are there at the start.
    pub async fn read(&mut self, ring: &Ring) -> estafeta::Result<()> {
        let (mut from, count) = (0, ring.error_count().await?);
        while from < count {
            let chunk = ring.errors(from, CHUNK.min(count - from)).await?;
            if chunk.is_empty() {
                break;
            }
            from += chunk.len() as u64;
            chunk.iter().for_each(|error| self.add(error));
        }
        Ok(())
    }

    /// Counts an error.
    pub fn add(&mut self, error: &DeadLetter) {
        let reason: String = error.reason.chars().take(MOST_CHARACTERS).collect();
        let pattern = without_numbers(&reason);
        let has_room = self.groups.len() < MOST_GROUPS || self.groups.contains_key(&pattern);
        if !has_room {
            self.others.get_or_insert_with(|| ReasonGroup::new(None)).add(error);
            return;
        }
        let group = self.groups.entry(pattern).or_insert_with_key(|_| ReasonGroup::new(Some(reason.clone())));
        if group.reason.as_ref() != Some(&reason) {
            group.reason = Some(without_numbers(&reason));
        }
        group.add(error);
    }

    /// The most frequent reason first, the other reasons last.
    pub fn sorted(&self) -> Vec<&ReasonGroup> {
        let mut groups: Vec<&ReasonGroup> = self.groups.values().collect();
        groups.sort_by_key(|group| (Reverse(group.count), Reverse(group.last_ms), &group.reason));
        groups.extend(&self.others);
        groups
    }

    /// Prints one line or one object per group.
    pub fn write(&self, out: &mut impl Write, as_json: bool) -> io::Result<()> {
        let groups = self.sorted();
        if as_json {
            for group in groups {
                let mut object = serde_json::to_value(group)?;
                if let Some(partition) = group.example.partition {
                    object["examplePartition"] = partition.into();
                }
                writeln!(out, "{}", json_line(&object))?;
            }
            return out.flush();
        }
        if !groups.is_empty() {
            writeln!(out, "{:>9}  {:<24}  {:<24}  {:>10}  reason", "errors", "first", "last", "example")?;
        }
        for ReasonGroup { reason, count, first_ms, last_ms, example } in groups {
            let (count, first, last) = (grouped(*count), moment(*first_ms), moment(*last_ms));
            let reason = match reason {
                Some(reason) => escape(reason.as_bytes()),
                None => "(other reasons)".to_owned(),
            };
            writeln!(out, "{count:>9}  {first:<24}  {last:<24}  {:>10}  {reason}", format!("#{example}"))?;
        }
        out.flush()
    }
}

/// Writes only the id. The partition is a separate field.
fn id_only<S: serde::Serializer>(example: &MessageId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(example.id)
}

impl ReasonGroup {
    fn new(reason: Option<String>) -> Self {
        Self {
            reason,
            count: 0,
            first_ms: u64::MAX,
            last_ms: 0,
            example: MessageId { partition: None, id: 0 },
        }
    }

    fn add(&mut self, error: &DeadLetter) {
        self.count += 1;
        self.first_ms = self.first_ms.min(error.failed_ms);
        if error.failed_ms >= self.last_ms {
            (self.last_ms, self.example) = (error.failed_ms, MessageId::from(&error.message));
        }
    }
}

/// Whether an error belongs to the group that shows this reason.
pub fn is_of_group(error: &DeadLetter, shown: &str) -> bool {
    let reason: String = error.reason.chars().take(MOST_CHARACTERS).collect();
    reason == shown || without_numbers(&reason) == without_numbers(shown)
}

/// The reason with a `#` for each number that is too long for a code.
fn without_numbers(reason: &str) -> String {
    let mut pattern = String::with_capacity(reason.len());
    for run in reason.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        match run[0].is_ascii_digit() && run.len() > CODE_DIGITS {
            true => pattern.push('#'),
            // A digit is a character of one byte, so no character is cut.
            false => pattern.push_str(&String::from_utf8_lossy(run)),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(id: u64, failed_ms: u64, reason: &str) -> DeadLetter {
        let element = format!("!{failed_ms} 3 {} {reason} {id} 7 1000 0 1 0 0 0 body", reason.len());
        DeadLetter::parse(&"demo".parse().unwrap(), element.into_bytes())
    }

    /// Reason, count, first, last and example of each group.
    fn seen(reasons: &Reasons) -> Vec<(Option<&str>, u64, u64, u64, u64)> {
        let row = |group: &&ReasonGroup| (group.count, group.first_ms, group.last_ms, group.example.id);
        let groups = reasons.sorted();
        let rows = groups.iter().map(|group| (group.reason.as_deref(), row(group)));
        rows.map(|(reason, (count, first, last, example))| (reason, count, first, last, example)).collect()
    }

    #[test]
    fn reasons_that_differ_only_in_long_numbers_are_one_group() {
        let mut reasons = Reasons::default();
        for (id, failed_ms, reason) in [
            (1, 50, "status 404"),
            (2, 40, "order 8127 has no item 4000"),
            (3, 90, "order 10004 has no item 1234"),
            (4, 70, "order 10004 has no item 1234"),
            (5, 60, "status 404"),
            (6, 60, "out of memory"),
            (7, 50, "status 500"),
            (8, 40, "заказ 8127"),
        ] {
            reasons.add(&error(id, failed_ms, reason));
        }
        let expected = [
            (Some("order # has no item #"), 3, 40, 90, 3),
            (Some("status 404"), 2, 50, 60, 5),
            (Some("out of memory"), 1, 60, 60, 6),
            (Some("status 500"), 1, 50, 50, 7),
            (Some("заказ 8127"), 1, 40, 40, 8),
        ];
        assert_eq!(seen(&reasons), expected);
    }

    #[test]
    fn memory_is_bounded_however_many_and_however_long_the_reasons_are() {
        let word = |mut number: usize| {
            let mut word = String::new();
            for _ in 0..4 {
                word.push(char::from(b'a' + (number % 26) as u8));
                number /= 26;
            }
            word
        };
        let mut reasons = Reasons::default();
        for number in 0..MOST_GROUPS + 7 {
            reasons.add(&error(number as u64 + 1, 5, &word(number)));
        }
        reasons.add(&error(5000, 9, &word(3)));
        let groups = seen(&reasons);
        assert_eq!((groups.len(), groups[0]), (MOST_GROUPS + 1, (Some(word(3).as_str()), 2, 5, 9, 5000)));
        assert_eq!(groups[MOST_GROUPS], (None, 7, 5, 5, MOST_GROUPS as u64 + 7), "the rest, at the end");

        let long = "ж".repeat(MOST_CHARACTERS);
        let mut reasons = Reasons::default();
        reasons.add(&error(1, 5, &format!("{long}one")));
        reasons.add(&error(2, 5, &format!("{long}two")));
        assert_eq!(seen(&reasons), [(Some(long.as_str()), 2, 5, 5, 2)]);
    }
}
