//! Where messages come from: the function that the elected node calls.

/// Makes the messages while this node is the generator.
pub trait Source: Send + 'static {
    /// Returns the body of the next message. The generator calls it once per tick, or as often as there is room if the
    /// interval is zero. The future is dropped when the node stops or loses its office. It is also dropped when other
    /// messages are ready to go and this one is not. So take nothing that must not be lost from elsewhere before the
    /// last `await`.
    fn next(&mut self) -> impl Future<Output = Vec<u8>> + Send;
}
