//! The thread on which a copy's heart beats.
//!
//! Connections, heartbeat, election and sweep live on a small runtime of their own. A handler may burn its thread's
//! CPU for as long as it likes, or block it: the copy stays alive to the ring, because nothing of the handler's ever
//! runs here.

use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

pub(crate) struct Pulse {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let beat = move || runtime.block_on(stopped.cancelled());
        let thread = std::thread::Builder::new().name("estafeta-pulse".into()).spawn(beat)?;
        Ok(Self { handle, stop, thread: Some(thread) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
