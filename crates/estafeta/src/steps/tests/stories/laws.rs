//! What must be true after every step, read from Redis alone. The laws are a second opinion, in case the model and the
//! scripts share an error. Here are the laws about the ring as a whole. The other files have those about its parts.

mod effects;
mod hands;
mod limits;
mod line;
mod publishing;

use std::collections::{BTreeMap, BTreeSet};

use super::answer::Answer;
use super::call::{StoryCall, ids_in};
use super::keyspace::{Content, Keyspace, differences, field, list, number, sum_over_members, table};
use crate::keys::{Keys, RingName};
use crate::message::Message;
pub(super) use effects::{effects_without_settle, time_of_effects};
use hands::{StoredMessage, claim_of, hand_in, held_in};
pub(super) use hands::{accompanied, reused_claims, settled_unseen};
pub(super) use limits::{beyond_limits, brakes, is_closed, worked_in_pause};
pub(super) use line::{must_wake, stands_ahead, untold};
pub(super) use publishing::{Receipts, moved_apart, wrong_open, wrong_plan};

/// The laws that the keyspace breaks. Redis only counts errors that were taken, so `taken` lists their ids. If there is
/// no journal, `done` lists the messages that were handled without an error. `claimed` lists every message that was ever
/// claimed, `waited` every message that ever waited for a time, and `cancelled` every message that was cancelled.
pub(super) fn broken(
    keys: &Keys,
    found: &Keyspace,
    taken: &[u64],
    done: Option<&[u64]>,
    claimed: &BTreeSet<u64>,
    waited: &BTreeSet<u64>,
    cancelled: &[u64],
) -> Vec<String> {
    let mut broken = Vec::new();
    let held = held_in(keys, found);
    let ready = StoredMessage::read_all(list(found, &keys.ready));
    let errors = StoredMessage::read_all(list(found, &keys.errors));
    let delayed = StoredMessage::read_all(&delayed_in(keys, found));
    let count = |name| number(found, &keys.ledger, name);
    let (published, handled, out, lost) = (count("published"), count("done"), count("taken"), count("lost"));

    let in_flight: usize = held.handlers.iter().map(Vec::len).sum();
    let kept = errors.len() + held.readers.len();
    let sum =
        (ready.len() + delayed.len() + in_flight + kept) as u64 + handled + out + lost + count("cancelled");
    if published != sum {
        broken.push(format!(
            "the balance: published {published} = waiting {} + later {} + in flight {in_flight} + done {handled} + cancelled {} + errors kept \
             {kept} + errors taken {out} + lost {lost}",
            ready.len(),
            delayed.len(),
            count("cancelled")
        ));
    }
    broken.extend(wrong_times(keys, found));
    broken.extend(wrong_singles(keys, found, claimed));

    let elements = list(found, &keys.ready).len();
    let packed = ready.len() - elements;
    if elements > 0 && count("packed") != packed as u64 {
        broken.push(format!("{packed} messages wait inside packs, and the ledger says {}", count("packed")));
    }

    for (member, content) in found.iter().filter(|(key, _)| key.contains(":member:")) {
        let messages: u64 =
            hand_in(content).iter().map(|(_, element)| ids_in(element.as_bytes()).len() as u64).sum();
        let held = number(found, member, "held");
        if held != messages {
            broken.push(format!("{member} holds {messages} messages, and its hash says {held}"));
        }
        let last = hand_in(content).iter().map(|(name, _)| claim_of(name)).max().unwrap_or(0);
        if last > number(found, member, "claimed") {
            broken.push(format!("{member} holds claim {last}, which it never made"));
        }
    }
    let idle: Vec<&str> = field(found, &keys.ledger, "idle").unwrap_or_default().split_whitespace().collect();
    if idle.iter().any(|name| field(found, &keys.members, name).is_none()) {
        broken.push(format!("only members stand in the line of idle members: {idle:?}"));
    }
    if idle.iter().collect::<BTreeSet<_>>().len() != idle.len() {
        broken.push(format!("nobody stands twice in the line of idle members: {idle:?}"));
    }

    let done = done.map_or_else(|| done_in(list(found, &keys.journal)), <[u64]>::to_vec);
    let somewhere = ready
        .iter()
        .chain(&delayed)
        .chain(&errors)
        .chain(&held.readers)
        .chain(held.handlers.iter().flatten());
    let mut places: Vec<u64> = somewhere.map(|element| element.id).chain(taken.iter().copied()).collect();
    places.extend(cancelled);
    if cancelled.iter().any(|id| claimed.contains(id)) {
        broken.push(format!("no node sees a cancelled message: {cancelled:?}"));
    }
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
    // A message that returned before it was started is not new either. A message that waited for a time goes to the tail.
    let came_back = |message: StoredMessage| {
        message.deaths > 0 && !message.was_postponed && !waited.contains(&message.id)
    };
    if ready.windows(2).any(|pair| !claimed.contains(&pair[0].id) && came_back(pair[1])) {
        broken.push("what came back stands before what is new in the queue".into());
    }
    // The totals of former members are gone.
    for (name, whole) in [("generated", published), ("failed", count("failed"))] {
        let total = sum_over_members(found, name);
        if total > whole {
            broken.push(format!("no more {name} by members than in all: {total} of {whole}"));
        }
    }
    if let Some(leader) = field(found, &keys.ledger, "member")
        && field(found, &keys.succession, leader).is_none()
    {
        broken.push(format!("the leader is a member: {leader}"));
    }
    broken
}

/// The elements of the messages that wait for a time.
pub(super) fn delayed_in(keys: &Keys, found: &Keyspace) -> Vec<Vec<u8>> {
    table(found, &keys.delayed).into_values().map(String::into_bytes).collect()
}

/// At most one message with a single name waits and was never claimed. The name is taken exactly as long as it does.
fn wrong_singles(keys: &Keys, found: &Keyspace, claimed: &BTreeSet<u64>) -> Vec<String> {
    let mut waiting = BTreeMap::<String, Vec<String>>::new();
    for element in list(found, &keys.ready).iter().filter(|element| !element.starts_with(b"*")) {
        let message = Message::parse(&RingName::sample(), element.clone().into());
        if let Some(name) =
            message.headers().get("estafeta-single").filter(|_| !claimed.contains(&message.id))
        {
            waiting.entry(name.to_owned()).or_default().push(message.id.to_string());
        }
    }
    let mut broken = Vec::new();
    if waiting.values().any(|ids| ids.len() > 1) {
        broken.push(format!("at most one message with a single name waits: {waiting:?}"));
    }
    let taken = table(found, &keys.singles);
    let first: BTreeMap<String, String> =
        waiting.into_iter().map(|(name, mut ids)| (name, ids.swap_remove(0))).collect();
    if taken != first {
        broken.push(format!("a single name is taken while its message waits: {taken:?} for {first:?}"));
    }
    broken
}

/// A message has a time if and only if it waits for one, and the ledger names the earliest.
fn wrong_times(keys: &Keys, found: &Keyspace) -> Vec<String> {
    let (times, elements) = (table(found, &keys.later), table(found, &keys.delayed));
    let mut broken = Vec::new();
    if !times.keys().eq(elements.keys()) {
        broken.push(format!("each message that waits has a time: {times:?} for {elements:?}"));
    }
    let is_misnamed = |(name, element): (&String, &String)| {
        ids_in(element.as_bytes()) != [name.parse::<u64>().unwrap_or(0)] || name.len() != 15
    };
    if elements.iter().any(is_misnamed) {
        broken.push(format!("each message waits under its own id: {elements:?}"));
    }
    let soonest = times.values().filter_map(|time| time.parse::<u64>().ok()).min().unwrap_or(0);
    let stored = number(found, &keys.ledger, "soonest");
    if stored != soonest {
        broken.push(format!("the earliest message is due at {soonest}, and the ledger says {stored}"));
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
