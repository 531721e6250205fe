//! What a copy writes down of itself: `run --record FILE`, one line a step, straight to the file.
//!
//! Nothing is held back in memory, so that the record survives the kill -9 of its copy: a step that was seen from outside
//! is either in the file or was the very last one. `chaos` judges by these records, together with what Redis has.
//!
//! A line is the moment in milliseconds since 1970, the kind of step, and its details; [`Step`] has them all. Bodies are
//! recorded as digests. Copies that are started one after the other may share a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use estafeta::{Message, Notice};
use tokio_util::sync::CancellationToken;

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
    /// Redis has these messages: id and digest of the body.
    Published {
        epoch: u64,
        messages: Vec<(u64, u64)>,
    },
    /// The handler is about to be called.
    Began {
        id: u64,
        attempt: u32,
        epoch: u64,
        digest: u64,
    },
    /// Redis has recorded these outcomes of messages that the copy held under this number.
    Settled {
        member: u64,
        done: Vec<u64>,
        failed: Vec<u64>,
    },
    Left,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub at_ms: u64,
    pub step: Step,
}

pub struct Recorder {
    file: Mutex<File>,
    failure: Mutex<Option<io::Error>>,
    /// Cancelled when the record cannot be written: half a record is worse than none.
    stop: CancellationToken,
}

impl Recorder {
    pub fn open(path: &Path, stop: CancellationToken) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let recorder = Self { file: file.into(), failure: Mutex::default(), stop };
        // What a kill may have left of the last line before is closed off; see `read`.
        recorder.write_line("\n");
        recorder.write(Step::Started { pid: std::process::id() });
        Ok(recorder)
    }

    pub fn begins(&self, message: &Message) {
        let digest = digest(message.body());
        let Message { id, attempt, epoch, .. } = *message;
        self.write(Step::Began { id, attempt, epoch: epoch.0, digest });
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
            Notice::Left { .. } => Step::Left,
            _ => return,
        };
        self.write(step);
    }

    /// Why the record is not whole, if it is not.
    pub fn finish(&self) -> io::Result<()> {
        match self.failure.lock().expect("no panic while held").take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn write(&self, step: Step) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.write_line(&format!("{}\n", Line { at_ms, step }));
    }

    fn write_line(&self, line: &str) {
        // One call a line: what the kernel has is not lost with the process.
        let written = self.file.lock().expect("no panic while held").write_all(line.as_bytes());
        if let Err(error) = written {
            self.failure.lock().expect("no panic while held").get_or_insert(error);
            self.stop.cancel();
        }
    }
}

/// Tells bodies apart; the same in all copies of one program.
pub fn digest(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    hasher.finish()
}

/// Reads a record. What a kill has left of a line does not count: it is the last one and has no end, or the next process
/// has closed it off, so that there is no empty line before that one's first.
pub fn read(text: &str) -> Result<Vec<Line>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines: Vec<&str> = whole.lines().collect();
    let is_torn = |index: usize| lines.get(index + 1).is_some_and(|next| next.contains(" started "));
    let kept = lines.iter().enumerate().filter(|(index, line)| !line.is_empty() && !is_torn(*index));
    let parse = |line: &str| Line::parse(line).ok_or_else(|| format!("not a line of a record: {line}"));
    kept.map(|(_, line)| parse(line)).collect()
}

impl Line {
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
                let (id, attempt, epoch) = (number()?, number()?, number()?);
                let digest = u64::from_str_radix(words.next()?, 16).ok()?;
                Step::Began { id, attempt: u32::try_from(attempt).ok()?, epoch, digest }
            }
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

impl fmt::Display for Line {
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
            Step::Began { id, attempt, epoch, digest } => {
                write!(f, "began {id} {attempt} {epoch} {digest:x}")
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

    /// Any step but the first one of a process.
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
            (id(), any::<u32>(), id(), id()).prop_map(|(id, attempt, epoch, digest)| Step::Began {
                id,
                attempt,
                epoch,
                digest
            }),
            (id(), vec(id(), 0..4), vec(id(), 0..4)).prop_map(|(member, done, failed)| Step::Settled {
                member,
                done,
                failed
            }),
        ]
    }

    proptest! {
        /// A kill may cut a record anywhere, and the next process goes on in the same file.
        #[test]
        fn every_whole_line_before_a_cut_counts_and_nothing_else(
            lines in vec((any::<u64>(), step()), 0..6),
            cut: prop::sample::Index,
            goes_on: bool,
        ) {
            let lines: Vec<Line> = lines.into_iter().map(|(at_ms, step)| Line { at_ms, step }).collect();
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let before = &text[..cut.index(text.len() + 1)];
            let mut expected = lines[..before.matches('\n').count()].to_vec();
            let mut left = before.to_owned();
            if goes_on {
                left += "\n99 started 7\n";
                expected.push(Line { at_ms: 99, step: Step::Started { pid: 7 } });
            }
            prop_assert_eq!(read(&left), Ok(expected));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String, words in vec("[a-z0-9=! ]{0,12}", 0..6)) {
            let _ = read(&text);
            let _ = read(&(words.join(" ") + "\n"));
        }
    }

    #[test]
    fn every_step_reads_as_it_was_written() {
        let steps = [
            Step::Started { pid: 4711 },
            Step::Joined { member: 3 },
            Step::TookOffice { epoch: 17, from: None, silence_ms: 0 },
            Step::TookOffice { epoch: 18, from: Some(2), silence_ms: 187 },
            Step::BecameHandler,
            Step::DeclaredDead,
            Step::Published { epoch: 18, messages: vec![(1, 0xabc), (2, u64::MAX)] },
            Step::Began { id: 1, attempt: 2, epoch: 18, digest: 0xabc },
            Step::Settled { member: 3, done: vec![1, 3], failed: vec![2] },
            Step::Settled { member: 3, done: vec![], failed: vec![4] },
            Step::Left,
        ];
        let lines: Vec<Line> = (1..).zip(steps).map(|(at_ms, step)| Line { at_ms, step }).collect();
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
