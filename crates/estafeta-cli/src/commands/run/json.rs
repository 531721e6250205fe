//! Tells a program what a copy does: one JSON object a message on stdout, CRLF between them.
//!
//! The first four kinds are those that monitors of earlier solutions understand, word for word: `createdTaskId`,
//! `switchedToGeneratorMode`, `generated` and `processed`, whose totals are running totals. The others say more.

use std::sync::atomic::{AtomicU64, Ordering};

use estafeta::{Message, Notice, Observer};
use serde_json::{Value, json};

use super::printer::Printer;
use crate::output::{json_body, json_line};

pub struct Json {
    printer: Printer,
    generated: AtomicU64,
    processed: AtomicU64,
    errors: AtomicU64,
    skipped: AtomicU64,
}

impl Json {
    pub fn new(printer: Printer) -> Self {
        Self { printer, generated: 0.into(), processed: 0.into(), errors: 0.into(), skipped: 0.into() }
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

    fn settled(&self, messages: &[Message], failures: &[(usize, String)]) {
        let mut failures = failures.iter().peekable();
        for (index, message) in messages.iter().enumerate() {
            let mut object = about("handledMessage", message);
            if let Some((_, reason)) = failures.next_if(|(failed, _)| *failed == index) {
                object["error"] = json!(reason);
            }
            self.say_if_room(&object);
        }
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
            Notice::Generated { messages } => {
                for message in messages {
                    let mut object = about("generatedMessage", message);
                    json_body(&mut object, message.body());
                    self.say_if_room(&object);
                }
                let new = messages.len() as u64;
                let total = self.generated.fetch_add(new, Ordering::Relaxed) + new;
                self.say_if_room(&json!({"msg": "generated", "total": total}));
            }
            Notice::Settled { messages, failures, .. } => {
                self.settled(messages, failures);
                let (new, failed) = (messages.len() as u64, failures.len() as u64);
                let total = self.processed.fetch_add(new, Ordering::Relaxed) + new;
                let errors = self.errors.fetch_add(failed, Ordering::Relaxed) + failed;
                self.say_if_room(&json!({"msg": "processed", "total": total, "errors": errors}));
            }
            Notice::Buried { member, returned, gave_up } => self
                .say(&json!({"msg": "buried", "member": member, "returned": returned, "gave_up": gave_up})),
            Notice::LimitReached { limit } => self.say(&json!({"msg": "limitReached", "limit": limit})),
            Notice::RedisLost { reason } => self.say(&json!({"msg": "redisLost", "reason": reason})),
            Notice::RedisBack => self.say(&json!({"msg": "redisBack"})),
            Notice::Stopping => self.say(&json!({"msg": "stopping"})),
            Notice::Left { returned } => self.say(&json!({"msg": "left", "returned": returned})),
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
