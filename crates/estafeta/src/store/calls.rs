//! The calls of the scripts: which keys and arguments each one gets, in the order that its header names.
//!
//! Nothing is sent from here, so that whoever drives the scripts in another way than a store does (a test that repeats a
//! call, or lets it arrive late) sends the same bytes.

use std::time::Duration;

use redis::Cmd;

use super::{Batch, Candidacy, Facts, Introduction, Kind, Settlement, script};
use crate::keys::{Keys, SCHEMA};
use crate::member_id::{Epoch, Identity, Incarnation};
use crate::pack;

pub(super) fn join(keys: &Keys, me: &Introduction<'_>) -> Cmd {
    let member = keys.member(me.incarnation);
    let names = [
        &keys.schema,
        &keys.members,
        &keys.succession,
        &member,
        &keys.ledger,
        &keys.events,
        &keys.leader,
        &keys.epoch,
        &keys.ready,
        &keys.bell,
        &keys.errors,
        &keys.journal,
    ];
    let mut call = script::JOIN.call(&names);
    call.arg(SCHEMA).arg(me.incarnation.to_string()).arg(match me.kind {
        Kind::Member => "member",
        Kind::Reader => "reader",
    });
    call.arg(me.lanes).arg(me.host).arg(std::process::id()).arg(millis(me.lease)).arg(flag(me.presence));
    call.arg(me.max_attempts).arg(flag(me.journal));
    call
}

pub(super) fn beat(keys: &Keys, me: Incarnation, lease: Duration) -> Cmd {
    let names = [&keys.members, &keys.succession, &keys.leader, &keys.ledger, &keys.member(me)];
    let mut call = script::BEAT.call(&names);
    call.arg(me.to_string()).arg(millis(lease)).arg(&keys.channels);
    call
}

pub(super) fn lead(keys: &Keys, me: Incarnation, lease: Duration, candidacy: &Candidacy) -> Cmd {
    let member = keys.member(me);
    let names =
        [&keys.members, &keys.succession, &member, &keys.leader, &keys.epoch, &keys.ledger, &keys.events];
    let mut call = script::LEAD.call(&names);
    call.arg(me.to_string()).arg(millis(lease)).arg(&keys.channels).arg(candidacy.absent_since_ms);
    call.arg(millis(candidacy.grace)).arg(millis(candidacy.interval)).arg(millis(candidacy.silence));
    call.arg(candidacy.known_published).arg(flag(candidacy.renew));
    call
}

pub(super) fn resign(keys: &Keys, me: Incarnation, epoch: Epoch) -> Cmd {
    let mut call = script::RESIGN.call(&[&keys.succession, &keys.leader, &keys.events]);
    call.arg(me.to_string()).arg(epoch.0).arg(&keys.channels);
    call
}

pub(super) fn publish(keys: &Keys, me: Incarnation, batch: &Batch<'_>) -> Cmd {
    let names = [&keys.members, &keys.member(me), &keys.leader, &keys.ledger, &keys.ready, &keys.bell];
    let elements = pack::elements(batch.messages);
    let bytes = elements.iter().map(Vec::len).sum();
    let mut call = script::PUBLISH.call_with_room(&names, elements.len(), bytes);
    let first_id = batch.messages.first().map_or(0, |message| message.id);
    call.arg(me.to_string()).arg(batch.epoch.0).arg(batch.n).arg(first_id).arg(millis(batch.interval));
    call.arg(flag(batch.catch_up)).arg(batch.max_waiting).arg(batch.limit).arg(millis(batch.lease));
    call.arg(millis(batch.late)).arg(batch.messages.len());
    for element in elements {
        call.arg(element);
    }
    call
}

/// `this_try` grows with every sending, repeats included.
pub(super) fn turn(
    keys: &Keys,
    me: Identity,
    lane: usize,
    this_try: u64,
    settlement: &Settlement,
    journal: bool,
) -> Cmd {
    let who = me.incarnation;
    let (member, inflight) = (keys.member(who), keys.inflight(who, lane));
    let names = [
        &keys.members,
        &member,
        &inflight,
        &keys.ready,
        &keys.bell,
        &keys.errors,
        &keys.ledger,
        &keys.leader,
        &keys.journal,
    ];
    let mut call = script::TURN.call(if journal { &names[..] } else { &names[..8] });
    call.arg(who.to_string()).arg(me.number.0).arg(lane).arg(this_try).arg(settlement.cursor);
    call.arg(settlement.settled).arg(settlement.want).arg(settlement.elements);
    for (index, reason) in &settlement.failures {
        call.arg(index).arg(reason);
    }
    call
}

pub(super) fn take(keys: &Keys, me: Identity, settlement: &Settlement) -> Cmd {
    let who = me.incarnation;
    let (member, inflight) = (keys.member(who), keys.inflight(who, 0));
    let mut call = script::TAKE.call(&[&keys.members, &member, &inflight, &keys.errors, &keys.ledger]);
    call.arg(who.to_string()).arg(me.number.0).arg(settlement.cursor);
    call.arg(settlement.settled).arg(settlement.want);
    call
}

/// What a lane holds.
pub(super) fn held(keys: &Keys, me: Identity, lane: usize) -> Cmd {
    let mut call = redis::cmd("LRANGE");
    call.arg(keys.inflight(me.incarnation, lane)).arg(0).arg(-1);
    call
}

pub(super) fn suspects(keys: &Keys, lease: Duration) -> Cmd {
    let mut call = script::SUSPECTS.call(&[&keys.members, &keys.ready, &keys.bell]);
    call.arg(&keys.channels).arg(millis(lease));
    call
}

pub(super) fn bury(
    keys: &Keys,
    victim: Incarnation,
    facts: &Facts,
    absent_since_ms: u64,
    grace: Duration,
    judge: Option<Incarnation>,
) -> Cmd {
    let mut names = farewell_keys(keys, victim);
    names.push(keys.journal.clone());
    names.extend((0..facts.lanes).map(|lane| keys.inflight(victim, lane)));
    let mut call = script::BURY.call(&names);
    call.arg(victim.to_string()).arg(&keys.channels).arg(absent_since_ms).arg(millis(grace));
    call.arg(judge.map(|judge| judge.to_string()).unwrap_or_default());
    call
}

pub(super) fn leave(keys: &Keys, me: Incarnation, lanes: usize) -> Cmd {
    let mut names = farewell_keys(keys, me);
    names.extend((0..lanes).map(|lane| keys.inflight(me, lane)));
    let mut call = script::LEAVE.call(&names);
    call.arg(me.to_string()).arg(&keys.channels);
    call
}

/// The keys that both scripts by which a member goes begin with.
fn farewell_keys(keys: &Keys, member: Incarnation) -> Vec<String> {
    let mut names = vec![keys.members.clone(), keys.succession.clone(), keys.member(member)];
    names.extend(
        [&keys.leader, &keys.ready, &keys.bell, &keys.errors, &keys.ledger, &keys.events].map(Clone::clone),
    );
    names
}

pub(super) fn ring(keys: &Keys) -> Cmd {
    script::RING.call(&[&keys.ready, &keys.bell])
}

pub(super) fn resolve(keys: &Keys, verb: &str, elements: &[&[u8]]) -> Cmd {
    let names = [&keys.errors, &keys.ready, &keys.bell, &keys.ledger, &keys.events];
    let mut call = script::RESOLVE.call(&names);
    call.arg(verb);
    for element in elements {
        call.arg(*element);
    }
    call
}

/// `known` counts all entries of the member list, `roll` names those that are ours, with their lanes.
pub(super) fn snapshot(keys: &Keys, known: usize, roll: &[(Incarnation, usize)], events: usize) -> Cmd {
    let mut names: Vec<String> = [
        &keys.members,
        &keys.succession,
        &keys.leader,
        &keys.ready,
        &keys.errors,
        &keys.ledger,
        &keys.events,
    ]
    .map(Clone::clone)
    .into();
    for (member, lanes) in roll {
        names.push(keys.member(*member));
        names.extend((0..*lanes).map(|lane| keys.inflight(*member, lane)));
    }
    let mut call = script::SNAPSHOT.call(&names);
    call.arg(&keys.channels).arg(events).arg(known);
    for (member, lanes) in roll {
        call.arg(member.to_string()).arg(lanes);
    }
    call
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn flag(on: bool) -> u8 {
    u8::from(on)
}
