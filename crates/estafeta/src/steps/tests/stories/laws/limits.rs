//! Pauses and limits.

use super::delayed_in;
use crate::keys::Keys;
use crate::steps::tests::stories::call::StoryCall;
use crate::steps::tests::stories::keyspace::{Keyspace, field, number, sum_over_members};

/// The eight numbers of the brakes.
pub(in super::super) fn brakes(keys: &Keys, keyspace: &Keyspace) -> [u64; 8] {
    let brakes = field(keyspace, &keys.ledger, "brakes").unwrap_or_default();
    let mut numbers = [0; 8];
    for (number, text) in numbers.iter_mut().zip(brakes.split(' ')) {
        *number = text.parse().unwrap_or(0);
    }
    numbers
}

/// Whether a pause or a limit forbids every claim.
pub(in super::super) fn is_closed(keys: &Keys, keyspace: &Keyspace, now: u64) -> bool {
    let [_, handling, most, hand, rate, per, credit, _] = brakes(keys, keyspace);
    handling > now || (most > 0 && hand >= most) || (rate > 0 && credit < per)
}

/// Members claim no more than the limits allow, and what they hold is counted exactly.
pub(in super::super) fn beyond_limits(keys: &Keys, before: &Keyspace, after: &Keyspace) -> Vec<String> {
    let claims = |keyspace| sum_over_members(keyspace, "claimed");
    let in_flight = sum_over_members(after, "held");
    let [_, _, most, _, rate, per, credit, _] = brakes(keys, before);
    let mut broken = Vec::new();
    let has_claimed = claims(after) > claims(before);
    if has_claimed && most > 0 && in_flight > most {
        broken.push(format!("{in_flight} messages are in flight, and {most} may be"));
    }
    if has_claimed && rate > 0 && (credit < per || claims(after) > claims(before) + 1) {
        broken.push("more was claimed than the rate allows".into());
    }
    broken
}

/// During a pause no message is claimed, moved by its time or published.
pub(in super::super) fn worked_in_pause(
    keys: &Keys,
    call: &StoryCall,
    before: &Keyspace,
    after: &Keyspace,
    now: u64,
) -> Vec<String> {
    let [producing, handling, ..] = brakes(keys, before);
    let mut broken = Vec::new();
    let claimed = |keyspace: &Keyspace, member: &str| number(keyspace, member, "claimed");
    let members = || before.keys().filter(|key| key.contains(":member:"));
    if handling > now && members().any(|member| claimed(after, member) > claimed(before, member)) {
        broken.push("a member claimed a message while handling was paused".into());
    }
    let count = |keyspace, name| number(keyspace, &keys.ledger, name);
    let delayed = |keyspace| delayed_in(keys, keyspace).len() as u64 + count(keyspace, "cancelled");
    if handling > now && delayed(after) < delayed(before) {
        broken.push("a delayed message was moved while handling was paused".into());
    }
    let published = |keyspace| count(keyspace, "published") - count(keyspace, "lost");
    // A message that is done forwards others even then.
    let forwards = matches!(call, StoryCall::Turn { .. });
    if producing > now && !forwards && published(after) > published(before) {
        broken.push("a message was published while producing was paused".into());
    }
    broken
}
