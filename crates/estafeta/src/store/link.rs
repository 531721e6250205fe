//! One connection to Redis that comes back by itself.
//!
//! A link is a current connection, or the wait for the next one. Callers take the connection of the moment with
//! [`Link::live`] and send on it; if that fails it is reported, and one keeper task replaces it. Nobody else reconnects,
//! so a hundred failed calls cause one new connection. A connection that stays silent for longer than the response
//! time-out counts as broken too: on a half-open one an error would never come.
//!
//! The link also carries the member's presence: the subscription to its own channel, by which Redis shows that it
//! lives. A new connection subscribes before anybody may use it, so that whoever works on it is not seen absent.
//! On that channel the ring calls the heir when the office was vacated; the call wakes [`Link::called`].

use std::sync::Mutex;
use std::time::{Duration, Instant};

use backon::BackoffBuilder as _;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, Value,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::live::Live;
use super::server::Server;
use super::trouble::Trouble;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};

/// The first connection may take this long: nothing is lost yet, and on a busy machine everything starts slowly.
const FIRST: Duration = Duration::from_secs(5);

pub(crate) struct Link {
    endpoint: Endpoint,
    response_timeout: Duration,
    /// The channel on which the current member shows that it lives.
    channel: Mutex<Option<String>>,
    live: watch::Sender<Option<Live>>,
    reports: mpsc::UnboundedSender<u64>,
    called: Notify,
    trouble: watch::Sender<Option<String>>,
    /// How many calls wait for Redis, tries to reconnect included.
    waiting: Mutex<usize>,
    /// Since when what is seen of others may be taken seriously, apart from the age of the connection.
    awake_since: Mutex<Instant>,
}

/// What the keeper of a link owns: the reports of its users and the pushes of the current connection.
pub(crate) struct Keeper {
    reports: mpsc::UnboundedReceiver<u64>,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    /// The connections of another link that goes the same way.
    beside: Option<watch::Receiver<Option<Live>>>,
}

impl Keeper {
    /// Whatever befell that link, so that it was replaced, befell this one too, which may be silent by nature and would
    /// find out much later.
    pub fn beside(self, other: &Link) -> Self {
        Self { beside: Some(other.live.subscribe()), ..self }
    }
}

impl Link {
    /// Makes the first connection. It must be the keeper's runtime that calls this: the connection lives on it.
    pub async fn open(endpoint: Endpoint, response_timeout: Duration) -> Result<(Self, Keeper)> {
        let (reports, reported) = mpsc::unbounded_channel();
        let link = Self {
            endpoint,
            response_timeout,
            channel: Mutex::default(),
            live: watch::Sender::new(None),
            reports,
            called: Notify::new(),
            trouble: watch::Sender::new(None),
            waiting: Mutex::new(0),
            // A new link has overslept nothing.
            awake_since: Mutex::new(Instant::now() - Duration::from_secs(3600)),
        };
        let first = link.connect(1, FIRST.max(response_timeout)).await;
        let (live, pushes) = first.map_err(|trouble| link.error(trouble))?;
        link.live.send_replace(Some(live));
        Ok((link, Keeper { reports: reported, pushes, beside: None }))
    }

    /// Replaces the connection each time it breaks, until `stop`.
    pub async fn keep(&self, mut keeper: Keeper, stop: CancellationToken) {
        let mut generation = 1;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(broken) = keeper.reports.recv() => if broken < generation { continue },
                () = self.replaced_beside(keeper.beside.as_mut()) => {}
                push = keeper.pushes.recv() => match push.map(|push| push.kind) {
                    Some(PushKind::Disconnection) | None => {}
                    Some(kind) => {
                        if kind == PushKind::Message {
                            self.called.notify_one();
                        }
                        continue;
                    }
                },
            }
            self.live.send_replace(None);
            generation += 1;
            let mut pauses = pauses();
            let _waiting = self.wait_along();
            loop {
                let attempt = tokio::select! {
                    () = stop.cancelled() => return,
                    attempt = self.connect(generation, self.response_timeout) => attempt,
                };
                match attempt {
                    Ok((live, pushes)) => {
                        keeper.pushes = pushes;
                        self.live.send_replace(Some(live));
                        break;
                    }
                    Err(trouble) => {
                        self.complain(&trouble);
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

    /// Waits until a connection of another link was replaced that had been there beside the one of the moment.
    async fn replaced_beside(&self, beside: Option<&mut watch::Receiver<Option<Live>>>) {
        if let (Some(beside), Some(own)) = (beside, self.current()) {
            // Both break at the same time, and may be replaced one after the other.
            let at_once = own.since + self.response_timeout;
            let replaced = |other: &Live| other.generation > 1 && other.since > at_once;
            if beside.wait_for(|other| other.as_ref().is_some_and(replaced)).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    async fn connect(
        &self,
        generation: u64,
        patience: Duration,
    ) -> Result<(Live, mpsc::UnboundedReceiver<PushInfo>), Trouble> {
        let attempt = async {
            match self.connect_with(generation, ProtocolVersion::RESP3).await {
                Err(Attempt::NoResp3) => self.connect_with(generation, ProtocolVersion::RESP2).await,
                other => other,
            }
        };
        match tokio::time::timeout(patience, attempt).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(Attempt::NoResp3)) => Err(Trouble::Refused("it speaks neither RESP3 nor RESP2".into())),
            Ok(Err(Attempt::Failed(trouble))) => Err(trouble),
            Err(_) => Err(Trouble::Broken(format!("no answer for {patience:?}"))),
        }
    }

    async fn connect_with(
        &self,
        generation: u64,
        protocol: ProtocolVersion,
    ) -> Result<(Live, mpsc::UnboundedReceiver<PushInfo>), Attempt> {
        if self.endpoint.uses_tls() {
            // Fails only if the program chose a provider already, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let (push_sender, pushes) = mpsc::unbounded_channel();
        let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let speaks_resp3 = protocol == ProtocolVersion::RESP3;
        let mut silent = None;
        if speaks_resp3 {
            config = config.set_push_sender(push_sender);
        } else {
            silent = Some(push_sender);
        }
        let client = Client::open(self.endpoint.info(protocol))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| Attempt::of_greeting(error, protocol))?;
        // First of all: until then the ring takes this member for absent.
        let channel = self.channel.lock().expect("no panic while held").clone();
        if let Some(channel) = channel.filter(|_| speaks_resp3) {
            connection.subscribe(channel).await?;
        }
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let server = Server::read(&info);
        server.check_version()?;
        // A server that is still loading greets and talks about itself, but does not serve yet.
        redis::cmd("PING").exec_async(&mut connection).await?;
        Ok((Live::new(connection, generation, server, silent, self.reports.clone()), pushes))
    }

    /// The connection of the moment, if there is one.
    pub fn current(&self) -> Option<Live> {
        self.live.borrow().clone()
    }

    /// The connection of the moment, or the next one.
    pub async fn live(&self) -> Live {
        let mut live = self.live.subscribe();
        let ready = live.wait_for(Option::is_some).await.expect("the sender lives as long as self");
        ready.clone().expect("just waited for it")
    }

    /// The connection of the moment, if nothing waits on it. Nothing will, as long as the answer lives.
    pub fn free(&self) -> Option<Live> {
        self.current()?.free()
    }

    /// Sends one command; a failure of the connection is reported to its keeper, which may be that of another link.
    pub async fn send(&self, live: &Live, command: &Cmd) -> Result<Value, Trouble> {
        let mut connection = live.connection.clone();
        live.checked(live.answer(connection.send_packed_command(command), self.response_timeout).await?)
    }

    /// Sends a command that Redis answers only after up to `wait`; nobody finds the connection free meanwhile. Ends when
    /// the connection is replaced: it may be dead in silence.
    pub async fn hold(&self, live: &Live, command: &Cmd, wait: Duration) -> Result<Value, Trouble> {
        let mut connections = self.live.subscribe();
        let is_other = |now: &Option<Live>| now.as_ref().is_none_or(|now| now.generation != live.generation);
        tokio::select! {
            answer = live.hold(command, wait + self.response_timeout) => answer,
            _ = connections.wait_for(is_other) => Err(Trouble::Broken("it was replaced".into())),
        }
    }

    /// Sends two commands in one go; the first that fails decides.
    pub async fn send_both(&self, live: &Live, one: Cmd, other: &Cmd) -> Result<(Value, Value), Trouble> {
        let mut pipeline = redis::Pipeline::with_capacity(2);
        pipeline.add_command(one).add_command(other.clone());
        let mut connection = live.connection.clone();
        let sending = connection.send_packed_commands(&pipeline, 0, 2);
        let mut answers = live.answer(sending, self.response_timeout).await?.into_iter();
        let mut next = || live.checked(answers.next().unwrap_or(Value::Nil));
        Ok((next()?, next()?))
    }

    /// Shows on `channel` that the member lives, now and after every reconnect. False if that can't be had here.
    pub async fn show_presence(&self, live: &Live, channel: &str) -> Result<bool, Trouble> {
        if !live.speaks_resp3 {
            return Ok(false);
        }
        let mut connection = live.connection.clone();
        match live.answer(connection.subscribe(channel), self.response_timeout).await {
            Ok(()) => {
                let old = self.channel.lock().expect("no panic while held").replace(channel.to_owned());
                if let Some(old) = old.filter(|old| old != channel) {
                    let _ = live.answer(connection.unsubscribe(old), self.response_timeout).await;
                }
                Ok(true)
            }
            Err(trouble @ Trouble::Broken(_)) => Err(trouble),
            Err(_) => Ok(false),
        }
    }

    /// Waits until the ring calls this member to office.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// Whether what is seen of others through this connection may be believed. Right after a restart of Redis, or of
    /// the network, or when this copy itself was asleep, everybody looks dead to whoever is back first.
    pub fn is_settled(&self, settling: Duration) -> bool {
        if self.awake_since.lock().expect("no panic while held").elapsed() < settling {
            return false;
        }
        self.current().is_some_and(|live| {
            let old_enough = live.since.elapsed() >= settling;
            let first_on_an_old_server = live.generation == 1 && live.server.uptime > settling;
            old_enough || first_on_an_old_server
        })
    }

    /// From now on it takes a while until what is seen of others is believed again.
    pub fn unsettle(&self) {
        *self.awake_since.lock().expect("no panic while held") = Instant::now();
    }

    /// Somebody waits for Redis; as long as anybody does, a trouble that was told is not over.
    pub fn wait_along(&self) -> Waiting<'_> {
        *self.waiting.lock().expect("no panic while held") += 1;
        Waiting(self)
    }

    /// Tells that Redis is in trouble, once, until nobody waits any more.
    pub fn complain(&self, trouble: &Trouble) {
        self.trouble.send_if_modified(|told| {
            let first = told.is_none();
            if first {
                *told = Some(trouble.to_string());
            }
            first
        });
    }

    /// What is wrong with Redis, while something is.
    pub fn trouble(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }

    /// A trouble as an error for the caller of the library.
    pub fn error(&self, trouble: Trouble) -> Error {
        let address = self.endpoint.to_string();
        match trouble {
            Trouble::Broken(reason) => Error::Unreachable { address, reason },
            other => Error::Refused { address, reason: other.to_string() },
        }
    }
}

/// Somebody waits for Redis.
pub(crate) struct Waiting<'a>(&'a Link);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock().expect("no panic while held");
        *waiting -= 1;
        if *waiting == 0 && self.0.trouble.send_if_modified(|told| told.take().is_some()) {
            self.0.unsettle();
        }
    }
}

/// Pauses between tries: short at first, with jitter, so that a copy is back within a fraction of a second of Redis'
/// return and a hundred copies do not come back in one instant.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(200))
        .with_jitter()
        .without_max_times()
        .build()
}

enum Attempt {
    NoResp3,
    Failed(Trouble),
}

impl Attempt {
    /// A server or proxy that answers the greeting with an error, unless it is about the password, may still speak the
    /// older protocol.
    fn of_greeting(error: RedisError, protocol: ProtocolVersion) -> Self {
        let about_password = error.kind() == ErrorKind::AuthenticationFailed
            || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"));
        let answered = error.kind() == ErrorKind::RESP3NotSupported || error.code().is_some();
        if protocol == ProtocolVersion::RESP3 && answered && !about_password {
            return Self::NoResp3;
        }
        Self::Failed(error.into())
    }
}

impl From<RedisError> for Attempt {
    fn from(error: RedisError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Trouble> for Attempt {
    fn from(trouble: Trouble) -> Self {
        Self::Failed(trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_protocol_is_tried_where_a_server_refuses_the_greeting_for_another_reason_than_the_password()
    {
        let refusal = |line: &str| {
            let value = redis::parse_redis_value(line.as_bytes()).unwrap();
            value.extract_error().expect_err("a refusal")
        };
        let refusals = [
            ("-ERR unknown command 'HELLO'\r\n", true),
            ("-NOPROTO unsupported protocol version\r\n", true),
            ("-NOAUTH Authentication required.\r\n", false),
            ("-WRONGPASS invalid username-password pair\r\n", false),
        ];
        let tries_again = |error, protocol| matches!(Attempt::of_greeting(error, protocol), Attempt::NoResp3);
        for (line, expected) in refusals {
            assert_eq!(tries_again(refusal(line), ProtocolVersion::RESP3), expected, "{line}");
            assert!(!tries_again(refusal(line), ProtocolVersion::RESP2), "{line}: there is no older one");
        }
        let unreachable = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(!tries_again(unreachable.into(), ProtocolVersion::RESP3));
        let unspoken = RedisError::from((ErrorKind::RESP3NotSupported, "a client that knows"));
        assert!(tries_again(unspoken, ProtocolVersion::RESP3));
    }
}
