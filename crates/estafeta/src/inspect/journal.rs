//! The journal: a record of every outcome, which a ring keeps only if its configuration asks for one.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::identity::MemberId;

/// Outcomes that one step recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalEntry {
    /// The member that handled these messages. For messages that were given up, the member that held them last.
    pub member: MemberId,
    /// The ids of all messages that got their outcome.
    pub ids: Vec<u64>,
    /// Those among them that became dead letters.
    pub errors: Vec<u64>,
}

impl JournalEntry {
    /// An entry as a ring would write it, for tests of programs that read journals.
    pub fn sample(member: MemberId, ids: impl Into<Vec<u64>>, errors: impl Into<Vec<u64>>) -> Self {
        Self { member, ids: ids.into(), errors: errors.into() }
    }

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
