//! A connection to Redis that reconnects by itself.
//!
//! A [`ManagedConnection`] either has a current [`Session`] or is waiting for the next one. Callers obtain the session
//! with [`ManagedConnection::session`] and send on it. If a call fails because the session broke, the session reports
//! that, and one keeper task replaces it. Only the keeper reconnects, so a hundred failed calls cause one new session.
//! A session that stays silent for longer than the response time-out also counts as broken, because a half-open one
//! never returns an error.
//!
//! A connection also subscribes to one channel of its member. A new session subscribes before any caller may use it. The
//! subscription of the command connection shows that the member is alive, so no member that works is seen as absent.
//! When the office becomes vacant, the ring calls the heir on that channel. The subscription of the work connection lets
//! the ring call the member when messages wait. Both calls wake [`ManagedConnection::called`]. On the same channel, the
//! ring announces when the member must make its next turn, which wakes [`ManagedConnection::announced`].

mod connecting;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use backon::BackoffBuilder as _;
use redis::{Cmd, PushInfo, PushKind, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::call_error::CallError;
use super::endpoint::Endpoint;
use super::session::Session;
use super::topology::Topology;
use crate::error::{Error, Result};

/// Time limit for the first connection. It is long because nothing is lost yet, and a busy machine starts everything
/// slowly.
pub(crate) const FIRST: Duration = Duration::from_secs(5);

/// If a session at the wrong server was shorter than this, the keeper pauses before it connects again.
const SHORT_SESSION: Duration = Duration::from_secs(1);

/// Within this time, a keeper that failed to reconnect has tried again. See [`pauses`].
const NEXT_TRY: Duration = Duration::from_millis(500);

pub(crate) struct ManagedConnection {
    topology: Arc<Topology>,
    response_timeout: Duration,
    /// The channel of the current member, to which this connection subscribes.
    channel: Mutex<Option<String>>,
    session: watch::Sender<Option<Session>>,
    reports: mpsc::UnboundedSender<u64>,
    called: Notify,
    /// When this member must make a turn, as the ring has announced, until `announced` returns it.
    announced_at: Mutex<Option<Instant>>,
    announced: Notify,
    /// The call error that keeps callers waiting, if there is one.
    outage: watch::Sender<Option<CallError>>,
    /// The number of calls that wait for Redis, including attempts to reconnect.
    waiting: Mutex<usize>,
    /// The time since which observations of other members may be trusted, apart from the age of the session.
    awake_since: Mutex<Instant>,
    /// When the beat that is on its way is late. None while no beat is on its way.
    beat_late_at: Mutex<Option<Instant>>,
}

/// What the keeper of a connection owns: the reports of broken sessions and the pushes of the current session.
pub(crate) struct Keeper {
    reports: mpsc::UnboundedReceiver<u64>,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    /// The sessions of another connection that takes the same route.
    beside: Option<watch::Receiver<Option<Session>>>,
}

impl Keeper {
    /// Watches another connection. When that connection replaces its session, the cause affects this one too. This one
    /// may be silent by nature and would notice much later.
    pub fn beside(self, other: &ManagedConnection) -> Self {
        Self { beside: Some(other.session.subscribe()), ..self }
    }
}

impl ManagedConnection {
    /// Opens the first session. The keeper's runtime must call this, because the session's tasks run on it.
    pub async fn open(topology: Arc<Topology>, response_timeout: Duration) -> Result<(Self, Keeper)> {
        topology.endpoint().check()?;
        let (reports, reported) = mpsc::unbounded_channel();
        let connection = Self {
            topology,
            response_timeout,
            channel: Mutex::default(),
            session: watch::Sender::new(None),
            reports,
            called: Notify::new(),
            announced_at: Mutex::default(),
            announced: Notify::new(),
            outage: watch::Sender::new(None),
            waiting: Mutex::new(0),
            // A new connection has not missed anything while asleep.
            awake_since: Mutex::new(Instant::now() - Duration::from_secs(3600)),
            beat_late_at: Mutex::new(None),
        };
        let (session, pushes) = connection.connect_first().await.map_err(|error| connection.error(error))?;
        connection.session.send_replace(Some(session));
        Ok((connection, Keeper { reports: reported, pushes, beside: None }))
    }

    /// Replaces the session each time it breaks, until `stop`.
    pub async fn keep(&self, mut keeper: Keeper, stop: CancellationToken) {
        let mut generation = 1;
        let mut elsewhere = pauses();
        loop {
            let own = self.current();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.until_broken(&mut keeper, generation, own.as_ref()) => {}
            }
            self.session.send_replace(None);
            generation += 1;
            let mut pauses = pauses();
            let mut attempts = 0;
            let _waiting = self.wait_along();
            if let Some(own) = own.filter(|own| own.moves < self.topology.moves()) {
                if own.since.elapsed() >= SHORT_SESSION {
                    elsewhere = self::pauses();
                }
                // A server that refused at once will probably do so again. The first pause is short.
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(elsewhere.next().unwrap_or_default()) => {}
                }
            }
            loop {
                let limit = self.topology.attempt_limit(attempts, self.response_timeout);
                attempts += 1;
                let attempt = tokio::select! {
                    () = stop.cancelled() => return,
                    attempt = self.connect(generation, limit) => attempt,
                };
                match attempt {
                    Ok((session, pushes)) => {
                        keeper.pushes = pushes;
                        self.session.send_replace(Some(session));
                        self.called.notify_one();
                        break;
                    }
                    Err(error) => {
                        self.report_outage(error);
                        let pause = pauses.next().unwrap_or_default();
                        tokio::select! {
                            () = stop.cancelled() => return,
                            () = tokio::time::sleep(pause) => {}
                        }
                    }
                }
            }
        }
    }

    /// Receives what the session pushes until the session must be replaced.
    async fn until_broken(&self, keeper: &mut Keeper, generation: u64, own: Option<&Session>) {
        let mut must_move = std::pin::pin!(self.must_move(own));
        loop {
            tokio::select! {
                Some(broken) = keeper.reports.recv() => if broken >= generation { return },
                () = self.replaced_beside(keeper.beside.as_mut()) => return,
                () = &mut must_move => return,
                push = keeper.pushes.recv() => match push {
                    Some(PushInfo { kind: PushKind::Disconnection, .. }) | None => return,
                    Some(PushInfo { kind: PushKind::Message, data }) => self.receive(data.last()),
                    Some(_) => {}
                },
            }
        }
    }

    /// Waits until another connection replaces a session that existed beside the current session of this one.
    async fn replaced_beside(&self, beside: Option<&mut watch::Receiver<Option<Session>>>) {
        if let (Some(beside), Some(own)) = (beside, self.current()) {
            // Both sessions break at the same time, and their keepers may replace them one after the other.
            let at_once = own.since + self.response_timeout;
            let replaced = |other: &Session| other.generation > 1 && other.since > at_once;
            if beside.wait_for(|other| other.as_ref().is_some_and(replaced)).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Waits until the session is at the wrong server, as another session or a sentinel has shown.
    async fn must_move(&self, own: Option<&Session>) {
        let Some(own) = own else { return std::future::pending().await };
        tokio::select! {
            () = self.topology.moved_since(own.moves) => {}
            () = self.topology.left(own.door.as_ref()) => self.topology.move_on(own.moves),
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.topology.endpoint()
    }

    /// Whether the ring can only be on the server that the endpoint names.
    pub fn is_fixed(&self) -> bool {
        self.topology.is_fixed()
    }

    /// The current session, if there is one.
    pub fn current(&self) -> Option<Session> {
        self.session.borrow().clone()
    }

    /// The current session, or the next one. The session with the generation `left` does not count.
    pub async fn session(&self, left: Option<u64>) -> Session {
        let mut session = self.session.subscribe();
        let is_ready = |session: &Option<Session>| {
            session.as_ref().is_some_and(|session| Some(session.generation) != left)
        };
        let ready = session.wait_for(is_ready).await.expect("the sender lives as long as self");
        ready.clone().expect("just waited for it")
    }

    /// The current session, or the next one, or the reason why the last attempt to reconnect failed.
    pub async fn session_or_error(&self, left: Option<u64>) -> Result<Session> {
        let mut outage = self.outage();
        tokio::select! {
            biased;
            session = self.session(left) => Ok(session),
            error = async {
                let error = outage.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
                // The error may be from before this call. The keeper tries again within this time.
                tokio::time::sleep(NEXT_TRY).await;
                error
            } => Err(self.error(error.unwrap_or_else(|| CallError::Broken("no answer".into())))),
        }
    }

    /// Sends one command. A broken session is reported to its keeper, which may be that of another connection.
    pub async fn send(&self, session: &Session, command: &Cmd) -> Result<Value, CallError> {
        let mut connection = session.connection.clone();
        session.checked(session.answer(connection.send_packed_command(command), self.response_timeout).await?)
    }

    /// Sends two commands in one round trip. If one fails, the first error is returned.
    pub async fn send_both(
        &self,
        session: &Session,
        one: Cmd,
        other: &Cmd,
    ) -> Result<(Value, Value), CallError> {
        let mut pipeline = redis::Pipeline::with_capacity(2);
        pipeline.add_command(one).add_command(other.clone());
        let mut connection = session.connection.clone();
        let sending = connection.send_packed_commands(&pipeline, 0, 2);
        let mut answers = session.answer(sending, self.response_timeout).await?.into_iter();
        let mut next = || session.checked(answers.next().unwrap_or(Value::Nil));
        Ok((next()?, next()?))
    }

    /// Sends several commands in one round trip. If one fails, the first error is returned.
    pub async fn send_all<const N: usize>(
        &self,
        session: &Session,
        commands: [Cmd; N],
    ) -> Result<[Value; N], CallError> {
        let mut pipeline = redis::Pipeline::with_capacity(N);
        for command in commands {
            pipeline.add_command(command);
        }
        let mut connection = session.connection.clone();
        let sending = connection.send_packed_commands(&pipeline, 0, N);
        let answers = session.answer(sending, self.response_timeout).await?;
        let answers: Result<Vec<_>, _> = answers.into_iter().map(|answer| session.checked(answer)).collect();
        let short = |_| CallError::Broken("the answer to several commands is too short".into());
        answers?.try_into().map_err(short)
    }

    /// How long a call waits for its answer.
    pub fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Subscribes to `channel`, and no other, now and after every reconnect. Returns false if this server does not
    /// support that.
    pub async fn subscribe(&self, session: &Session, channel: &str) -> Result<bool, CallError> {
        if !session.speaks_resp3 {
            return Ok(false);
        }
        let mut connection = session.connection.clone();
        match session.answer(connection.subscribe(channel), self.response_timeout).await {
            Ok(()) => {
                let old = self.channel.lock().expect("no panic while held").replace(channel.to_owned());
                if let Some(old) = old.filter(|old| old != channel) {
                    let _ = session.answer(connection.unsubscribe(old), self.response_timeout).await;
                }
                Ok(true)
            }
            Err(error) if error.ends_session() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Takes a message that arrived on the channel. `due` and a number of milliseconds is for later, and any other message
    /// is a call.
    fn receive(&self, message: Option<&Value>) {
        let text = match message {
            Some(Value::BulkString(text)) => std::str::from_utf8(text).unwrap_or_default(),
            _ => "",
        };
        match text.strip_prefix("due ").and_then(|ms| ms.parse().ok()) {
            Some(ms) => {
                let now = Instant::now();
                let at = now.checked_add(Duration::from_millis(ms)).unwrap_or(now);
                *self.announced_at.lock().expect("no panic while held") = Some(at);
                self.announced.notify_one();
            }
            None => self.called.notify_one(),
        }
    }

    /// Waits until the ring announces when this member must make a turn.
    pub async fn announced(&self) -> Instant {
        loop {
            if let Some(at) = self.announced_at.lock().expect("no panic while held").take() {
                return at;
            }
            self.announced.notified().await;
        }
    }

    /// Waits until a call arrives on the channel of this connection, or until the connection is new. A message may
    /// have been lost with the old one.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// Whether observations of other members through this connection may be trusted. Right after Redis or the network
    /// restarted, or after this node was asleep, every other member looks dead to the first node that is back. While
    /// Redis refuses the beat of this node, it refuses those of the others too, and their leases run out.
    pub fn is_trusted(&self, trust_delay: Duration) -> bool {
        let trust_delay = self.topology.settling(trust_delay);
        if self.beat_is_late() {
            return false;
        }
        if self.awake_since.lock().expect("no panic while held").elapsed() < trust_delay {
            return false;
        }
        self.current().is_some_and(|session| {
            let old_enough = session.since.elapsed() >= trust_delay;
            // A server that was promoted is old, but its members are new there.
            let is_same_as_ever = self.topology.is_fixed() && !session.server.was_promoted;
            let first_on_an_old_server = session.generation == 1 && session.server.uptime > trust_delay;
            old_enough || first_on_an_old_server && is_same_as_ever
        })
    }

    /// Starts the delay anew, during which observations of other members are not trusted.
    pub fn distrust(&self) {
        *self.awake_since.lock().expect("no panic while held") = Instant::now();
    }

    /// Marks that a beat is on its way, for as long as the result lives. If it takes longer than `limit`, observations of
    /// other members are not trusted until it has arrived, and the delay starts anew then.
    pub fn send_beat(&self, limit: Duration) -> BeatOnItsWay<'_> {
        *self.beat_late_at.lock().expect("no panic while held") = Some(Instant::now() + limit);
        BeatOnItsWay(self)
    }

    fn beat_is_late(&self) -> bool {
        self.beat_late_at.lock().expect("no panic while held").is_some_and(|late| Instant::now() > late)
    }

    /// Counts a caller that waits for Redis. While any caller waits, a call error that was reported is not over.
    pub fn wait_along(&self) -> WaitingCall<'_> {
        *self.waiting.lock().expect("no panic while held") += 1;
        WaitingCall(self)
    }

    /// Reports a call error once. Further ones are ignored until no caller waits any more.
    pub fn report_outage(&self, error: CallError) {
        self.outage.send_if_modified(|reported| {
            let is_first = reported.is_none();
            reported.get_or_insert(error);
            is_first
        });
    }

    /// The call error that currently keeps callers waiting, if there is one.
    pub fn outage(&self) -> watch::Receiver<Option<CallError>> {
        self.outage.subscribe()
    }

    /// Turns a call error into an error for the user of the library.
    pub fn error(&self, error: CallError) -> Error {
        let address = self.topology.endpoint().to_string();
        match error {
            CallError::Broken(reason) => Error::Unreachable { address, reason },
            CallError::Unconfirmed(reason) => Error::Unconfirmed { address, reason },
            other => Error::Refused { address, reason: other.to_string() },
        }
    }
}

/// A caller that waits for Redis, for as long as this value lives.
pub(crate) struct WaitingCall<'a>(&'a ManagedConnection);

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock().expect("no panic while held");
        *waiting -= 1;
        if *waiting == 0 && self.0.outage.send_if_modified(|reported| reported.take().is_some()) {
            self.0.distrust();
        }
    }
}

/// A beat that Redis has not carried out yet, for as long as this value lives.
pub(crate) struct BeatOnItsWay<'a>(&'a ManagedConnection);

impl Drop for BeatOnItsWay<'_> {
    fn drop(&mut self) {
        if self.0.beat_is_late() {
            self.0.distrust();
        }
        *self.0.beat_late_at.lock().expect("no panic while held") = None;
    }
}

/// Pauses between tries. They are short at first, so that a node is back within a fraction of a second after Redis
/// returns. They have jitter, so that a hundred nodes do not come back in one instant.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(100))
        .with_jitter()
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_between_tries_never_end_and_stay_short() {
        let pauses: Vec<Duration> = pauses().take(1000).collect();
        assert_eq!(pauses.len(), 1000);
        assert!(pauses.iter().all(|pause| (10..=200).contains(&pause.as_millis())), "{pauses:?}");
        assert!(pauses[0] <= Duration::from_millis(20), "the first one is short");
    }
}
