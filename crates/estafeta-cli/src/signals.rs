//! The signals that ask the program to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT, and returns the signal that came.
pub async fn stop_signal() -> SignalKind {
    let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
    match (signal(terminate), signal(interrupt)) {
        (Ok(mut terminated), Ok(mut interrupted)) => tokio::select! {
            _ = terminated.recv() => terminate,
            _ = interrupted.recv() => interrupt,
        },
        // Without handlers, the signals keep their default action and end the process.
        _ => std::future::pending().await,
    }
}

/// The exit code of a program that ended because of a signal.
pub fn exit_code(signal: SignalKind) -> u8 {
    u8::try_from(128 + signal.as_raw_value()).unwrap_or(u8::MAX)
}
