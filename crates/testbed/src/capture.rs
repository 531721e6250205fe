//! The output of a process, kept as bytes and as lines. A condition variable wakes the callers that wait for it.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

/// A line of output, and when it was read.
#[derive(Clone, Debug)]
pub struct OutputLine {
    /// When the reading thread saw the end of the line.
    pub at: Instant,
    /// The text without the newline. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// Standard output or standard error.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// What was read from one stream so far.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: Vec<OutputLine>,
    pub(crate) ended: bool,
    line_start: usize,
}

/// Both streams of a process under one lock, so that one condition variable serves both.
#[derive(Default)]
pub(crate) struct Capture {
    streams: Mutex<[Captured; 2]>,
    changed: Condvar,
}

impl Capture {
    /// Reads `source` to its end on a separate thread, so that the process never blocks on a full pipe.
    pub(crate) fn read(self: &Arc<Self>, stream: Stream, mut source: impl Read + Send + 'static) {
        let capture = Arc::clone(self);
        thread::spawn(move || {
            let mut chunk = [0; 8192];
            loop {
                match source.read(&mut chunk) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                    Ok(size) => capture.update(stream, |captured| captured.append(&chunk[..size])),
                }
            }
            capture.update(stream, Captured::end);
        });
    }

    /// Calls `look` now and after each change, until it returns a value. Returns `None` at `deadline`, or as soon as
    /// `look` finds nothing in a stream that has ended.
    pub(crate) fn wait_until<T>(
        &self,
        stream: Stream,
        deadline: Instant,
        mut look: impl FnMut(&Captured) -> Option<T>,
    ) -> Option<T> {
        let mut streams = self.lock();
        loop {
            let captured = &streams[stream as usize];
            if let Some(found) = look(captured) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            if captured.ended {
                return None;
            }
            streams = self.changed.wait_timeout(streams, left).unwrap().0;
        }
    }

    pub(crate) fn with<T>(&self, stream: Stream, look: impl FnOnce(&Captured) -> T) -> T {
        look(&self.lock()[stream as usize])
    }

    fn update(&self, stream: Stream, change: impl FnOnce(&mut Captured)) {
        change(&mut self.lock()[stream as usize]);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, [Captured; 2]> {
        // A predicate of the test may have panicked in `wait_until`. What was read is complete all the same.
        self.streams.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Captured {
    fn append(&mut self, chunk: &[u8]) {
        let at = Instant::now();
        let mut searched = self.bytes.len();
        self.bytes.extend_from_slice(chunk);
        while let Some(length) = self.bytes[searched..].iter().position(|byte| *byte == b'\n') {
            let line_end = searched + length;
            self.add_line(line_end, at);
            searched = line_end + 1;
            self.line_start = searched;
        }
    }

    /// Output that does not end with a newline still makes a last line.
    fn end(&mut self) {
        if self.line_start < self.bytes.len() {
            self.add_line(self.bytes.len(), Instant::now());
        }
        self.ended = true;
    }

    fn add_line(&mut self, line_end: usize, at: Instant) {
        let text = String::from_utf8_lossy(&self.bytes[self.line_start..line_end]).into_owned();
        self.lines.push(OutputLine { at, text });
    }
}
