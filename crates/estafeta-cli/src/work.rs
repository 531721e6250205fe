//! A node whose work is done by commands of the user.

use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Config, Node, Partition, RingName};
use estafeta_exec::{
    CommandContext, CommandLine, FeedCommand, Guard, LineCommand, LineForm, MessageCommand, Relay,
    TickCommand,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::cli::RunArgs;
use crate::failure::usage;

/// How long a stop may take. Kubernetes kills after 30 s.
const LONGEST_STOP: Duration = Duration::from_secs(29);

/// The hidden command that runs a guard.
pub const GUARD: &str = "command-guard";

/// The commands of the user.
#[derive(Clone, Debug)]
pub struct WorkSettings {
    pub handler: Option<HandlerCommand>,
    pub source: Option<SourceCommand>,
    /// How long results are kept.
    pub results: Option<Duration>,
}

/// A command that handles messages.
#[derive(Clone, Debug)]
pub enum HandlerCommand {
    /// One process per message.
    PerMessage(CommandLine),
    /// Processes that live on, each with so many messages in hand.
    Lines { command: CommandLine, in_hand: usize },
}

/// A command that makes messages.
#[derive(Clone, Debug)]
pub enum SourceCommand {
    /// Runs once per tick.
    Tick {
        command: CommandLine,
        form: LineForm,
        /// The options with the times.
        times: Box<RunArgs>,
    },
    /// Runs while its node is in office.
    Feed { command: CommandLine, has_checkpoints: bool },
}

/// The commands that run beside a node.
pub struct RunningWork {
    lines: Option<LineCommand>,
    /// Its guard kills what is left, if this process cannot.
    context: CommandContext,
}

impl WorkSettings {
    /// All commands, each with the name of its option.
    fn commands(&self) -> impl Iterator<Item = (&'static str, &CommandLine)> {
        let handler = self.handler.as_ref().map(|handler| match handler {
            HandlerCommand::PerMessage(command) => ("handle", command),
            HandlerCommand::Lines { command, .. } => ("handle-lines", command),
        });
        let source = self.source.as_ref().map(|source| match source {
            SourceCommand::Tick { command, .. } => ("generate", command),
            SourceCommand::Feed { command, has_checkpoints: true } => ("feed", command),
            SourceCommand::Feed { command, has_checkpoints: false } => ("feed-plain", command),
        });
        handler.into_iter().chain(source)
    }

    /// Refuses commands that cannot be started.
    pub fn check(&self) -> Result<()> {
        for (name, command) in self.commands() {
            command.find().map_err(|reason| {
                usage(format!("--{name}: expected a program that can be started: {reason}"))
            })?;
        }
        Ok(())
    }

    /// A node that runs these commands. Needs a tokio runtime.
    pub fn node(self, mut config: Config) -> Result<(Node, RunningWork)> {
        let partitions = config.partitions;
        let context = command_context(config.ring.clone())?
            .with_redis(config.redis.secret_url())
            .with_partitions(partitions);
        let limit = config.time_limit;
        // The commands watch over their time limit themselves, because they need time to end.
        config.time_limit = limit.saturating_add(MessageCommand::GRACE);
        let processes = config.concurrency;
        if let Some(HandlerCommand::Lines { in_hand, .. }) = &self.handler {
            config.concurrency = processes.saturating_mul(*in_hand);
            config.validate()?;
        }
        raise_file_limit(processes);
        let mut running = RunningWork { lines: None, context: context.clone() };
        let mut node = Node::with(config);
        match self.handler {
            None => {}
            Some(HandlerCommand::PerMessage(command)) => {
                let command = MessageCommand::new(command, &context, limit, self.results);
                node = node.handle_with(command, MessageCommand::handle);
            }
            Some(HandlerCommand::Lines { command, in_hand }) => {
                let lines = LineCommand::start(command, &context, processes, in_hand, limit, self.results);
                running.lines = Some(lines.clone());
                node = node.handle_with(lines, LineCommand::handle);
            }
        }
        match self.source {
            None => {}
            Some(SourceCommand::Tick { command, form, times }) => {
                let schedule = |part: Partition| -> Result<_> {
                    let command = TickCommand::new(command.clone(), &context.in_partition(part), limit, form);
                    Ok(Some(times.entry()?.run(move |tick, from| command.clone().run(tick, from))))
                };
                let mut schedules = Partition::all(partitions).map(schedule).collect::<Result<Vec<_>>>()?;
                let of = move |part: Partition| schedules[part.index as usize].take().expect("one each");
                node = node.generate_each(of);
            }
            Some(SourceCommand::Feed { command, has_checkpoints }) => {
                let context = context.clone();
                node = node.generate_each(move |part| {
                    FeedCommand::new(command.clone(), &context.in_partition(part), has_checkpoints)
                });
            }
        }
        Ok((node, running))
    }
}

/// What all commands in a ring have in common. Their guard is this program again.
pub fn command_context(ring: RingName) -> Result<CommandContext> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let guard = Guard::start(&program, &[GUARD]).context("cannot start the guard of the commands")?;
    Ok(CommandContext::new(ring, guard, Relay::to_stderr()))
}

impl RunningWork {
    /// Ends the processes that live on, and writes the last lines of all. The node has been stopping for `elapsed`.
    pub async fn stop(self, elapsed: Duration) {
        if let Some(lines) = &self.lines {
            lines.stop(patience_after(elapsed)).await;
        }
        self.context.finish();
    }
}

/// How long processes may take to end in each of two stages, if the node has been stopping for this long.
fn patience_after(elapsed: Duration) -> Duration {
    let left = LONGEST_STOP.saturating_sub(elapsed) / 2;
    left.clamp(Duration::from_secs(1), LineCommand::PATIENCE)
}

/// Descriptors that a node needs beside those of its commands, and those that each process needs at once.
const OWN_DESCRIPTORS: u64 = 256;
const DESCRIPTORS_PER_PROCESS: u64 = 16;

/// Raises the soft limit of open files if so many processes at once need more. Otherwise the limit stays, because the
/// commands inherit it.
fn raise_file_limit(processes: usize) {
    let needed = OWN_DESCRIPTORS + DESCRIPTORS_PER_PROCESS * processes as u64;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft >= needed {
        return;
    }
    if setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).is_err() || hard < needed {
        tracing::warn!(
            "{processes} commands at once may need {needed} open files, and the limit is {hard} (ulimit -Hn)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_with_commands_takes_less_than_thirty_seconds_however_long_the_messages_took() {
        let seconds = Duration::from_secs;
        for (elapsed, patience) in [(0, 5), (19, 5), (25, 2), (28, 1), (60, 1)] {
            assert_eq!(patience_after(seconds(elapsed)), seconds(patience), "after {elapsed} s");
        }
        let deadline = Config::new("redis://h".parse().unwrap(), "r".parse().unwrap()).stop_deadline;
        assert!(deadline + 2 * patience_after(deadline) < seconds(30));
    }
}
