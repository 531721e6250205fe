//! The signals that stop a node.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. A second one ends the process at once, as if nobody listened.
pub(super) async fn stop() {
    if let Err(error) = first_signal().await {
        tracing::warn!("cannot listen for signals: {error}");
        std::future::pending::<()>().await;
    }
}

async fn first_signal() -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tokio::spawn(async move {
        let code = tokio::select! {
            _ = terminate.recv() => 128 + SignalKind::terminate().as_raw_value(),
            _ = interrupt.recv() => 128 + SignalKind::interrupt().as_raw_value(),
        };
        std::process::exit(code);
    });
    Ok(())
}
