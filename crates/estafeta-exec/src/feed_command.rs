//! A command that publishes as long as its node is in office.
//!
//! The process lives from the beginning of a term to its end. Its first line of input has the last checkpoint of the ring
//! and the epoch of the term.
//! It prints one message per line. A line with a checkpoint closes a batch: all messages since the checkpoint before, and
//! the new checkpoint, go to Redis in one step. When Redis has them, the process gets a line that says so. So a feed
//! continues where the last one stopped, and each message is published once, whatever dies.
//!
//! A plain feed has no checkpoints. Its lines are bodies, and go to Redis in batches as they come.
//!
//! If the process exits with code 0 after its last checkpoint, the feed is over until the next term. Everything else is a
//! failure: the feed is opened again after a pause, from the checkpoint that Redis has.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use estafeta::{Batch, Draft, Epoch, Failure, Feed};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::JoinHandle;

use crate::command_line::CommandLine;
use crate::context::CommandContext;
use crate::output::Relay;
use crate::printed_message::PrintedMessage;
use crate::process::{CommandProcess, Ended, LINGERING, PATIENCE, Pipes, Spawner};
use crate::reply::quoted;

/// How long the first write to the feed may take.
const WRITING: Duration = Duration::from_secs(10);

/// A command that is a feed.
#[derive(Debug)]
pub struct FeedCommand {
    spawner: Spawner,
    relay: Relay,
    has_checkpoints: bool,
    /// The term in which it runs.
    epoch: Epoch,
    run: Option<FeedRun>,
}

/// The process of one term.
#[derive(Debug)]
struct FeedRun {
    process: CommandProcess,
    stdin: Sender,
    stdout: Receiver,
    stderr: JoinHandle<Vec<u8>>,
    incoming: BytesMut,
    /// How much of `incoming` has no line end.
    scanned: usize,
    /// The rest of a line that the process has not taken yet.
    outgoing: BytesMut,
    is_over: bool,
    /// Why the process failed, if what it had printed goes to Redis first.
    failure: Option<Failure>,
}

/// A line of a feed with checkpoints: a message, or a checkpoint.
#[derive(Deserialize)]
#[serde(untagged)]
enum FeedLine {
    Checkpoint(CheckpointLine),
    Message(PrintedMessage),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointLine {
    checkpoint: Value,
}

impl FeedCommand {
    /// A feed. One without checkpoints is plain: each of its lines is a body.
    pub fn new(command: CommandLine, context: &CommandContext, has_checkpoints: bool) -> Self {
        let (spawner, relay) = (Spawner::new(command, context), context.relay.clone());
        Self { spawner, relay, has_checkpoints, epoch: Epoch(0), run: None }
    }

    async fn read(run: &mut FeedRun, has_checkpoints: bool) -> Result<Batch<Bytes, Bytes>, Failure> {
        if let Some(failure) = run.failure.take() {
            return Err(failure);
        }
        let (mut batch, mut count, mut bytes) = (Batch::empty(), 0, 0);
        loop {
            let line = match run.line(has_checkpoints || count == 0).await {
                // The whole lines of a plain feed count, however it ends.
                Err(failure) if count > 0 && !has_checkpoints => {
                    run.failure = Some(failure);
                    return Ok(batch);
                }
                line => line?,
            };
            let line = match line {
                NextLine::Line(line) => line,
                // A plain feed publishes what has come so far.
                NextLine::NoneYet => return Ok(batch),
                NextLine::End if count > 0 && has_checkpoints => {
                    return Err(Failure::new(format_args!(
                        "the feed ended with {count} messages after its last checkpoint"
                    )));
                }
                NextLine::End if count > 0 => return Ok(batch),
                NextLine::End => return std::future::pending().await,
            };
            let (body, draft) = match has_checkpoints {
                false => (line, Draft::new("")),
                true => match serde_json::from_slice(&line) {
                    Ok(FeedLine::Checkpoint(CheckpointLine { checkpoint })) => {
                        return Ok(batch.checkpoint(checkpoint.to_string().into()));
                    }
                    Ok(FeedLine::Message(message)) => message.read()?,
                    Err(_) => {
                        return Err(Failure::new(format_args!(
                            r#"line: expected {{"body":...}} or {{"checkpoint":...}}, got {}"#,
                            quoted(&line)
                        )));
                    }
                },
            };
            count += 1;
            bytes += body.len();
            if has_checkpoints && (count > Batch::MAX_MESSAGES || bytes > Batch::MAX_BYTES) {
                let (messages, bytes) = (Batch::MAX_MESSAGES, Batch::MAX_BYTES);
                return Err(Failure::new(format_args!(
                    "batch: expected a checkpoint after at most {messages} messages and {bytes} bytes, got none"
                )));
            }
            batch = batch.with_draft(draft.body(body));
            // A line of a plain feed may be as large as one body. Of two, both must fit.
            if !has_checkpoints && (count == Batch::MAX_MESSAGES || bytes >= Batch::MAX_BYTES / 2) {
                return Ok(batch);
            }
        }
    }
}

enum NextLine {
    Line(Bytes),
    NoneYet,
    End,
}

impl FeedRun {
    /// The next line without its line end. Waits for it only if `waits`.
    async fn line(&mut self, waits: bool) -> Result<NextLine, Failure> {
        loop {
            let end = self.incoming[self.scanned..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end.map(|end| self.scanned + end) {
                self.scanned = 0;
                let line = self.incoming.split_to(end + 1).freeze();
                let end = if line[..end].ends_with(b"\r") { end - 1 } else { end };
                return Ok(NextLine::Line(line.slice(..end)));
            }
            self.scanned = self.incoming.len();
            if self.is_over {
                return Ok(NextLine::End);
            }
            if self.incoming.len() > Batch::MAX_BYTES {
                let most = Batch::MAX_BYTES;
                return Err(Failure::new(format_args!("line: expected at most {most} bytes, got more")));
            }
            let reading = self.stdout.read_buf(&mut self.incoming);
            let read = match waits {
                true => Some(reading.await),
                false => futures_util::FutureExt::now_or_never(reading),
            };
            match read {
                None => return Ok(NextLine::NoneYet),
                Some(Ok(count)) if count > 0 => {}
                Some(_) => self.end().await?,
            }
        }
    }

    /// The output has ended. Fails unless the process exits with code 0.
    async fn end(&mut self) -> Result<(), Failure> {
        let ended = match tokio::time::timeout(PATIENCE, self.process.wait()).await {
            Ok(ended) => ended?,
            Err(_) => self.process.terminate(PATIENCE).await?,
        };
        if ended == Ended::Code(0) {
            self.is_over = true;
            // The last line may lack its line end.
            if !self.incoming.is_empty() {
                self.incoming.extend_from_slice(b"\n");
            }
            return Ok(());
        }
        let tail = tokio::time::timeout(LINGERING, &mut self.stderr).await;
        let tail = tail.ok().and_then(Result::ok).unwrap_or_default();
        Err(Failure::new(format_args!("the feed ended with {}", ended.because(&tail))))
    }

    /// Writes the first line, which the process waits for.
    async fn write(&mut self, line: &Value) -> Result<(), Failure> {
        let line = format!("{line}\n");
        match tokio::time::timeout(WRITING, self.stdin.write_all(line.as_bytes())).await {
            // If the process has ended, the next read knows why.
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::new("the feed does not read its stdin")),
        }
    }

    /// Writes a line, unless the process does not read. A later line says more than this one.
    fn notify(&mut self, line: &Value) {
        if self.outgoing.is_empty() {
            self.outgoing.extend_from_slice(format!("{line}\n").as_bytes());
        }
        while !self.outgoing.is_empty() {
            match self.stdin.try_write(&self.outgoing) {
                Ok(count) => self.outgoing.advance(count),
                Err(_) => return,
            }
        }
    }
}

impl Feed for FeedCommand {
    type Body = Bytes;
    type Checkpoint = Bytes;

    fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    async fn open(&mut self, from: Option<Bytes>) -> Result<(), Failure> {
        self.close().await;
        let from: Option<Value> = match &from {
            Some(bytes) if self.has_checkpoints => Some(serde_json::from_slice(bytes).map_err(|error| {
                Failure::new(format_args!(
                    "the checkpoint in Redis is no JSON ({error}). `estafeta checkpoint` shows, sets and clears it"
                ))
            })?),
            _ => None,
        };
        let (process, pipes) = self.spawner.start(&self.spawner.environment)?;
        let Pipes { stdin, stdout, stderr, reply: _ } = pipes;
        let stderr = tokio::spawn(self.relay.clone().all(stderr));
        let mut run = FeedRun {
            process,
            stdin,
            stdout,
            stderr,
            incoming: BytesMut::new(),
            scanned: 0,
            outgoing: BytesMut::new(),
            is_over: false,
            failure: None,
        };
        if self.has_checkpoints {
            run.write(&json!({ "checkpoint": from, "epoch": self.epoch.0 })).await?;
        }
        self.run = Some(run);
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<Bytes, Bytes>, Failure> {
        let has_checkpoints = self.has_checkpoints;
        match &mut self.run {
            Some(run) => Self::read(run, has_checkpoints).await,
            None => Err(Failure::new("the feed is not open")),
        }
    }

    async fn published(&mut self, checkpoint: &Bytes) -> Result<(), Failure> {
        let Ok(checkpoint) = serde_json::from_slice::<Value>(checkpoint) else { return Ok(()) };
        match &mut self.run {
            Some(run) if !run.is_over => run.notify(&json!({ "published": checkpoint })),
            _ => {}
        }
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(FeedRun { mut process, stdin, stdout, stderr, .. }) = self.run.take() {
            drop((stdin, stdout));
            let _ = process.terminate(PATIENCE).await;
            stderr.abort();
        }
    }
}
