//! What the model asks the app to do.

use estafeta_lab::fleet::NodeKey;
use estafeta_lab::message_id::MessageId;

/// What the model wants the app to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppRequest {
    /// Start a node. `pause_ms` is the pause before it is respawned if it ends soon.
    Start {
        pause_ms: u64,
    },
    /// Ask a node to stop, by its stdin or SIGTERM.
    Stop(NodeKey),
    Kill(NodeKey),
    Freeze(NodeKey),
    Thaw(NodeKey),
    /// Stop all nodes, and end once they have ended.
    Quit,
    /// Kill the nodes that have not stopped yet.
    QuitNow,
    Suspend,
    /// Capture the mouse, or release it so that the terminal's own text selection works.
    Mouse(bool),
    Errors(ErrorsRequest),
}

/// A request about the kept errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorsRequest {
    /// Fetch the newest ones that contain this text.
    List(String),
    Retry(Vec<MessageId>),
    Drop(Vec<MessageId>),
}
