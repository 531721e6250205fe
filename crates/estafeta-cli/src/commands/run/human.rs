//! Tells a person what a copy does: a line for each thing that matters, and at high rates one line a second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use estafeta::{Message, Notice, Observer};

use crate::escape::escape;
use crate::output::{BAD, FAINT, GOOD, NOTABLE, OFFICE, Paint, counted, grouped};
use crate::printer::Printer;

/// Messages that get a line of their own within one second. Where there are more, the second after has none and only
/// its sum is told.
const LINES_A_SECOND: usize = 20;
/// Characters of a body that are shown.
const SHOWN: usize = 60;

pub struct Human {
    printer: Printer,
    paint: Paint,
    second: Mutex<Second>,
}

/// What happened within the current second beyond the lines that were printed.
struct Second {
    started: Instant,
    /// Lines that may still be printed.
    lines_left: usize,
    generated: u64,
    handled: u64,
    errors: u64,
}

impl Second {
    fn new(lines_left: usize) -> Self {
        Self { started: Instant::now(), lines_left, generated: 0, handled: 0, errors: 0 }
    }
}

impl Human {
    pub fn new(printer: Printer, paint: Paint) -> Self {
        Self { printer, paint, second: Second::new(LINES_A_SECOND).into() }
    }

    /// Sums up the second that is over, if anything in it had no line of its own. To be called now and then, so that
    /// the sum of a burst does not wait for the next message.
    pub fn tick(&self) {
        if self.second.lock().expect("no panic while held").started.elapsed() >= Duration::from_secs(1) {
            self.sum_up();
        }
    }

    fn sum_up(&self) {
        let mut second = self.second.lock().expect("no panic while held");
        let (generated, handled, errors) = (second.generated, second.handled, second.errors);
        let calm = generated + handled + errors <= LINES_A_SECOND as u64;
        *second = Second::new(if calm { LINES_A_SECOND } else { 0 });
        drop(second);
        let parts = [(generated, "generated"), (handled, "handled"), (errors, "errors")];
        let told: Vec<_> = parts.iter().filter(|(count, _)| *count > 0).collect();
        if !told.is_empty() {
            let told: Vec<_> =
                told.iter().map(|(count, what)| format!("{} {what}", grouped(*count))).collect();
            self.say(&self.paint.paint(FAINT, &format!("... {} within a second", told.join(", "))));
        }
    }

    fn say(&self, line: &str) {
        self.printer.print(format!("{line}\n").into_bytes());
    }

    /// Says a line about one message, or only counts it when there are too many of them.
    fn say_or_count(&self, line: impl FnOnce() -> String, count: impl FnOnce(&mut Second)) {
        let mut second = self.second.lock().expect("no panic while held");
        if second.lines_left > 0 && self.printer.has_room() {
            second.lines_left -= 1;
            drop(second);
            self.say(&line());
        } else {
            count(&mut second);
        }
    }

    fn settled(&self, messages: &[Message], failures: &[(usize, String)]) {
        let mut failures = failures.iter().peekable();
        for (index, message) in messages.iter().enumerate() {
            let again = match message.attempt {
                0 | 1 => String::new(),
                attempt => format!(" (attempt {attempt})"),
            };
            if let Some((_, reason)) = failures.next_if(|(failed, _)| *failed == index) {
                let line = || {
                    let what = format!("error #{}{again}: {}", message.id, escape(reason.as_bytes()));
                    format!("{} {}", self.paint.paint(BAD, &what), quoted(message))
                };
                self.say_or_count(line, |second| second.errors += 1);
            } else {
                let line = || format!("handled #{}{again} {}", message.id, quoted(message));
                self.say_or_count(line, |second| second.handled += 1);
            }
        }
    }
}

impl Observer for Human {
    fn notice(&self, notice: Notice<'_>) {
        self.tick();
        match notice {
            Notice::Joined { member } => self.say(&format!("joined as member {member}")),
            Notice::DeclaredDead => {
                self.say(
                    &self.paint.paint(NOTABLE, "the ring gave this copy up or was wiped; joining again"),
                );
            }
            Notice::BecameGenerator { epoch, from: None, .. } => {
                self.say(&self.paint.paint(OFFICE, &format!("became generator (epoch {epoch})")));
            }
            Notice::BecameGenerator { epoch, from: Some(from), silence } => {
                let line = format!("took over from {from} in {:.2} s (epoch {epoch})", silence.as_secs_f64());
                self.say(&self.paint.paint(OFFICE, &line));
            }
            Notice::BecameHandler => {
                self.say(&self.paint.paint(NOTABLE, "became handler: the office is lost"))
            }
            Notice::Generated { messages } => {
                for message in messages {
                    let line = || format!("generated #{} {}", message.id, quoted(message));
                    self.say_or_count(line, |second| second.generated += 1);
                }
            }
            Notice::Settled { messages, failures, .. } => self.settled(messages, failures),
            Notice::Buried { member, returned, gave_up } => {
                let line =
                    format!("member {member} is dead: {returned} messages returned, {gave_up} given up");
                self.say(&self.paint.paint(NOTABLE, &line));
            }
            Notice::LimitReached { limit } => self
                .say(&format!("the limit of {} is reached; handlers do the rest", counted(limit, "message"))),
            Notice::RedisLost { reason } => {
                let line = format!("Redis does not serve us, trying again: {}", escape(reason.as_bytes()));
                self.say(&self.paint.paint(BAD, &line));
            }
            Notice::RedisBack => self.say(&self.paint.paint(GOOD, "Redis is back")),
            Notice::Stopping => self.say("stopping: finishing what is in hand"),
            Notice::Left { returned } => {
                self.sum_up();
                match returned {
                    0 => self.say("left the ring"),
                    _ => self.say(&format!("left the ring, {} returned", counted(returned, "message"))),
                }
            }
            _ => {}
        }
    }
}

fn quoted(message: &Message) -> String {
    let body = message.body();
    let end = body.len().min(4 * SHOWN);
    let text = escape(&body[..end]);
    match text.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("\"{}...\"", &text[..cut]),
        None => format!("\"{text}\""),
    }
}
