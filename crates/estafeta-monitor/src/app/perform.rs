//! Performs the requests that the model returns: starts, signals and stops nodes, and sends requests to the feed.

use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::Signal;

use super::App;
use crate::model::request::AppRequest;
use estafeta_lab::child_process::this_program;

/// How long nodes may take to stop before the app kills them: a little longer than they give their handlers.
const STOP_TIMEOUT: Duration = Duration::from_secs(27);

impl App {
    /// Starts a node, unless the monitor only watches.
    pub(super) fn start(&mut self, pause_ms: u64) -> Result<()> {
        let Some(launch) = &self.launch else {
            return Ok(());
        };
        let mut command = this_program(&self.ring, &self.endpoint.secret_url())?;
        command.arg("run").args(&launch.flags);
        if let Some(record) = &launch.record {
            let mut path = record.clone().into_os_string();
            path.push(format!(".{}", self.fleet.next_key().0));
            command.arg("--record").arg(path);
        }
        command.stderr(launch.log.try_clone()?);
        let node = self.fleet.start(command)?;
        let pid = self.fleet.pid(node).unwrap_or_default();
        self.model.started(self.clock.now_ms(), node, pid, pause_ms);
        Ok(())
    }

    pub(super) fn perform(&mut self, request: AppRequest) {
        match request {
            AppRequest::Errors(request) => {
                self.errors_requested = Instant::now();
                let _ = self.requests.send(request);
                return;
            }
            AppRequest::Start { pause_ms } => {
                if let Err(error) = self.start(pause_ms) {
                    self.model.not_started(self.clock.now_ms(), &format!("{error:#}"));
                }
                return;
            }
            AppRequest::Quit => self.kill_at = Some(Instant::now() + STOP_TIMEOUT),
            _ => {}
        }
        self.stale = true;
        let fleet = &mut self.fleet;
        match request {
            AppRequest::Stop(node) => fleet.stop(node),
            AppRequest::Kill(node) => fleet.signal(node, Signal::SIGKILL),
            AppRequest::Freeze(node) => fleet.signal(node, Signal::SIGSTOP),
            AppRequest::Thaw(node) => fleet.signal(node, Signal::SIGCONT),
            AppRequest::Quit => {
                for node in fleet.keys().collect::<Vec<_>>() {
                    fleet.signal(node, Signal::SIGCONT);
                    fleet.stop(node);
                }
            }
            AppRequest::QuitNow => {
                for node in fleet.keys().collect::<Vec<_>>() {
                    fleet.signal(node, Signal::SIGKILL);
                }
            }
            AppRequest::Start { .. } | AppRequest::Errors(_) | AppRequest::Suspend | AppRequest::Mouse(_) => {
            }
        }
    }
}
