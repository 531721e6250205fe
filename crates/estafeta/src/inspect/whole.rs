//! A ring with partitions as one: its members, events and counts together.

use super::event::{Event, EventKind};
use super::snapshot::{GeneratorView, Snapshot};
use crate::identity::MemberId;
use crate::keys::RingName;
use crate::steps::Health;

impl Snapshot {
    /// The partitions of a ring together, in their order: the sums of their counts, and all members and events. The
    /// numbers of members [carry](MemberId::in_partition) their partitions, and so do the names of events.
    ///
    /// The partitions were looked at one after another, and each balances by itself. So the sums do. The generator is
    /// that of the first partition, unless another partition has none that is alive. Then it is what that partition has.
    pub fn of_partitions(ring: &RingName, parts: Vec<Self>) -> Option<Self> {
        let all = (0..).zip(parts).map(|(index, part)| part.in_partition(index));
        let mut whole = all.reduce(Self::and)?;
        whole.ring = ring.to_string();
        whole.events.sort_by_key(|event| event.time_ms);
        Some(whole)
    }

    fn in_partition(mut self, index: u32) -> Self {
        for member in &mut self.members {
            member.id = member.id.in_partition(index);
        }
        if let Some(generator) = &mut self.generator {
            generator.member = generator.member.in_partition(index);
        }
        self.events = self.events.into_iter().map(|event| event.in_partition(index)).collect();
        self
    }

    fn and(mut self, other: Self) -> Self {
        let add = |one: Option<u64>, two: Option<u64>| Some(one? + two?);
        let is_well = |generator: &Option<GeneratorView>| {
            generator.as_ref().is_some_and(|generator| generator.state == Some(Health::Alive))
        };
        let is_worse = is_well(&self.generator) && !is_well(&other.generator);
        Self {
            layout: self.layout.max(other.layout),
            application: self.application.or(other.application),
            time_ms: self.time_ms.max(other.time_ms),
            generator: if is_worse { other.generator } else { self.generator },
            waiting: self.waiting + other.waiting,
            oldest_waiting_ms: self.oldest_waiting_ms.max(other.oldest_waiting_ms),
            later: self.later + other.later,
            in_flight: self.in_flight + other.in_flight,
            published: self.published + other.published,
            submitted: self.submitted + other.submitted,
            done: self.done + other.done,
            cancelled: self.cancelled + other.cancelled,
            errors_kept: self.errors_kept + other.errors_kept,
            errors_taken: self.errors_taken + other.errors_taken,
            lost: self.lost + other.lost,
            balanced: self.balanced && other.balanced,
            takeovers: self.takeovers + other.takeovers,
            returned: self.returned + other.returned,
            fenced: self.fenced + other.fenced,
            source_failed: self.source_failed + other.source_failed,
            buried: self.buried + other.buried,
            retried: self.retried + other.retried,
            dropped: self.dropped + other.dropped,
            retries: self.retries + other.retries,
            snoozes: self.snoozes + other.snoozes,
            producing_pause: self.producing_pause.or(other.producing_pause),
            handling_pause: self.handling_pause.or(other.handling_pause),
            in_flight_limit: add(self.in_flight_limit, other.in_flight_limit),
            rate_limit: self.rate_limit.zip(other.rate_limit).and_then(|(one, two)| one.and(two)),
            members: {
                self.members.extend(other.members);
                self.members
            },
            events: {
                self.events.extend(other.events);
                self.events
            },
            ring: self.ring,
        }
    }
}

impl Event {
    /// The same event in a view of all partitions: its name and the numbers of its members carry the partition.
    #[must_use]
    pub fn in_partition(self, index: u32) -> Self {
        Self { id: format!("{index}:{}", self.id), kind: self.kind.in_partition(index), ..self }
    }
}

impl EventKind {
    fn in_partition(mut self, index: u32) -> Self {
        let mark = |member: &mut MemberId| *member = member.in_partition(index);
        match &mut self {
            Self::Joined { member, .. }
            | Self::Left { member, .. }
            | Self::Buried { member, .. }
            | Self::TookOffice { member, .. }
            | Self::Resigned { member }
            | Self::SourceFailed { member, .. }
            | Self::HandlerBroken { member, .. }
            | Self::RolledBack { member, .. }
            | Self::Wiped { member, .. } => mark(member),
            Self::TookOver { member, from, .. } => {
                mark(member);
                mark(from);
            }
            _ => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(published: u64, waiting: u64, done: u64) -> Snapshot {
        let object = serde_json::json!({
            "ring": "orders", "timeMs": 7, "generator": null, "waiting": waiting, "inFlight": 0, "done": done,
            "published": published, "errorsKept": 0, "errorsTaken": 0, "balanced": published == waiting + done,
            "takeovers": 1, "returned": 0, "fenced": 0, "buried": 0, "retried": 0, "dropped": 0,
            "inFlightLimit": 5, "rateLimit": {"messages": 10, "perMs": 1000},
            "members": [{
                "id": 3, "role": "generator", "rank": null, "host": "here", "pid": 9, "ageMs": 1, "leaseMs": 1,
                "inFlight": 0, "state": "alive", "generated": 0, "processed": 0, "failed": 0,
            }],
            "events": [{"id": "1-0", "timeMs": 10 - waiting, "kind": "left", "member": 4, "returned": 0}],
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_sums_of_balanced_partitions_balance_and_members_carry_their_partition() {
        let ring = "orders".parse().unwrap();
        let whole = Snapshot::of_partitions(&ring, vec![part(5, 2, 3), part(7, 6, 1)]).unwrap();
        assert_eq!((whole.published, whole.waiting, whole.done, whole.balanced), (12, 8, 4, true));
        assert_eq!(whole.balance().iter().map(|(_, count)| count).sum::<u64>(), whole.published);
        assert_eq!((whole.in_flight_limit, whole.rate_limit.unwrap().messages), (Some(10), 20));
        let ids: Vec<String> = whole.members.iter().map(|member| member.id.to_string()).collect();
        assert_eq!(ids, ["0:3", "1:3"]);
        let events: Vec<String> = whole.events.iter().map(|event| event.kind.to_string()).collect();
        assert_eq!(events, ["1:4 left, 0 messages returned", "0:4 left, 0 messages returned"], "by time");
        assert_eq!((whole.events[0].id.as_str(), whole.events[1].id.as_str()), ("1:1-0", "0:1-0"));

        let unbalanced = Snapshot::of_partitions(&ring, vec![part(5, 2, 3), part(6, 6, 1), part(2, 0, 1)]);
        assert!(!unbalanced.unwrap().balanced, "one too few and one too many do not make it right");
        assert!(Snapshot::of_partitions(&ring, Vec::new()).is_none());
    }

    #[test]
    fn a_partition_without_a_living_generator_is_not_hidden_by_the_others() {
        let led = |state: Option<&str>| {
            let mut part = part(1, 1, 0);
            part.generator = state.map(|state| {
                let object = serde_json::json!({
                    "member": 3, "epoch": 1, "host": "", "pid": 1, "state": state, "inOfficeMs": 1,
                });
                serde_json::from_value(object).unwrap()
            });
            part
        };
        let whole = |states: [Option<&str>; 3]| {
            let whole =
                Snapshot::of_partitions(&"orders".parse().unwrap(), states.map(led).to_vec()).unwrap();
            whole.generator.map(|generator| generator.member.to_string())
        };
        assert_eq!(whole([Some("alive"), Some("alive"), Some("alive")]).as_deref(), Some("0:3"));
        assert_eq!(whole([Some("alive"), Some("expired"), Some("alive")]).as_deref(), Some("1:3"));
        assert_eq!(whole([Some("alive"), Some("alive"), None]), None);
        assert_eq!(whole([None, Some("alive"), Some("expired")]), None);
    }
}
