//! What happens to a ring, in words.

use estafeta::Event;

use crate::escape::escape;
use crate::output::counted;

/// An event as a person would tell it.
pub fn sentence(event: &Event) -> String {
    let field = |name: &str| {
        let value = event.fields.iter().find(|(field, _)| field == name);
        value.map_or_else(String::new, |(_, value)| escape(value.as_bytes()))
    };
    let member = field("member");
    let returned = || counted(field("returned").parse().unwrap_or(0), "message");
    match event.kind.as_str() {
        "joined" => format!("{member} joined as {} ({}, pid {})", field("role"), field("host"), field("pid")),
        "left" => format!("{member} left, {} returned", returned()),
        "buried" => format!("{member} died ({}), {} returned", field("why"), returned()),
        "took-office" => format!("{member} became generator"),
        "took-over" => {
            let silence: f64 = field("silence").parse().unwrap_or(0.0);
            format!("{member} took over from {} in {:.2} s", field("from"), silence / 1000.0)
        }
        "resigned" => format!("{member} resigned as generator"),
        "retried" | "dropped" => {
            format!("{} {}", counted(field("count").parse().unwrap_or(0), "error"), event.kind)
        }
        "rolled-back" => format!(
            "Redis lost writes: {} messages were published, {} are left",
            field("known"),
            field("found")
        ),
        other => format!("{} {:?}", escape(other.as_bytes()), event.fields),
    }
}

/// A length of time, as short as it can be told.
pub fn age(ms: u64) -> String {
    match ms / 1000 {
        0 => format!("{ms}ms"),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds @ 3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}
