//! A node whose work is done by commands of the user.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Config, Node};
use estafeta_exec::{CommandLine, Guard, LineCommand, MessageCommand, Relay};

use crate::failure::usage;

/// The hidden command that runs a guard.
pub const GUARD: &str = "command-guard";

/// The commands of the user.
#[derive(Clone, Debug)]
pub struct WorkSettings {
    pub handler: Option<HandlerCommand>,
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

/// The commands that run beside a node.
pub struct RunningWork {
    lines: Option<LineCommand>,
    relay: Relay,
    /// Kills what is left, if this process cannot.
    _guard: Arc<Guard>,
}

impl WorkSettings {
    /// Refuses commands that cannot be started.
    pub fn check(&self) -> Result<()> {
        let (name, command) = match &self.handler {
            Some(HandlerCommand::PerMessage(command)) => ("handle", command),
            Some(HandlerCommand::Lines { command, .. }) => ("handle-lines", command),
            None => return Ok(()),
        };
        let found = command.find().map(drop);
        found.map_err(|reason| usage(format!("--{name}: expected a program that can be started: {reason}")))
    }

    /// A node that runs these commands. Needs a tokio runtime.
    pub fn node(self, mut config: Config) -> Result<(Node, RunningWork)> {
        let program: PathBuf = std::env::current_exe().context("cannot find this program")?;
        let guard = Guard::start(&program, &[GUARD]).context("cannot start the guard of the commands")?;
        let (guard, relay) = (Arc::new(guard), Relay::to_stderr());
        let (ring, limit, results) = (config.ring.clone(), config.time_limit, self.results);
        // The commands watch over their time limit themselves, because they need time to end.
        config.time_limit = limit.saturating_add(MessageCommand::GRACE);
        let mut running = RunningWork { lines: None, relay: relay.clone(), _guard: Arc::clone(&guard) };
        let node = match self.handler {
            None => Node::with(config),
            Some(HandlerCommand::PerMessage(command)) => {
                let command = MessageCommand::new(command, &ring, guard, relay, limit, results);
                Node::with(config).handle_with(command, MessageCommand::handle)
            }
            Some(HandlerCommand::Lines { command, in_hand }) => {
                let processes = config.concurrency;
                config.concurrency = processes.saturating_mul(in_hand);
                config.validate()?;
                let lines =
                    LineCommand::start(command, &ring, guard, relay, processes, in_hand, limit, results);
                running.lines = Some(lines.clone());
                Node::with(config).handle_with(lines, LineCommand::handle)
            }
        };
        Ok((node, running))
    }
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
