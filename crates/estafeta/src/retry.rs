//! What becomes of a message after its handler has answered, and when a message that failed is tried again.

use std::time::Duration;

use crate::config::TEN_YEARS;
use crate::failure::{Failure, FailureKind};
use crate::message::Message;
use crate::outcome::Outcome;
use crate::steps::Disposition;

/// How often a message is tried, and how long it waits after each failure.
///
/// The first wait is `first`, and each further one is longer by `factor`. With the defaults, a message that always fails
/// becomes a dead letter after about 83 minutes.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// A message becomes a dead letter when it has failed this often. 1 means no retry. Default: 8.
    pub attempts: u32,
    /// The wait after the first failure. Default: 1 s.
    pub first: Duration,
    /// How much longer each wait is than the one before. Default: 4.
    pub factor: f64,
    /// The longest wait. Default: 1 h.
    pub most: Duration,
    /// How much a wait may differ at random, as a part of it, so that messages that failed together do not come back
    /// together. Default: 0.25.
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 8,
            first: Duration::from_secs(1),
            factor: 4.0,
            most: Duration::from_secs(3600),
            jitter: 0.25,
        }
    }
}

impl Retry {
    /// What becomes of a message, or None if it is done. This is the only place that decides it. `chance` is a random
    /// number from 0 to 1.
    pub(crate) fn disposition(
        &self,
        message: &Message,
        answer: Result<Outcome, Failure>,
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
        let after = match failure.kind {
            FailureKind::Fatal => None,
            _ if message.failures.saturating_add(1) >= self.attempts => None,
            FailureKind::Retry => Some(self.wait(message.failures, chance)),
            FailureKind::RetryAfter(after) => Some(after.min(TEN_YEARS)),
        };
        let reason = failure.into_reason();
        Some(match after {
            Some(after) => Disposition::Retry { after, reason },
            None => Disposition::Fail { reason },
        })
    }

    /// The wait of a message that failed `failures` times before.
    fn wait(&self, failures: u32, chance: f64) -> Duration {
        let most = self.most.as_secs_f64();
        let wait = (self.first.as_secs_f64() * self.factor.powf(f64::from(failures))).min(most);
        let wait = wait * (1.0 - self.jitter + 2.0 * self.jitter * chance);
        Duration::from_secs_f64(wait.min(most))
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
        Retry::default().disposition(&after_failures(failures), answer, 0.5)
    }

    #[test]
    fn the_waits_grow_by_their_factor_up_to_the_longest() {
        let waits: Vec<u64> = (0..7).map(|failures| Retry::default().wait(failures, 0.5).as_secs()).collect();
        assert_eq!(waits, [1, 4, 16, 64, 256, 1024, 3600]);
        assert_eq!(Retry::default().wait(u32::MAX, 0.5).as_secs(), 3600);
    }

    #[test]
    fn the_jitter_is_a_quarter_in_both_directions_and_never_exceeds_the_longest_wait() {
        let wait = |failures, chance| Retry::default().wait(failures, chance).as_secs_f64();
        assert_eq!([wait(1, 0.0), wait(1, 1.0)], [3.0, 5.0]);
        assert_eq!([wait(9, 0.0), wait(9, 1.0)], [2700.0, 3600.0]);
        let steady = Retry { jitter: 0.0, ..Retry::default() };
        assert_eq!([steady.wait(1, 0.0), steady.wait(1, 1.0)], [4 * SECOND; 2]);
    }

    #[test]
    fn a_failure_is_tried_again_until_the_attempts_are_used_up() {
        let retry = |after| Some(Disposition::Retry { after, reason: "no".into() });
        let fail = Some(Disposition::Fail { reason: "no".into() });
        assert_eq!(disposition(0, Err(Failure::new("no"))), retry(SECOND));
        assert_eq!(disposition(1, Err(Failure::new("no"))), retry(4 * SECOND));
        assert_eq!(disposition(6, Err(Failure::retry_after(7 * SECOND, "no"))), retry(7 * SECOND));
        assert_eq!(disposition(7, Err(Failure::new("no"))), fail, "the eighth attempt was the last one");
        assert_eq!(disposition(7, Err(Failure::retry_after(SECOND, "no"))), fail);
        assert_eq!(disposition(0, Err(Failure::fatal("no"))), fail, "at once");
        let once = Retry { attempts: 1, ..Retry::default() };
        assert_eq!(once.disposition(&after_failures(0), Err(Failure::new("no")), 0.5), fail);
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
    fn a_snooze_with_effects_is_a_dead_letter_at_once() {
        let reason = "effects: expected a message that is done, got a snooze".to_owned();
        let answer = Ok(Outcome::snooze(SECOND).add("naps", 1));
        assert_eq!(disposition(0, answer), Some(Disposition::Fail { reason }));
    }

    #[test]
    fn a_message_that_is_done_and_carries_something_is_a_dead_letter_at_once() {
        let reason = "carry: expected a snooze, got a message that is done".to_owned();
        assert_eq!(disposition(0, Ok(Outcome::done().carry("page 3"))), Some(Disposition::Fail { reason }));
    }

    #[test]
    fn what_a_snooze_carries_replaces_what_it_carried_before_and_leaves_other_headers_alone() {
        let mut headers = crate::Headers::new();
        headers.insert("traceparent", "t").unwrap();
        let message = after_failures(0).with_headers(headers);
        let carry = |message: &Message, state: &str| {
            let answer = Ok(Outcome::snooze(SECOND).carry(state));
            match Retry::default().disposition(message, answer, 0.5) {
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
