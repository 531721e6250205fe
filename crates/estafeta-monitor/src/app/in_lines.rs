//! The loop of the app without a terminal: prints one line per second.

use std::io;

use anyhow::{Context as _, Result, bail};
use tokio_util::sync::CancellationToken;

use super::App;
use super::clock::{SECOND, TICK, ticks, ticks_from};
use super::input::Inputs;
use crate::plain;
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::printer::Printer;

impl App {
    pub(super) async fn run_in_lines(&mut self, ends_with_nodes: bool, mut inputs: Inputs) -> Result<()> {
        let closed = CancellationToken::new();
        let printer = Printer::start(io::stdout(), closed.clone());
        let mut ticks = ticks(TICK);
        let mut seconds = ticks_from(tokio::time::Instant::now() + SECOND, SECOND);
        let mut printed = 0;
        while !self.is_over() {
            let requests = tokio::select! {
                input = inputs.next() => self.receive(input?),
                _ = ticks.tick() => self.tick(),
                // The reader of the lines has closed the pipe, or the disk is full.
                () = closed.cancelled(), if !self.model.quitting => self.quit(),
                _ = seconds.tick(), if !self.model.quitting => {
                    self.print(&printer);
                    printed += 1;
                    Vec::new()
                }
            };
            requests.into_iter().for_each(|request| self.perform(request));
            if ends_with_nodes && self.no_nodes_left() && !self.model.quitting {
                self.quit().into_iter().for_each(|request| self.perform(request));
            }
        }
        if printed == 0 {
            self.print(&printer);
        }
        match printer.finish() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
            _ => Ok(()),
        }
    }

    fn print(&self, printer: &Printer) {
        if printer.has_room() {
            printer.print(format!("{}\n", plain::line(&self.model, self.clock.now_ms())).into_bytes());
        }
    }

    /// Whether all own nodes have ended and none will be respawned.
    fn no_nodes_left(&self) -> bool {
        self.fleet.keys().next().is_none() && !self.model.respawns()
    }

    /// The exit code in plain lines. It must report what went wrong, because a script may be the only reader.
    pub(super) fn exit_code(&self) -> Result<u8> {
        if let Some(status) = self.model.failure {
            let log = self.model.info.log_file.iter().map(|log| format!(", see {}", log.display()));
            bail!("a node failed ({status}){}", log.collect::<String>());
        }
        Ok(if self.model.was_unbalanced { FAILED } else { 0 })
    }
}
