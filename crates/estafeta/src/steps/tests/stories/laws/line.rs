//! The line of idle members and the line of succession: who is called, who learns a time, who stands where.

use super::limits::brakes;
use crate::keys::Keys;
use crate::steps::NEVER;
use crate::steps::tests::stories::answer::Answer;
use crate::steps::tests::stories::call::StoryCall;
use crate::steps::tests::stories::keyspace::{Content, Keyspace, field, list, number};

/// Reports if the first member in line does not know when the pause ends or the next message is due.
pub(in super::super) fn untold(
    keys: &Keys,
    call: &StoryCall,
    answer: &Answer,
    called: &[(String, String)],
    before: &Keyspace,
    after: &Keyspace,
) -> Option<String> {
    let alarm = |keyspace| match brakes(keys, keyspace)[1] {
        0 => match brakes(keys, keyspace) {
            [_, _, _, _, 1, per, credit, since] if credit < per => Some(since + per - credit),
            _ => Some(number(keyspace, &keys.ledger, "soonest")).filter(|ms| *ms > 0),
        },
        end => Some(end).filter(|end| *end < NEVER),
    };
    let first = |keyspace| -> Option<String> {
        let line = field(keyspace, &keys.ledger, "idle")?;
        line.split_whitespace().next().map(ToOwned::to_owned)
    };
    let (time, who) = (alarm(after)?, first(after)?);
    let is_new = first(before).as_ref() != Some(&who) || alarm(before).is_none_or(|former| time < former);
    let is_announced = called.iter().any(|(channel, message)| {
        *channel == format!("{}{who}", keys.wakeups) && message.starts_with("due ")
    });
    let learned = matches!((call, answer), (StoryCall::Turn { me, .. }, Answer::Turn { due: Some(_), .. })
        if me.name() == who);
    (is_new && !is_announced && !learned)
        .then(|| format!("{who} is first in line and knows no time: {called:?}"))
}

/// A generator that gives way stands behind all other members in the line of succession.
pub(in super::super) fn stands_ahead(
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

/// Whether a member in line must be called if messages wait after this step.
pub(in super::super) fn must_wake(keys: &Keys, call: &StoryCall, answer: &Answer, before: &Keyspace) -> bool {
    // Nobody was called for messages that came during a pause.
    let is_first = list(before, &keys.ready).is_empty() || brakes(keys, before)[1] > 0;
    match call {
        StoryCall::Publish(_) => matches!(answer, Answer::Published { .. }) && is_first,
        StoryCall::Submit(_) => matches!(answer, Answer::Submitted { .. }) && is_first,
        StoryCall::Pause { .. } => matches!(answer, Answer::Pauses { handling: 0, .. }),
        StoryCall::Limit { .. } => matches!(answer, Answer::Limited { .. }),
        StoryCall::Turn { .. } => matches!(answer, Answer::Turn { .. }),
        StoryCall::Bury { .. } => matches!(answer, Answer::Buried { .. }),
        StoryCall::Leave(_) => matches!(answer, Answer::Left { returned: 1.. }),
        StoryCall::Resolve { drops: false, .. } => matches!(answer, Answer::Resolved { count: 1.. }),
        StoryCall::Wake => true,
        _ => false,
    }
}
