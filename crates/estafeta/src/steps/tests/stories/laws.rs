//! What must be true after every step, read from Redis alone. The laws are a second opinion, in case the model and the
//! scripts share an error.

use std::collections::BTreeSet;

use super::answer::Answer;
use super::call::{StoryCall, ids_in};
use super::keyspace::{Content, Keyspace, differences, field, list, number};
use crate::keys::Keys;

/// Everything that members hold, by kind of member.
struct Held {
    /// What each lane of a handler holds.
    handlers: Vec<Vec<Element>>,
    readers: Vec<Element>,
}

#[derive(Clone, Copy)]
struct Element {
    id: u64,
    /// How often it was delivered before, and how many members died with it.
    deliveries: u64,
    deaths: u64,
}

impl Element {
    /// The messages of an element. A pack has several.
    fn read(element: &[u8]) -> impl Iterator<Item = Self> {
        let text = String::from_utf8_lossy(element);
        // The messages of a pack were never delivered, and those of errors are no longer.
        let is_single = text.starts_with(|first: char| first.is_ascii_digit());
        let number = |at| {
            let number = text.split(' ').nth(at).filter(|_| is_single);
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let (deliveries, deaths) = (number(3), number(5));
        ids_in(element).into_iter().map(move |id| Self { id, deliveries, deaths })
    }

    fn read_all(elements: &[Vec<u8>]) -> Vec<Self> {
        elements.iter().flat_map(|element| Self::read(element)).collect()
    }
}

/// The laws that the keyspace breaks. Redis only counts errors that were taken, so `taken` lists their ids. If there is
/// no journal, `done` lists the messages that were handled without an error.
pub(super) fn broken(keys: &Keys, found: &Keyspace, taken: &[u64], done: Option<&[u64]>) -> Vec<String> {
    let mut broken = Vec::new();
    let held = held_in(keys, found);
    let ready = Element::read_all(list(found, &keys.ready));
    let errors = Element::read_all(list(found, &keys.errors));
    let count = |name| number(found, &keys.ledger, name);
    let (published, handled, out, lost) = (count("published"), count("done"), count("taken"), count("lost"));

    let in_flight: usize = held.handlers.iter().map(Vec::len).sum();
    let kept = errors.len() + held.readers.len();
    let sum = (ready.len() + in_flight + kept) as u64 + handled + out + lost;
    if published != sum {
        broken.push(format!(
            "the balance: published {published} = waiting {} + in flight {in_flight} + done {handled} + errors kept \
             {kept} + errors taken {out} + lost {lost}",
            ready.len()
        ));
    }

    let elements = list(found, &keys.ready).len();
    let packed = ready.len() - elements;
    if elements > 0 && count("packed") != packed as u64 {
        broken.push(format!("{packed} messages wait inside packs, and the ledger says {}", count("packed")));
    }

    let alone = ready.iter().filter(|element| element.deaths > 0).count();
    if elements > 0 && count("alone") != alone as u64 {
        broken
            .push(format!("{alone} messages that wait have deaths, and the ledger says {}", count("alone")));
    }

    let done = done.map_or_else(|| done_in(list(found, &keys.journal)), <[u64]>::to_vec);
    let somewhere = ready.iter().chain(&errors).chain(&held.readers).chain(held.handlers.iter().flatten());
    let mut places: Vec<u64> = somewhere.map(|element| element.id).chain(taken.iter().copied()).collect();
    places.extend(done);
    places.sort_unstable();
    let distinct: BTreeSet<u64> = places.iter().copied().collect();
    if distinct.len() != places.len() {
        let twice: Vec<_> = places.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        broken.push(format!("each message in one place: {twice:?} are in two"));
    }
    let missing: Vec<_> = (1..=published).filter(|id| !distinct.contains(id)).collect();
    if missing.len() as u64 != lost || distinct.iter().any(|id| !(1..=published).contains(id)) {
        broken.push(format!(
            "ids from 1 to {published} without other gaps than the {lost} lost: {missing:?} are missing of {distinct:?}"
        ));
    }
    if ready.windows(2).any(|pair| pair[0].deliveries == 0 && pair[1].deaths > 0) {
        broken.push("what came back stands before what is new in the queue".into());
    }
    if held.handlers.iter().any(|lane| lane.len() > 1 && lane.iter().any(|element| element.deaths > 0)) {
        broken.push("a message whose handler died travels alone".into());
    }
    // The totals of former members are gone.
    let totals = |name| -> u64 {
        let members = found.keys().filter(|key| key.contains(":member:"));
        members.map(|member| number(found, member, name)).sum()
    };
    for (total, whole) in [("generated", published), ("failed", count("failed"))] {
        if totals(total) > whole {
            broken.push(format!("no more {total} by members than in all: {} of {whole}", totals(total)));
        }
    }
    if list(found, &keys.wakeup).len() > 1 {
        broken.push("one wakeup token at most".into());
    }
    if let Some(leader) = field(found, &keys.leader, "member")
        && field(found, &keys.succession, leader).is_none()
    {
        broken.push(format!("whoever leads is a member: {leader}"));
    }
    broken
}

/// What a refused step wrote, although it must not write. The two intended exceptions may change exactly one field
/// each.
pub(super) fn written_by_refusal(
    keys: &Keys,
    call: &StoryCall,
    answer: &Answer,
    before: &Keyspace,
    after: &Keyspace,
) -> Vec<String> {
    let mut allowed = before.clone();
    let exception = match (call, answer) {
        (StoryCall::Publish(_), Answer::Fenced) => {
            let ledger = allowed.entry(keys.ledger.clone()).or_insert(Content::Table(Default::default()));
            Some((ledger, "fenced".into(), number(before, &keys.ledger, "fenced") + 1))
        }
        (StoryCall::Bury { victim, .. }, Answer::Alive) => {
            let cut = number(after, &keys.members, &victim.name());
            let was_ahead = number(before, &keys.members, &victim.name()) > cut;
            let deadlines = allowed.get_mut(&keys.members).filter(|_| was_ahead);
            deadlines.map(|deadlines| (deadlines, victim.name(), cut))
        }
        _ => None,
    };
    match exception {
        Some((Content::Table(table), name, value)) => table.insert(name, value.to_string()),
        _ => return vec!["a refusal wrote something, be it the same again".into()],
    };
    let differences = differences(&allowed, after);
    differences.into_iter().map(|difference| format!("a refusal wrote {difference}")).collect()
}

/// Reports if a step settled other messages than its sender meant. It would record an outcome of a message that no node
/// handled.
pub(super) fn settled_unseen(
    keys: &Keys,
    call: &StoryCall,
    before: &Keyspace,
    after: &Keyspace,
) -> Option<String> {
    let (me, lane, settles) = match call {
        StoryCall::Turn { me, lane, settles, .. } => (me.incarnation(), *lane, settles),
        StoryCall::Take { me, settles, .. } => (me.incarnation(), 0, settles),
        _ => return None,
    };
    let means = settles.means.as_ref()?;
    let cursor = |keyspace| number(keyspace, &keys.member(me), &format!("cursor:{lane}"));
    let count = cursor(after).saturating_sub(cursor(before)) as usize;
    let held = list(before, &keys.inflight(me, lane));
    let settled: Vec<u64> = held.iter().flat_map(|element| ids_in(element)).take(count).collect();
    let as_meant = settled.is_empty() || settled == *means;
    (!as_meant).then(|| format!("{settled:?} were settled by a call that meant {means:?}"))
}

/// Whether there must be a wakeup token if messages wait after this step.
pub(super) fn must_wake(call: &StoryCall, answer: &Answer) -> bool {
    match call {
        StoryCall::Publish(_) => matches!(answer, Answer::Published { .. }),
        StoryCall::Turn { .. } => matches!(answer, Answer::Turn { .. }),
        StoryCall::Bury { .. } => matches!(answer, Answer::Buried { .. }),
        StoryCall::Leave(_) => matches!(answer, Answer::Left { returned: 1.. }),
        StoryCall::Resolve { drops: false, .. } => matches!(answer, Answer::Resolved { count: 1.. }),
        StoryCall::Wake => true,
        _ => false,
    }
}

fn held_in(keys: &Keys, found: &Keyspace) -> Held {
    let mut held = Held { handlers: Vec::new(), readers: Vec::new() };
    for (key, content) in found {
        // A list without a member belongs to no one, so its messages count as missing. The hash of a member may be
        // deleted. Its place in the line of succession then distinguishes a handler from a reader.
        let owner = key.split_once(":inflight:").and_then(|(_, rest)| rest.split(':').next());
        if let (Some(owner), Content::Row(elements)) = (owner, content) {
            let elements = Element::read_all(elements);
            match [&keys.members, &keys.succession].map(|key| field(found, key, owner).is_some()) {
                [true, true] => held.handlers.push(elements),
                [true, false] => held.readers.extend(elements),
                _ => {}
            }
        }
    }
    held
}

/// The ids that the journal lists as done, as often as it lists them.
fn done_in(journal: &[Vec<u8>]) -> Vec<u64> {
    let mut done = Vec::new();
    for entry in journal {
        let entry = String::from_utf8_lossy(entry);
        let fields: Vec<_> = entry.split('|').collect();
        let ids = |text: &str| text.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<u64>>();
        if let ["ids", all, "errors", failed, ..] = fields[..] {
            let failed = ids(failed);
            done.extend(ids(all).into_iter().filter(|id| !failed.contains(id)));
        }
    }
    done
}
