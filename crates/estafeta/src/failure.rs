//! Why a message was not handled, or a source made none.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Why a message could not be handled, and whether another attempt makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a failure does nothing until the handler returns it"]
pub struct Failure {
    pub(crate) reason: String,
    pub(crate) kind: FailureKind,
}

/// What a [`Failure`] means for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// Another attempt is made. [`Retry`](crate::Retry) decides when.
    Retry,
    /// Another attempt is made after this time.
    RetryAfter(Duration),
    /// The message becomes a dead letter.
    Fatal,
    /// What handled the message has died.
    Died,
    /// The handler can handle no message at the moment, and its lane rests for this time.
    Broken(Duration),
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

    /// What handled the message has died with it, such as a process that a signal ended. It counts like the death of a node:
    /// the message is tried again, and becomes a dead letter after so many deaths
    /// ([`Config::max_deaths`](crate::Config::max_deaths)). It uses up no attempt.
    pub fn died(reason: impl fmt::Display) -> Self {
        Self::of_kind(reason, FailureKind::Died)
    }

    /// This handler can handle no message at the moment, whichever it is: a program is missing, or a disk is full. The
    /// message goes back to the queue, and that counts as nothing. The lane takes no message for the time `rest`, so
    /// that other lanes and other nodes can have them.
    pub fn broken(rest: Duration, reason: impl fmt::Display) -> Self {
        Self::of_kind(reason, FailureKind::Broken(rest))
    }

    fn of_kind(reason: impl fmt::Display, kind: FailureKind) -> Self {
        let mut reason = reason.to_string();
        if reason.len() > Self::LONGEST {
            reason.truncate(reason.floor_char_boundary(Self::LONGEST));
        }
        Self { reason, kind }
    }

    /// What it means for the message.
    pub fn kind(&self) -> FailureKind {
        self.kind
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
        brief(&self.reason)
    }
}

/// The first characters of a reason, for an event of the ring.
pub(crate) fn brief(reason: &str) -> &str {
    const CHARACTERS: usize = 200;
    reason.char_indices().nth(CHARACTERS).map_or(reason, |(end, _)| &reason[..end])
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// So that a handler may use `?` with any error that is `Send + Sync + 'static`, and `"text".into()`. The reason names the error and all its causes.
/// `Failure` itself is no [`std::error::Error`], because the two would overlap.
impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut reason = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors print their cause themselves.
            if !reason.ends_with(&text) {
                reason = format!("{reason}: {text}");
            }
            cause = error.source();
        }
        Self::new(reason)
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

    #[test]
    fn the_reason_of_an_error_names_all_its_causes_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the order is gone")]
        struct Gone;
        #[derive(Debug, thiserror::Error)]
        #[error("cannot load: {0}")]
        struct LoadFailed(#[source] Gone);
        #[derive(Debug, thiserror::Error)]
        #[error("attempt 3")]
        struct Attempt(#[source] LoadFailed);
        let failure = Failure::from(Attempt(LoadFailed(Gone)));
        assert_eq!(failure, Failure::new("attempt 3: cannot load: the order is gone"));
        assert_eq!(Failure::from("plain text"), Failure::new("plain text"));
        assert_eq!(Failure::from(String::from("text")), Failure::new("text"));
    }
}
