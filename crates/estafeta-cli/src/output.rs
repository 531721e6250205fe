//! How commands print dead letters.

use std::io::{self, Write};

use estafeta::DeadLetter;
use estafeta_lab::escape::escape;
use estafeta_lab::report::{DeadLetterObject, json_line};
use estafeta_lab::text::moment;

use estafeta_lab::message_id::MessageId;

/// Prints a dead letter for a person (one line) or a program (one object).
pub fn write_error(out: &mut impl Write, error: &DeadLetter, as_json: bool) -> io::Result<()> {
    if as_json {
        return writeln!(out, "{}", json_line(&DeadLetterObject::from(error)));
    }
    writeln!(
        out,
        "#{} failed {} at member {} on delivery {}: {}: \"{}\"",
        MessageId::from(&error.message),
        moment(error.failed_ms),
        error.member,
        error.message.delivery,
        escape(error.reason.as_bytes()),
        escape(error.message.body()),
    )
}
