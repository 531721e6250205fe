//! The journal: the record of every outcome that a ring keeps when it is asked to.

use std::collections::HashMap;

use crate::member_id::MemberId;

/// Outcomes that were recorded in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Who handled these messages, or, of messages that were given up, held them last.
    pub member: MemberId,
    /// All messages that got their outcome.
    pub ids: Vec<u64>,
    /// Those among them that became errors.
    pub errors: Vec<u64>,
}

impl JournalEntry {
    pub(crate) fn parse(fields: &HashMap<String, String>) -> Self {
        let text = |name: &str| fields.get(name).map_or("", String::as_str);
        let numbers = |name: &str| text(name).split(' ').filter_map(|id| id.parse().ok()).collect();
        Self {
            member: MemberId(text("member").parse().unwrap_or(0)),
            ids: numbers("ids"),
            errors: numbers("errors"),
        }
    }
}
