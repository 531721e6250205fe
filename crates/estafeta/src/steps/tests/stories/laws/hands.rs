//! What members hold, and how they claim it and let go of it.

use std::collections::BTreeMap;

use crate::keys::Keys;
use crate::steps::tests::stories::answer::Answer;
use crate::steps::tests::stories::call::{StoryCall, ids_in};
use crate::steps::tests::stories::keyspace::{Content, Keyspace, field, list, number};

/// Everything that members hold, by kind of member.
pub(super) struct HeldMessages {
    /// What each handler holds.
    pub handlers: Vec<Vec<StoredMessage>>,
    pub readers: Vec<StoredMessage>,
}

#[derive(Clone, Copy)]
pub(super) struct StoredMessage {
    pub id: u64,
    /// How many members died with it.
    pub deaths: u64,
    /// Whether its handler failed or snoozed it before, so that it may have waited for a time.
    pub was_postponed: bool,
}

impl StoredMessage {
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

    pub fn read_all(elements: &[Vec<u8>]) -> Vec<Self> {
        elements.iter().flat_map(|element| Self::read(element)).collect()
    }
}

/// Reports if a step let go of other messages than its sender meant. It would record an outcome of a message that no
/// node handled.
pub(in super::super) fn settled_unseen(
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

/// Claims of a member are numbered without reuse. What is new in a hand has a new number, or is the rest of a pack.
pub(in super::super) fn reused_claims(before: &Keyspace, after: &Keyspace) -> Vec<String> {
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

/// A message that a member died with is claimed alone, if only one lane asks. It is never part of a reserve. Claims that
/// are shown again do not count.
pub(in super::super) fn accompanied(call: &StoryCall, answer: &Answer, before: &Keyspace) -> Option<String> {
    let (StoryCall::Turn { asks, .. }, Answer::Turn { claims, .. }) = (call, answer) else { return None };
    let settlement = &asks.settlement;
    let one_lane = settlement.each > 0 && settlement.want <= settlement.each;
    let deadly =
        |(_, element): &(String, Vec<u8>)| StoredMessage::read(element).any(|message| message.deaths > 0);
    let was_held = |(name, element): &&(String, Vec<u8>)| {
        before.values().flat_map(hand_in).any(|(old, held)| old == name && held.as_bytes() == &element[..])
    };
    let new: Vec<_> = claims.iter().filter(|claim| !was_held(claim)).collect();
    let broken = one_lane && new.len() > settlement.want.min(1) && new.into_iter().any(deadly);
    broken.then(|| "a message whose handler died travels alone".into())
}

/// The claims in the hash of a member: their names and elements.
pub(super) fn hand_in(member: &Content) -> Vec<(&str, &str)> {
    let Content::Table(fields) = member else { return Vec::new() };
    let claims = fields.iter().filter(|(name, _)| name.starts_with(|first: char| first.is_ascii_digit()));
    claims.map(|(name, element)| (name.as_str(), element.as_str())).collect()
}

/// The number of a claim with this name.
pub(super) fn claim_of(name: &str) -> u64 {
    let digits = name.split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

pub(super) fn held_in(keys: &Keys, found: &Keyspace) -> HeldMessages {
    let mut held = HeldMessages { handlers: Vec::new(), readers: Vec::new() };
    for (key, content) in found {
        // A hand or a list without a member belongs to no one, so its messages count as missing.
        let of = |prefix: &str| key.split_once(prefix).map(|(_, owner)| owner);
        let is_member = |owner: &str| field(found, &keys.members, owner).is_some();
        if of(":member:").is_some_and(is_member) {
            let hand = hand_in(content);
            held.handlers.push(hand.iter().flat_map(|(_, it)| StoredMessage::read(it.as_bytes())).collect());
        } else if let (Some(owner), Content::Row(elements)) = (of(":inflight:"), content)
            && is_member(owner)
        {
            held.readers.extend(StoredMessage::read_all(elements));
        }
    }
    held
}
