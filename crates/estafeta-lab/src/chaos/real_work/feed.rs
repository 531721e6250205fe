//! The feed of the workload `pipeline`: a file that grows during the run. Chaos writes it, and the elected node publishes
//! each of its lines.
//!
//! A line is a plan, and its name contains its number. A line that begins with `#` is a comment, for which nothing is
//! published. The checkpoint is the place in the file.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use estafeta::{Batch, Failure, Feed, Ring};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio_util::sync::CancellationToken;

use super::message_plan::MessagePlan;
use super::node::GENERATED;

/// The most lines of one batch.
const MOST: usize = 50;
/// How often the feed looks whether the file has grown.
const LOOK: Duration = Duration::from_millis(10);
/// The feed fails at its third call, and later once in so many calls.
const FAILS_ONCE_IN: u64 = 200;
/// Chaos waits with the next lines while so many are not published yet.
const AHEAD: u64 = 1000;
/// The most lines that chaos writes at once.
const AT_ONCE: u64 = 30;

/// The number of the line with this name. None if the message is no line of a file.
pub fn line_number(name: &str) -> Option<u64> {
    name.strip_prefix(GENERATED)?.strip_prefix('-')?.parse().ok()
}

/// Reads the file, from the checkpoint on.
pub struct LineFeed {
    path: PathBuf,
    at: u64,
    calls: u64,
}

impl LineFeed {
    pub fn new(path: PathBuf) -> Self {
        Self { path, at: 0, calls: 0 }
    }

    /// Reads complete lines. Returns None if there are none yet.
    fn read(&mut self) -> Result<Option<Batch<Bytes, u64>>, Failure> {
        let mut file = BufReader::new(File::open(&self.path)?);
        let from = file.seek(SeekFrom::Start(self.at))?;
        let mut lines = Vec::new();
        while lines.len() < MOST {
            let mut line = String::new();
            let bytes = file.read_line(&mut line)? as u64;
            let Some(line) = line.strip_suffix('\n') else { break };
            self.at += bytes;
            if !line.starts_with('#') {
                lines.push(Bytes::from(line.to_owned()));
            }
        }
        Ok((self.at > from).then(|| Batch::new(lines).checkpoint(self.at)))
    }
}

impl Feed for LineFeed {
    type Body = Bytes;
    type Checkpoint = u64;

    async fn open(&mut self, from: Option<u64>) -> Result<(), Failure> {
        self.at = from.unwrap_or(0);
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<Bytes, u64>, Failure> {
        self.calls += 1;
        if self.calls % FAILS_ONCE_IN == 3 {
            return Err(Failure::new("the feed fails, as planned"));
        }
        loop {
            if let Some(batch) = self.read()? {
                return Ok(batch);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Writes lines until `stop` is cancelled. `published` returns how many lines are published. The last line is complete.
pub async fn write_lines(
    path: &Path,
    seed: u64,
    published: impl Fn() -> u64,
    stop: CancellationToken,
) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let mut file = File::options().append(true).create_new(true).open(path).with_context(context)?;
    let (mut random, mut written) = (SmallRng::seed_from_u64(seed), 0);
    while !stop.is_cancelled() {
        if written < published() + AHEAD {
            let lines = some_lines(&mut random, written);
            written += lines.iter().filter(|line| !line.starts_with('#')).count() as u64;
            let text: String = lines.into_iter().map(|line| line + "\n").collect();
            // The feed may see half of a line.
            let (first, rest) = text.split_at(random.random_range(0..=text.len()));
            file.write_all(first.as_bytes()).with_context(context)?;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..5))).await;
            file.write_all(rest.as_bytes()).with_context(context)?;
        }
        let pause = Duration::from_millis(random.random_range(0..15));
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
    Ok(())
}

/// The lines after so many others: a comment, or some plans.
fn some_lines(random: &mut SmallRng, before: u64) -> Vec<String> {
    if random.random_range(0..8) == 0 {
        return vec![format!("# {before} lines")];
    }
    let numbers = before + 1..=before + random.random_range(1..=AT_ONCE);
    numbers.map(|number| MessagePlan::random(random, format!("{GENERATED}-{number}")).to_string()).collect()
}

/// The file at the end of a run, and how far its feed came.
#[derive(Debug, Default)]
pub struct FeedEvidence {
    /// All lines that are no comments.
    pub lines: Vec<String>,
    /// The size of the file in bytes.
    pub size: u64,
    /// The checkpoint in Redis. None if there is none, or if it is no number.
    pub checkpoint: Option<u64>,
}

impl FeedEvidence {
    pub async fn read(path: &Path, ring: &Ring) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect();
        Ok(Self { lines, size: text.len() as u64, checkpoint: checkpoint(ring).await? })
    }
}

/// How much of its file the feed of this ring has published.
pub async fn checkpoint(ring: &Ring) -> Result<Option<u64>> {
    let stored = ring.checkpoint().await?;
    Ok(stored.and_then(|stored| std::str::from_utf8(&stored).ok()?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_feed_publishes_each_complete_line_once_and_goes_on_where_another_one_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        std::fs::write(&path, "# 0 lines\ng-1/done\ng-2/fa").unwrap();
        let mut feed = LineFeed::new(path.clone());
        feed.open(None).await.unwrap();
        let batch = |lines: &[&'static str], at: u64| {
            Batch::new(lines.iter().map(|line| Bytes::from_static(line.as_bytes()))).checkpoint(at)
        };
        assert_eq!(feed.next().await.unwrap(), batch(&["g-1/done"], 19));
        assert_eq!(feed.read().unwrap(), None, "the second line is not complete");
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"tal\n# 2 lines\n").unwrap();
        let mut heir = LineFeed::new(path);
        heir.open(Some(19)).await.unwrap();
        assert_eq!(heir.next().await.unwrap(), batch(&["g-2/fatal"], 39));
        heir.open(Some(29)).await.unwrap();
        assert_eq!(heir.next().await.unwrap(), batch(&[], 39), "a comment moves the checkpoint");
        assert_eq!(heir.next().await.unwrap_err().reason(), "the feed fails, as planned");
    }

    #[tokio::test]
    async fn the_lines_of_a_file_are_plans_with_their_numbers_and_the_last_line_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let (path, stop) = (directory.path().join("lines"), CancellationToken::new());
        // Until there is a comment. More lines follow it.
        let published = || {
            if std::fs::read_to_string(&path).unwrap().contains('#') {
                stop.cancel();
            }
            u64::MAX / 2
        };
        write_lines(&path, 1, published, stop.clone()).await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with('\n'), "{text}");
        let plans = text.lines().filter(|line| !line.starts_with('#')).map(MessagePlan::parse);
        for (plan, number) in plans.zip(1..) {
            assert_eq!(line_number(&plan.unwrap().name), Some(number));
        }
        for other in ["g17", "p-17", "g-", "g-x"] {
            assert_eq!(line_number(other), None, "{other}");
        }
    }
}
