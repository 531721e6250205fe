//! Tells a program what a copy does: one JSON object a message on stdout, CRLF between them.
//!
//! The first four kinds are those that monitors of earlier solutions understand, word for word: `createdTaskId`,
//! `switchedToGeneratorMode`, `generated` and `processed`, whose totals are running totals. The others say more.

use std::sync::atomic::{AtomicU64, Ordering};

use estafeta::{Message, Notice, Observer};
use serde_json::{Value, json};

use super::totals::{Pace, Total, Totals};
use crate::output::{json_body, json_line};
use crate::printer::Printer;

pub struct Json {
    printer: Printer,
    /// For a program that follows many copies at once and could not read of every message.
    brief: bool,
    totals: Totals,
    skipped: AtomicU64,
}

impl Json {
    pub fn new(printer: Printer, brief: bool) -> Self {
        let pace = if brief { Pace::TenASecond } else { Pace::EachStep };
        Self { printer, brief, totals: Totals::new(pace), skipped: 0.into() }
    }

    /// Says totals whose time has come although nothing more happens. Ends never.
    pub async fn say_late_totals(&self) {
        self.totals.say_late(|object| self.say_total(object)).await;
    }

    /// Says the totals that are not said yet. To be called when nothing more can happen.
    pub fn say_last_totals(&self) {
        self.totals.say_rest(|object| self.say(object));
    }

    fn say(&self, object: &Value) {
        self.printer.print(line(object));
    }

    /// For what there may be very much of: whoever reads too slowly misses some of it, and is told how much.
    fn say_if_room(&self, object: &Value) {
        if !self.printer.has_room() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let skipped = self.skipped.swap(0, Ordering::Relaxed);
        if skipped > 0 {
            self.say(&json!({"msg": "skipped", "objects": skipped}));
        }
        self.say(object);
    }

    /// Whether the total need not be said again. A brief copy keeps it until there is room: there is no other object
    /// from which its reader could learn what it missed.
    fn say_total(&self, object: &Value) -> bool {
        if self.brief && !self.printer.has_room() {
            return false;
        }
        self.say_if_room(object);
        true
    }

    fn generated(&self, messages: &[Message]) {
        if !self.brief {
            for message in messages {
                let mut object = about("generatedMessage", message);
                json_body(&mut object, message.body());
                self.say_if_room(&object);
            }
        }
        self.totals.add(Total::Generated, messages.len(), 0, |object| self.say_total(object));
    }

    fn settled(&self, messages: &[Message], failures: &[(usize, String)]) {
        if !self.brief {
            let mut failures = failures.iter().peekable();
            for (index, message) in messages.iter().enumerate() {
                let mut object = about("handledMessage", message);
                if let Some((_, reason)) = failures.next_if(|(failed, _)| *failed == index) {
                    object["error"] = json!(reason);
                }
                self.say_if_room(&object);
            }
        }
        let (new, failed) = (messages.len(), failures.len());
        self.totals.add(Total::Processed, new, failed, |object| self.say_total(object));
    }
}

impl Observer for Json {
    fn notice(&self, notice: Notice<'_>) {
        match notice {
            Notice::Joined { member } => self.say(&json!({"msg": "createdTaskId", "taskId": member})),
            Notice::DeclaredDead => self.say(&json!({"msg": "declaredDead"})),
            Notice::BecameGenerator { epoch, from, silence } => {
                self.say(&json!({"msg": "switchedToGeneratorMode"}));
                let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
                self.say(
                    &json!({"msg": "tookOffice", "epoch": epoch, "from": from, "silence_ms": silence_ms}),
                );
            }
            Notice::BecameHandler => self.say(&json!({"msg": "becameHandler"})),
            Notice::Generated { messages } => self.generated(messages),
            Notice::Settled { messages, failures, .. } => self.settled(messages, failures),
            Notice::Buried { member, returned, gave_up } => self
                .say(&json!({"msg": "buried", "member": member, "returned": returned, "gave_up": gave_up})),
            Notice::LimitReached { limit } => self.say(&json!({"msg": "limitReached", "limit": limit})),
            Notice::RedisLost { reason } => self.say(&json!({"msg": "redisLost", "reason": reason})),
            Notice::RedisBack => self.say(&json!({"msg": "redisBack"})),
            Notice::Stopping => self.say(&json!({"msg": "stopping"})),
            Notice::Left { returned } => {
                self.say_last_totals();
                self.say(&json!({"msg": "left", "returned": returned}));
            }
            _ => {}
        }
    }
}

fn about(kind: &str, message: &Message) -> Value {
    json!({"msg": kind, "id": message.id, "epoch": message.epoch, "attempt": message.attempt})
}

fn line(object: &Value) -> Vec<u8> {
    format!("{}\r\n", json_line(object)).into_bytes()
}
