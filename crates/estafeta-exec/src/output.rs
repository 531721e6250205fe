//! What a command writes: relayed line by line to this process' stderr, and kept as far as it is needed.

use std::sync::{Arc, Mutex};

use estafeta_lab::printer::Printer;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;

/// The longest line that is relayed in one piece.
const LONGEST_LINE: usize = 64 * 1024;
/// How many bytes of stderr become the reason of a failure.
const TAIL: usize = 4 * 1024;

/// Writes lines of commands to stderr, from a separate thread. Lines of several commands do not mix. If the reader of
/// stderr is too slow, lines are left out, and a line says how many.
#[derive(Clone)]
pub struct Relay {
    printer: Printer,
    /// How many lines were left out since the last one that was relayed.
    left_out: Arc<Mutex<u64>>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Relay")
    }
}

impl Relay {
    /// Starts the thread.
    pub fn to_stderr() -> Self {
        Self::to(std::io::stderr())
    }

    fn to(out: impl std::io::Write + Send + 'static) -> Self {
        let printer = Printer::start(out, CancellationToken::new());
        Self { printer, left_out: Arc::default() }
    }

    /// Waits for a bounded time until all lines are written.
    pub fn finish(&self) {
        self.note_left_out(&mut self.left_out.lock().expect("no panic while held"));
        let _ = self.printer.finish();
    }

    pub(crate) fn line(&self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let mut left_out = self.left_out.lock().expect("no panic while held");
        if !self.printer.has_room() {
            *left_out += 1;
            return;
        }
        self.note_left_out(&mut left_out);
        let mut line = line.to_vec();
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        self.printer.print(line);
    }

    /// Prints how many lines were left out, if any were.
    fn note_left_out(&self, left_out: &mut u64) {
        match std::mem::take(left_out) {
            0 => {}
            1 => self.printer.print(b"(1 line left out)\n".to_vec()),
            count => self.printer.print(format!("({count} lines left out)\n").into_bytes()),
        }
    }

    /// Relays all lines to the end. Returns the last ones, for a reason.
    pub(crate) async fn all(self, from: impl AsyncRead + Unpin) -> Vec<u8> {
        let mut tail = Vec::new();
        self.each(from, |line| keep_tail(&mut tail, line)).await;
        tail
    }

    async fn each(&self, from: impl AsyncRead + Unpin, mut also: impl FnMut(&[u8])) {
        let (mut lines, mut line) = (BufReader::new(from), Vec::new());
        loop {
            line.clear();
            match (&mut lines).take(LONGEST_LINE as u64).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            also(&line);
            self.line(&line);
        }
    }
}

/// What was read so far, for a reader that may not come to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<(Vec<u8>, bool)>>);

impl Kept {
    /// The bytes, and whether there were more than could be kept.
    pub fn take(&self) -> (Vec<u8>, bool) {
        std::mem::take(&mut *self.0.lock().expect("no panic while held"))
    }

    /// Reads to the end, and keeps at most `most` bytes.
    pub async fn read(self, mut from: impl AsyncRead + Unpin, most: usize) {
        let mut bytes = [0; 8 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let mut kept = self.0.lock().expect("no panic while held");
            let room = (most - kept.0.len()).min(count);
            kept.0.extend_from_slice(&bytes[..room]);
            kept.1 |= room < count;
        }
    }

    /// Relays all lines to the end, and keeps the last ones.
    pub async fn relay(self, from: impl AsyncRead + Unpin, relay: Relay) {
        relay.each(from, |line| keep_tail(&mut self.0.lock().expect("no panic while held").0, line)).await;
    }
}

/// Adds bytes, and keeps only the last of all.
pub(crate) fn keep_tail(tail: &mut Vec<u8>, bytes: &[u8]) {
    tail.extend_from_slice(bytes);
    if tail.len() > TAIL {
        tail.drain(..tail.len() - TAIL);
    }
}

/// Reads to the end, and keeps at most `most` bytes. Returns them, and whether there were more.
pub(crate) async fn read_bounded(from: impl AsyncRead + Unpin, most: usize) -> (Vec<u8>, bool) {
    let kept = Kept::default();
    kept.clone().read(from, most).await;
    kept.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes nothing until the test lets it.
    struct SlowRelay {
        written: Arc<Mutex<Vec<u8>>>,
        opens: Arc<std::sync::Barrier>,
        is_open: bool,
    }

    impl std::io::Write for SlowRelay {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !std::mem::replace(&mut self.is_open, true) {
                self.opens.wait();
            }
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_says_how_many_lines_a_slow_reader_has_missed() {
        let (written, opens) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::new(std::sync::Barrier::new(2)));
        let reader = SlowRelay { written: Arc::clone(&written), opens: Arc::clone(&opens), is_open: false };
        let relay = Relay::to(reader);
        let most: u64 = 30_000;
        (1..=most).for_each(|n| relay.line(format!("{n}").as_bytes()));
        opens.wait();
        relay.finish();
        let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let last = written.lines().last().unwrap();
        let missed: u64 = last
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(" lines left out)"))
            .unwrap()
            .parse()
            .unwrap();
        let relayed = written.lines().count() as u64 - 1;
        assert!((10_000..most).contains(&relayed), "{relayed}");
        assert_eq!(relayed + missed, most);
    }

    #[tokio::test]
    async fn an_output_is_read_to_its_end_and_only_a_bounded_part_is_kept() {
        assert_eq!(read_bounded(&b"12345"[..], 5).await, (b"12345".to_vec(), false));
        assert_eq!(read_bounded(&b"123456"[..], 5).await, (b"12345".to_vec(), true));
        let endless = tokio::io::repeat(b'x').take(50_000_000);
        let (kept, has_more) = read_bounded(endless, 1000).await;
        assert_eq!((kept.len(), has_more), (1000, true));
        let mut tail = Vec::new();
        (0..10_000).for_each(|n| keep_tail(&mut tail, format!("{n}\n").as_bytes()));
        assert!(tail.len() <= TAIL && tail.ends_with(b"9998\n9999\n"));
    }
}
