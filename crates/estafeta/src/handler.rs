//! What is done with a message: the function that every node except the generator calls.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::message::Message;

/// Handles messages while this node is a handler.
///
/// Most handlers succeed or fail, and return `Result<(), Failure>`. A handler that also snoozes messages implements
/// `Handler<Outcome>` and returns `Result<Outcome, Failure>`.
pub trait Handler<T: Into<Outcome> = ()>: Send + Sync + 'static {
    /// Handles one message. A failure or a panic puts the message off for another attempt, until its attempts are used
    /// up. A [fatal](Failure::fatal) failure makes it a dead letter at once. The outcome is recorded once. The call
    /// itself may be repeated by another node if this one dies before its outcome is recorded.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<T, Failure>> + Send;
}

/// What becomes of a message that was handled without a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub(crate) snooze: Option<Duration>,
    pub(crate) carry: Option<String>,
}

impl Outcome {
    /// The message is done. `()` means the same.
    pub fn done() -> Self {
        Self { snooze: None, carry: None }
    }

    /// The message waits in Redis for this time, by Redis' clock, and then comes again. That is no failure and uses up
    /// no attempt. A time of more than ten years counts as ten years.
    pub fn snooze(after: Duration) -> Self {
        Self { snooze: Some(after), carry: None }
    }

    /// The next delivery of a snoozed message has this text as its [`carry`](Message::carry). It stays with the message
    /// until another snooze carries something else. A text of more than 4 KiB makes the snooze a failure.
    #[must_use]
    pub fn carry(self, state: impl Into<String>) -> Self {
        Self { carry: Some(state.into()), ..self }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::done()
    }
}

/// Why a message could not be handled, and whether another attempt makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    pub(crate) kind: FailureKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The settings decide when the next attempt is made.
    Retry,
    RetryAfter(Duration),
    Fatal,
}

impl Failure {
    /// The longest reason that is kept, in bytes. A longer one is cut off.
    const LONGEST: usize = 4096;

    /// A failure after which the message is tried again, as [`Retry`](crate::Retry) says.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self::of_kind(reason, FailureKind::Retry)
    }

    /// A failure after which the message is tried again after this time, by Redis' clock. A time of more than ten years
    /// counts as ten years.
    pub fn retry_after(after: Duration, reason: impl fmt::Display) -> Self {
        Self::of_kind(reason, FailureKind::RetryAfter(after))
    }

    /// A failure that no further attempt would mend. The message becomes a dead letter at once.
    pub fn fatal(reason: impl fmt::Display) -> Self {
        Self::of_kind(reason, FailureKind::Fatal)
    }

    fn of_kind(reason: impl fmt::Display, kind: FailureKind) -> Self {
        let mut reason = reason.to_string();
        if reason.len() > Self::LONGEST {
            reason.truncate(reason.floor_char_boundary(Self::LONGEST));
        }
        Self { reason, kind }
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn into_reason(self) -> String {
        self.reason
    }

    /// The first characters of the reason, for an event of the ring.
    pub(crate) fn brief(&self) -> &str {
        const CHARACTERS: usize = 200;
        self.reason.char_indices().nth(CHARACTERS).map_or(&self.reason, |(end, _)| &self.reason[..end])
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Calls a function of the user and awaits its answer. A panic becomes a failure, wherever in the function it happens.
/// `who` names the function.
pub(crate) async fn catch<T, F: Future<Output = Result<T, Failure>>>(
    who: &str,
    function: impl FnOnce() -> F,
) -> Result<T, Failure> {
    let answer = AssertUnwindSafe(async { function().await }).catch_unwind().await;
    answer.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Failure::new(format_args!("the {who} panicked: {text}")))
    })
}

/// So that a handler may use `?`. `Failure` itself is no [`std::error::Error`], because the two would overlap.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        for before in 0..4 {
            let reason = Failure::new("x".repeat(before) + &"€".repeat(2000)).into_reason();
            assert!((4094..=4096).contains(&reason.len()), "{} bytes", reason.len());
            assert!(reason.ends_with('€'));
        }
        assert_eq!(Failure::new("x".repeat(4096)).into_reason().len(), 4096);
    }

    #[test]
    fn the_brief_form_of_a_reason_has_at_most_two_hundred_characters() {
        for (length, brief) in [(0, 0), (199, 199), (200, 200), (201, 200), (1000, 200)] {
            let failure = Failure::new("€".repeat(length));
            assert_eq!(failure.brief().chars().count(), brief);
        }
    }

    #[tokio::test]
    async fn a_panic_is_caught_before_and_after_the_first_await() {
        fn at_once() -> std::future::Ready<Result<(), Failure>> {
            panic!("at once")
        }
        let later = || async {
            tokio::task::yield_now().await;
            panic!("later")
        };
        assert_eq!(catch("source", at_once).await, Err(Failure::new("the source panicked: at once")));
        assert_eq!(catch::<(), _>("handler", later).await, Err(Failure::new("the handler panicked: later")));
        assert_eq!(catch("source", || async { Ok(7) }).await, Ok(7));
    }
}
