//! Where messages come from: the function that the elected node calls.

use crate::handler::Failure;

/// Makes the messages while this node is the generator.
pub trait Source: Send + 'static {
    /// Returns the body of the next message. The generator calls it once per tick, or as often as there is room if the
    /// interval is zero. The future is dropped when the node stops or loses its office. It is also dropped when other
    /// messages are ready to go and this one is not. So take nothing that must not be lost from elsewhere before the
    /// last `await`.
    ///
    /// An error or a panic ends neither the node nor its office. The generator reports it, waits for 100 ms, and calls
    /// the source again. The wait doubles with each further failure, up to 5 s. After five failures in a row, the
    /// generator gives up its office, so that another node can try with its own source. A node that is alone goes on.
    ///
    /// A body that is larger than [`Config::max_body`](crate::Config::max_body) becomes a dead letter, cut to that
    /// size.
    fn next(&mut self) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;
}
