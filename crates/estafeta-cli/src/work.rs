//! A node whose work is done by commands of the user.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Config, Node};
use estafeta_exec::{
    CommandLine, FeedCommand, Guard, LineCommand, LineForm, MessageCommand, REDIS, Relay, TickCommand,
};

use crate::cli::RunArgs;
use crate::failure::usage;

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
    relay: Relay,
    /// Kills what is left, if this process cannot.
    _guard: Arc<Guard>,
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
        let (guard, relay) = (start_guard()?, Relay::to_stderr());
        let (ring, limit) = (config.ring.clone(), config.time_limit);
        let url = config.redis.secret_url();
        let with_redis = |command: CommandLine| command.with_variable(REDIS, &url);
        // The commands watch over their time limit themselves, because they need time to end.
        config.time_limit = limit.saturating_add(MessageCommand::GRACE);
        let processes = config.concurrency;
        if let Some(HandlerCommand::Lines { in_hand, .. }) = &self.handler {
            config.concurrency = processes.saturating_mul(*in_hand);
            config.validate()?;
        }
        let mut running = RunningWork { lines: None, relay: relay.clone(), _guard: Arc::clone(&guard) };
        let mut node = Node::with(config);
        match self.handler {
            None => {}
            Some(HandlerCommand::PerMessage(command)) => {
                let (guard, relay) = (Arc::clone(&guard), relay.clone());
                let command =
                    MessageCommand::new(with_redis(command), &ring, guard, relay, limit, self.results);
                node = node.handle_with(command, MessageCommand::handle);
            }
            Some(HandlerCommand::Lines { command, in_hand }) => {
                let (guard, relay) = (Arc::clone(&guard), relay.clone());
                let lines = LineCommand::start(
                    with_redis(command),
                    &ring,
                    guard,
                    relay,
                    processes,
                    in_hand,
                    limit,
                    self.results,
                );
                running.lines = Some(lines.clone());
                node = node.handle_with(lines, LineCommand::handle);
            }
        }
        match self.source {
            None => {}
            Some(SourceCommand::Tick { command, form, times }) => {
                let command = TickCommand::new(with_redis(command), &ring, guard, relay, limit, form);
                node = node.generate(times.entry()?.run(move |tick, from| command.clone().run(tick, from)));
            }
            Some(SourceCommand::Feed { command, has_checkpoints }) => {
                node = node.generate(FeedCommand::new(
                    with_redis(command),
                    &ring,
                    guard,
                    relay,
                    has_checkpoints,
                ));
            }
        }
        Ok((node, running))
    }
}

/// Starts this program as a guard.
pub fn start_guard() -> Result<Arc<Guard>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let guard = Guard::start(&program, &[GUARD]).context("cannot start the guard of the commands")?;
    Ok(Arc::new(guard))
}

impl RunningWork {
    /// Ends the processes that live on, and writes the last lines of all.
    pub async fn stop(self) {
        if let Some(lines) = &self.lines {
            lines.stop().await;
        }
        self.relay.finish();
    }
}
