//! What commands print, and how: stdout is data, stderr is talk; colour only where a terminal can show it.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::escape::{escape, escape_json};

/// Whether colours make sense there.
pub fn colour_for(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !refused && !dumb
}

pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default();
pub const NOTABLE: Style = AnsiColor::Yellow.on_default();
pub const OFFICE: Style = AnsiColor::Cyan.on_default().bold();
pub const FAINT: Style = Style::new().dimmed();

/// Puts text into a style, or leaves it as it is.
#[derive(Clone, Copy)]
pub struct Paint(pub bool);

impl Paint {
    pub fn paint(self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// A moment of Redis' clock as people read it.
pub fn moment(ms: u64) -> String {
    // Beyond the year 9999 there is no such notation; what claims to be from there is foreign data.
    const LAST: u64 = 253_402_300_799_999;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms.min(LAST));
    humantime::format_rfc3339_millis(time).to_string()
}

/// A body for JSON: as text where it is UTF-8, else in base64 under another name.
pub fn json_body(object: &mut Value, body: &[u8]) {
    use base64::Engine as _;
    match std::str::from_utf8(body) {
        Ok(text) => object["body"] = json!(text),
        Err(_) => object["body_base64"] = json!(base64::engine::general_purpose::STANDARD.encode(body)),
    }
}

/// Prints an error for a person (one line) or a program (one object).
pub fn write_error(out: &mut impl Write, error: &estafeta::DeadLetter, as_json: bool) -> io::Result<()> {
    if !as_json {
        return writeln!(
            out,
            "#{} failed {} at member {} on attempt {}: {}: \"{}\"",
            error.id,
            moment(error.failed_ms),
            error.member,
            error.attempt,
            escape(error.reason.as_bytes()),
            escape(error.body()),
        );
    }
    let mut object = json!({
        "id": error.id,
        "reason": error.reason,
        "attempt": error.attempt,
        "member": error.member,
        "epoch": error.epoch,
        "published_ms": error.published_ms,
        "failed_ms": error.failed_ms,
        "published": moment(error.published_ms),
        "failed": moment(error.failed_ms),
    });
    json_body(&mut object, error.body());
    writeln!(out, "{}", json_line(&object))
}

/// An object as one line that cannot steer a terminal either.
pub fn json_line(object: &Value) -> String {
    escape_json(object.to_string())
}

/// So many of something: `1 error`, `2 errors`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// A number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_moment_past_the_end_of_the_calendar_is_no_reason_to_panic() {
        assert_eq!(moment(u64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_body_that_is_no_text_goes_into_base64() {
        let (mut text, mut bytes) = (json!({}), json!({}));
        json_body(&mut text, "привет".as_bytes());
        json_body(&mut bytes, b"\xff\0");
        assert_eq!(text, json!({"body": "привет"}));
        assert_eq!(bytes, json!({"body_base64": "/wA="}));
    }
}
