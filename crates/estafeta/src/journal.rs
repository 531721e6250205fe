//! The journal: the record of every outcome that a ring keeps when it is asked to.

use std::collections::HashMap;

use crate::error::{Error, Result};
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
    pub(crate) fn parse(fields: &HashMap<String, String>) -> Result<Self> {
        let numbers = |name: &str| -> Result<Vec<u64>> {
            let text = fields.get(name).map_or("", String::as_str);
            let ids = text.split(' ').filter(|id| !id.is_empty()).map(str::parse);
            ids.collect::<Result<_, _>>()
                .map_err(|_| Error::Answer(format!("foreign data in the journal: {text}")))
        };
        let member = MemberId(numbers("member")?.first().copied().unwrap_or(0));
        Ok(Self { member, ids: numbers("ids")?, errors: numbers("errors")? })
    }
}
