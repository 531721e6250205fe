//! How Redis stores a ring, according to `docs/keyspace.md`.

use std::collections::BTreeMap;

use super::super::call::HOST;
use super::super::keyspace::{Content, Keyspace, field, number, without_zeros};
use super::super::simulated_node::NEXT_RING;
use super::super::simulated_publisher::StorySubmission;
use super::queue::packs;
use super::{Failed, Member, ModelClaim, ModelMessage, ModelRate, ModelRing, Span, UserValue};
use crate::keys::Keys;
use crate::steps::MemberKind;

impl ModelRing {
    /// Looks up the times that Redis stamped during a step. A time outside the step stays unknown, and shows as a
    /// difference.
    pub fn learn(&mut self, keys: &Keys, found: &Keyspace) {
        let learn = |span: &mut Span, ms: Option<u64>| {
            if let Some(ms) = ms.filter(|ms| span.covers(*ms)) {
                *span = Span::exactly(ms);
            }
        };
        for member in self.members.values_mut() {
            let text = field(found, &keys.members, &member.persona.name());
            learn(&mut member.deadline, text.and_then(|text| text.parse().ok()));
        }
        for (id, delayed) in &mut self.later {
            let text = field(found, &keys.later, &format!("{id:015}"));
            learn(&mut delayed.due, text.and_then(|text| text.parse().ok()));
        }
        if let Some(rate) = &mut self.rate_limit {
            let brakes = field(found, &keys.ledger, "brakes").unwrap_or_default();
            let number = |at: usize| brakes.split(' ').nth(at).and_then(|number| number.parse().ok());
            learn(&mut rate.credit, number(6));
            learn(&mut rate.since, number(7));
        }
        if let Some(vacated) = &mut self.office.vacated {
            learn(vacated, Some(number(found, &keys.ledger, "vacated")));
        }
    }

    pub fn image(&self, keys: &Keys) -> Keyspace {
        let mut image = BTreeMap::new();
        let mut put = |key: &str, content: Content| {
            image.insert(key.to_owned(), content);
        };
        let members = || self.members.values();
        put(&keys.schema, Content::row(self.schema));
        put(&keys.application, Content::row(self.application));
        put(&keys.requires, Content::row(self.partitions.map(|count| format!("partitions={count}"))));
        let deadlines = members().map(|member| (member.persona.name(), member.deadline.text()));
        put(&keys.members, Content::table(deadlines));
        let heirs = members().filter(|member| member.persona.is_candidate());
        put(&keys.succession, Content::table(heirs.map(|heir| (heir.persona.name(), heir.place))));
        put(&keys.epoch, Content::row(self.epoch.map(|epoch| epoch.to_string())));
        put(&keys.ready, Content::row(elements(&self.ready)));
        let times = self.later.iter().map(|(id, delayed)| (format!("{id:015}"), delayed.due.text()));
        put(&keys.later, Content::table(times));
        let text = |message| String::from_utf8_lossy(&element(std::slice::from_ref(message))).into_owned();
        let delayed = self.later.iter().map(|(id, delayed)| (format!("{id:015}"), text(&delayed.message)));
        put(&keys.delayed, Content::table(delayed));
        put(&keys.checkpoint, Content::row(self.checkpoint.as_deref()));
        put(&keys.ticks, Content::table(&self.ticks));
        put(&keys.singles, Content::table(&self.singles));
        put(&keys.open, Content::table(&self.open));
        put(&keys.schedule, Content::table(&self.plan));
        let rows = self.history.each_ref().map(|list| list.iter().map(|sample| sample.element()));
        for (key, row) in [&keys.seconds, &keys.tens, &keys.minutes].into_iter().zip(rows) {
            put(key, Content::row(row));
        }
        let (wait, handling) = &self.latencies;
        let counts = [("w", wait), ("h", handling)].into_iter().flat_map(|(kind, latencies)| {
            let counts = latencies.counts().iter().enumerate().filter(|(_, count)| **count > 0);
            counts.map(move |(at, count)| (format!("{kind}{at}"), *count))
        });
        put(&keys.latencies, Content::table(counts));
        put(&keys.errors, Content::row(self.errors.iter().map(Failed::element)));
        put(&keys.events, Content::row(self.events.iter().map(String::as_str)));
        put(&keys.journal, Content::row(self.journal.iter().map(String::as_str)));
        for (publisher, last) in &self.publishers {
            let key = keys.publisher(StorySubmission::incarnation(*publisher));
            let text = format!("{} {} {}", last.sequence, last.first, last.duplicates);
            put(&key, Content::row([text]));
        }
        for (key, taken) in &self.keys {
            let text = format!("{} {} {}", taken.id, taken.born, taken.fingerprint);
            put(&keys.message_key(key), Content::row([text]));
        }
        for (name, value) in &self.written.keys {
            let content = match value {
                UserValue::Text(text) => Content::row([text.clone()]),
                UserValue::Entries(entries) => Content::row(entries.iter().cloned()),
            };
            put(&keys.user_key(name), content);
        }
        for (id, (epoch, time, value)) in &self.written.results {
            put(&keys.result(*id), Content::row([[format!("{epoch} {time} ").as_bytes(), value].concat()]));
        }
        let next = &self.written.next;
        if let Some(born) = next.born {
            let keys = Keys::new(&NEXT_RING.parse().expect("a name"));
            put(&keys.schema, Content::row([Self::LAYOUT]));
            put(&keys.application, Content::row(next.application.clone()));
            put(&keys.ready, Content::row(elements(&next.ready)));
            let published = next.ready.len() as u64;
            let counts = [("published", published), ("submitted", published), ("born", born)];
            put(&keys.ledger, Content::table(counts));
        }
        for member in members() {
            let who = member.persona.incarnation();
            if !member.is_forgotten {
                put(&keys.member(who), member.image());
            }
            put(&keys.inflight(who), Content::row(member.shows.iter().map(Failed::element)));
        }
        let mut fields = self.leader();
        fields.extend(self.ledger.iter().map(|(name, count)| (*name, count.to_string())));
        fields.push(("singles", self.singles.len().to_string()));
        fields.push(("packed", surplus(&self.ready).to_string()));
        fields.extend(self.soonest().map(|soonest| ("soonest", soonest.text())));
        let pauses = [self.producing_end, self.handling_end];
        if pauses.iter().any(Option::is_some) || self.in_flight_limit.is_some() || self.rate_limit.is_some() {
            let [producing, handling] = pauses.map(Option::unwrap_or_default);
            let (most, held) = self.in_flight_limit.unwrap_or_default();
            let rate = self.rate_limit.map_or("0 0 0 0".to_owned(), |rate| {
                let per = ModelRate::PER_MS;
                format!("1 {per} {} {}", rate.credit.text(), rate.since.text())
            });
            fields.push(("brakes", format!("{producing} {handling} {most} {held} {rate}")));
        }
        let idle = self.idle.iter().map(|who| format!("{} ", self.members[who].persona.name()));
        fields.push(("idle", idle.collect()));
        let (ledger, counts) = without_zeros((keys.ledger.clone(), Content::table(fields)));
        put(&ledger, counts);
        image
    }

    fn leader(&self) -> Vec<(&'static str, String)> {
        let office = &self.office;
        let mut fields: Vec<(&'static str, String)> = Vec::new();
        if let Some((holder, number)) = office.holder {
            let name = self.members.get(&holder).map(|member| member.persona.name());
            fields.push(("member", name.unwrap_or_default()));
            fields.push(("number", number.to_string()));
        }
        if let Some(term) = &office.term {
            fields.push(("epoch", term.epoch.to_string()));
            fields.push(("base", term.base.to_string()));
            fields.push(("sent", term.sent.to_string()));
            fields.push(("lease", term.lease_ms.to_string()));
            fields.push(("since", term.since.to_string()));
            fields.push(("presence", u8::from(term.presence).to_string()));
        }
        fields.push(("reported", office.reported.to_string()));
        let yielded = office.yielded.map(|index| format!("{index:016x}"));
        fields.extend(yielded.map(|name| ("yielded", name)));
        fields.extend(office.due.map(|due| ("due", due.to_string())));
        let renumbered = office.renumbered.as_ref().map(|(epoch, n, first, duplicates)| {
            let others = if duplicates.is_empty() { String::new() } else { format!(" {duplicates}") };
            format!("{epoch} {n} {first}{others}")
        });
        fields.extend(renumbered.map(|text| ("renumbered", text)));
        fields.extend(office.last.map(|last| ("last", last.to_string())));
        fields.extend(office.vacated.map(|vacated| ("vacated", vacated.text())));
        fields
    }
}

impl Member {
    fn image(&self) -> Content {
        let me = self.persona;
        let kind = if me.kind == MemberKind::Reader { "reader" } else { "node" };
        let mut fields: Vec<(String, String)> = [
            ("number", self.number.to_string()),
            ("kind", kind.to_owned()),
            ("lanes", me.lanes.to_string()),
            ("host", HOST.to_owned()),
            ("pid", std::process::id().to_string()),
            ("lease", me.lease_ms().to_string()),
            ("presence", u8::from(me.presence).to_string()),
            ("max-deaths", me.max_deaths.to_string()),
            ("journal", u8::from(me.journal).to_string()),
            ("duties", me.duties.word().to_owned()),
            ("durability", "memory".to_owned()),
            ("started", self.started.to_string()),
            ("layouts", format!("{0} {0}", ModelRing::LAYOUT)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        if let Some(last) = self.last_try {
            fields.push(("try".into(), last.to_string()));
            fields.push(("claimed".into(), self.claimed.to_string()));
            fields.push(("held".into(), self.held().to_string()));
        }
        for claim in &self.hand {
            let element = claim.element();
            fields.push((claim.name(), String::from_utf8_lossy(&element).into_owned()));
        }
        let bad = self.bad.as_ref().map(|(cursor, faults)| ("bad".to_owned(), format!("{cursor} {faults}")));
        fields.extend(bad);
        let totals = [
            ("cursor", self.cursor),
            ("generated", self.generated),
            ("failed", self.failed),
            ("back", self.back),
            ("stuck", self.stuck),
            ("complained", self.complained),
            ("noted", self.noted),
        ];
        fields.extend(totals.into_iter().filter_map(|(name, total)| Some((name.into(), total?.to_string()))));
        Content::table(fields)
    }
}

/// The elements that hold these messages: packs and single messages.
fn elements(messages: &[ModelMessage]) -> Vec<Vec<u8>> {
    packs(messages).map(element).collect()
}

impl ModelClaim {
    pub fn element(&self) -> Vec<u8> {
        element(&self.messages)
    }
}

/// How many more messages there are than elements.
fn surplus(messages: &[ModelMessage]) -> u64 {
    (messages.len() - packs(messages).count()) as u64
}

fn element(pack: &[ModelMessage]) -> Vec<u8> {
    let ModelMessage {
        id, epoch, published_ms, deliveries, failures, deaths, snoozes, headers, body, ..
    } = &pack[0];
    if pack.len() == 1 {
        let (origin, bytes) = (format!("{id} {epoch} {published_ms}"), headers.len());
        let numbers = format!("{origin} {deliveries} {failures} {deaths} {snoozes} {bytes} ");
        return [numbers.as_bytes(), headers, body].concat();
    }
    let mut element = format!("*{id} {epoch} {published_ms} {} ", pack.len()).into_bytes();
    for ModelMessage { body, .. } in pack {
        element.extend(format!("{}:", body.len()).as_bytes());
        element.extend(body);
    }
    element
}

impl Failed {
    pub fn element(&self) -> Vec<u8> {
        let (failed_ms, member, length, reason) =
            (self.failed_ms, self.member, self.reason.len(), &self.reason);
        let message = element(std::slice::from_ref(&self.message));
        [format!("!{failed_ms} {member} {length} {reason} ").as_bytes(), &message].concat()
    }
}

impl Span {
    fn text(self) -> String {
        if self.from == self.to { self.from.to_string() } else { format!("{} to {}", self.from, self.to) }
    }
}
