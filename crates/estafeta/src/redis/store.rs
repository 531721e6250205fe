//! A ring as Redis stores it. The store sends steps and reads, and repeats them until Redis answers.
//!
//! Every step may be repeated without harm after a lost reply. A running node uses a *patient* store. It retries until
//! Redis answers, whatever is wrong: Redis is away, loading, out of memory, without its scripts, or has withdrawn
//! rights. It gives up only when its owner does. A command uses a plain store. That one waits for a reconnect, and fails
//! as soon as an attempt to reconnect fails. A node that starts tries a little longer, because many nodes may start at
//! once on a busy machine.
//!
//! If a server does not keep the ring any more, no store sends a second try on the same session. Where sentinels or a
//! cluster choose the server, a plain store waits up to five seconds for the new one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, FromRedisValue, Value};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::call_error::CallError;
use super::connection::{FIRST, ManagedConnection, pauses};
use super::endpoint::{Door, Endpoint};
use super::reply::Reply;
use super::session::Session;
use super::topology::Topology;
use crate::durability::Durability;
use crate::error::{Error, Result};
use crate::identity::Incarnation;
use crate::keys::{Keys, RedisType, RingName};
use crate::observer::{Notice, Observers};
use crate::steps::{Call, Script};

/// The ring as Redis stores it.
#[derive(Clone)]
pub(crate) struct Store {
    connection: Arc<ManagedConnection>,
    /// The connection that reports outages to the node.
    main: Arc<ManagedConnection>,
    ring: RingName,
    keys: Arc<Keys>,
    /// Ends the retries of a patient store.
    patient_until: Option<CancellationToken>,
    /// Until then, a plain store repeats calls that Redis does not answer.
    tries_until: Option<Instant>,
    /// Where a step must be stored before it counts as answered.
    pub(super) durability: Durability,
    /// The node that hears of each answered step, if a node uses this store.
    observers: Option<Arc<Observers>>,
    /// Who asks for changes, for the events about them. Empty: not known.
    actor: Arc<str>,
}

impl Store {
    pub fn new(connection: Arc<ManagedConnection>, ring: RingName) -> Self {
        let keys = Arc::new(Keys::new(&ring));
        Self {
            main: Arc::clone(&connection),
            connection,
            ring,
            keys,
            patient_until: None,
            tries_until: None,
            durability: Durability::Memory,
            observers: None,
            actor: "".into(),
        }
    }

    /// Connects to Redis, and reconnects on the current runtime whenever the connection breaks, until the guard is gone.
    pub async fn open(endpoint: Endpoint, ring: RingName, patience: Duration) -> Result<(Self, DropGuard)> {
        Self::open_in(Topology::new(endpoint, &ring), ring, patience).await
    }

    /// Connects like [`open`](Self::open), to the node of a cluster at this door, even if the ring is not there.
    pub async fn open_at(
        door: Door,
        endpoint: Endpoint,
        ring: RingName,
        patience: Duration,
    ) -> Result<(Self, DropGuard)> {
        Self::open_in(Topology::only(endpoint, &ring, door), ring, patience).await
    }

    async fn open_in(topology: Topology, ring: RingName, patience: Duration) -> Result<(Self, DropGuard)> {
        let (connection, keeper) = ManagedConnection::open(Arc::new(topology), patience).await?;
        let (connection, closed) = (Arc::new(connection), CancellationToken::new());
        let (store, open) = (Self::new(Arc::clone(&connection), ring), closed.clone().drop_guard());
        tokio::spawn(async move { connection.keep(keeper, closed).await });
        Ok((store, open))
    }

    /// Returns the same store, except that every call retries until Redis answers or `end` is cancelled.
    pub fn patient(&self, end: CancellationToken) -> Self {
        Self { patient_until: Some(end), ..self.clone() }
    }

    /// Returns the same store, except that it reports each answered step.
    pub fn observed(&self, observers: Arc<Observers>) -> Self {
        Self { observers: Some(observers), ..self.clone() }
    }

    /// Reports that Redis has answered a step.
    fn report_answer(&self, script: &Script, sent: Instant) {
        if let Some(observers) = &self.observers {
            observers.notice(Notice::StepAnswered { step: script.name, took: sent.elapsed() });
        }
    }

    /// Returns the same store, except that it gives up if Redis does not answer.
    pub fn impatient(&self) -> Self {
        Self { patient_until: None, ..self.clone() }
    }

    /// Returns the same store, except that it repeats calls that Redis does not answer, for this time. A refusal is an
    /// error at once.
    pub fn trying_for(&self, time: Duration) -> Self {
        Self { tries_until: Some(Instant::now() + time), ..self.clone() }
    }

    /// Returns the same store, except that it sends on another connection. It still reports outages on its first one.
    pub fn through(&self, connection: Arc<ManagedConnection>) -> Self {
        Self { connection, ..self.clone() }
    }

    /// Returns the same store, except that a step counts as answered only when it is confirmed at this level.
    pub fn confirming(&self, level: Durability) -> Self {
        Self { durability: level, ..self.clone() }
    }

    /// Returns the same store, except that the events about its changes name this actor.
    pub fn acting_as(&self, actor: &str) -> Self {
        Self { actor: actor.into(), ..self.clone() }
    }

    /// Who asks for changes. Empty if that is not known.
    pub fn actor(&self) -> &str {
        &self.actor
    }

    pub fn connection(&self) -> &ManagedConnection {
        &self.connection
    }

    pub fn ring(&self) -> &RingName {
        &self.ring
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Shows Redis that the member is alive. Returns false if the server does not support that.
    pub async fn show_presence(&self, me: Incarnation) -> Result<bool> {
        self.subscribe(&self.keys.alive(me)).await
    }

    /// Lets the ring call this member on this store's connection. Returns false if the server does not support that.
    pub async fn listen(&self, me: Incarnation) -> Result<bool> {
        self.subscribe(&self.keys.wakeup(me)).await
    }

    /// The server that keeps the ring at this moment.
    pub async fn located(&self) -> Result<Endpoint> {
        let mut question = redis::cmd("EXISTS");
        question.arg(&self.keys().schema);
        let question = &question;
        self.try_until_answered(|session| async move {
            self.connection.send(&session, question).await?;
            Ok(self.connection.endpoint().pinned_to(session.door.as_ref()))
        })
        .await
    }

    async fn subscribe(&self, channel: &str) -> Result<bool> {
        self.try_until_answered(|session| async move { self.connection.subscribe(&session, channel).await })
            .await
    }

    /// Calls a script and returns its tagged answer.
    pub async fn run(&self, script: &'static Script, call: &Call) -> Result<Reply> {
        self.try_script(script, |session| async move { self.connection.send(&session, &call.command).await })
            .await
            .and_then(|value| Reply::new(script.name, value))
    }

    /// Like `run`, except that a damaged value in Redis ends the tries, even those of a patient store. Returns what is
    /// wrong with it.
    pub async fn run_unless_damaged(
        &self,
        script: &'static Script,
        call: &Call,
    ) -> Result<Result<Reply, String>> {
        let answer = self.try_script(script, |session| async move {
            damage_or_answer(self.connection.send(&session, &call.command).await)
        });
        match answer.await? {
            Ok(value) => Reply::new(script.name, value).map(Ok),
            Err(damage) => Ok(Err(damage)),
        }
    }

    /// Like `run`, but each try builds the call anew.
    pub async fn run_each(&self, script: &'static Script, build: impl Fn() -> Call) -> Result<Reply> {
        let build = &build;
        self.try_script(
            script,
            |session| async move { self.connection.send(&session, &build().command).await },
        )
        .await
        .and_then(|value| Reply::new(script.name, value))
    }

    /// Like `run_each`, except that missing rights end the tries, even those of a patient store. Returns what Redis says
    /// about them.
    pub async fn run_each_unless_forbidden(
        &self,
        script: &'static Script,
        build: impl Fn() -> Call,
    ) -> Result<Result<Reply, String>> {
        let build = &build;
        let answer = self.try_script(script, |session| async move {
            match self.connection.send(&session, &build().command).await {
                Err(CallError::Refused(reason)) if reason.starts_with("NOPERM") => Ok(Err(reason)),
                other => other.map(Ok),
            }
        });
        match answer.await? {
            Ok(value) => Reply::new(script.name, value).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Sends a call until Redis answers. If Redis does not know the script, it gets the script first.
    async fn try_script<T, F>(&self, script: &'static Script, send: impl Fn(Session) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        tracing::trace!(step = script.name);
        let send = &send;
        self.try_until_answered(|session| async move {
            let before = self.before_step(&session).await?;
            let mut sent = Instant::now();
            let mut answer = send(session.clone()).await;
            if matches!(answer, Err(CallError::NoScript)) {
                self.load(&session, script).await?;
                sent = Instant::now();
                answer = send(session.clone()).await;
            }
            let answer = answer?;
            self.confirm(&session, before).await?;
            self.report_answer(script, sent);
            Ok(answer)
        })
        .await
    }

    /// Calls a script and reads right after it, in one round trip. Each try builds the call anew.
    pub async fn run_and_read(
        &self,
        script: &'static Script,
        build: impl Fn() -> Call,
        read: &Cmd,
    ) -> Result<(Reply, Value)> {
        tracing::trace!(step = script.name);
        let build = &build;
        let (answer, value) = self
            .try_until_answered(|session| async move {
                let before = self.before_step(&session).await?;
                let answers = match self.connection.send_both(&session, build().command, read).await {
                    Err(CallError::NoScript) => {
                        self.load(&session, script).await?;
                        self.connection.send_both(&session, build().command, read).await
                    }
                    other => other,
                };
                let answers = answers?;
                self.confirm(&session, before).await?;
                Ok(answers)
            })
            .await?;
        Ok((Reply::new(script.name, answer)?, value))
    }

    pub(super) async fn load(&self, session: &Session, script: &Script) -> Result<(), CallError> {
        self.connection.send(session, redis::cmd("SCRIPT").arg("LOAD").arg(script.code())).await.map(drop)
    }

    pub async fn read<T: FromRedisValue>(&self, command: &Cmd) -> Result<T> {
        let value = self.send(command).await?;
        T::from_redis_value(value).map_err(|error| Error::Answer(error.to_string()))
    }

    pub async fn send(&self, command: &Cmd) -> Result<Value> {
        self.try_until_answered(|session| async move { self.connection.send(&session, command).await }).await
    }

    /// Like `send`, except that a damaged value in Redis ends the tries, even those of a patient store. Returns what is
    /// wrong with it.
    pub async fn send_unless_damaged(&self, command: &Cmd) -> Result<Result<Value, String>> {
        self.try_until_answered(|session| async move {
            damage_or_answer(self.connection.send(&session, command).await)
        })
        .await
    }

    pub(super) async fn try_until_answered<T, F>(&self, send: impl Fn(Session) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let mut pauses = pauses();
        let mut waiting = None;
        // The session of the last try, if another server may keep the ring.
        let mut left = None;
        let mut since = None;
        loop {
            let current = self.connection.current().filter(|session| Some(session.generation) != left);
            let session = match (&self.patient_until, current) {
                (_, Some(session)) => session,
                (None, None) => match self.connection.session_or_error(left).await {
                    Err(Error::Unreachable { .. }) if self.may_try_again() => continue,
                    Err(_) if self.may_move(&mut since) => continue,
                    session => session?,
                },
                (Some(end), None) => {
                    waiting.get_or_insert_with(|| self.main.wait_along());
                    tokio::select! {
                        () = end.cancelled() => return Err(Error::Stopped),
                        session = self.connection.session(left) => session,
                    }
                }
            };
            let generation = session.generation;
            let error = match send(session).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let Some(end) = &self.patient_until else {
                // A new session may lead to the server that keeps the ring now.
                let is_first = matches!(error, CallError::Elsewhere(_)) && left.is_none();
                let ends = error.ends_session();
                let is_repeated = ends || matches!(error, CallError::Unconfirmed(_));
                let may_pass = is_first
                    || is_repeated && self.may_try_again()
                    || (ends || error.is_passing()) && self.may_move(&mut since);
                if !may_pass {
                    return Err(self.explain(error).await);
                }
                let leaves = matches!(error, CallError::Elsewhere(_)) || ends && !self.connection.is_fixed();
                left = leaves.then_some(generation);
                tokio::time::sleep(pauses.next().unwrap_or_default()).await;
                continue;
            };
            left = matches!(error, CallError::Elsewhere(_)).then_some(generation);
            waiting.get_or_insert_with(|| self.main.wait_along());
            self.main.report_outage(error);
            tokio::select! {
                () = end.cancelled() => return Err(Error::Stopped),
                () = tokio::time::sleep(pauses.next().unwrap_or_default()) => {}
            }
        }
    }

    /// Whether a plain store repeats a call that Redis did not answer.
    pub(super) fn may_try_again(&self) -> bool {
        self.tries_until.is_some_and(|deadline| Instant::now() < deadline)
    }

    /// Whether a plain store waits until another server keeps the ring. `since` is when it began to wait.
    fn may_move(&self, since: &mut Option<Instant>) -> bool {
        !self.connection.is_fixed() && since.get_or_insert_with(Instant::now).elapsed() < FIRST
    }

    /// Converts a call error. If a key of the wrong type caused it, the result names that key.
    async fn explain(&self, error: CallError) -> Error {
        if let (CallError::WrongType(_), Some(session)) = (&error, self.connection.current()) {
            for (key, expected) in self.keys.fixed() {
                if let Some(foreign) = self.foreign_key(&session, key, expected).await {
                    return foreign;
                }
            }
            // Only now is it certain that the list of members is none of the foreign values.
            let members: Vec<String> =
                self.try_read(&session, &self.members_query()).await.unwrap_or_default();
            for member in members.iter().filter_map(|name| name.parse().ok()) {
                let hash = self.keys.member(member);
                if let Some(foreign) = self.foreign_key(&session, &hash, "hash").await {
                    return foreign;
                }
                let list = self.keys.inflight(member);
                if let Some(foreign) = self.foreign_key(&session, &list, "list").await {
                    return foreign;
                }
            }
        }
        self.connection.error(error)
    }

    /// The error about a key that holds a value of another type than the expected one.
    async fn foreign_key(&self, session: &Session, key: &str, expected: RedisType) -> Option<Error> {
        match self.connection.send(session, redis::cmd("TYPE").arg(key)).await {
            Ok(Value::SimpleString(found)) if found != expected && found != "none" => {
                Some(Error::ForeignKey { key: key.to_owned(), found, expected })
            }
            _ => None,
        }
    }

    /// Reads something once, if Redis answers as expected.
    async fn try_read<T: FromRedisValue>(&self, session: &Session, command: &Cmd) -> Option<T> {
        T::from_redis_value(self.connection.send(session, command).await.ok()?).ok()
    }

    /// The request for all entries of the member list.
    pub fn members_query(&self) -> Cmd {
        let mut query = redis::cmd("ZRANGE");
        query.arg(&self.keys.members).arg(0).arg(-1);
        query
    }
}

/// Takes the text about a damaged value for an answer.
fn damage_or_answer(answer: Result<Value, CallError>) -> Result<Result<Value, String>, CallError> {
    match answer {
        Err(CallError::WrongType(damage)) => Ok(Err(damage)),
        other => other.map(Ok),
    }
}
