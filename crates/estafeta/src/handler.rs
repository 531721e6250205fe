//! What is done with a message: the function that every node except the generator calls.

use std::fmt;

use crate::message::Message;

/// Handles messages while this node is a handler.
pub trait Handler: Send + Sync + 'static {
    /// Handles one message. An error or a panic makes the message a dead letter, with the reason. The outcome is
    /// recorded once. The call itself may be repeated by another node if this one dies before its outcome is recorded.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Why a message could not be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// The longest reason that is kept, in bytes. A longer one is cut off.
    const LONGEST: usize = 4096;

    /// Creates a failure with its reason.
    pub fn new(reason: impl fmt::Display) -> Self {
        let mut reason = reason.to_string();
        if reason.len() > Self::LONGEST {
            reason.truncate(reason.floor_char_boundary(Self::LONGEST));
        }
        Self(reason)
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_reason(self) -> String {
        self.0
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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
}
