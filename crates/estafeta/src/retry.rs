//! What becomes of a message after its handler has answered, and when a message that failed is tried again.

use std::time::Duration;

use crate::config::TEN_YEARS;
use crate::failure::{Failure, FailureKind};
use crate::message::Message;
use crate::outcome::Outcome;
use crate::steps::Disposition;

/// How often a message is tried, and how long it waits after each failure.
///
/// ```
/// # use std::time::Duration;
/// use estafeta::Retry;
///
/// // 12 attempts: waits of 10 s, 40 s, 160 s ... up to an hour, each a little longer or shorter at random.
/// let patient = Retry::exponential(Duration::from_secs(10)).attempts(12);
/// // 5 attempts, up to a minute apart.
/// let steady = Retry::fixed(Duration::from_secs(60)).attempts(5);
/// ```
///
/// The default is 8 attempts with a first wait of 1 s. A message that always fails then becomes a dead letter after about
/// 83 minutes.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a rule does nothing until a node has it"]
pub struct Retry {
    pub(crate) attempts: u32,
    pub(crate) first: Duration,
    pub(crate) factor: f64,
    pub(crate) longest: Duration,
    pub(crate) jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1))
    }
}

impl Retry {
    /// Waits that grow: `first` after the first failure, and four times as long after each further one, up to an hour.
    /// There are 8 attempts.
    pub fn exponential(first: Duration) -> Self {
        let longest = first.max(Duration::from_secs(3600));
        Self { attempts: 8, first, factor: 4.0, longest, jitter: 0.25 }
    }

    /// The same wait after each failure. At random, it is up to a quarter shorter. There are 8 attempts.
    pub fn fixed(wait: Duration) -> Self {
        Self { factor: 1.0, longest: wait, ..Self::exponential(wait) }
    }

    /// No retries: the first failure makes the message a dead letter.
    pub fn never() -> Self {
        Self::default().attempts(1)
    }

    /// A message becomes a dead letter when it has failed this often.
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// Each wait is this many times as long as the one before. [`exponential`](Self::exponential) waits have a factor
    /// of 4.
    pub fn factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// The longest wait. If it is shorter than the first wait, the node refuses to start.
    pub fn longest(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// The part of a wait by which it may be longer or shorter, at random. So messages that failed together do not come
    /// back together. No wait exceeds the [longest](Self::longest) one. Default: 0.25.
    pub fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// What becomes of a message, or None if it is done. This is the only place that decides it. The message becomes a
    /// dead letter after `max_deaths`. `chance` is a random number from 0 to 1.
    pub(crate) fn disposition(
        &self,
        message: &Message,
        answer: Result<Outcome, Failure>,
        max_deaths: u32,
        chance: f64,
    ) -> Option<Disposition> {
        let failure = match answer {
            Ok(Outcome { snooze: None, carry: None, .. }) => return None,
            Ok(Outcome { snooze: None, .. }) => {
                Failure::fatal("carry: expected a snooze, got a message that is done")
            }
            Ok(Outcome { effects: Some(_), .. }) => {
                Failure::fatal("effects: expected a message that is done, got a snooze")
            }
            Ok(Outcome { snooze: Some(after), carry, .. }) => match message.headers_with_carry(carry) {
                Ok(headers) => {
                    return Some(Disposition::Snooze { after: after.min(TEN_YEARS), headers });
                }
                Err(error) => error.into(),
            },
            Err(failure) => failure,
        };
        let (kind, reason) = (failure.kind, failure.into_reason());
        Some(match kind {
            FailureKind::Fatal => Disposition::Fail { reason, died: false },
            FailureKind::Died if message.deaths + 1 >= max_deaths => Disposition::Fail { reason, died: true },
            FailureKind::Died => {
                // A message with deaths that waits for no time belongs to the head of the queue.
                let after = self.wait(message.deaths, chance).max(Duration::from_millis(1));
                Disposition::Die { after, reason }
            }
            _ if message.attempt() >= self.attempts => Disposition::Fail { reason, died: false },
            FailureKind::RetryAfter(after) => Disposition::Retry { after: after.min(TEN_YEARS), reason },
            FailureKind::Retry | FailureKind::Broken(_) => {
                Disposition::Retry { after: self.wait(message.failures, chance), reason }
            }
        })
    }

    /// The wait of a message that failed `failures` times before.
    fn wait(&self, failures: u32, chance: f64) -> Duration {
        let longest = self.longest.as_secs_f64();
        let wait = (self.first.as_secs_f64() * self.factor.powf(f64::from(failures))).min(longest);
        let wait = wait * (1.0 - self.jitter + 2.0 * self.jitter * chance);
        Duration::from_secs_f64(wait.min(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after_failures(failures: u32) -> Message {
        let mut message = Message::sample("orders", 1, "x");
        message.failures = failures;
        message
    }

    fn disposition(failures: u32, answer: Result<Outcome, Failure>) -> Option<Disposition> {
        Retry::default().disposition(&after_failures(failures), answer, 5, 0.5)
    }

    #[test]
    fn the_waits_grow_by_their_factor_up_to_the_longest() {
        let waits: Vec<u64> = (0..7).map(|failures| Retry::default().wait(failures, 0.5).as_secs()).collect();
        assert_eq!(waits, [1, 4, 16, 64, 256, 1024, 3600]);
        assert_eq!(Retry::default().wait(u32::MAX, 0.5).as_secs(), 3600);
        let fixed = Retry::fixed(7 * SECOND);
        assert_eq!([fixed.wait(0, 0.5), fixed.wait(5, 0.5)], [7 * SECOND; 2]);
        let hours = Retry::exponential(7200 * SECOND);
        assert_eq!([hours.wait(0, 0.5), hours.wait(5, 0.5)], [7200 * SECOND; 2]);
        assert_eq!(Retry::default().factor(2.0).longest(3 * SECOND).wait(9, 0.5), 3 * SECOND);
    }

    #[test]
    fn the_jitter_is_a_quarter_in_both_directions_and_never_exceeds_the_longest_wait() {
        let wait = |failures, chance| Retry::default().wait(failures, chance).as_secs_f64();
        assert_eq!([wait(1, 0.0), wait(1, 1.0)], [3.0, 5.0]);
        assert_eq!([wait(9, 0.0), wait(9, 1.0)], [2700.0, 3600.0]);
        let steady = Retry::default().jitter(0.0);
        assert_eq!([steady.wait(1, 0.0), steady.wait(1, 1.0)], [4 * SECOND; 2]);
    }

    #[test]
    fn a_failure_is_tried_again_until_the_attempts_are_used_up() {
        let retry = |after| Some(Disposition::Retry { after, reason: "no".into() });
        let fail = Some(Disposition::Fail { reason: "no".into(), died: false });
        assert_eq!(disposition(0, Err(Failure::new("no"))), retry(SECOND));
        assert_eq!(disposition(1, Err(Failure::new("no"))), retry(4 * SECOND));
        assert_eq!(disposition(6, Err(Failure::retry_after(7 * SECOND, "no"))), retry(7 * SECOND));
        assert_eq!(disposition(7, Err(Failure::new("no"))), fail, "the eighth attempt was the last one");
        assert_eq!(disposition(7, Err(Failure::retry_after(SECOND, "no"))), fail);
        assert_eq!(disposition(0, Err(Failure::fatal("no"))), fail, "at once");
        let never = Retry::never().disposition(&after_failures(0), Err(Failure::new("no")), 5, 0.5);
        assert_eq!(never, fail);
    }

    #[test]
    fn a_snooze_uses_up_no_attempt() {
        let snooze = Some(Disposition::Snooze { after: SECOND, headers: Vec::new() });
        assert_eq!(disposition(0, Ok(Outcome::snooze(SECOND))), snooze);
        assert_eq!(disposition(99, Ok(Outcome::snooze(SECOND))), snooze);
        assert_eq!(disposition(99, Ok(().into())), None);
        assert_eq!(disposition(0, Ok(Outcome::done())), None);
    }

    #[test]
    fn a_death_uses_up_no_attempt_and_the_last_of_them_makes_a_dead_letter() {
        let died = |failures, deaths| {
            let mut message = after_failures(failures);
            message.deaths = deaths;
            Retry::default().disposition(&message, Err(Failure::died("signal 9")), 5, 0.5)
        };
        let reason = || "signal 9".to_owned();
        assert_eq!(died(7, 0), Some(Disposition::Die { after: SECOND, reason: reason() }));
        assert_eq!(died(0, 3), Some(Disposition::Die { after: 64 * SECOND, reason: reason() }));
        assert_eq!(died(0, 4), Some(Disposition::Fail { reason: reason(), died: true }));
        let at_once = Retry::fixed(Duration::ZERO);
        let again = at_once.disposition(&after_failures(0), Err(Failure::died("signal 9")), 5, 0.5);
        assert_eq!(again, Some(Disposition::Die { after: Duration::from_millis(1), reason: reason() }));
    }

    #[test]
    fn a_snooze_with_effects_is_a_dead_letter_at_once() {
        let reason = "effects: expected a message that is done, got a snooze".to_owned();
        let answer = Ok(Outcome::snooze(SECOND).add("naps", 1));
        assert_eq!(disposition(0, answer), Some(Disposition::Fail { reason, died: false }));
    }

    #[test]
    fn a_message_that_is_done_and_carries_something_is_a_dead_letter_at_once() {
        let reason = "carry: expected a snooze, got a message that is done".to_owned();
        assert_eq!(
            disposition(0, Ok(Outcome::done().carry("page 3"))),
            Some(Disposition::Fail { reason, died: false })
        );
    }

    #[test]
    fn what_a_snooze_carries_replaces_what_it_carried_before_and_leaves_other_headers_alone() {
        let mut headers = crate::Headers::new();
        headers.insert("traceparent", "t").unwrap();
        let message = after_failures(0).with_headers(headers);
        let carry = |message: &Message, state: &str| {
            let answer = Ok(Outcome::snooze(SECOND).carry(state));
            match Retry::default().disposition(message, answer, 5, 0.5) {
                Some(Disposition::Snooze { headers, .. }) => crate::Headers::parse(&headers).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        let once = message.clone().with_headers(carry(&message, "page 1"));
        let twice = once.clone().with_headers(carry(&once, "page 2"));
        assert_eq!((message.carry(), once.carry(), twice.carry()), (None, Some("page 1"), Some("page 2")));
        assert_eq!((twice.headers().get("traceparent"), twice.headers().len()), (Some("t"), 2));
    }

    #[test]
    fn a_text_that_is_too_long_to_be_carried_is_a_failure() {
        let answer = Outcome::snooze(SECOND).carry("x".repeat(4097));
        let Some(Disposition::Retry { reason, .. }) = disposition(0, Ok(answer)) else {
            panic!("no failure")
        };
        assert!(reason.contains("4096"), "{reason}");
    }

    #[test]
    fn no_message_waits_longer_than_redis_can_count() {
        let longest = Duration::from_secs(315_576_000);
        let Some(Disposition::Snooze { after, .. }) = disposition(0, Ok(Outcome::snooze(Duration::MAX)))
        else {
            panic!("no snooze")
        };
        assert_eq!(after, longest);
        let failure = Failure::retry_after(Duration::MAX, "no");
        let Some(Disposition::Retry { after, .. }) = disposition(0, Err(failure)) else { panic!("no retry") };
        assert_eq!(after, longest);
    }
}
