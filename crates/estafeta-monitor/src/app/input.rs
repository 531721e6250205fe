//! What the app waits for beside the terminal: reports of nodes, updates of the feed, and signals.

use std::io;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::feed::FeedUpdate;
use estafeta_lab::fleet::FromNode;

/// All inputs of the app except keys, the mouse and the ticks.
pub(super) struct Inputs {
    pub(super) reports: UnboundedReceiver<FromNode>,
    pub(super) updates: UnboundedReceiver<FeedUpdate>,
    /// The tasks of the feed. None of them may end before the app does.
    pub(super) tasks: JoinSet<()>,
    pub(super) signals: Signals,
}

pub(super) enum Input {
    Node(FromNode),
    Feed(FeedUpdate),
    Signal(SignalInput),
}

impl Inputs {
    pub(super) async fn next(&mut self) -> Result<Input> {
        tokio::select! {
            Some(from) = self.reports.recv() => Ok(Input::Node(from)),
            Some(update) = self.updates.recv() => Ok(Input::Feed(update)),
            signal = self.signals.next() => Ok(Input::Signal(signal)),
            Some(ended) = self.tasks.join_next() => {
                ended.context("a task of the monitor panicked")?;
                bail!("a task of the monitor ended unexpectedly");
            }
        }
    }
}

/// What a signal requests.
pub(super) enum SignalInput {
    Stop,
    HangUp,
    /// The shell continued the monitor after it was suspended.
    Continue,
}

pub(super) struct Signals {
    stop: [tokio::signal::unix::Signal; 2],
    hang_up: tokio::signal::unix::Signal,
    resume: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            stop: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
            hang_up: signal(SignalKind::hangup())?,
            resume: signal(SignalKind::from_raw(Signal::SIGCONT as i32))?,
        })
    }

    pub(super) async fn next(&mut self) -> SignalInput {
        let [terminate, interrupt] = &mut self.stop;
        tokio::select! {
            _ = terminate.recv() => SignalInput::Stop,
            _ = interrupt.recv() => SignalInput::Stop,
            _ = self.hang_up.recv() => SignalInput::HangUp,
            _ = self.resume.recv() => SignalInput::Continue,
        }
    }
}
