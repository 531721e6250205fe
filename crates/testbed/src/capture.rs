//! The output of a process, kept as bytes and as lines, and awaited with a condition variable.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

/// A line of output, and when it was read.
#[derive(Clone, Debug)]
pub struct Line {
    /// When the reader saw its end.
    pub at: Instant,
    /// The text without its line end; what is not UTF-8 is replaced.
    pub text: String,
}

/// Which of the two outputs.
#[derive(Clone, Copy)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// What one output has given so far.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) bytes: Vec<u8>,
    pub(crate) lines: Vec<Line>,
    pub(crate) ended: bool,
    line_start: usize,
}

/// Both outputs of a process under one lock, so that one condition variable announces either.
#[derive(Default)]
pub(crate) struct Capture {
    streams: Mutex<[Captured; 2]>,
    changed: Condvar,
}

impl Capture {
    /// Reads `source` to its end on a thread of its own, so that the process never blocks on a full pipe.
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

    /// What `look` finds in the output, now or by `deadline`. `None` is final as soon as `look` finds nothing
    /// in an output that has ended.
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
        // A predicate of the test's may have panicked in `wait_until`; what was read is whole nevertheless.
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

    /// What a process wrote last is a line even without a line end.
    fn end(&mut self) {
        if self.line_start < self.bytes.len() {
            self.add_line(self.bytes.len(), Instant::now());
        }
        self.ended = true;
    }

    fn add_line(&mut self, line_end: usize, at: Instant) {
        let text = String::from_utf8_lossy(&self.bytes[self.line_start..line_end]).into_owned();
        self.lines.push(Line { at, text });
    }
}
