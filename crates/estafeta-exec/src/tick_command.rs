//! A command that runs once per tick and prints messages.
//!
//! It gets the last checkpoint of the ring on stdin. Each line of its stdout is a message, and what it writes to descriptor
//! 3 is the new checkpoint. Only if it exits with code 0, the messages, the checkpoint and the tick go to Redis, in one
//! step. Otherwise the tick stays due, and the command runs again after a pause.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use estafeta::{Batch, Failure, Tick};
use tokio::io::AsyncWriteExt as _;

use crate::command_line::CommandLine;
use crate::context::CommandContext;
use crate::output::{Relay, read_bounded};
use crate::printed_message::LineForm;
use crate::process::{Ended, LINGERING, PATIENCE, Pipes, Spawner, timed_out};

/// A command that makes the messages of a tick. Clones are the same command.
#[derive(Clone, Debug)]
pub struct TickCommand {
    spawner: Spawner,
    relay: Relay,
    time_limit: Duration,
    form: LineForm,
}

impl TickCommand {
    /// A command, and the form of the lines that it prints.
    pub fn new(command: CommandLine, context: &CommandContext, time_limit: Duration, form: LineForm) -> Self {
        let (spawner, relay) = (Spawner::new(command, context), context.relay.clone());
        Self { spawner, relay, time_limit, form }
    }

    /// Runs the command for one tick, with the last checkpoint.
    pub async fn run(self, tick: Tick, checkpoint: Option<Bytes>) -> Result<Batch<Bytes, Bytes>, Failure> {
        let ms = tick.time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let mut environment = (*self.spawner.environment).clone();
        environment.set("ESTAFETA_TICK_MS", ms);
        let (mut process, pipes) = self.spawner.start(&environment)?;
        let Pipes { mut stdin, stdout, stderr, reply } = pipes;
        let writing = async move {
            // A command need not read its checkpoint.
            let _ = stdin.write_all(&checkpoint.unwrap_or_default()).await;
        };
        let outputs = async {
            tokio::join!(
                writing,
                read_bounded(stdout, Batch::MAX_BYTES),
                read_bounded(reply, Batch::MAX_CHECKPOINT),
                self.relay.clone().all(stderr),
            )
        };
        let mut outputs = std::pin::pin!(outputs);
        let until = tokio::time::Instant::now() + self.time_limit;
        let mut read = None;
        let ended = loop {
            tokio::select! {
                ended = process.wait() => break ended?,
                all = &mut outputs, if read.is_none() => read = Some(all),
                () = tokio::time::sleep_until(until) => {
                    process.terminate(PATIENCE).await?;
                    return Err(timed_out(self.time_limit));
                }
            }
        };
        let ((), stdout, reply, stderr) = match read {
            Some(read) => read,
            None => tokio::time::timeout(LINGERING, outputs).await.map_err(|_| {
                Failure::new("the command has ended, but a process that it left behind keeps its output open")
            })?,
        };
        if ended != Ended::Code(0) {
            return Err(Failure::new(ended.because(&stderr)));
        }
        self.batch(stdout, reply)
    }

    fn batch(&self, stdout: (Vec<u8>, bool), reply: (Vec<u8>, bool)) -> Result<Batch<Bytes, Bytes>, Failure> {
        let too_long = |what: &str, most: usize| {
            Failure::new(format_args!("{what}: expected at most {most} bytes, got more"))
        };
        if stdout.1 {
            return Err(too_long("stdout", Batch::MAX_BYTES));
        }
        if reply.1 {
            return Err(too_long("checkpoint", Batch::MAX_CHECKPOINT));
        }
        let mut batch = Batch::empty();
        for line in lines(&stdout.0) {
            batch = batch.with_draft(self.form.read(line)?);
        }
        Ok(if reply.0.is_empty() { batch } else { batch.checkpoint(reply.0.into()) })
    }
}

/// The lines of a text without their line ends. A text that ends with a line end has no empty line after it.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let is_empty = text.is_empty();
    text.split(|byte| *byte == b'\n')
        .filter(move |_| !is_empty)
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_with_lf_or_crlf_and_the_last_one_may_end_without() {
        let read = |text: &'static str| {
            lines(text.as_bytes()).map(|line| std::str::from_utf8(line).unwrap()).collect()
        };
        let cases: [(&str, Vec<&str>); 6] = [
            ("", vec![]),
            ("\n", vec![]),
            ("a", vec!["a"]),
            ("a\nb\r\n", vec!["a", "b"]),
            ("a\n\nb\n", vec!["a", "", "b"]),
            ("a\n\n", vec!["a", ""]),
        ];
        for (text, expected) in cases {
            let found: Vec<&str> = read(text);
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
