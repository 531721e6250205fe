//! What must be true after every step, read from Redis alone. The laws are a second opinion, in case the model and the
//! scripts share an error.

use std::collections::{BTreeMap, BTreeSet};

use super::answer::Answer;
use super::call::{StoryCall, ids_in};
use super::keyspace::{Content, Keyspace, differences, field, list, number};
use crate::keys::Keys;

/// Everything that members hold, by kind of member.
struct Held {
    /// What each handler holds.
    handlers: Vec<Vec<Element>>,
    readers: Vec<Element>,
}

#[derive(Clone, Copy)]
struct Element {
    id: u64,
    /// How many members died with it.
    deaths: u64,
    /// Whether its handler failed or snoozed it before, so that it may have waited for a time.
    was_postponed: bool,
}

impl Element {
    /// The messages of an element. A pack has several.
    fn read(element: &[u8]) -> impl Iterator<Item = Self> {
        let text = String::from_utf8_lossy(element);
        // No member died with the messages of a pack, and those of errors are no longer delivered.
        let is_single = text.starts_with(|first: char| first.is_ascii_digit());
        let number = |at| {
            let number = text.split(' ').nth(at).filter(|_| is_single);
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let (deaths, was_postponed) = (number(5), number(4) + number(6) > 0);
        ids_in(element).into_iter().map(move |id| Self { id, deaths, was_postponed })
    }

    fn read_all(elements: &[Vec<u8>]) -> Vec<Self> {
        elements.iter().flat_map(|element| Self::read(element)).collect()
    }
}

/// The laws that the keyspace breaks. Redis only counts errors that were taken, so `taken` lists their ids. If there is
/// no journal, `done` lists the messages that were handled without an error. `claimed` lists every message that was ever
/// claimed, and `cancelled` every message that was cancelled.
pub(super) fn broken(
    keys: &Keys,
    found: &Keyspace,
    taken: &[u64],
    done: Option<&[u64]>,
    claimed: &BTreeSet<u64>,
    cancelled: &[u64],
) -> Vec<String> {
    let mut broken = Vec::new();
    let held = held_in(keys, found);
    let ready = Element::read_all(list(found, &keys.ready));
    let errors = Element::read_all(list(found, &keys.errors));
    let delayed = Element::read_all(&delayed_in(keys, found));
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
    let came_back = |message: Element| message.deaths > 0 && !message.was_postponed;
    if ready.windows(2).any(|pair| !claimed.contains(&pair[0].id) && came_back(pair[1])) {
        broken.push("what came back stands before what is new in the queue".into());
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
    if let Some(leader) = field(found, &keys.ledger, "member")
        && field(found, &keys.succession, leader).is_none()
    {
        broken.push(format!("whoever leads is a member: {leader}"));
    }
    broken
}

/// The elements of the messages that wait for a time.
fn delayed_in(keys: &Keys, found: &Keyspace) -> Vec<Vec<u8>> {
    match found.get(&keys.delayed) {
        Some(Content::Table(elements)) => elements.values().map(|it| it.clone().into_bytes()).collect(),
        _ => Vec::new(),
    }
}

/// A message has a time if and only if it waits for one, and the ledger names the earliest.
fn wrong_times(keys: &Keys, found: &Keyspace) -> Vec<String> {
    let table = |key| match found.get(key) {
        Some(Content::Table(pairs)) => pairs.clone(),
        _ => BTreeMap::new(),
    };
    let (times, elements) = (table(&keys.later), table(&keys.delayed));
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

/// Reports if the first member in line does not know when the next message is due.
pub(super) fn untold(
    keys: &Keys,
    call: &StoryCall,
    answer: &Answer,
    called: &[(String, String)],
    before: &Keyspace,
    after: &Keyspace,
) -> Option<String> {
    let soonest = |keyspace| Some(number(keyspace, &keys.ledger, "soonest")).filter(|ms| *ms > 0);
    let first = |keyspace| -> Option<String> {
        let line = field(keyspace, &keys.ledger, "idle")?;
        line.split_whitespace().next().map(ToOwned::to_owned)
    };
    let (time, who) = (soonest(after)?, first(after)?);
    let is_new = first(before).as_ref() != Some(&who) || soonest(before).is_none_or(|former| time < former);
    let told = called.iter().any(|(channel, message)| {
        *channel == format!("{}{who}", keys.wakeups) && message.starts_with("due ")
    });
    let learned = matches!((call, answer), (StoryCall::Turn { me, .. }, Answer::Turn { due: Some(_), .. })
        if me.name() == who);
    (is_new && !told && !learned).then(|| format!("{who} is first in line and knows no time: {called:?}"))
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

/// Reports if a step let go of other messages than its sender meant. It would record an outcome of a message that no
/// node handled.
pub(super) fn settled_unseen(
    keys: &Keys,
    call: &StoryCall,
    before: &Keyspace,
    after: &Keyspace,
) -> Option<String> {
    let (settled, means) = match call {
        StoryCall::Turn { me, asks, .. } => {
            let claims = |keyspace: &Keyspace| -> BTreeMap<u64, u64> {
                let hand = keyspace.get(&keys.member(me.incarnation())).map(hand_in).unwrap_or_default();
                let ids = |(name, element): &(&str, &str)| {
                    let claim = claim_of(name);
                    ids_in(element.as_bytes()).into_iter().map(move |id| (id, claim)).collect::<Vec<_>>()
                };
                hand.iter().flat_map(ids).collect()
            };
            // A message that returned to the queue may be claimed again in the same step, with another number.
            let after = claims(after);
            let gone = claims(before).into_iter().filter(|(id, claim)| after.get(id) != Some(claim));
            (gone.map(|(id, _)| id).collect::<Vec<u64>>(), asks.means.as_ref()?)
        }
        StoryCall::Take { me, settles, .. } => {
            let cursor = |keyspace| number(keyspace, &keys.member(me.incarnation()), "cursor");
            let count = cursor(after).saturating_sub(cursor(before)) as usize;
            let held = list(before, &keys.inflight(me.incarnation()));
            let settled = held.iter().flat_map(|element| ids_in(element)).take(count).collect();
            (settled, settles.means.as_ref()?)
        }
        _ => return None,
    };
    let as_meant = settled.is_empty() || {
        let mut means = means.clone();
        means.sort_unstable();
        let mut settled = settled.clone();
        settled.sort_unstable();
        settled == means
    };
    (!as_meant).then(|| format!("{settled:?} were settled by a call that meant {means:?}"))
}

/// What publishers were told, as a second opinion about keys and repeats.
#[derive(Default)]
pub(super) struct Receipts {
    /// The id of each key, as long as its window lasts.
    keys: BTreeMap<&'static str, u64>,
    /// The first id of each publish, by publisher and sequence.
    publishes: BTreeMap<(usize, u64), u64>,
}

impl Receipts {
    pub fn end_key(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// Reports if a publish was applied twice, or if two messages were published with one key.
    pub fn broken(&mut self, call: &StoryCall, answer: &Answer) -> Vec<String> {
        let (StoryCall::Submit(call), Answer::Submitted { first, duplicates }) = (call, answer) else {
            return Vec::new();
        };
        let mut broken = Vec::new();
        let former = self.publishes.insert((call.publisher, call.sequence), *first);
        if let Some(former) = former {
            broken.push(format!("a publish was applied twice, from #{former} and from #{first}"));
        }
        let duplicates: Vec<u64> =
            duplicates.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let mut next_id = *first;
        for (position, draft) in (1..).zip(&call.messages) {
            let duplicate = duplicates.chunks(2).find(|pair| pair[0] == position).map(|pair| pair[1]);
            let id = duplicate.unwrap_or(next_id);
            next_id += u64::from(duplicate.is_none());
            if let Some(key) = draft.key {
                let known = *self.keys.entry(key).or_insert(id);
                if known != id {
                    broken
                        .push(format!("two messages have the key '{key}' in its window: #{known} and #{id}"));
                }
            } else if duplicate.is_some() {
                broken.push(format!("message {position} has no key and is a duplicate of #{id}"));
            }
        }
        broken
    }
}

/// Claims of a member are numbered without reuse. What is new in a hand has a new number, or is the rest of a pack.
pub(super) fn reused_claims(before: &Keyspace, after: &Keyspace) -> Vec<String> {
    let mut broken = Vec::new();
    for (member, content) in after.iter().filter(|(key, _)| key.contains(":member:")) {
        if field(before, member, "number") != field(after, member, "number") {
            continue;
        }
        let (was, is) = (number(before, member, "claimed"), number(after, member, "claimed"));
        if is < was {
            broken.push(format!("the claims of {member} go back from {was} to {is}"));
        }
        let old = before.get(member).map(hand_in).unwrap_or_default();
        for (name, element) in hand_in(content) {
            let claim = claim_of(name);
            let same = old.iter().find(|(old, _)| claim_of(old) == claim);
            let ids = same.map(|(_, element)| ids_in(element.as_bytes())).unwrap_or_default();
            let is_new = claim > was;
            let in_old_pack = name.contains('.') && !ids.is_empty();
            let is_same = old.contains(&(name, element));
            if !is_new && !is_same && !in_old_pack {
                broken.push(format!("{member} has something else under claim {name}"));
            }
        }
    }
    broken
}

/// A message that a member died with is claimed alone, if only one lane asks. It is never part of a reserve.
pub(super) fn accompanied(call: &StoryCall, answer: &Answer) -> Option<String> {
    let (StoryCall::Turn { asks, .. }, Answer::Turn { claims, .. }) = (call, answer) else { return None };
    let settlement = &asks.settlement;
    let one_lane = settlement.each > 0 && settlement.want <= settlement.each;
    let deadly = |(_, element): &(String, Vec<u8>)| Element::read(element).any(|message| message.deaths > 0);
    let broken = one_lane && claims.len() > settlement.want.min(1) && claims.iter().any(deadly);
    broken.then(|| "a message whose handler died travels alone".into())
}

/// A generator that gives way stands behind all other members in the line of succession.
pub(super) fn stands_ahead(
    keys: &Keys,
    call: &StoryCall,
    answer: &Answer,
    found: &Keyspace,
) -> Option<String> {
    let (StoryCall::Report { me, .. }, Answer::Resigned) = (call, answer) else { return None };
    let Some(Content::Table(line)) = found.get(&keys.succession) else { return None };
    let place = |name: &str| number(found, &keys.succession, name);
    let ahead = line.keys().any(|other| *other != me.name() && place(other) >= place(&me.name()));
    ahead.then(|| format!("{me} gave way and is not the last in line"))
}

/// Whether somebody in line must be called if messages wait after this step.
pub(super) fn must_wake(keys: &Keys, call: &StoryCall, answer: &Answer, before: &Keyspace) -> bool {
    match call {
        StoryCall::Publish(_) => {
            matches!(answer, Answer::Published { .. }) && list(before, &keys.ready).is_empty()
        }
        StoryCall::Submit(_) => {
            matches!(answer, Answer::Submitted { .. }) && list(before, &keys.ready).is_empty()
        }
        StoryCall::Turn { .. } => matches!(answer, Answer::Turn { .. }),
        StoryCall::Bury { .. } => matches!(answer, Answer::Buried { .. }),
        StoryCall::Leave(_) => matches!(answer, Answer::Left { returned: 1.. }),
        StoryCall::Resolve { drops: false, .. } => matches!(answer, Answer::Resolved { count: 1.. }),
        StoryCall::Wake => true,
        _ => false,
    }
}

/// The claims in the hash of a member: their names and elements.
fn hand_in(member: &Content) -> Vec<(&str, &str)> {
    let Content::Table(fields) = member else { return Vec::new() };
    let claims = fields.iter().filter(|(name, _)| name.starts_with(|first: char| first.is_ascii_digit()));
    claims.map(|(name, element)| (name.as_str(), element.as_str())).collect()
}

/// The number of a claim with this name.
fn claim_of(name: &str) -> u64 {
    let digits = name.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn held_in(keys: &Keys, found: &Keyspace) -> Held {
    let mut held = Held { handlers: Vec::new(), readers: Vec::new() };
    for (key, content) in found {
        // A hand or a list without a member belongs to no one, so its messages count as missing.
        let of = |prefix: &str| key.split_once(prefix).map(|(_, owner)| owner);
        let is_member = |owner: &str| field(found, &keys.members, owner).is_some();
        if of(":member:").is_some_and(is_member) {
            let hand = hand_in(content);
            held.handlers.push(hand.iter().flat_map(|(_, it)| Element::read(it.as_bytes())).collect());
        } else if let (Some(owner), Content::Row(elements)) = (of(":inflight:"), content)
            && is_member(owner)
        {
            held.readers.extend(Element::read_all(elements));
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
