//! The record of a node: a file with every step of the node, one line per step. `run --record FILE` switches it on.
//!
//! The recorder writes each line straight to the file and buffers nothing. So the record survives a kill -9 of its
//! node. A step that was visible from outside is in the file, unless it was the very last one. If a line cannot be
//! written, the recorder stops the node. `chaos` judges a run by these records and by the data in Redis.
//!
//! A line holds the time in milliseconds since 1970, the kind of the step, and its details. [`Step`] lists all kinds.
//! Bodies are recorded as digests. Nodes that run one after another may share a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Mutex;

use estafeta::{Message, Notice};
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Started {
        pid: u32,
    },
    Joined {
        member: u64,
    },
    TookOffice {
        epoch: u64,
        from: Option<u64>,
        silence_ms: u64,
    },
    BecameHandler,
    DeclaredDead,
    /// Redis has stored these messages: the id of each, and the digest of its body.
    Published {
        epoch: u64,
        messages: Vec<(u64, u64)>,
    },
    /// The node is about to call the handler.
    Began {
        id: u64,
        delivery: u32,
        epoch: u64,
        digest: u64,
    },
    /// The node is about to call a handler that follows the plan in the body. A planned body has no space.
    Attempt {
        id: u64,
        delivery: u32,
        epoch: u64,
        failures: u32,
        snoozes: u32,
        published_ms: u64,
        body: String,
    },
    /// Redis has recorded that these messages wait for another delivery.
    Postponed {
        member: u64,
        ids: Vec<u64>,
    },
    /// Redis has recorded these outcomes. The node held the messages under this member number.
    Settled {
        member: u64,
        done: Vec<u64>,
        failed: Vec<u64>,
    },
    Left,
    /// A publisher is about to publish these messages in one call: the key of each, if it has one, and its body. Neither
    /// has a space, and a key has no `=`.
    Submits {
        call: u64,
        messages: Vec<(Option<String>, String)>,
    },
    /// Redis has answered that call: the id of each message, and whether it is a duplicate.
    Receipts {
        call: u64,
        receipts: Vec<(u64, bool)>,
    },
    /// Redis has refused that call, because another message has a key of it.
    Refused {
        call: u64,
    },
    /// A publisher is about to cancel this message.
    Cancels {
        call: u64,
        id: u64,
    },
    /// Redis has answered that call.
    Cancelled {
        call: u64,
        is_cancelled: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLine {
    pub at_ms: u64,
    pub step: Step,
}

pub struct Recorder {
    file: Mutex<File>,
    failure: Mutex<Option<io::Error>>,
    /// Cancelled if the record cannot be written, because half a record is worse than none.
    stop: CancellationToken,
}

impl Recorder {
    pub fn open(path: &Path, stop: CancellationToken) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let is_new = file.metadata()?.len() == 0;
        let recorder = Self { file: file.into(), failure: Mutex::default(), stop };
        if !is_new {
            // Ends a line that a kill may have cut short. See `read`.
            recorder.write_line("\n");
        }
        recorder.write(Step::Started { pid: std::process::id() });
        Ok(recorder)
    }

    pub fn begins(&self, message: &Message) {
        let digest = digest(message.body());
        let Message { id, delivery, epoch, .. } = *message;
        self.write(Step::Began { id, delivery, epoch: epoch.0, digest });
    }

    /// Records the beginning of an attempt at a message whose body is a plan.
    pub fn attempts(&self, message: &Message) {
        let Message { id, delivery, epoch, failures, snoozes, published_ms, .. } = *message;
        let body = message.text().replace(char::is_whitespace, "?");
        self.write(Step::Attempt { id, delivery, epoch: epoch.0, failures, snoozes, published_ms, body });
    }

    pub fn notice(&self, notice: &Notice<'_>) {
        let step = match notice {
            Notice::Joined { member } => Step::Joined { member: member.0 },
            Notice::DeclaredDead => Step::DeclaredDead,
            Notice::BecameGenerator { epoch, from, silence } => {
                let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
                Step::TookOffice { epoch: epoch.0, from: from.map(|from| from.0), silence_ms }
            }
            Notice::BecameHandler => Step::BecameHandler,
            Notice::Generated { messages } => Step::Published {
                epoch: messages.first().map_or(0, |message| message.epoch.0),
                messages: messages.iter().map(|message| (message.id, digest(message.body()))).collect(),
            },
            Notice::Settled { member, messages, failures } => {
                let failed = |index: &usize| failures.iter().any(|(failure, _)| failure == index);
                let (failed, done): (Vec<_>, Vec<_>) = (0..messages.len()).partition(failed);
                let ids = |indices: Vec<usize>| indices.into_iter().map(|index| messages[index].id).collect();
                Step::Settled { member: member.0, done: ids(done), failed: ids(failed) }
            }
            Notice::Postponed { member, messages } => Step::Postponed {
                member: member.0,
                ids: messages.iter().map(|postponed| postponed.message.id).collect(),
            },
            Notice::Left { .. } => Step::Left,
            _ => return,
        };
        self.write(step);
    }

    /// Returns why the record is incomplete, if it is.
    pub fn finish(&self) -> io::Result<()> {
        match self.failure.lock().expect("no panic while held").take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    pub fn write(&self, step: Step) {
        self.write_line(&format!("{}\n", RecordLine { at_ms: now_ms(), step }));
    }

    fn write_line(&self, line: &str) {
        // One call per line. The kernel keeps what it has received, even if the process is killed.
        let written = self.file.lock().expect("no panic while held").write_all(line.as_bytes());
        if let Err(error) = written {
            self.failure.lock().expect("no panic while held").get_or_insert(error);
            self.stop.cancel();
        }
    }
}

/// Identifies a body. All nodes of one program compute the same digest.
pub fn digest(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    hasher.finish()
}

/// Parses a record, without lines that a kill has cut short.
///
/// A cut line is at the end of the text and has no newline, or the next process has ended it. That process writes a
/// newline before its `started` line. So there is an empty line before `started` after a whole line, and none after a
/// cut line.
pub fn read(text: &str) -> Result<Vec<RecordLine>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines: Vec<&str> = whole.lines().collect();
    let is_torn = |index: usize| lines.get(index + 1).is_some_and(|next| next.contains(" started "));
    let kept = lines.iter().enumerate().filter(|(index, line)| !line.is_empty() && !is_torn(*index));
    let parse = |line: &str| RecordLine::parse(line).ok_or_else(|| format!("not a line of a record: {line}"));
    kept.map(|(_, line)| parse(line)).collect()
}

impl RecordLine {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let at_ms = words.next()?.parse().ok()?;
        let kind = words.next()?;
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let step = match kind {
            "started" => Step::Started { pid: u32::try_from(number()?).ok()? },
            "joined" => Step::Joined { member: number()? },
            "office" => {
                let (epoch, from, silence_ms) = (number()?, number()?, number()?);
                Step::TookOffice { epoch, from: (from > 0).then_some(from), silence_ms }
            }
            "handler" => Step::BecameHandler,
            "dead" => Step::DeclaredDead,
            "left" => Step::Left,
            "published" => {
                let epoch = number()?;
                let messages = words.map(|word| {
                    let (id, digest) = word.split_once('=')?;
                    Some((id.parse().ok()?, u64::from_str_radix(digest, 16).ok()?))
                });
                Step::Published { epoch, messages: messages.collect::<Option<_>>()? }
            }
            "began" => {
                let (id, delivery, epoch) = (number()?, number()?, number()?);
                let digest = u64::from_str_radix(words.next()?, 16).ok()?;
                Step::Began { id, delivery: u32::try_from(delivery).ok()?, epoch, digest }
            }
            "attempt" => {
                let (id, delivery, epoch) = (number()?, number()?, number()?);
                let (failures, snoozes, published_ms) = (number()?, number()?, number()?);
                let count = |count: u64| u32::try_from(count).ok();
                let (delivery, failures, snoozes) = (count(delivery)?, count(failures)?, count(snoozes)?);
                let body = words.next()?.to_owned();
                Step::Attempt { id, delivery, epoch, failures, snoozes, published_ms, body }
            }
            "postponed" => {
                let member = number()?;
                let ids = words.map(|word| word.parse().ok());
                Step::Postponed { member, ids: ids.collect::<Option<_>>()? }
            }
            "submits" => {
                let call = number()?;
                let messages = words.map(|word| {
                    let (key, body) = word.split_once('=')?;
                    Some(((!key.is_empty()).then(|| key.to_owned()), body.to_owned()))
                });
                Step::Submits { call, messages: messages.collect::<Option<_>>()? }
            }
            "receipts" => {
                let call = number()?;
                let receipts = words.map(|word| {
                    let id = word.strip_suffix('!');
                    Some((id.unwrap_or(word).parse().ok()?, id.is_some()))
                });
                Step::Receipts { call, receipts: receipts.collect::<Option<_>>()? }
            }
            "refused" => Step::Refused { call: number()? },
            "cancels" => Step::Cancels { call: number()?, id: number()? },
            "cancelled" => Step::Cancelled { call: number()?, is_cancelled: number()? == 1 },
            "settled" => {
                let member = number()?;
                let (mut done, mut failed) = (Vec::new(), Vec::new());
                for word in words {
                    match word.strip_suffix('!') {
                        Some(id) => failed.push(id.parse().ok()?),
                        None => done.push(word.parse().ok()?),
                    }
                }
                Step::Settled { member, done, failed }
            }
            _ => return None,
        };
        Some(Self { at_ms, step })
    }
}

impl fmt::Display for RecordLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at_ms)?;
        match &self.step {
            Step::Started { pid } => write!(f, "started {pid}"),
            Step::Joined { member } => write!(f, "joined {member}"),
            Step::TookOffice { epoch, from, silence_ms } => {
                write!(f, "office {epoch} {} {silence_ms}", from.unwrap_or(0))
            }
            Step::BecameHandler => f.write_str("handler"),
            Step::DeclaredDead => f.write_str("dead"),
            Step::Left => f.write_str("left"),
            Step::Published { epoch, messages } => {
                write!(f, "published {epoch}")?;
                messages.iter().try_for_each(|(id, digest)| write!(f, " {id}={digest:x}"))
            }
            Step::Began { id, delivery, epoch, digest } => {
                write!(f, "began {id} {delivery} {epoch} {digest:x}")
            }
            Step::Attempt { id, delivery, epoch, failures, snoozes, published_ms, body } => {
                write!(f, "attempt {id} {delivery} {epoch} {failures} {snoozes} {published_ms} {body}")
            }
            Step::Postponed { member, ids } => {
                write!(f, "postponed {member}")?;
                ids.iter().try_for_each(|id| write!(f, " {id}"))
            }
            Step::Submits { call, messages } => {
                write!(f, "submits {call}")?;
                let key = |key: &Option<String>| key.clone().unwrap_or_default();
                messages.iter().try_for_each(|(name, body)| write!(f, " {}={body}", key(name)))
            }
            Step::Receipts { call, receipts } => {
                write!(f, "receipts {call}")?;
                let mark = |is_duplicate: bool| if is_duplicate { "!" } else { "" };
                receipts.iter().try_for_each(|(id, duplicate)| write!(f, " {id}{}", mark(*duplicate)))
            }
            Step::Refused { call } => write!(f, "refused {call}"),
            Step::Cancels { call, id } => write!(f, "cancels {call} {id}"),
            Step::Cancelled { call, is_cancelled } => {
                write!(f, "cancelled {call} {}", u8::from(*is_cancelled))
            }
            Step::Settled { member, done, failed } => {
                write!(f, "settled {member}")?;
                done.iter().try_for_each(|id| write!(f, " {id}"))?;
                failed.iter().try_for_each(|id| write!(f, " {id}!"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Any step except `Started`.
    fn step() -> impl Strategy<Value = Step> {
        let id = any::<u64>;
        prop_oneof![
            id().prop_map(|member| Step::Joined { member }),
            (id(), prop::option::of(1_u64..), id()).prop_map(|(epoch, from, silence_ms)| Step::TookOffice {
                epoch,
                from,
                silence_ms
            }),
            Just(Step::BecameHandler),
            Just(Step::DeclaredDead),
            Just(Step::Left),
            (id(), vec((id(), id()), 0..4)).prop_map(|(epoch, messages)| Step::Published { epoch, messages }),
            (id(), any::<u32>(), id(), id()).prop_map(|(id, delivery, epoch, digest)| Step::Began {
                id,
                delivery,
                epoch,
                digest
            }),
            (id(), vec(id(), 0..4), vec(id(), 0..4)).prop_map(|(member, done, failed)| Step::Settled {
                member,
                done,
                failed
            }),
            ((id(), any::<u32>(), id()), (any::<u32>(), any::<u32>(), id()), "[a-z0-9/:-]{1,20}").prop_map(
                |((id, delivery, epoch), (failures, snoozes, published_ms), body)| Step::Attempt {
                    id,
                    delivery,
                    epoch,
                    failures,
                    snoozes,
                    published_ms,
                    body
                }
            ),
            (id(), vec(id(), 0..4)).prop_map(|(member, ids)| Step::Postponed { member, ids }),
            (id(), vec((prop::option::of("[a-z0-9-]{1,9}"), "[a-z0-9/:=-]{0,20}"), 0..4))
                .prop_map(|(call, messages)| Step::Submits { call, messages }),
            (id(), vec((id(), any::<bool>()), 0..4))
                .prop_map(|(call, receipts)| Step::Receipts { call, receipts }),
            id().prop_map(|call| Step::Refused { call }),
            (id(), id()).prop_map(|(call, id)| Step::Cancels { call, id }),
            (id(), any::<bool>()).prop_map(|(call, is_cancelled)| Step::Cancelled { call, is_cancelled }),
        ]
    }

    proptest! {
        /// A kill may cut a record anywhere, and the next process appends to the same file.
        #[test]
        fn a_record_that_was_cut_anywhere_yields_exactly_its_whole_lines(
            lines in vec((any::<u64>(), step()), 0..6),
            cut: prop::sample::Index,
            is_continued: bool,
        ) {
            let lines: Vec<RecordLine> = lines.into_iter().map(|(at_ms, step)| RecordLine { at_ms, step }).collect();
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let before = &text[..cut.index(text.len() + 1)];
            let mut expected = lines[..before.matches('\n').count()].to_vec();
            let mut left = before.to_owned();
            if is_continued {
                left += "\n99 started 7\n";
                expected.push(RecordLine { at_ms: 99, step: Step::Started { pid: 7 } });
            }
            prop_assert_eq!(read(&left), Ok(expected));
        }

        #[test]
        fn any_text_is_read_or_refused_without_panic(text: String, words in vec("[a-z0-9=! ]{0,12}", 0..6)) {
            let _ = read(&text);
            let _ = read(&(words.join(" ") + "\n"));
        }
    }

    #[test]
    fn every_step_is_read_back_as_written_and_cut_lines_are_skipped() {
        let steps = [
            Step::Started { pid: 4711 },
            Step::Joined { member: 3 },
            Step::TookOffice { epoch: 17, from: None, silence_ms: 0 },
            Step::TookOffice { epoch: 18, from: Some(2), silence_ms: 187 },
            Step::BecameHandler,
            Step::DeclaredDead,
            Step::Published { epoch: 18, messages: vec![(1, 0xabc), (2, u64::MAX)] },
            Step::Began { id: 1, delivery: 2, epoch: 18, digest: 0xabc },
            Step::Settled { member: 3, done: vec![1, 3], failed: vec![2] },
            Step::Settled { member: 3, done: vec![], failed: vec![4] },
            Step::Attempt {
                id: 5,
                delivery: 3,
                epoch: 18,
                failures: 1,
                snoozes: 1,
                published_ms: 1_700_000_000_000,
                body: "p1-4-0/delay:300/snooze:1/retry:1/done".to_owned(),
            },
            Step::Postponed { member: 3, ids: vec![5, 6] },
            Step::Submits {
                call: 1,
                messages: vec![(None, "a/done".into()), (Some("k".into()), "b/x=y".into())],
            },
            Step::Receipts { call: 1, receipts: vec![(7, false), (3, true)] },
            Step::Refused { call: 2 },
            Step::Cancels { call: 2, id: 7 },
            Step::Cancelled { call: 2, is_cancelled: true },
            Step::Left,
        ];
        let lines: Vec<RecordLine> =
            (1..).zip(steps).map(|(at_ms, step)| RecordLine { at_ms, step }).collect();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(read(&text).unwrap(), lines);
        assert_eq!(read(&format!("{text}12 settled 1")).unwrap(), lines, "what a kill left of a line");
        let again = "\n13 started 4712\n";
        assert_eq!(read(&format!("{text}{again}")).unwrap().len(), lines.len() + 1);
        assert_eq!(read(&format!("{text}12 began 7 1 17 ab{again}")).unwrap().len(), lines.len() + 1);
        assert_eq!(read("").unwrap(), []);
        assert!(read("12 nonsense\n").is_err());
    }
}
