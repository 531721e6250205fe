//! The signals that stop a node.
//!
//! Once a process has listened for a signal, the system no longer ends the process because of it. So a listener stays
//! when its node has ended. If no node of the process runs any more, the next signal ends the process, as if no one had
//! ever listened.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Two signals within this time count as one. Some programs, such as `timeout`, signal both the process and its group.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

/// How many nodes of this process stop on signals.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// A node that stops on SIGTERM or SIGINT, while it runs.
pub(super) struct StopSignals {
    stop: CancellationToken,
}

impl StopSignals {
    pub fn listen() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        let stop = CancellationToken::new();
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => drop(tokio::spawn(obey(terminate, interrupt, stop.clone()))),
            (Err(error), _) | (_, Err(error)) => warn(&error),
        }
        Self { stop }
    }

    /// Waits for the first signal. A second one ends the process at once.
    pub async fn first(&self) {
        self.stop.cancelled().await;
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn warn(error: &io::Error) {
    tracing::warn!("cannot listen for signals: {error}");
}

async fn obey(mut terminate: Signal, mut interrupt: Signal, stop: CancellationToken) {
    let mut first: Option<Instant> = None;
    loop {
        let kind = tokio::select! {
            _ = terminate.recv() => SignalKind::terminate(),
            _ = interrupt.recv() => SignalKind::interrupt(),
        };
        let is_second = first.is_some_and(|first| first.elapsed() > SAME_SIGNAL);
        if is_second || RUNNING.load(Ordering::Relaxed) == 0 {
            std::process::exit(128 + kind.as_raw_value());
        }
        first.get_or_insert_with(Instant::now);
        stop.cancel();
    }
}
