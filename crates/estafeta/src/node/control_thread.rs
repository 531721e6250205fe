//! The control thread, which keeps a node alive in its ring.
//!
//! The connections, the heartbeat, the election and the sweeper run here, on a small separate runtime. A handler may
//! use its thread's CPU for as long as it likes, or block the thread. The ring still sees the node as alive, because no
//! handler code ever runs on the control thread.

use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

pub(crate) struct ControlThread {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    pub fn start() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let beat = move || runtime.block_on(stopped.cancelled());
        let thread = std::thread::Builder::new().name("estafeta-control".into()).spawn(beat)?;
        Ok(Self { handle, stop, thread: Some(thread) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
