//! Runs a story on a real Redis.
//!
//! Each step becomes a call, according to what the simulated nodes know. This module sends the call, has the model make
//! the same step, and compares the answer and every key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use estafeta_testbed::RedisServer;
use redis::{Cmd, FromRedisValue, Value};

use super::super::*;
use super::accident::Accident;
use super::answer::Answer;
use super::call::{Persona, StoryCall, ids_in};
use super::keyspace::{self, Keyspace};
use super::laws;
use super::model::{Called, ModelClock, ModelRing, Span};
use super::simulated_node::SimulatedNode;
use super::simulated_publisher::{PUBLISHERS, SimulatedPublisher};
use super::step::Story;

/// A Redis server on which one story after another runs.
pub(super) struct StoryEnv {
    connection: redis::Connection,
    /// The connection through which all nodes of a story show presence and are called.
    presence: redis::Connection,
    connected: BTreeSet<String>,
    _redis: RedisServer,
    /// The digest of the script that reads everything.
    dump: String,
    keys: Keys,
}

/// How often each kind of call had each kind of answer.
pub(super) type Coverage = BTreeMap<(&'static str, &'static str), u64>;

/// One line of a story, as people read it.
struct StoryLine {
    action: Action,
    late: bool,
    answered: bool,
    answer: Option<Answer>,
}

enum Action {
    StoryCall(Box<StoryCall>),
    Accident(Accident),
}

/// One story while it runs.
pub(super) struct StoryRun<'a> {
    pub env: &'a mut StoryEnv,
    pub journal: bool,
    pub model: ModelRing,
    pub nodes: Vec<SimulatedNode>,
    pub publishers: [SimulatedPublisher; PUBLISHERS],
    receipts: laws::Receipts,
    pub identities: usize,
    pub sent: Vec<StoryCall>,
    pub tries: u64,
    /// The highest epoch that was given out.
    pub top_epoch: u64,
    /// Every message that was ever claimed.
    claimed: BTreeSet<u64>,
    /// Every message that ever waited for a time.
    waited: BTreeSet<u64>,
    /// Every message that was ever an error.
    failed: BTreeSet<u64>,
    found: Keyspace,
    /// How many changes Redis has counted so far.
    changes: u64,
    lines: Vec<StoryLine>,
    tally: Coverage,
}

impl StoryEnv {
    pub fn new() -> Self {
        let redis = RedisServer::start();
        let (mut connection, presence) = (redis.connect(), redis.connect());
        for script in SCRIPTS {
            redis::cmd("SCRIPT").arg("LOAD").arg(script.code()).exec(&mut connection).unwrap();
        }
        let dump = redis::cmd("SCRIPT").arg("LOAD").arg(keyspace::DUMP).query(&mut connection).unwrap();
        let (keys, connected) = (Keys::new(&RingName::sample()), BTreeSet::new());
        Self { connection, presence, connected, _redis: redis, dump, keys }
    }

    /// Runs a story to its end. If something goes wrong, returns the story up to that point as text.
    pub fn run(&mut self, story: &Story) -> Result<Coverage, String> {
        redis::cmd("FLUSHALL").exec(&mut self.connection).unwrap();
        for channel in std::mem::take(&mut self.connected) {
            self.subscription("UNSUBSCRIBE", &channel);
        }
        self.calls();
        let mut run = StoryRun {
            journal: story.journal,
            model: ModelRing::default(),
            nodes: Vec::new(),
            publishers: Default::default(),
            receipts: laws::Receipts::default(),
            identities: 0,
            sent: Vec::new(),
            tries: 0,
            top_epoch: 0,
            claimed: BTreeSet::new(),
            waited: BTreeSet::new(),
            failed: BTreeSet::new(),
            found: Keyspace::new(),
            changes: self.changes(),
            lines: Vec::new(),
            tally: Coverage::new(),
            env: self,
        };
        for step in &story.steps {
            if let Err(broken) = run.step(step) {
                return Err(run.print(&broken));
            }
        }
        Ok(run.tally)
    }

    fn ask<const N: usize>(&mut self, calls: [Cmd; N]) -> [Value; N] {
        self.try_to_ask(calls).expect("Redis answers")
    }

    /// Sends all commands in one round trip.
    fn try_to_ask<const N: usize>(&mut self, calls: [Cmd; N]) -> Result<[Value; N], String> {
        let mut pipe = redis::pipe();
        for call in calls {
            pipe.add_command(call);
        }
        let values: Vec<Value> = pipe.query(&mut self.connection).map_err(|error| error.to_string())?;
        values.try_into().map_err(|values| format!("{values:?}"))
    }

    /// Starts or ends a subscription, and returns when Redis has confirmed it.
    fn subscription(&mut self, command: &str, channel: &str) {
        let mut call = redis::cmd(command);
        self.presence.send_packed_command(&call.arg(channel).get_packed_command()).unwrap();
        self.read_until(&command.to_lowercase());
    }

    fn connect(&mut self, who: Persona, is_there: bool) {
        for channel in [self.keys.alive(who.incarnation()), self.keys.wakeup(who.incarnation())] {
            let changed = if is_there {
                self.connected.insert(channel.clone())
            } else {
                self.connected.remove(&channel)
            };
            if changed {
                self.subscription(if is_there { "SUBSCRIBE" } else { "UNSUBSCRIBE" }, &channel);
            }
        }
    }

    /// The channels on which nodes were called since the last look, and the messages on them.
    fn calls(&mut self) -> Vec<(String, String)> {
        self.presence.send_packed_command(&redis::cmd("PING").get_packed_command()).unwrap();
        self.read_until("pong")
    }

    /// Reads from the presence connection until a reply of this kind arrives. Returns the messages that came meanwhile,
    /// each with its channel.
    fn read_until(&mut self, kind: &str) -> Vec<(String, String)> {
        let mut called = Vec::new();
        loop {
            let words = match self.presence.recv_response().unwrap() {
                Value::SimpleString(word) => vec![word],
                other => Vec::<Option<String>>::from_redis_value(other)
                    .map(|words| words.into_iter().flatten().collect())
                    .unwrap_or_default(),
            };
            match &words[..] {
                [word, channel, payload] if word == "message" => {
                    called.push((channel.clone(), payload.clone()));
                }
                [word, ..] if word.eq_ignore_ascii_case(kind) => return called,
                _ => panic!("{words:?} while waiting for {kind}"),
            }
        }
    }

    fn dump(&mut self) -> Keyspace {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.dump).arg(0);
        let [everything] = self.ask([call]);
        keyspace::read(everything)
    }

    pub fn now(&mut self) -> u64 {
        let [time] = self.ask([redis::cmd("TIME")]);
        millis_of(time)
    }

    fn changes(&mut self) -> u64 {
        let [info] = self.ask([info()]);
        changes_in(info)
    }
}

/// What was broken, if anything.
pub(super) type StoryResult = Result<(), Vec<String>>;

impl StoryRun<'_> {
    pub fn inject(&mut self, accident: Accident) -> StoryResult {
        match accident {
            Accident::Connected(who) => self.env.connect(who, true),
            Accident::Disconnected(who) => self.env.connect(who, false),
            Accident::KeyEnded(key) => self.receipts.end_key(key),
            _ => {}
        }
        let call = accident.build(&self.env.keys);
        let [_, info] = self.env.ask([call, info()]);
        self.changes = changes_in(info);
        accident.apply(&mut self.model);
        *self.tally.entry(("accident", accident.kind())).or_default() += 1;
        self.lines.push(StoryLine {
            action: Action::Accident(accident),
            late: false,
            answered: true,
            answer: None,
        });
        self.found = self.env.dump();
        Ok(())
    }

    /// The brakes as Redis stores them.
    pub fn brakes(&self) -> Vec<u64> {
        laws::brakes(&self.env.keys, &self.found).to_vec()
    }

    pub fn send(&mut self, call: StoryCall, answered: bool) -> StoryResult {
        self.sent.push(call.clone());
        self.call(call, false, answered)
    }

    /// Makes a step in Redis and in the model, and compares the results.
    pub fn call(&mut self, call: StoryCall, late: bool, answered: bool) -> StoryResult {
        let script = call.script();
        let time = || redis::cmd("TIME");
        let keys = &self.env.keys;
        let calls = [time(), call.build(keys).command, call.build_reading(keys), time(), info()];
        let line =
            |answer| StoryLine { action: Action::StoryCall(call.clone().into()), late, answered, answer };
        let [before, value, list, after, info] = match self.env.try_to_ask(calls) {
            Ok(values) => values,
            Err(error) => {
                self.lines.push(line(None));
                return Err(vec![format!("Redis failed: {error}")]);
            }
        };
        let span = Span { from: millis_of(before), to: millis_of(after) };
        let (answer, now) = match Answer::read(script.name, value, list) {
            Ok(answer) => answer,
            Err(error) => {
                self.lines.push(line(None));
                return Err(vec![format!("the answer cannot be read: {error}")]);
            }
        };
        *self.tally.entry((script.name, answer.kind())).or_default() += 1;
        self.lines.push(line(Some(answer.clone())));

        if let Answer::Turn { claims, .. } = &answer {
            self.claimed.extend(claims.iter().flat_map(|(_, element)| ids_in(element)));
        }
        let changes = changes_in(info);
        let wrote = changes != self.changes;
        self.changes = changes;
        let before = if wrote { Some(std::mem::replace(&mut self.found, self.env.dump())) } else { None };
        let mut broken = self.check(&call, &answer, now, span, before.as_ref());
        if let Some(before) = &before {
            let expected = std::mem::take(&mut self.model.called);
            let called = self.env.calls();
            let keys = &self.env.keys;
            let is_as_expected =
                |((channel, message), (who, what)): (&(String, String), &(Persona, Called))| {
                    let is_channel = match what {
                        Called::Office => *channel == keys.alive(who.incarnation()),
                        Called::Work | Called::Due(_) => *channel == keys.wakeup(who.incarnation()),
                    };
                    is_channel && what.is_message(message)
                };
            if called.len() != expected.len() || !called.iter().zip(&expected).all(is_as_expected) {
                broken.push(format!("called: {called:?}, expected {expected:?}"));
            }
            broken.extend(laws::untold(keys, &call, &answer, &called, before, &self.found));
            let heirs = called.iter().filter(|(channel, _)| channel.starts_with(&keys.channels));
            *self.tally.entry(("effect", "heir called")).or_default() += heirs.count() as u64;
            let waits = !keyspace::list(&self.found, &keys.ready).is_empty();
            let is_closed = laws::is_closed(keys, &self.found, span.to);
            let idle = keyspace::field(&self.found, &keys.ledger, "idle").is_some();
            if waits
                && idle
                && !is_closed
                && laws::must_wake(keys, &call, &answer, before)
                && !called.iter().any(|(_, message)| message == "work")
            {
                broken.push("messages wait and a member is idle, and nobody was called".into());
            }
        }
        for effect in std::mem::take(&mut self.model.effects) {
            *self.tally.entry(("effect", effect)).or_default() += 1;
        }
        if matches!(answer, Answer::Buried { .. })
            && self.model.events.last().is_some_and(|event| event.contains("why|absent"))
        {
            *self.tally.entry(("effect", "buried because it was missed")).or_default() += 1;
        }
        broken.extend(self.receipts.broken(&call, &answer));
        if let (StoryCall::Cancel(cancellation), Answer::Cancelled { was_delayed: true }) = (&call, &answer)
            && let MessageRef::Key(key) = cancellation.which
        {
            self.receipts.end_key(key);
        }
        if let (true, StoryCall::Submit(submission)) = (answered, &call) {
            self.publishers[submission.publisher].receive();
        }
        if let (true, Some(sender)) = (answered, call.sender()) {
            let node = self.nodes.iter_mut().find(|node| node.persona == sender);
            if let Some(node) = node.filter(|_| !matches!(call, StoryCall::Bury { .. })) {
                node.receive(&call, &answer);
            }
        }
        if broken.is_empty() { Ok(()) } else { Err(broken) }
    }

    fn check(
        &mut self,
        call: &StoryCall,
        answer: &Answer,
        now: Option<u64>,
        span: Span,
        before: Option<&Keyspace>,
    ) -> Vec<String> {
        let keys = &self.env.keys;
        let mut broken = Vec::new();
        let mut clock = ModelClock { span, now };
        if now.is_some_and(|now| !(span.from..=span.to).contains(&now)) {
            broken.push(format!("Redis' time is {span:?}, and the answer contains {now:?}"));
        } else if now.is_none() {
            clock.now = before.and_then(|before| self.stamp(before)).filter(|ms| span.covers(*ms));
        }
        let expected = self.model.apply(call, &clock).dated_like(answer);
        if expected != *answer {
            broken.push(format!("the answer\n      expected {expected}\n      found    {answer}"));
        }
        self.model.learn(keys, &self.found);
        broken.extend(keyspace::differences(&self.model.image(keys), &self.found));
        self.waited.extend(laws::delayed_in(keys, &self.found).iter().flat_map(|element| ids_in(element)));
        if let Some(before) = before {
            let done = (!self.journal).then_some(&self.model.done[..]);
            broken.extend(laws::broken(
                keys,
                &self.found,
                &self.model.taken,
                done,
                &self.claimed,
                &self.waited,
                &self.model.cancelled,
            ));
            broken.extend(laws::accompanied(call, answer, before));
            broken.extend(laws::settled_unseen(keys, call, before, &self.found));
            broken.extend(laws::reused_claims(before, &self.found));
            broken.extend(laws::worked_in_pause(keys, call, before, &self.found, span.to));
            broken.extend(laws::beyond_limits(keys, before, &self.found));
            broken.extend(laws::effects_without_settle(keys, call, before, &self.found, done));
            broken.extend(laws::moved_apart(keys, call, answer, before, &self.found));
            broken.extend(laws::wrong_plan(keys, call, answer, before, &self.found));
            self.failed.extend(keyspace::list(&self.found, &keys.errors).iter().flat_map(|it| ids_in(it)));
            broken.extend(laws::wrong_open(keys, &self.found, &self.failed));
            if answer.refuses() {
                broken.extend(laws::written_by_refusal(keys, call, answer, before, &self.found));
            }
        }
        broken.extend(laws::stands_ahead(keys, call, answer, &self.found));
        if let Answer::Leads { epoch, .. } = answer {
            // A generator that repeats `lead` gets its own epoch again, and nothing is written.
            if before.is_some() && *epoch <= self.top_epoch {
                broken.push(format!("epochs grow: {epoch} after {}", self.top_epoch));
            }
            self.top_epoch = self.top_epoch.max(*epoch);
        }
        broken
    }

    /// The time that a step wrote into the errors it made, or into what effects wrote, if it made any. An older error does not show that time, even
    /// if it is from the millisecond in which this step began.
    fn stamp(&self, before: &Keyspace) -> Option<u64> {
        let keys = &self.env.keys;
        let made = |keyspace| keyspace::number(keyspace, &keys.ledger, "failed");
        if made(&self.found) == made(before) {
            return laws::time_of_effects(keys, before, &self.found);
        }
        let newest = keyspace::list(&self.found, &keys.errors).last()?;
        Some(DeadLetter::parse(&RingName::sample(), newest.clone()).failed_ms)
    }

    fn print(&self, broken: &[String]) -> String {
        let mut text = String::from("\n  the story\n");
        for line in &self.lines {
            text.push_str(&format!("    {line}\n"));
        }
        text.push_str("  and then this was broken\n");
        for law in broken {
            text.push_str(&format!("    {law}\n"));
        }
        text
    }
}

impl fmt::Display for StoryLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            Action::Accident(accident) => write!(f, "({accident})"),
            Action::StoryCall(call) => {
                let late = if self.late { " [sent long ago, arrives now]" } else { "" };
                let lost = if self.late || self.answered { "" } else { " [the sender does not hear it]" };
                let answer = self.answer.as_ref().map_or_else(|| "?".into(), ToString::to_string);
                write!(f, "{call}{late}: {answer}{lost}")
            }
        }
    }
}

fn millis_of(time: Value) -> u64 {
    let (seconds, micros) = <(u64, u64)>::from_redis_value(time).expect("the answer of TIME");
    seconds * 1000 + micros / 1000
}

fn info() -> Cmd {
    let mut call = redis::cmd("INFO");
    call.arg("persistence");
    call
}

/// Redis counts every change that a command makes, even if the command writes the same value again.
fn changes_in(info: Value) -> u64 {
    let info = String::from_redis_value(info).expect("the answer of INFO");
    let count = info.split("rdb_changes_since_last_save:").nth(1).and_then(|rest| rest.lines().next());
    count.and_then(|count| count.parse().ok()).expect("Redis counts changes")
}
