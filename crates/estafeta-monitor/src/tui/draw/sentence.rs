//! Turns the data of the model into sentences. The sentences may contain foreign text that is not escaped yet.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use estafeta::EventKind;

use crate::model::actions::MAX_NODES;
use crate::model::errors_view::ErrorsAnswer;
use crate::model::log::{Occurrence, UserAction};
use crate::model::notice::{ActsOn, UserNotice};
use crate::model::own_node::NodeName;
use crate::model::request::ErrorsRequest;
use estafeta_lab::text::{age, counted, grouped};

/// An entry of the log.
pub fn occurrence(what: &Occurrence) -> String {
    match what {
        Occurrence::Event(kind) => event(kind),
        Occurrence::Errors { count: 1, last: Some(error) } => {
            format!("error #{} at {}: {}", error.id, error.member, error.reason)
        }
        Occurrence::Errors { count, last: Some(error) } => {
            format!("{}, the last one #{}", counted(*count, "error"), error.id)
        }
        Occurrence::Errors { count, last: None } => counted(*count, "error"),
        Occurrence::RedisLost { reason } => format!("Redis does not answer: {reason}"),
        Occurrence::RedisBack => "Redis is back".to_owned(),
        Occurrence::BalanceOff => "the balance does not add up".to_owned(),
        Occurrence::BalanceBack => "the balance adds up again".to_owned(),
        Occurrence::NodeLostRedis { node, reason } => format!("{} lost Redis: {reason}", with_pid(*node)),
        Occurrence::NodeDeclaredDead(node) => {
            format!("{} was declared dead and joins again", with_pid(*node))
        }
        Occurrence::LimitReached { limit } => {
            format!("the limit of {} is reached", counted(*limit, "message"))
        }
        Occurrence::NodeEnded { node, status } => format!("{} {}", with_pid(*node), ending(*status)),
        Occurrence::NodeNotStarted { reason } => not_started(reason),
        Occurrence::Action(action) => user_action(*action),
    }
}

/// An event of the ring, in the words of `status`, with commas between the thousands.
fn event(kind: &EventKind) -> String {
    let returned = |count| format!("{} returned", counted(count, "message"));
    match kind {
        EventKind::Left { member, returned: count } => format!("{member} left, {}", returned(*count)),
        EventKind::Buried { member, why, returned: count, .. } => {
            format!("{member} died ({why}), {}", returned(*count))
        }
        EventKind::TookOver { member, from, silence_ms, .. } => {
            let hundredths = silence_ms.saturating_add(5) / 10;
            let (seconds, rest) = (grouped(hundredths / 100), hundredths % 100);
            format!("{member} took over from {from} in {seconds}.{rest:02} s")
        }
        EventKind::Retried { count, by } => format!("{} retried{}", counted(*count, "error"), signed(by)),
        EventKind::Dropped { count, by } => format!("{} dropped{}", counted(*count, "error"), signed(by)),
        EventKind::RolledBack { known, found, .. } => {
            let lost = grouped(known.saturating_sub(*found));
            format!("Redis lost {lost} of {} messages that it had acknowledged", grouped(*known))
        }
        EventKind::Wiped { known, .. } => format!("the ring was wiped after {}", counted(*known, "message")),
        EventKind::Upgraded { from, to, returned: count } => {
            format!("layout raised from {from} to {to}, {}", returned(*count))
        }
        EventKind::Paused { what, for_ms: Some(ms), by } => {
            format!("{what} paused for {}{}", age(*ms), signed(by))
        }
        // The other kinds contain no counts.
        other => other.to_string(),
    }
}

/// Who asked for a change, as the end of a sentence.
fn signed(by: &Option<String>) -> String {
    by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default()
}

fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(9) => "was killed".to_owned(),
        Some(signal) => format!("was ended by signal {signal}"),
        None => format!("failed with exit code {}, see the log", status.code().unwrap_or(-1)),
    }
}

fn user_action(action: UserAction) -> String {
    match action {
        UserAction::Killed(node) => format!("killed {}", with_pid(node)),
        UserAction::Froze(node) => format!("froze {}", with_pid(node)),
        UserAction::Thawed(node) => format!("thawed {}", with_pid(node)),
        UserAction::AskedToStop(node) => format!("asked {} to stop", with_pid(node)),
        UserAction::Started => "started one more node".to_owned(),
        UserAction::Replaced(node) => format!("started a node in place of {}", with_pid(node)),
    }
}

fn not_started(reason: &str) -> String {
    format!("cannot start a node: {reason}")
}

fn with_pid(node: NodeName) -> String {
    match node.member {
        Some(member) => format!("{member} (pid {})", node.pid),
        None => format!("the node with pid {}", node.pid),
    }
}

pub fn notice(notice: &UserNotice) -> String {
    let noun = |acts_on| match acts_on {
        ActsOn::Generator => "generator",
        ActsOn::SelectedNode => "node",
    };
    let brief = |node: NodeName| node.member.map_or_else(|| with_pid(node), |member| member.to_string());
    match notice {
        UserNotice::NoSuchRow(acts_on) => format!("there is no {} at the moment", noun(*acts_on)),
        UserNotice::Foreign { acts_on, name } => format!(
            "the {} {} was not started here: this monitor can only watch it",
            noun(*acts_on),
            brief(*name)
        ),
        UserNotice::AlreadyDead(node) => format!("{} is already dead", brief(*node)),
        UserNotice::AlreadyStopping => "the node was already asked to stop; K kills it".to_owned(),
        UserNotice::OnlyWatching => "this monitor only watches and starts no nodes".to_owned(),
        UserNotice::TooManyNodes => format!("{MAX_NODES} nodes run, and the monitor starts no more"),
        UserNotice::NoDeadNode => "no node that was started here is dead; + starts one more".to_owned(),
        UserNotice::NodeNotStarted { reason } => not_started(reason),
    }
}

/// The question that a request about errors needs an answer to, if any.
pub fn question(request: &ErrorsRequest) -> Option<String> {
    Some(match request {
        ErrorsRequest::Retry(ids) => format!("retry {}? y/n", counted(ids.len() as u64, "error")),
        ErrorsRequest::Drop(ids) => format!("drop {} for good? y/n", counted(ids.len() as u64, "error")),
        ErrorsRequest::List(_) => return None,
    })
}

pub fn answer(answer: &ErrorsAnswer) -> String {
    match answer {
        ErrorsAnswer::Retried(count) => format!("{} put back into the queue", counted(*count, "error")),
        ErrorsAnswer::Dropped(count) => format!("{} dropped", counted(*count, "error")),
        ErrorsAnswer::Failed { reason } => reason.clone(),
        ErrorsAnswer::OnlyWatching => {
            "this monitor only watches; `estafeta errors` retries and drops".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use estafeta::{Epoch, EventKind, Health, MemberId};

    use super::{Occurrence, occurrence};

    #[test]
    fn events_have_the_words_of_the_library_and_commas_between_the_thousands() {
        let (member, from, epoch) = (MemberId(1234), MemberId(1), Epoch(1_794_796_077_715));
        let many = 1_234_567;
        let cases = [
            (
                EventKind::Joined { member, reader: false, host: "web".into(), pid: 4711 },
                "1234 joined as node (web, pid 4711)",
            ),
            (EventKind::Left { member, returned: many }, "1234 left, 1,234,567 messages returned"),
            (EventKind::Left { member, returned: 1 }, "1234 left, 1 message returned"),
            (
                EventKind::Buried { member, why: Health::Absent, returned: many, gave_up: 0 },
                "1234 died (absent), 1,234,567 messages returned",
            ),
            (EventKind::TookOffice { member, epoch }, "1234 became generator"),
            (
                EventKind::TookOver { member, from, silence_ms: many, epoch },
                "1234 took over from 1 in 1,234.57 s",
            ),
            (EventKind::TookOver { member, from, silence_ms: 58, epoch }, "1234 took over from 1 in 0.06 s"),
            (EventKind::Resigned { member }, "1234 resigned as generator"),
            (
                EventKind::SourceFailed { member, in_a_row: 3, reason: "no disk".into() },
                "the source of 1234 failed (3 in a row): no disk",
            ),
            (
                EventKind::HandlerBroken { member, reason: "no disk".into() },
                "the handler of 1234 is broken: no disk",
            ),
            (EventKind::Retried { count: many, by: None }, "1,234,567 errors retried"),
            (EventKind::Dropped { count: many, by: None }, "1,234,567 errors dropped"),
            (
                EventKind::RolledBack { member, known: many, found: 1000 },
                "Redis lost 1,233,567 of 1,234,567 messages that it had acknowledged",
            ),
            (EventKind::Wiped { member, known: many }, "the ring was wiped after 1,234,567 messages"),
            (EventKind::Wiped { member, known: 1 }, "the ring was wiped after 1 message"),
        ];
        for (kind, sentence) in cases {
            let without_commas = |text: &str| text.replace(',', "");
            assert_eq!(without_commas(sentence), without_commas(&kind.to_string()));
            assert_eq!(occurrence(&Occurrence::Event(kind)), sentence);
        }
    }
}
