//! Writes the output lines of a running node, or of a monitor without a terminal, to stdout from its own thread.
//!
//! The reader of the output may be slow, or may stop reading. No part of the node may ever wait for it, because a
//! generator that waits holds up the whole ring. So lines go into a queue. When the queue is long, callers leave out
//! lines about single messages and count them instead (see [`Printer::has_room`]). If the output fails (a closed pipe,
//! a full disk), the node stops as if it had been asked to.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// How many lines may be queued before callers leave out those about single messages.
const MAX_QUEUED: usize = 10_000;
/// The same limit in bytes, for long lines.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// How long to wait for the last lines to be written when the node ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct LineQueue {
    lines: VecDeque<Vec<u8>>,
    /// The length of all lines together.
    bytes: usize,
    finished: bool,
    /// The result of the writing, once it has ended.
    written: Option<io::Result<()>>,
}

#[derive(Clone, Default)]
pub struct Printer {
    shared: Arc<(Mutex<LineQueue>, Condvar)>,
}

impl Printer {
    /// Starts the thread that writes to `out`. It cancels `closed` if a write fails.
    pub fn start(out: impl Write + Send + 'static, closed: CancellationToken) -> Self {
        let printer = Self::default();
        let writer = printer.clone();
        // The thread is not joined. If it hangs in a write to a full pipe, it ends with the process.
        std::thread::spawn(move || writer.write_all(out, &closed));
        printer
    }

    /// Queues a line, unless the writing has ended.
    pub fn print(&self, line: Vec<u8>) {
        let mut queue = self.queue();
        if queue.written.is_none() {
            queue.bytes += line.len();
            queue.lines.push_back(line);
            self.shared.1.notify_all();
        }
    }

    /// Whether the queue has room for lines that may be left out.
    pub fn has_room(&self) -> bool {
        let queue = self.queue();
        queue.lines.len() < MAX_QUEUED && queue.bytes < MAX_QUEUED_BYTES
    }

    /// Waits for a bounded time until the last lines are written. Returns the error if a write failed.
    pub fn finish(&self) -> io::Result<()> {
        let mut queue = self.queue();
        queue.finished = true;
        self.shared.1.notify_all();
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while queue.written.is_none() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            queue = self.shared.1.wait_timeout(queue, left).expect("no panic while held").0;
        }
        queue.written.take().unwrap_or(Ok(()))
    }

    fn queue(&self) -> MutexGuard<'_, LineQueue> {
        self.shared.0.lock().expect("no panic while held")
    }

    fn write_all(&self, mut out: impl Write, closed: &CancellationToken) {
        loop {
            let idle = |queue: &mut LineQueue| queue.lines.is_empty() && !queue.finished;
            let mut queue = self.shared.1.wait_while(self.queue(), idle).expect("no panic while held");
            let lines = std::mem::take(&mut queue.lines);
            queue.bytes = 0;
            let last = queue.finished;
            drop(queue);
            let written = lines.iter().try_for_each(|line| out.write_all(line)).and_then(|()| out.flush());
            if written.is_err() {
                closed.cancel();
            }
            if written.is_err() || last {
                self.queue().written = Some(written);
                self.shared.1.notify_all();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts one write per message on the channel. Fails once the sender is gone.
    struct SlowWriter(std::sync::mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for SlowWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.1.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn printing_never_waits_for_a_reader_that_does_not_read() {
        let (go, gate) = std::sync::mpsc::channel();
        let read = Arc::new(Mutex::new(Vec::new()));
        let printer = Printer::start(SlowWriter(gate, Arc::clone(&read)), CancellationToken::new());
        let mut left_out = 0;
        for _ in 0..3 * MAX_QUEUED {
            match printer.has_room() {
                true => printer.print(b"x".to_vec()),
                false => left_out += 1,
            }
        }
        assert!(left_out > 0);
        let printed = 3 * MAX_QUEUED - left_out;
        (0..printed).for_each(|_| go.send(()).unwrap());
        printer.finish().unwrap();
        assert_eq!(read.lock().unwrap().len(), printed);
    }

    #[test]
    fn long_lines_fill_the_queue_before_many_lines_do() {
        let (_go, gate) = std::sync::mpsc::channel();
        let printer = Printer::start(SlowWriter(gate, Arc::default()), CancellationToken::new());
        let line = vec![b'x'; 64 * 1024];
        let printed =
            (0..MAX_QUEUED).take_while(|_| printer.has_room()).map(|_| printer.print(line.clone())).count();
        // The thread may have taken one full queue out to write it.
        let most = 2 * MAX_QUEUED_BYTES / line.len();
        assert!((most / 2..=most).contains(&printed), "{printed}");
    }

    #[test]
    fn an_output_that_fails_cancels_the_token_and_is_reported_by_finish() {
        let (go, gate) = std::sync::mpsc::channel();
        drop(go);
        let closed = CancellationToken::new();
        let printer = Printer::start(SlowWriter(gate, Arc::default()), closed.clone());
        printer.print(b"x".to_vec());
        assert_eq!(printer.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(closed.is_cancelled());
    }
}
