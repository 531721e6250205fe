//! The two functions a user brings: one that makes messages and one that handles them.

use std::fmt;

use crate::message::Message;

/// Makes the messages while this copy is the generator.
pub trait Source: Send + 'static {
    /// The body of the next message. Called once a tick, or as often as there is room if the interval is zero. The
    /// future is dropped when the copy stops or loses its office, and also when other messages are ready to go and this
    /// one is not, so nothing that must not be lost may be taken from elsewhere before the last `await`.
    fn next(&mut self) -> impl Future<Output = Vec<u8>> + Send;
}

/// Handles messages while this copy is a handler.
pub trait Handler: Send + Sync + 'static {
    /// Handles one message. An error, or a panic, puts the message among the errors, with the reason. The outcome is
    /// recorded once; the call itself may be repeated by another copy if this one dies before.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Why a message could not be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// The longest reason that is kept; the rest of a longer one is cut off.
    const LONGEST: usize = 4096;

    /// A failure with its reason.
    pub fn new(reason: impl fmt::Display) -> Self {
        let mut reason = reason.to_string();
        if reason.len() > Self::LONGEST {
            reason.truncate(reason.floor_char_boundary(Self::LONGEST));
        }
        Self(reason)
    }

    pub(crate) fn into_reason(self) -> String {
        self.0
    }
}

impl<T: fmt::Display> From<T> for Failure {
    fn from(reason: T) -> Self {
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
}
