//! The signals that ask the program to stop.

use std::sync::LazyLock;

use nix::sys::signal::{self as system, SaFlags, SigAction, SigHandler, SigSet};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGTERM, SIGINT or SIGHUP, and returns the signal that came. A program under `nohup` ignores SIGHUP, and
/// goes on to do so.
pub async fn stop_signal() -> SignalKind {
    let (terminate, interrupt, hangup) =
        (SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup());
    let hung_up = (!*HANGUP_IS_IGNORED).then(|| signal(hangup)).transpose();
    match (signal(terminate), signal(interrupt), hung_up) {
        (Ok(mut terminated), Ok(mut interrupted), Ok(mut hung_up)) => tokio::select! {
            _ = terminated.recv() => terminate,
            _ = interrupted.recv() => interrupt,
            () = next(hung_up.as_mut()) => hangup,
        },
        // Without handlers, the signals keep their default action and end the process.
        _ => std::future::pending().await,
    }
}

async fn next(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether this process was started with SIGHUP ignored.
static HANGUP_IS_IGNORED: LazyLock<bool> = LazyLock::new(|| {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither the default action nor ignoring a signal runs any code, and nothing else has set another action.
    #[allow(unsafe_code)]
    unsafe {
        let former = system::sigaction(system::Signal::SIGHUP, &ignore);
        let is_ignored = former.is_ok_and(|former| matches!(former.handler(), SigHandler::SigIgn));
        if let (false, Ok(former)) = (is_ignored, &former) {
            let _ = system::sigaction(system::Signal::SIGHUP, former);
        }
        is_ignored
    }
});

/// The exit code of a program that ended because of a signal.
pub fn exit_code(signal: SignalKind) -> u8 {
    u8::try_from(128 + signal.as_raw_value()).unwrap_or(u8::MAX)
}
