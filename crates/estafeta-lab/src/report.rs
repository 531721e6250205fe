//! The reports of a node to the program that started it, one JSON object per line on stdout. On stdin, a node accepts
//! commands.
//!
//! Other monitors know the protocol of `createdTaskId`, `switchedToGeneratorMode`, `generated` and `processed`, word
//! for word. The other kinds report more. The node writes reports, and the monitor and the benchmarks read them. All of
//! them use the same type.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use estafeta::{DeadLetter, Epoch, MemberId, Message, MessageResult, Moment, PlannedEntry, Times};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::escape::escape_json;
use crate::text::moment;

/// One report of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "msg", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[allow(missing_docs)] // docs/json.md describes each one.
pub enum Report {
    CreatedTaskId {
        task_id: MemberId,
    },
    DeclaredDead,
    SwitchedToGeneratorMode,
    TookOffice {
        epoch: Epoch,
        from: Option<MemberId>,
        silence_ms: u64,
    },
    BecameHandler,
    GeneratedMessage {
        id: u64,
        epoch: Epoch,
        delivery: u32,
        #[serde(flatten)]
        body: Body,
    },
    HandledMessage {
        id: u64,
        epoch: Epoch,
        delivery: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    Generated {
        total: u64,
    },
    Processed {
        total: u64,
        errors: u64,
    },
    Skipped {
        objects: u64,
    },
    Buried {
        member: MemberId,
        returned: u64,
        gave_up: u64,
    },
    HandlerSlow {
        id: u64,
    },
    HandlerStuck {
        id: u64,
        stuck: usize,
    },
    HandlerBroken {
        id: u64,
        rest_ms: u64,
        reason: String,
    },
    SourceFailed {
        in_a_row: u64,
        reason: String,
    },
    LimitReached {
        limit: u64,
    },
    RedisLost {
        reason: String,
    },
    RedisBack,
    Stopping,
    Left {
        returned: u64,
    },
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// A report with the partition that it is about.
#[derive(Serialize)]
struct PartitionReport<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
}

/// The partition that a report is about.
#[derive(Deserialize)]
struct PartitionOnly {
    partition: Option<u32>,
}

/// A command that a node accepts on stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "msg", rename_all = "camelCase")]
pub enum Control {
    /// Stop as after SIGTERM.
    Stop,
}

/// A message body in JSON: as text if it is UTF-8, otherwise in base64 under another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    #[serde(rename = "body")]
    Text(String),
    /// Bytes that are not UTF-8.
    #[serde(rename = "bodyBase64")]
    Base64(String),
}

/// A dead letter, as `getErrors --json` and `errors list --json` print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // docs/json.md describes each one.
pub struct DeadLetterObject {
    pub id: u64,
    /// Its partition, if the ring has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    pub reason: String,
    pub delivery: u32,
    pub failures: u32,
    pub deaths: u32,
    /// How often its handler snoozed it.
    pub snoozes: u32,
    pub member: MemberId,
    pub epoch: Epoch,
    pub published_ms: u64,
    pub failed_ms: u64,
    pub published: String,
    pub failed: String,
    #[serde(flatten)]
    pub body: Body,
}

impl From<&DeadLetter> for DeadLetterObject {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            id: letter.message.id,
            partition: letter.message.ring().partition(),
            reason: letter.reason.clone(),
            delivery: letter.message.delivery,
            failures: letter.message.failures,
            deaths: letter.message.deaths,
            snoozes: letter.message.snoozes,
            member: letter.member,
            epoch: letter.message.epoch,
            published_ms: letter.message.published_ms,
            failed_ms: letter.failed_ms,
            published: moment(letter.message.published_ms),
            failed: moment(letter.failed_ms),
            body: Body::new(letter.message.body()),
        }
    }
}

/// The result of a message in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // docs/json.md describes each field.
pub struct ResultObject {
    pub id: u64,
    /// Its partition, if the ring has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    pub epoch: Epoch,
    pub done_ms: u64,
    pub done: String,
    /// The value, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Any other value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
}

impl From<&MessageResult> for ResultObject {
    fn from(result: &MessageResult) -> Self {
        let (value, value_base64) = match std::str::from_utf8(&result.value) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(STANDARD.encode(&result.value))),
        };
        let (id, epoch, done_ms) = (result.id, result.epoch, result.done_ms);
        Self { id, partition: None, epoch, done_ms, done: moment(done_ms), value, value_base64 }
    }
}

impl Body {
    /// Returns the bytes. None if they are not valid base64.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.as_bytes().to_vec()),
            Self::Base64(encoded) => STANDARD.decode(encoded).ok(),
        }
    }

    /// Encodes the body of a message.
    pub fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }
}

impl Report {
    /// Reports that a message was published.
    pub fn generated(message: &Message) -> Self {
        let Message { id, epoch, delivery, .. } = *message;
        Self::GeneratedMessage { id, epoch, delivery, body: Body::new(message.body()) }
    }

    /// Reports the outcome of a message.
    pub fn handled(message: &Message, error: Option<String>) -> Self {
        let Message { id, epoch, delivery, .. } = *message;
        Self::HandledMessage { id, epoch, delivery, error }
    }

    /// The line that a node prints.
    pub fn line(&self) -> Vec<u8> {
        line(self)
    }

    /// The line that a node prints about one partition of its ring, if the ring has several.
    pub fn line_in(&self, partition: Option<u32>) -> Vec<u8> {
        line(&PartitionReport { report: self, partition })
    }

    /// Parses a line. None if it is no report. The number of a new member carries its partition.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line = line.trim_ascii();
        let mut report = serde_json::from_slice(line).ok()?;
        if let Self::CreatedTaskId { task_id } = &mut report {
            let partition = serde_json::from_slice::<PartitionOnly>(line).ok()?.partition;
            *task_id = partition.map_or(*task_id, |index| task_id.in_partition(index));
        }
        Some(report)
    }
}

impl Control {
    /// The line that a node reads.
    pub fn line(self) -> Vec<u8> {
        line(&self)
    }
}

fn line(object: &impl Serialize) -> Vec<u8> {
    format!("{}\r\n", json_line(object)).into_bytes()
}

/// An entry of a schedule, as `schedule --json` prints it.
pub fn planned_entry(entry: &PlannedEntry) -> Value {
    let moment = |moment: &Moment| json!({"timeMs": moment.ms, "time": moment.local});
    let definition = entry.definition.as_ref();
    let (cron, every) = match definition.map(|definition| &definition.times) {
        Some(Times::Cron { expression, zone, .. }) => (Some((expression, zone)), None),
        Some(Times::Every { interval, .. }) => (None, Some(interval.as_millis())),
        _ => (None, None),
    };
    let (expression, zone) = cron.unzip();
    json!({
        "name": entry.name,
        "cron": expression,
        "zone": zone,
        "everyMs": every.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        "missed": definition.map(|definition| definition.missed),
        "maxAgeMs": definition.map(|definition| u64::try_from(definition.max_age.as_millis()).unwrap_or(u64::MAX)),
        "overlap": definition.map(|definition| definition.overlap),
        "open": entry.is_open,
        "lastTick": entry.last_tick.as_ref().map(moment),
        "upcoming": entry.upcoming.iter().map(moment).collect::<Vec<_>>(),
        "unknown": definition.is_none().then_some(&entry.text),
    })
}

/// Formats an object as one line of JSON that cannot control a terminal.
pub fn json_line(object: &impl Serialize) -> String {
    escape_json(serde_json::to_string(object).expect("a report is plain data"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_that_other_monitors_know_is_written_and_read_word_for_word() {
        let cases = [
            (Report::CreatedTaskId { task_id: MemberId(7) }, r#"{"msg":"createdTaskId","taskId":7}"#),
            (Report::SwitchedToGeneratorMode, r#"{"msg":"switchedToGeneratorMode"}"#),
            (Report::Generated { total: 3 }, r#"{"msg":"generated","total":3}"#),
            (Report::Processed { total: 5, errors: 1 }, r#"{"msg":"processed","total":5,"errors":1}"#),
        ];
        for (report, line) in cases {
            assert_eq!(report.line(), format!("{line}\r\n").into_bytes());
            assert_eq!(Report::parse(line.as_bytes()), Some(report));
        }
        let report = Report::CreatedTaskId { task_id: MemberId(7) };
        assert_eq!(report.line_in(None), report.line());
        let line = r#"{"msg":"createdTaskId","taskId":7,"partition":2}"#;
        assert_eq!(report.line_in(Some(2)), format!("{line}\r\n").into_bytes());
        let marked = Report::CreatedTaskId { task_id: MemberId(7).in_partition(2) };
        assert_eq!(Report::parse(line.as_bytes()), Some(marked));
        assert_eq!(Control::Stop.line(), b"{\"msg\":\"stop\"}\r\n");
    }

    #[test]
    fn every_report_is_read_back_as_written_and_other_lines_are_recognised() {
        let message = |body: &[u8]| Message::sample("ring", 9, body);
        let reports = [
            Report::generated(&message("привет".as_bytes())),
            Report::generated(&message(b"\xff\0")),
            Report::handled(&message(b""), None),
            Report::handled(&message(b""), Some("too \u{9b}31m loud".into())),
            Report::TookOffice { epoch: Epoch(2), from: None, silence_ms: 210 },
            Report::RedisLost { reason: "gone".into() },
        ];
        for report in reports {
            assert_eq!(Report::parse(&report.line()), Some(report));
        }
        assert_eq!(Report::parse(br#"{"msg":"fromTheFuture","x":1}"#), Some(Report::Other));
        assert_eq!(Report::parse(b"Segmentation fault"), None);
    }

    #[test]
    fn a_body_that_is_not_text_is_encoded_in_base64() {
        let json = |body: &[u8]| json_line(&Body::new(body));
        assert_eq!(json("привет".as_bytes()), r#"{"body":"привет"}"#);
        assert_eq!(json(b"\xff\0"), r#"{"bodyBase64":"/wA="}"#);
        for body in ["привет".as_bytes(), b"\xff\0"] {
            assert_eq!(Body::new(body).bytes().unwrap(), body);
        }
    }
}
