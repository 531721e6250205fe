//! The table of the model: its rows, made from the last snapshot and the own nodes, and the selected one.

use std::collections::HashMap;

use estafeta::{MemberId, Role};

use crate::model::Model;
use crate::model::own_node::OwnNode;
use crate::model::rows::{Key, MemberRow};

/// How long the table shows a member that is gone.
const GONE_SHOWN_MS: u64 = 5_000;
/// How long the table shows a dead own node, which the user can restart.
const DEAD_SHOWN_MS: u64 = 30_000;

impl Model {
    pub fn generator(&self) -> Option<&MemberRow> {
        self.rows.iter().find(|row| row.role == Some(Role::Generator))
    }

    /// The index of the selected row: the one that the user selected, or else the generator.
    pub fn selected(&self) -> Option<usize> {
        self.selected_pin().or_else(|| self.rows.iter().position(|row| row.role == Some(Role::Generator)))
    }

    fn selected_pin(&self) -> Option<usize> {
        let key = self.pinned?;
        self.rows.iter().position(|row| row.key == key)
    }

    /// Rebuilds the table from the last snapshot and the own nodes.
    pub(crate) fn refresh_rows(&mut self, now_ms: u64) {
        self.own.retain(|_, own| {
            own.ended.is_none_or(|ended| ended.back_at_ms.is_some() || ended.at_ms + DEAD_SHOWN_MS > now_ms)
        });
        let by_member: HashMap<MemberId, &OwnNode> =
            self.own.values().filter_map(|own| Some((own.member?, own))).collect();
        self.gone.retain(|id, (since, _)| *since + GONE_SHOWN_MS > now_ms || by_member.contains_key(id));
        let members = self.snapshot.iter().flat_map(|snapshot| &snapshot.members);
        let mut rows: Vec<MemberRow> = members
            .map(|member| {
                // After the ring was wiped, the same number may belong to another process.
                let is_same =
                    |own: &&OwnNode| u64::from(own.pid) == member.pid && self.info.host == member.host;
                let own = by_member.get(&member.id).copied().filter(is_same);
                // In a ring with partitions, a node has one member in each.
                let of_partition =
                    || self.own.values().find(is_same).filter(|_| member.id.partition().is_some());
                let own = own.or_else(of_partition);
                let mine =
                    own.is_some() || self.ours.contains(&member.id) && !by_member.contains_key(&member.id);
                MemberRow::member(member, mine, own, self.history.pace_of(member.id))
            })
            .collect();
        let present = |id: MemberId, rows: &[MemberRow]| rows.iter().any(|row| row.key == Key::Member(id));
        for (id, (_, row)) in &self.gone {
            if !present(*id, &rows) && !by_member.contains_key(id) {
                rows.push(row.clone());
            }
        }
        for own in self.own.values() {
            match own.member {
                Some(id) if present(id, &rows) => {}
                member => rows.push(self.without_membership(own, member)),
            }
        }
        rows.sort_by_key(|row| row.key);
        self.rows = rows;
        if self.selected_pin().is_none() {
            self.pinned = None;
        }
    }

    /// The row of an own node that is not a member yet or no longer.
    fn without_membership(&self, own: &OwnNode, member: Option<MemberId>) -> MemberRow {
        let mut row = MemberRow::joining(own, &self.info.host);
        if let Some(id) = member {
            if let Some((_, last)) = self.gone.get(&id) {
                row = MemberRow { condition: row.condition, node: row.node, mine: true, ..last.clone() };
            }
            row.key = Key::Member(id);
            row.add_reported(own);
        }
        row
    }
}
