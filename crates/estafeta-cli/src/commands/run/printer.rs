//! Writes the lines of a running copy to stdout, from a thread of its own.
//!
//! Whoever reads our output may be slow, or stop reading. The parts that keep the copy alive must never wait for it, so
//! they only append to a queue; the parts that work do wait when the queue is long, which is all the back-pressure that
//! is needed. When the reader is gone (a closed pipe), the copy stops as if it was told to.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Lines in the queue before working parts have to wait.
const MANY: usize = 10_000;
/// How long the last lines may take when the copy ends.
const FLUSH: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// No more waiting for room: the copy stops, or nobody reads.
    open_ended: bool,
    finished: bool,
    written: bool,
}

#[derive(Clone, Default)]
pub struct Printer {
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

impl Printer {
    /// Starts the thread that writes to `out`; `closed` is cancelled when that fails.
    pub fn start(out: impl Write + Send + 'static, closed: CancellationToken) -> (Self, JoinHandle<()>) {
        let printer = Self::default();
        let writer = printer.clone();
        let thread = std::thread::spawn(move || writer.write_all(out, &closed));
        (printer, thread)
    }

    /// Appends a line at once; for the parts that keep the copy alive.
    pub fn print(&self, line: Vec<u8>) {
        let mut queue = self.queue();
        if !queue.finished {
            queue.lines.push_back(line);
            self.shared.1.notify_all();
        }
    }

    /// Appends a line when there is room; for the parts that work, on the runtime's threads.
    pub fn print_when_room(&self, line: Vec<u8>) {
        if !self.has_room() {
            let crowded = |queue: &mut Queue| queue.lines.len() >= MANY && !queue.open_ended;
            let wait = || drop(self.shared.1.wait_while(self.queue(), crowded).expect("no panic while held"));
            // Others that run on this thread, such as the one that hears signals, go on elsewhere.
            tokio::task::block_in_place(wait);
        }
        self.print(line);
    }

    pub fn has_room(&self) -> bool {
        let queue = self.queue();
        queue.lines.len() < MANY || queue.open_ended
    }

    /// From now on nobody waits for room any more.
    pub fn open_ended(&self) {
        self.queue().open_ended = true;
        self.shared.1.notify_all();
    }

    /// Lets the last lines out, for a bounded time.
    pub fn finish(&self) {
        let mut queue = self.queue();
        queue.finished = true;
        self.shared.1.notify_all();
        let until = Instant::now() + FLUSH;
        while !queue.written && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            queue = self.shared.1.wait_timeout(queue, left).expect("no panic while held").0;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.shared.0.lock().expect("no panic while held")
    }

    fn write_all(&self, mut out: impl Write, closed: &CancellationToken) {
        loop {
            let idle = |queue: &mut Queue| queue.lines.is_empty() && !queue.finished;
            let mut queue = self.shared.1.wait_while(self.queue(), idle).expect("no panic while held");
            let lines = std::mem::take(&mut queue.lines);
            let last = queue.finished;
            drop(queue);
            self.shared.1.notify_all();
            let written = lines.iter().try_for_each(|line| out.write_all(line)).and_then(|()| out.flush());
            if written.is_err() || last {
                let mut queue = self.queue();
                queue.open_ended = true;
                queue.finished = true;
                queue.written = true;
                self.shared.1.notify_all();
                if written.is_err() {
                    closed.cancel();
                }
                return;
            }
        }
    }
}
