//! Writes the lines of a running copy, or of a monitor without a terminal, to stdout from a thread of its own.
//!
//! Whoever reads our output may be slow, or stop reading, and no part of the copy may ever wait for that: a generator that
//! waits holds up the whole ring. So lines go into a queue, and where that is long, those about single messages are left
//! out by their makers, who count them. When the output is gone (a closed pipe, a full disk), the copy stops as if it was
//! told to.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Lines in the queue before those about single messages are left out.
const MANY: usize = 10_000;
/// How long the last lines may take when the copy ends.
const FLUSH: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    finished: bool,
    /// How the writing ended.
    written: Option<io::Result<()>>,
}

#[derive(Clone, Default)]
pub struct Printer {
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

impl Printer {
    /// Starts the thread that writes to `out`; `closed` is cancelled when that fails.
    pub fn start(out: impl Write + Send + 'static, closed: CancellationToken) -> Self {
        let printer = Self::default();
        let writer = printer.clone();
        // Not joined: one that hangs in a write to a stuck pipe ends with the process.
        std::thread::spawn(move || writer.write_all(out, &closed));
        printer
    }

    /// Appends a line.
    pub fn print(&self, line: Vec<u8>) {
        let mut queue = self.queue();
        if queue.written.is_none() {
            queue.lines.push_back(line);
            self.shared.1.notify_all();
        }
    }

    /// Whether there is room for lines that can be left out.
    pub fn has_room(&self) -> bool {
        self.queue().lines.len() < MANY
    }

    /// Lets the last lines out, for a bounded time; answers whether everything could be written.
    pub fn finish(&self) -> io::Result<()> {
        let mut queue = self.queue();
        queue.finished = true;
        self.shared.1.notify_all();
        let until = Instant::now() + FLUSH;
        while queue.written.is_none() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            queue = self.shared.1.wait_timeout(queue, left).expect("no panic while held").0;
        }
        queue.written.take().unwrap_or(Ok(()))
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

    /// Takes what is written when it is told to.
    struct Slow(std::sync::mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
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
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let (go, gate) = std::sync::mpsc::channel();
        let read = Arc::new(Mutex::new(Vec::new()));
        let printer = Printer::start(Slow(gate, Arc::clone(&read)), CancellationToken::new());
        let mut left_out = 0;
        for _ in 0..3 * MANY {
            match printer.has_room() {
                true => printer.print(b"x".to_vec()),
                false => left_out += 1,
            }
        }
        assert!(left_out > 0);
        let printed = 3 * MANY - left_out;
        (0..printed).for_each(|_| go.send(()).unwrap());
        printer.finish().unwrap();
        assert_eq!(read.lock().unwrap().len(), printed);
    }

    #[test]
    fn an_output_that_is_gone_stops_the_copy_and_is_told() {
        let (go, gate) = std::sync::mpsc::channel();
        drop(go);
        let closed = CancellationToken::new();
        let printer = Printer::start(Slow(gate, Arc::default()), closed.clone());
        printer.print(b"x".to_vec());
        assert_eq!(printer.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(closed.is_cancelled());
    }
}
