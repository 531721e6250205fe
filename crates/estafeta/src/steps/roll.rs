//! The members that a step looks at, one by one. A script must get all keys from its caller, so the caller names them.

use super::Call;
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::keys::Keys;
use crate::redis::Store;

/// The members that the caller of a step knows. If they are not the current ones, the step answers `changed`.
pub(crate) struct Roll {
    /// How many entries the member list has, including foreign ones.
    known: usize,
    /// The entries that belong to the ring.
    members: Vec<Incarnation>,
}

impl Roll {
    /// How often the members may change before a step fails.
    pub const TRIES: usize = 100;

    #[cfg(test)]
    pub fn new(known: usize, members: &[Incarnation]) -> Self {
        Self { known, members: members.to_vec() }
    }

    /// The error after the last try. `purpose` is what the roll was for.
    pub fn changes_too_fast(purpose: &str) -> Error {
        Error::Answer(format!("the members of the ring change too fast for {purpose}; try again"))
    }

    /// The key of each member's hash.
    pub(super) fn member_keys(&self, keys: &Keys) -> impl Iterator<Item = (&'static str, String)> {
        self.members.iter().map(|member| ("member", keys.member(*member)))
    }

    /// The key of each member's hash, and of the list of what it holds if it is a reader.
    pub(super) fn member_and_inflight_keys(
        &self,
        keys: &Keys,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let both =
            |member: &Incarnation| [("member", keys.member(*member)), ("inflight", keys.inflight(*member))];
        self.members.iter().flat_map(both)
    }

    /// Adds the last arguments of a call: the number of members, and their names.
    pub(super) fn add_to(&self, call: &mut Call) {
        call.arg("members-known", self.known);
        for member in &self.members {
            call.arg("incarnation", member.to_string());
        }
    }
}

impl Store {
    /// The current members.
    pub async fn roll(&self) -> Result<Roll> {
        let names = self.members().await?;
        let members = names.iter().filter_map(|name| name.parse().ok()).collect();
        Ok(Roll { known: names.len(), members })
    }
}
