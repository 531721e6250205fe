//! Notices for the user: why something was not done. Each front end turns them into sentences.

use crate::model::own_node::NodeName;

/// Why a command had no effect, or why a node was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserNotice {
    /// The table has no such row at the moment.
    NoSuchRow(ActsOn),
    /// Another program started the member, so the monitor can only watch it.
    Foreign {
        acts_on: ActsOn,
        name: NodeName,
    },
    AlreadyDead(NodeName),
    AlreadyStopping,
    /// The monitor only watches, so it starts no nodes.
    OnlyWatching,
    /// As many own nodes run as the monitor may start.
    TooManyNodes,
    /// No own node is dead, so none can be restarted.
    NoDeadNode,
    NodeNotStarted {
        reason: String,
    },
}

/// What a command acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActsOn {
    Generator,
    SelectedNode,
}
