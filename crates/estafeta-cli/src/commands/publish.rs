//! `estafeta publish`: publishes messages in a ring and prints their receipts.
//!
//! With `--lines`, a thread reads stdin. One call publishes what it has read without waiting, so that a slow writer does
//! not hold its lines back. If the reader of the receipts ends, the command goes on without printing them: its purpose
//! is to publish.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use estafeta::{Config, Draft, Error, Publisher, Receipt};
use serde_json::json;

use super::is_closed_pipe;
use crate::cli::PublishArgs;
use crate::failure::usage;
use crate::find_redis;
use crate::settings::Reach;

/// The size of the buffer for stdin. What is in it is published in one call, if it is not too much.
const BUFFER: usize = 256 * 1024;
/// The size at which a call has enough lines, in bytes.
const ENOUGH: usize = 1024 * 1024;

pub fn run(reach: &Reach, args: &PublishArgs) -> Result<ExitCode> {
    let template = template(args)?;
    let endpoint = find_redis::existing(&reach.redis)?;
    let mut config = Config::new(endpoint, reach.ring.clone());
    config.max_waiting = args.max_waiting.unwrap_or(config.max_waiting);
    config.max_body = args.max_body.unwrap_or(config.max_body);
    config.durability = args.stored.durability;
    config.validate()?;
    let patience = args.patient.map_or(Duration::ZERO, |time| time.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        if args.lines {
            return publish_lines(&config, &template, patience).await;
        }
        let body = body(args.body.as_ref(), config.max_body)?;
        let publisher = connect(&config, patience).await?;
        let receipt = publisher.publish(with_body(&template, body)).patient(patience).await?;
        ReceiptPrinter::new(&publisher).print(&[receipt])
    });
    // The thread that reads stdin ends with the process.
    runtime.shutdown_background();
    outcome.map(|()| ExitCode::SUCCESS)
}

/// A message with the key, the single name, the delay and the headers of the command line, and no body yet. Their limits are checked with it.
fn template(args: &PublishArgs) -> Result<Draft> {
    let mut draft = Draft::new("");
    for header in &args.headers {
        let Some((name, value)) = header.split_once('=') else {
            return Err(usage(format!("--header: expected NAME=VALUE, got '{header}'")));
        };
        draft = draft.header(name, value);
    }
    if let Some(key) = &args.key {
        draft = draft.key(key);
    }
    if let Some(window) = args.window {
        draft = draft.window(window.0);
    }
    if let Some(name) = &args.single {
        draft = draft.single(name);
    }
    if let Some(delay) = args.delay {
        draft = draft.delay(delay.0);
    }
    Ok(draft)
}

fn with_body(template: &Draft, body: Vec<u8>) -> Draft {
    template.clone().body(body)
}

/// Connects to Redis. Until it serves, tries again for as long as the user is patient.
async fn connect(config: &Config, patience: Duration) -> Result<Publisher> {
    let started = tokio::time::Instant::now();
    loop {
        match Publisher::of_any_application(config).await {
            Err(error) if error.may_pass() && started.elapsed() < patience => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            connected => return Ok(connected?),
        }
    }
}

fn body(given: Option<&OsString>, limit: usize) -> Result<Vec<u8>> {
    match given {
        Some(body) if body != "-" => Ok(body.clone().into_vec()),
        None if io::stdin().is_terminal() => {
            Err(usage("expected a BODY, or - to read it from the terminal (see estafeta publish --help)"))
        }
        _ => {
            let mut body = Vec::new();
            // One byte too many is enough to refuse it.
            io::stdin().lock().take(limit as u64 + 1).read_to_end(&mut body).context("cannot read stdin")?;
            Ok(body)
        }
    }
}

/// Lines that one call publishes.
struct LineBatch {
    /// The number of the first line, counted from 1.
    first: u64,
    bodies: Vec<Vec<u8>>,
}

async fn publish_lines(config: &Config, template: &Draft, patience: Duration) -> Result<()> {
    let publisher = connect(config, patience).await?;
    let (sender, mut batches) = tokio::sync::mpsc::channel(1);
    let limit = config.max_body;
    // A call with more lines than may wait would always find the ring full.
    let most = (config.max_waiting / u64::from(publisher.partitions())).max(1);
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(Publisher::MAX_MESSAGES);
    std::thread::spawn(move || {
        let input = BufReader::with_capacity(BUFFER, io::stdin());
        let mut lines = LineReader { input, limit, most, next: 1 };
        loop {
            let batch = lines.next_batch();
            let is_last = batch.as_ref().map_or(true, |(_, end)| *end);
            if sender.blocking_send(batch).is_err() || is_last {
                return;
            }
        }
    });
    let mut output = ReceiptPrinter::new(&publisher);
    while let Some(batch) = batches.recv().await {
        let (LineBatch { first, bodies }, _) = batch?;
        if bodies.is_empty() {
            continue;
        }
        let last = first + bodies.len() as u64 - 1;
        let drafts = bodies.into_iter().map(|body| with_body(template, body));
        let receipts = publisher.publish_all(drafts).patient(patience).await.map_err(|error| {
            let certainty = match error {
                // Redis may have refused the repeat of a call that arrived.
                Error::Unreachable { .. } | Error::Refused { .. } | Error::Answer(_) => {
                    "may not have been published"
                }
                _ => "were not published",
            };
            let lines = format!("lines {first} to {last} {certainty}, and no line after them was");
            anyhow::Error::from(error).context(lines)
        })?;
        output.print(&receipts)?;
    }
    Ok(())
}

/// Reads lines without an unbounded amount of memory.
struct LineReader<R> {
    input: BufReader<R>,
    /// The longest line in bytes.
    limit: usize,
    /// The most lines of one call.
    most: usize,
    /// The number of the next line.
    next: u64,
}

impl<R: Read> LineReader<R> {
    /// Reads one line, and those behind it that are here already. The flag is true at the end of the input. If a line is
    /// too long, the lines before it come first.
    fn next_batch(&mut self) -> Result<(LineBatch, bool)> {
        let (first, mut bodies, mut bytes) = (self.next, Vec::new(), 0);
        loop {
            let Some(line) = self.next_line()? else {
                return Ok((LineBatch { first, bodies }, true));
            };
            bytes += line.len();
            bodies.push(line);
            self.next += 1;
            let is_enough = bodies.len() >= self.most || bytes >= ENOUGH;
            if is_enough || !self.has_whole_line() {
                return Ok((LineBatch { first, bodies }, false));
            }
        }
    }

    /// Whether the next line can be read without waiting. A line that is too long counts as none, so that it begins the
    /// next batch.
    fn has_whole_line(&self) -> bool {
        let end = self.input.buffer().iter().position(|byte| *byte == b'\n');
        end.is_some_and(|end| end <= self.limit)
    }

    /// The next line without its end, or None at the end of the input.
    fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        // Room for the end of the line, and for one byte too many.
        let most = self.limit as u64 + 3;
        let input = &mut self.input;
        input.take(most).read_until(b'\n', &mut line).context("cannot read stdin")?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.ends_with(b"\n") {
            line.pop();
            if line.ends_with(b"\r") {
                line.pop();
            }
        }
        let (size, limit) = (line.len(), self.limit);
        if size > limit {
            let number = self.next;
            let error = anyhow::Error::from(Error::BodyTooLarge { size, limit });
            return Err(
                error.context(format!("line {number} is too long, and no line from there on was published"))
            );
        }
        Ok(Some(line))
    }
}

/// Prints receipts until the reader of stdout goes away.
struct ReceiptPrinter {
    is_closed: bool,
    /// Whether the ring has several partitions.
    shows_partitions: bool,
}

impl ReceiptPrinter {
    fn new(publisher: &Publisher) -> Self {
        Self { is_closed: false, shows_partitions: publisher.partitions() > 1 }
    }

    fn print(&mut self, receipts: &[Receipt]) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let mut text = String::new();
        for receipt in receipts {
            let mut object = json!({"id": receipt.id, "duplicate": receipt.duplicate});
            if self.shows_partitions {
                object["partition"] = receipt.partition.into();
            }
            text.push_str(&format!("{object}\n"));
        }
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if is_closed_pipe(&error) => {
                self.is_closed = true;
                Ok(())
            }
            printed => printed.context("the messages are published, but their receipts cannot be printed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(input: &[u8], limit: usize) -> (Vec<(u64, Vec<String>)>, Option<String>) {
        let mut reader =
            LineReader { input: BufReader::with_capacity(64, input), limit, most: 1000, next: 1 };
        let mut batches = Vec::new();
        loop {
            match reader.next_batch() {
                Ok((LineBatch { first, bodies }, is_last)) => {
                    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
                    batches.push((first, bodies.into_iter().map(text).collect()));
                    if is_last {
                        return (batches, None);
                    }
                }
                Err(error) => return (batches, Some(error.to_string())),
            }
        }
    }

    fn lines(input: &[u8], limit: usize) -> (Vec<String>, Option<String>) {
        let (batches, error) = read_all(input, limit);
        let mut next = 1;
        for (first, bodies) in &batches {
            assert_eq!(*first, next, "{batches:?}");
            next += bodies.len() as u64;
        }
        (batches.into_iter().flat_map(|(_, bodies)| bodies).collect(), error)
    }

    #[test]
    fn each_line_is_one_body_without_its_end() {
        for (input, expected) in [
            (&b""[..], &[][..]),
            (b"a", &["a"]),
            (b"a\n", &["a"]),
            (b"\n", &[""]),
            (b"a\r\n\n b \nc", &["a", "", " b ", "c"]),
            (b"a\rb\n\r", &["a\rb", "\r"]),
        ] {
            assert_eq!(lines(input, 10).0, expected, "{input:?}");
        }
    }

    #[test]
    fn a_line_at_the_limit_is_read_and_a_longer_one_is_refused_by_its_number() {
        assert_eq!(lines(b"abc\r\nabc\nabc", 3), (vec!["abc".to_owned(); 3], None));
        let refused = "line 2 is too long, and no line from there on was published";
        for input in
            [&b"abc\nabcd\nx\n"[..], b"abc\nabcd\r\n", b"abc\nabcd", b"abc\nabcdefghijklmnopqrstuvwxyz"]
        {
            assert_eq!(lines(input, 3), (vec!["abc".to_owned()], Some(refused.to_owned())), "{input:?}");
        }
    }

    #[test]
    fn a_batch_has_at_most_a_thousand_lines() {
        let input = "x\n".repeat(2500);
        let mut reader = LineReader {
            input: BufReader::with_capacity(BUFFER, input.as_bytes()),
            limit: 10,
            most: 1000,
            next: 1,
        };
        let mut sizes = Vec::new();
        loop {
            let (lines, is_last) = reader.next_batch().unwrap();
            sizes.push(lines.bodies.len());
            if is_last {
                break;
            }
        }
        assert_eq!(sizes, [1000, 1000, 500, 0]);
    }
}
