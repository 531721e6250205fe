//! Shows a person what a node does: one line per event that matters, and one line per second at high rates.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use estafeta::{Endpoint, Message, Notice, Postponed};

use estafeta_lab::escape::escape;
use estafeta_lab::paint::{BAD, FAINT, GOOD, NOTABLE, OFFICE, Paint};
use estafeta_lab::printer::Printer;
use estafeta_lab::text::counted;

use crate::duration::HumanDuration;

/// How many messages get their own line within one second. The others are counted, and their sum is printed after the
/// second. If more than this many were counted, the next second prints only its sum.
const LINES_PER_SECOND: usize = 20;
/// How many characters of a body are shown.
const SHOWN: usize = 60;

pub struct HumanObserver {
    printer: Printer,
    paint: Paint,
    /// The address of Redis.
    redis: String,
    second: Mutex<Second>,
}

/// What happened in the current second and was not printed.
struct Second {
    started: Instant,
    /// How many lines may still be printed.
    lines_left: usize,
    generated: u64,
    handled: u64,
    errors: u64,
    retries: u64,
}

impl Second {
    fn new(lines_left: usize) -> Self {
        Self { started: Instant::now(), lines_left, generated: 0, handled: 0, errors: 0, retries: 0 }
    }
}

impl HumanObserver {
    pub fn new(printer: Printer, paint: Paint, redis: &Endpoint) -> Self {
        let redis = escape(redis.to_string().as_bytes());
        Self { printer, paint, redis, second: Second::new(LINES_PER_SECOND).into() }
    }

    /// Prints the sum of the second that is over, if it holds messages without their own line. Call this regularly, so
    /// that the sum of a burst does not wait for the next message.
    pub fn tick(&self) {
        if self.second.lock().expect("no panic while held").started.elapsed() >= Duration::from_secs(1) {
            self.print_sum();
        }
    }

    /// Explains to the user why nothing is handled, or generated.
    pub fn hint_alone(&self, idle_work: &str) {
        let line = format!(
            "no other node is in this ring, so nothing is {idle_work}: start one in another terminal with the same command"
        );
        self.print(&self.paint.paint(NOTABLE, &line));
    }

    fn print_sum(&self) {
        let mut second = self.second.lock().expect("no panic while held");
        let Second { generated, handled, errors, retries, .. } = *second;
        let calm = generated + handled + errors + retries <= LINES_PER_SECOND as u64;
        *second = Second::new(if calm { LINES_PER_SECOND } else { 0 });
        drop(second);
        if let Some(sum) = sum(generated, handled, errors, retries) {
            self.print(&self.paint.paint(FAINT, &sum));
        }
    }

    fn print(&self, line: &str) {
        self.printer.print(format!("{line}\n").into_bytes());
    }

    /// Prints a line about one partition, or about the only one.
    fn print_in(&self, partition: Option<u32>, line: &str) {
        match partition {
            Some(index) => self.print(&format!("partition {index}: {line}")),
            None => self.print(line),
        }
    }

    /// Prints a line about one message, or only counts the message if there are too many.
    fn print_or_count(
        &self,
        partition: Option<u32>,
        line: impl FnOnce() -> String,
        count: impl FnOnce(&mut Second),
    ) {
        let mut second = self.second.lock().expect("no panic while held");
        if second.lines_left > 0 && self.printer.has_room() {
            second.lines_left -= 1;
            drop(second);
            self.print_in(partition, &line());
        } else {
            count(&mut second);
        }
    }

    fn settled(&self, partition: Option<u32>, messages: &[Message], failures: &[(usize, String)]) {
        let mut failures = failures.iter().peekable();
        for (index, message) in messages.iter().enumerate() {
            let again = match message.delivery {
                0 | 1 => String::new(),
                delivery => format!(" (delivery {delivery})"),
            };
            if let Some((_, reason)) = failures.next_if(|(failed, _)| *failed == index) {
                let line = || {
                    let what = format!("error #{}{again}: {}", message.id, escape(reason.as_bytes()));
                    format!("{} {}", self.paint.paint(BAD, &what), quoted(message))
                };
                self.print_or_count(partition, line, |second| second.errors += 1);
            } else {
                let line = || format!("handled #{}{again} {}", message.id, quoted(message));
                self.print_or_count(partition, line, |second| second.handled += 1);
            }
        }
    }
}

impl HumanObserver {
    /// Shows a notice, and its partition if the ring has several.
    pub fn notice(&self, partition: Option<u32>, notice: &Notice<'_>) {
        self.tick();
        let print = |line: &str| self.print_in(partition, line);
        match *notice {
            Notice::Joined { member } => print(&format!("joined as member {member}")),
            Notice::DeclaredDead => {
                print(&self.paint.paint(NOTABLE, "the ring gave this node up or was wiped; joining again"));
            }
            Notice::BecameGenerator { epoch, from: None, .. } => {
                print(&self.paint.paint(OFFICE, &format!("became generator (epoch {epoch})")));
            }
            Notice::BecameGenerator { epoch, from: Some(from), silence } => {
                let line = format!("took over from {from} in {:.2} s (epoch {epoch})", silence.as_secs_f64());
                print(&self.paint.paint(OFFICE, &line));
            }
            Notice::BecameHandler => print(&self.paint.paint(NOTABLE, "became handler: the office is lost")),
            Notice::Generated { messages } => {
                for message in messages {
                    let line = || format!("generated #{} {}", message.id, quoted(message));
                    self.print_or_count(partition, line, |second| second.generated += 1);
                }
            }
            Notice::Settled { messages, failures, .. } => self.settled(partition, messages, failures),
            Notice::HandlerSlow { message, .. } => {
                let line = format!("#{} has taken 80 % of its time limit", message.id);
                print(&self.paint.paint(NOTABLE, &line));
            }
            Notice::HandlerStuck { message, stuck } => {
                let line = format!(
                    "the handler of #{} blocks its thread beyond its time limit: {} stuck",
                    message.id,
                    counted(stuck as u64, "lane")
                );
                print(&self.paint.paint(BAD, &line));
            }
            Notice::HandlerBroken { message, reason, rest } => {
                let reason = escape(reason.as_bytes());
                let line =
                    format!("#{} went back, next try in {:.1} s: {reason}", message.id, rest.as_secs_f64());
                print(&self.paint.paint(BAD, &line));
            }
            Notice::Postponed { messages, .. } => {
                for Postponed { message, after, failure, .. } in messages {
                    let Some(reason) = failure else { continue };
                    let line = || {
                        let reason = escape(reason.as_bytes());
                        let again = HumanDuration(Duration::from_millis(after.as_millis() as u64));
                        self.paint.paint(
                            NOTABLE,
                            &format!("failed #{}, tried again in {again}: {reason}", message.id),
                        )
                    };
                    self.print_or_count(partition, line, |second| second.retries += 1);
                }
            }
            Notice::Buried { member, returned, gave_up } => {
                let returned = counted(returned, "message");
                let line = format!("member {member} is dead: {returned} returned, {gave_up} given up");
                print(&self.paint.paint(NOTABLE, &line));
            }
            Notice::SourceFailed { reason, in_a_row, pause } => {
                let reason = escape(reason.as_bytes());
                let line = format!(
                    "the source failed ({in_a_row} in a row), next try in {:.1} s: {reason}",
                    pause.as_secs_f64()
                );
                print(&self.paint.paint(BAD, &line));
            }
            Notice::LimitReached { limit } => {
                print(&format!("the limit of {} is reached; handlers do the rest", counted(limit, "message")))
            }
            Notice::RedisLost { reason } => {
                let line =
                    format!("lost Redis at {}, trying again: {}", self.redis, escape(reason.as_bytes()));
                print(&self.paint.paint(BAD, &line));
            }
            Notice::RedisBack => print(&self.paint.paint(GOOD, "Redis is back")),
            Notice::Stopping => print("stopping: finishing what is in hand"),
            Notice::Left { returned } => {
                self.print_sum();
                match returned {
                    0 => print("left the ring"),
                    _ => print(&format!("left the ring, {} returned", counted(returned, "message"))),
                }
            }
            _ => {}
        }
    }
}

/// The line about the messages of one second that got no lines. None if there are none.
fn sum(generated: u64, handled: u64, errors: u64, retries: u64) -> Option<String> {
    let messages = |count, what| (count > 0).then(|| format!("{} {what}", counted(count, "message")));
    let errors = (errors > 0).then(|| counted(errors, "error"));
    let again = messages(retries, "to be tried again");
    let parts: Vec<String> = [messages(generated, "generated"), messages(handled, "handled"), errors, again]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| format!("... {} within a second", parts.join(", ")))
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

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn the_sum_of_a_second_uses_singular_and_plural() {
        let line = |generated, handled, errors| sum(generated, handled, errors, 0).unwrap();
        assert_eq!(line(1, 0, 0), "... 1 message generated within a second");
        assert_eq!(line(0, 1, 1), "... 1 message handled, 1 error within a second");
        assert_eq!(
            line(1200, 2, 3),
            "... 1,200 messages generated, 2 messages handled, 3 errors within a second"
        );
        assert_eq!(sum(0, 0, 0, 2).unwrap(), "... 2 messages to be tried again within a second");
        assert_eq!(sum(0, 0, 0, 0), None);
    }
}
