//! Effects are written once, and only with the settle of their message.

use super::done_in;
use super::hands::hand_in;
use crate::effects::Effect;
use crate::keys::Keys;
use crate::steps::MessageEffects;
use crate::steps::tests::stories::call::{StoryCall, ids_in};
use crate::steps::tests::stories::keyspace::{Keyspace, field, list};
use crate::steps::tests::stories::simulated_node::NEXT_RING;

/// The time that effects wrote into results and forwarded messages.
pub(in super::super) fn time_of_effects(keys: &Keys, before: &Keyspace, after: &Keyspace) -> Option<u64> {
    let number = |element: &[u8], at| String::from_utf8_lossy(element).split(' ').nth(at)?.parse().ok();
    let of_results = after.iter().find_map(|(key, content)| {
        let is_new = key.contains(":result:") && before.get(key) != Some(content);
        number(list(after, key).first().filter(|_| is_new)?, 1)
    });
    let next = Keys::new(&NEXT_RING.parse().expect("a name")).ready;
    let of_next = || number(list(after, &next).last().filter(|_| before.get(&next) != after.get(&next))?, 1);
    let published = field(before, &keys.ledger, "published").and_then(|it| it.parse().ok()).unwrap_or(0);
    let is_new = |element: &&[u8]| number(element, 0).is_some_and(|id| id > published);
    let of_own = || {
        let hands = after.iter().filter(|(key, _)| key.contains(":member:"));
        let held = hands.flat_map(|(_, member)| hand_in(member)).map(|(_, element)| element.as_bytes());
        let mut all = list(after, &keys.ready).iter().map(Vec::as_slice).chain(held);
        number(all.find(is_new)?, 1)
    };
    of_results.or_else(of_next).or_else(of_own)
}

/// Reports effects of messages that are not done, effects that were applied twice, and messages that are done without
/// their effects. `done` is given if there is no journal.
pub(in super::super) fn effects_without_settle(
    keys: &Keys,
    call: &StoryCall,
    before: &Keyspace,
    found: &Keyspace,
    done: Option<&[u64]>,
) -> Vec<String> {
    let mut broken = Vec::new();
    let done = done.map_or_else(|| done_in(list(found, &keys.journal)), <[u64]>::to_vec);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // Each trace is the number of a message.
    let ids = |texts: Vec<String>| -> Vec<u64> { texts.iter().filter_map(|id| id.parse().ok()).collect() };
    let log: Vec<String> = list(found, &keys.user_key("log")).iter().map(|entry| text(entry)).collect();
    let log = ids(log.iter().map(|entry| entry.replace("id|", "")).collect());
    let next = Keys::new(&NEXT_RING.parse().expect("a name")).ready;
    let last_word = |element: &Vec<u8>| text(element).rsplit(" f").next().unwrap_or_default().to_owned();
    let forwarded = ids(list(found, &next).iter().map(last_word).collect());
    let results = found.keys().filter_map(|key| key.split_once(":result:").map(|(_, id)| id.to_owned()));
    let results = ids(results.collect());
    for (what, traces) in [("stream", &log), ("forwards", &forwarded), ("results", &results)] {
        if let Some(id) = traces.iter().find(|id| !done.contains(id)) {
            broken.push(format!("#{id} is not done, and its effects are in the {what}"));
        }
    }
    let StoryCall::Turn { me, asks, .. } = call else { return broken };
    let hand = before.get(&keys.member(me.incarnation())).map(hand_in).unwrap_or_default();
    let held: Vec<u64> = hand.iter().flat_map(|(_, element)| ids_in(element.as_bytes())).collect();
    // This very call made them done.
    let is_trusted = |it: &&MessageEffects| held.contains(&it.id) && done.contains(&it.id);
    for MessageEffects { id, effects, .. } in asks.settlement.effects.iter().filter(is_trusted) {
        let count = |traces: &[u64]| traces.iter().filter(|trace| *trace == id).count();
        let wanted = |fits: fn(&Effect) -> bool| effects.0.iter().filter(|effect| fits(effect)).count();
        let all = [
            (count(&log), wanted(|it| matches!(it, Effect::Append { stream, .. } if stream == "log"))),
            (
                count(&forwarded),
                wanted(|it| matches!(it, Effect::Forward { ring, .. } if ring.as_str() == NEXT_RING)),
            ),
            (count(&results), wanted(|it| matches!(it, Effect::Result { .. }))),
        ];
        if all.iter().any(|(found, wanted)| found != wanted) {
            broken.push(format!("#{id} is done with other effects than its handler returned: {all:?}"));
        }
    }
    broken
}
