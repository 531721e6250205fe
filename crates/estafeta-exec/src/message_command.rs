//! One process per message.
//!
//! The process gets the body on stdin and everything else in its environment. Its exit code decides what becomes of the
//! message: 0 done, 65 and 100 fail, every other code another attempt. A signal is a death. One JSON object on descriptor
//! 3 says more than a code can. It counts unless it says `done` and the exit code does not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use estafeta::{Failure, Job, Outcome};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;

use crate::command_line::CommandLine;
use crate::context::CommandContext;
use crate::output::{Kept, Relay};
use crate::process::{Ended, LINGERING, PATIENCE, Pipes, Spawner, timed_out};
use crate::reply::{CommandReply, DEFAULT_TTL};
use crate::rests::Rests;

/// The exit codes that no further attempt would mend: EX_DATAERR, and qmail's.
const FATAL: [i32; 2] = [65, 100];
/// The largest result, and the largest reply on descriptor 3. Effects have the same limit.
const MOST_BYTES: usize = 256 * 1024;
/// How long a lane rests whose command cannot be started: the first time, and at most.
const REST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// A command that handles one message per process. Clones share their processes.
#[derive(Clone, Debug)]
pub struct MessageCommand {
    spawner: Spawner,
    relay: Relay,
    time_limit: Duration,
    /// How long results are kept, if stdout is the result.
    results: Option<Duration>,
    rests: Arc<Rests>,
}

impl MessageCommand {
    /// How much longer than the command the node has to wait: a command that is over its time limit is asked to end first.
    pub const GRACE: Duration = Duration::from_secs(6);

    /// A command that handles messages. `results` is how long the stdout of a message that is done is kept as its
    /// result. If it is None, stdout is relayed like stderr.
    pub fn new(
        command: CommandLine,
        context: &CommandContext,
        time_limit: Duration,
        results: Option<Duration>,
    ) -> Self {
        Self {
            spawner: Spawner::new(command, context),
            relay: context.relay.clone(),
            time_limit,
            results,
            rests: Rests::new(REST[0], REST[1]).into(),
        }
    }

    /// Handles one message.
    pub async fn handle(self, job: Job<Bytes>) -> Result<Outcome, Failure> {
        let deadline = Instant::now() + self.time_limit;
        let environment = self.spawner.environment.with_message(&job, deadline);
        let (mut process, pipes) = match self.spawner.start(&environment) {
            Ok(started) => started,
            // That is no fault of the message.
            Err(error) => return Err(Failure::broken(self.rests.next(Instant::now()), error)),
        };
        self.rests.end();
        let outputs = Outputs::read(pipes, &job.body, &self);
        let ended = tokio::select! {
            ended = process.wait() => ended?,
            () = tokio::time::sleep_until(deadline.into()) => {
                process.terminate(PATIENCE).await?;
                outputs.end().await;
                return Err(timed_out(self.time_limit));
            }
            // The ring has given this node up. Another node handles the message, and nobody waits for this one.
            () = job.cancelled() => {
                process.terminate(PATIENCE).await?;
                return Err(Failure::new("the node was declared dead"));
            }
        };
        self.answer(ended, outputs.end().await)
    }

    fn answer(&self, ended: Ended, output: MessageOutput) -> Result<Outcome, Failure> {
        let MessageOutput { stdout, reply, stderr } = output;
        let because = || ended.because(&stderr);
        let reply = match (reply.0.trim_ascii().is_empty(), reply.1) {
            (true, _) => None,
            (false, false) => Some(CommandReply::parse(&reply.0)),
            (false, true) => {
                Some(Err(Failure::new(format_args!("reply: expected at most {MOST_BYTES} bytes, got more"))))
            }
        };
        match (ended, reply) {
            (Ended::Signal(_), _) => Err(Failure::died(because())),
            (_, Some(Err(failure))) => Err(failure),
            (Ended::Code(0), Some(Ok(reply))) => {
                self.with_stdout(reply.answer(self.results.unwrap_or(DEFAULT_TTL))?, stdout)
            }
            (_, Some(Ok(reply))) if !reply.is_done() => reply.answer(DEFAULT_TTL),
            (Ended::Code(0), None) => self.with_stdout(Outcome::done(), stdout),
            (Ended::Code(code), _) if FATAL.contains(&code) => Err(Failure::fatal(because())),
            (Ended::Code(_), _) => Err(Failure::new(because())),
        }
    }

    /// Adds stdout as the result, if it is one.
    fn with_stdout(&self, outcome: Outcome, stdout: (Vec<u8>, bool)) -> Result<Outcome, Failure> {
        let (Some(ttl), (bytes, has_more)) = (self.results, stdout) else { return Ok(outcome) };
        if has_more {
            return Err(Failure::fatal(format_args!(
                "result: expected at most {MOST_BYTES} bytes, got more"
            )));
        }
        Ok(if bytes.is_empty() || outcome != Outcome::done() { outcome } else { outcome.result(bytes, ttl) })
    }
}

/// The tasks that serve the pipes of a process, and what they have read.
struct Outputs {
    stdin: JoinHandle<()>,
    readers: [JoinHandle<()>; 3],
    stdout: Kept,
    stderr: Kept,
    reply: Kept,
}

/// What a process has written.
struct MessageOutput {
    /// The result, and whether it was too long.
    stdout: (Vec<u8>, bool),
    reply: (Vec<u8>, bool),
    /// The end of it.
    stderr: Vec<u8>,
}

impl Outputs {
    fn read(pipes: Pipes, body: &Bytes, command: &MessageCommand) -> Self {
        let Pipes { mut stdin, stdout, stderr, reply } = pipes;
        let (body, relay) = (body.clone(), command.relay.clone());
        let (kept_stdout, kept_stderr, kept_reply) = (Kept::default(), Kept::default(), Kept::default());
        let keeps = command.results.is_some().then(|| kept_stdout.clone());
        let log = relay.clone();
        let stdout = async move {
            match keeps {
                Some(kept) => kept.read(stdout, MOST_BYTES).await,
                None => drop(log.all(stdout).await),
            }
        };
        Self {
            stdin: tokio::spawn(async move {
                // A command need not read its body.
                let _ = stdin.write_all(&body).await;
            }),
            readers: [
                tokio::spawn(stdout),
                tokio::spawn(kept_stderr.clone().relay(stderr, relay)),
                tokio::spawn(kept_reply.clone().read(reply, MOST_BYTES)),
            ],
            stdout: kept_stdout,
            stderr: kept_stderr,
            reply: kept_reply,
        }
    }

    /// What the process has written, after it has exited. A process that left its group may hold the outputs open. What
    /// it writes from now on does not count.
    async fn end(mut self) -> MessageOutput {
        let until = tokio::time::Instant::now() + LINGERING;
        for reader in &mut self.readers {
            let _ = tokio::time::timeout_at(until, reader).await;
        }
        MessageOutput { stdout: self.stdout.take(), reply: self.reply.take(), stderr: self.stderr.take().0 }
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        self.stdin.abort();
        self.readers.iter().for_each(JoinHandle::abort);
    }
}
