//! Finds the one server that keeps a ring, where more than one could, and notices when it is another one.
//!
//! A ring is on one server at a time: the one that the endpoint names, the master that sentinels name, or the node of a
//! cluster that owns the ring's slot. Every new session asks anew. Nothing is remembered but the door that was right
//! last.
//!
//! - **Cluster.** There is no map of slots. A node that is asked for a key of the ring either answers, which means that
//!   it owns the slot, or redirects with MOVED. A redirection is followed at most [`HOPS`] times. ASK is never followed:
//!   while a slot migrates, the old owner is still the place, and its clients wait there.
//! - **Sentinel.** A sentinel may name a server that is not a master yet, or not any more. So the server itself must
//!   report that it is one. Sentinels demote an old master that still runs only about ten seconds after a switch, and
//!   everything written to it meanwhile is lost. So one task per process asks them all the time ([`Topology::left`]).
//! - **Both connections of a node** share one topology. As soon as one of them finds that its server is the wrong one,
//!   both are replaced. Otherwise the subscription that shows presence would stay at the old server, unnoticed.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::watch;

use super::call_error::CallError;
use super::endpoint::{Door, Endpoint, Way};
use super::sentinel::SentinelLink;
use super::server_info::ServerInfo;
use crate::keys::{Keys, RingName};

/// How often a new session may be redirected.
pub(crate) const HOPS: usize = 5;
/// A sentinel that does not answer within this time is passed over. If no sentinel answers, the time is doubled for the
/// next round, up to the longest one, because the network may be slow.
const SENTINEL_PATIENCE: Duration = Duration::from_millis(300);
const LONGEST_SENTINEL_PATIENCE: Duration = Duration::from_millis(2400);
/// How often sentinels are asked for the master.
const POLL: Duration = Duration::from_millis(500);
/// The time limit of an attempt to connect to one of several servers. If none of them answers, the limit is doubled for
/// the next round, because the network may be slow.
const ATTEMPT: Duration = Duration::from_millis(250);
/// The time for a member to find the server that keeps the ring, once it has noticed that its own does not.
const SETTLING: Duration = Duration::from_secs(1);

pub(crate) struct Topology {
    endpoint: Endpoint,
    /// A key of the ring. The server that keeps this key keeps the ring.
    pub key: String,
    /// The doors, with the one to try next in front.
    doors: Mutex<Vec<Door>>,
    /// The server that was right last, until it is tried again.
    last: Mutex<Option<Door>>,
    /// Whether any sentinel or node has answered where the ring is.
    answered: AtomicBool,
    /// How often a session turned out to be at the wrong server.
    moves: watch::Sender<u64>,
    /// How long a sentinel may take to answer.
    sentinel_patience: Mutex<Duration>,
    /// Held by the task that watches the sentinels.
    watching: tokio::sync::Mutex<()>,
    /// Use the server that the endpoint names, even if it does not keep the ring.
    any_server: bool,
}

impl Topology {
    pub fn new(endpoint: Endpoint, ring: &RingName) -> Self {
        Self {
            doors: Mutex::new(endpoint.doors().to_vec()),
            key: Keys::new(ring).schema,
            last: Mutex::default(),
            answered: AtomicBool::default(),
            moves: watch::Sender::new(0),
            sentinel_patience: Mutex::new(SENTINEL_PATIENCE),
            watching: tokio::sync::Mutex::default(),
            any_server: false,
            endpoint,
        }
    }

    /// The node of a cluster at this door, whatever it keeps.
    pub fn only(endpoint: Endpoint, ring: &RingName, door: Door) -> Self {
        let new = Self::new(endpoint, ring);
        Self { doors: Mutex::new(vec![door]), any_server: true, ..new }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether the ring can only be on the server that the endpoint names.
    pub fn is_fixed(&self) -> bool {
        *self.endpoint.way() == Way::Direct && self.last.lock().expect("no panic while held").is_none()
    }

    /// How long a member that is new at a server believes nobody's death. On a single server, that is the trust delay, a
    /// quarter of a lease. Where the ring can move, all members must have time to follow it, even those at a server that
    /// is frozen: they notice only when a call has had no answer for half a lease.
    pub fn settling(&self, trust_delay: Duration) -> Duration {
        if self.is_fixed() { trust_delay } else { 2 * trust_delay + SETTLING }
    }

    /// The time limit of the given attempt to connect, counted from 0, if a call may wait for `patience`.
    pub fn attempt_limit(&self, attempt: usize, patience: Duration) -> Duration {
        if self.is_fixed() {
            return patience;
        }
        let round = attempt / (self.endpoint.doors().len() + 1);
        (ATTEMPT * 2_u32.saturating_pow(u32::try_from(round).unwrap_or(u32::MAX))).min(patience)
    }

    /// The door of the server to try next. None stands for the server that the endpoint names.
    pub async fn next(&self) -> Result<Option<Door>, CallError> {
        match self.endpoint.way() {
            Way::Sentinel(name) => self.named_master(name).await.map(Some),
            _ if self.any_server => Ok(self.doors().first().cloned()),
            Way::Direct => Ok(None),
            Way::Cluster => {
                let last = self.last.lock().expect("no panic while held").take();
                let mut doors = self.doors.lock().expect("no panic while held");
                Ok(last.or_else(|| {
                    doors.rotate_left(1);
                    doors.last().cloned()
                }))
            }
        }
    }

    /// Asks one sentinel after another for the master. The one that answered last is asked first.
    async fn named_master(&self, name: &str) -> Result<Door, CallError> {
        let (mut failure, patience) = (None, self.sentinel_patience());
        for door in self.doors() {
            let start = Instant::now();
            let asking = async {
                let mut sentinel = SentinelLink::open(&self.endpoint, &door).await?;
                sentinel.master(name).await
            };
            match tokio::time::timeout(patience, asking).await {
                Ok(Ok(Some(master))) => {
                    self.answered.store(true, Ordering::Relaxed);
                    self.prefer(&door);
                    if start.elapsed() < SENTINEL_PATIENCE {
                        self.set_sentinel_patience(SENTINEL_PATIENCE);
                    }
                    return Ok(master);
                }
                Ok(Ok(None)) => {
                    failure = Some(CallError::Refused(format!("no sentinel knows a master named {name}")))
                }
                Ok(Err(error)) => failure = failure.or(Some(error)),
                Err(_) => {
                    let silent = format!("the sentinel at {door} does not answer for {patience:?}");
                    failure = failure.or(Some(CallError::Broken(silent)));
                }
            }
        }
        self.set_sentinel_patience((2 * patience).min(LONGEST_SENTINEL_PATIENCE));
        Err(failure.unwrap_or_else(|| CallError::Broken("no sentinel is named".into())))
    }

    fn sentinel_patience(&self) -> Duration {
        *self.sentinel_patience.lock().expect("no panic while held")
    }

    fn set_sentinel_patience(&self, patience: Duration) {
        *self.sentinel_patience.lock().expect("no panic while held") = patience;
    }

    /// Whether the server may keep the ring, as far as it reports about itself.
    pub fn check_server(&self, server: &ServerInfo) -> Result<(), CallError> {
        if server.is_sentinel() {
            let hint = "it is a sentinel: name it in redis+sentinel://host:port/name";
            return Err(CallError::Refused(hint.into()));
        }
        match self.endpoint.way() {
            Way::Sentinel(_) if !server.is_master() => {
                Err(CallError::Elsewhere("the sentinels name a server that is no master".into()))
            }
            Way::Cluster if !server.is_cluster_node() => {
                Err(CallError::Refused("it is no node of a cluster: name it in redis://host:port".into()))
            }
            _ => Ok(()),
        }
    }

    /// What the answer to `EXISTS key` shows about the server at `door`.
    pub fn place(
        &self,
        answer: Result<u64, RedisError>,
        door: Option<&Door>,
    ) -> Result<RingPlace, CallError> {
        let error = match answer {
            Ok(_) => return Ok(self.found(door)),
            Err(error) => error,
        };
        match error.kind() {
            _ if self.any_server => Ok(RingPlace::Here),
            ErrorKind::Server(ServerErrorKind::Moved) => {
                self.answered.store(true, Ordering::Relaxed);
                let redirected = redirection(&error, door.cloned().or_else(|| self.endpoint.given_door()));
                redirected.map(RingPlace::At).ok_or_else(|| error.into())
            }
            // The slot migrates. The server that says so still owns it.
            ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain) => Ok(self.found(door)),
            // A user without the rights to the ring learns that from its first step. `doctor` works without them.
            _ if error.code() == Some("NOPERM") => Ok(self.found(door)),
            _ => Err(error.into()),
        }
    }

    /// Whether it makes sense to wait for the server after so many attempts found none: a door has answered, or one is
    /// left to try.
    pub fn may_appear(&self, attempts: usize) -> bool {
        self.answered.load(Ordering::Relaxed) || attempts < self.doors().len()
    }

    fn found(&self, door: Option<&Door>) -> RingPlace {
        *self.last.lock().expect("no panic while held") = door.cloned();
        RingPlace::Here
    }

    fn doors(&self) -> Vec<Door> {
        self.doors.lock().expect("no panic while held").clone()
    }

    /// Puts a door in front of all others.
    fn prefer(&self, door: &Door) {
        let mut doors = self.doors.lock().expect("no panic while held");
        if let Some(position) = doors.iter().position(|other| other == door) {
            doors[..=position].rotate_right(1);
        }
    }

    /// How often a session turned out to be at the wrong server so far.
    pub fn moves(&self) -> u64 {
        *self.moves.borrow()
    }

    /// Reports that a session that began after `moves` moves is at the wrong server.
    pub fn move_on(&self, moves: u64) {
        self.moves.send_if_modified(|now| {
            let is_news = *now == moves;
            *now += u64::from(is_news);
            is_news
        });
    }

    /// Waits until a session that began after `moves` moves must be replaced, because it or another one of this process
    /// is at the wrong server.
    pub async fn moved_since(&self, moves: u64) {
        let _ = self.moves.subscribe().wait_for(|now| *now > moves).await;
    }

    /// Like [`moved_since`](Self::moved_since), for a call that waits for its answer. A frozen server would keep it waiting
    /// although another one keeps the ring by now. Costs nothing if the endpoint names the server.
    pub async fn left_since(&self, moves: u64) {
        match self.endpoint.way() {
            Way::Direct => std::future::pending().await,
            _ => self.moved_since(moves).await,
        }
    }

    /// Waits until sentinels name another server than the one at `door`. Only one task asks them. The others learn of it
    /// by [`moved_since`](Self::moved_since).
    pub async fn left(&self, door: Option<&Door>) {
        let (Way::Sentinel(name), Some(door)) = (self.endpoint.way(), door) else {
            return std::future::pending().await;
        };
        let _watch = self.watching.lock().await;
        loop {
            for sentinel in self.doors() {
                if self.names_another(&sentinel, name, door).await {
                    return;
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Asks one sentinel until it names another server, which is true, or does not answer.
    async fn names_another(&self, sentinel: &Door, name: &str, door: &Door) -> bool {
        let patience = self.sentinel_patience();
        let opening = SentinelLink::open(&self.endpoint, sentinel);
        let Ok(Ok(mut sentinel)) = tokio::time::timeout(patience, opening).await else {
            return false;
        };
        loop {
            match tokio::time::timeout(patience, sentinel.master(name)).await {
                Ok(Ok(Some(master))) if lead_to_one_server(&master, door, patience).await => {}
                Ok(Ok(Some(_))) => return true,
                _ => return false,
            }
            let _ = tokio::time::timeout(POLL, sentinel.switched()).await;
        }
    }
}

/// Whether two doors lead to the same server. One sentinel may name it by its address and another one by its host name.
async fn lead_to_one_server(one: &Door, other: &Door, patience: Duration) -> bool {
    if one == other || one.port != other.port {
        return one == other;
    }
    let addresses = async |door: &Door| -> Vec<SocketAddr> {
        let looking = tokio::net::lookup_host((door.host.as_str(), door.port));
        match tokio::time::timeout(patience, looking).await {
            Ok(Ok(found)) => found.collect(),
            _ => Vec::new(),
        }
    };
    let (found, others) = (addresses(one).await, addresses(other).await);
    found.iter().any(|address| others.contains(address))
}

/// Whether the ring is on a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RingPlace {
    Here,
    /// Another server keeps it, says this one.
    At(Door),
}

/// The server that a MOVED names. Without a host, it is another port of the server that answered.
fn redirection(error: &RedisError, from: Option<Door>) -> Option<Door> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = match host {
        "" => from?.host,
        // The node does not know the name of the other one.
        "?" => return None,
        host => host.trim_matches(['[', ']']).to_owned(),
    };
    Some(Door { host, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(url: &str) -> Topology {
        Topology::new(url.parse().unwrap(), &RingName::sample())
    }

    fn door(port: u16) -> Door {
        Door { host: "h".into(), port }
    }

    fn refusal(line: &str) -> Result<u64, RedisError> {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        Err(value.extract_error().expect_err("a refusal"))
    }

    #[tokio::test]
    async fn the_nodes_of_a_cluster_are_tried_in_turn_after_the_one_that_was_right_last() {
        let cluster = topology("redis+cluster://h:1,h:2,h:3");
        let next = async || cluster.next().await.unwrap().unwrap().port;
        assert_eq!([next().await, next().await, next().await, next().await], [1, 2, 3, 1]);
        assert_eq!(cluster.place(Ok(0), Some(&door(9))).unwrap(), RingPlace::Here);
        assert_eq!([next().await, next().await, next().await], [9, 2, 3], "the last one is tried once");
        let direct = topology("redis://h:1");
        assert_eq!(direct.next().await.unwrap(), None);
        let second = Duration::from_secs(1);
        assert!(direct.is_fixed() && direct.settling(second) == second);
        direct.place(Ok(1), Some(&door(9))).unwrap();
        assert_eq!(direct.next().await.unwrap(), None, "a virtual address may lead elsewhere by now");
        assert!(!direct.is_fixed(), "it turned out to be a node of a cluster");
        assert_eq!(direct.settling(second), Duration::from_secs(3));
    }

    #[test]
    fn moved_is_followed_and_ask_is_not() {
        let cluster = topology("redis+cluster://h:1");
        let place = |line: &str| cluster.place(refusal(line), Some(&door(1)));
        let at = |host: &str| RingPlace::At(Door { host: host.into(), port: 7001 });
        assert_eq!(place("MOVED 3999 10.0.0.7:7001").unwrap(), at("10.0.0.7"));
        assert_eq!(place("MOVED 3999 ::1:7001").unwrap(), at("::1"));
        assert_eq!(place("MOVED 3999 :7001").unwrap(), at("h"), "another port of the same host");
        for unknown in ["MOVED 3999 ?:7001", "MOVED 3999 nonsense"] {
            assert!(matches!(place(unknown), Err(CallError::Elsewhere(_))), "{unknown}");
        }
        for migrating in ["ASK 3999 10.0.0.7:7001", "TRYAGAIN keys are on both sides"] {
            assert_eq!(place(migrating).unwrap(), RingPlace::Here, "{migrating}");
        }
        for down in ["CLUSTERDOWN The cluster is down", "LOADING"] {
            assert!(place(down).is_err_and(|error| error.is_passing()), "{down}");
        }
        let any = Topology::only("redis+cluster://h:1".parse().unwrap(), &RingName::sample(), door(5));
        assert_eq!(any.place(refusal("MOVED 3999 10.0.0.7:7001"), None).unwrap(), RingPlace::Here);
    }

    #[test]
    fn an_attempt_at_one_of_several_servers_is_short_until_none_of_them_answers() {
        let (ms, patience) = (Duration::from_millis, Duration::from_secs(1));
        assert_eq!(topology("redis://h:1").attempt_limit(0, patience), patience);
        let cluster = topology("redis+cluster://h:1,h:2");
        let limits = [0, 2, 3, 5, 6, 9, 1000].map(|attempt| cluster.attempt_limit(attempt, patience));
        assert_eq!(limits, [ms(250), ms(250), ms(500), ms(500), patience, patience, patience]);
    }

    #[test]
    fn a_server_must_be_what_the_url_says() {
        let server = |mode: &str, role: &str| {
            ServerInfo::read(&format!("redis_mode:{mode}\r\n"), &format!("role:{role}\r\n"))
        };
        let check = |url: &str, mode: &str, role: &str| topology(url).check_server(&server(mode, role));
        for url in ["redis://h", "redis+sentinel://h/m", "redis+cluster://h"] {
            let error = check(url, "sentinel", "master").unwrap_err().to_string();
            assert!(error.starts_with("it is a sentinel"), "{error}");
        }
        assert!(check("redis://h", "standalone", "slave").is_ok(), "a command may read from a replica");
        assert!(check("redis+sentinel://h/m", "standalone", "master").is_ok());
        let replica = check("redis+sentinel://h/m", "standalone", "slave");
        assert!(matches!(replica, Err(CallError::Elsewhere(_))), "{replica:?}");
        assert!(check("redis+cluster://h", "cluster", "slave").is_ok(), "its answer to the key decides");
        let alone = check("redis+cluster://h", "standalone", "master").unwrap_err().to_string();
        assert!(alone.starts_with("it is no node of a cluster"), "{alone}");
    }

    #[tokio::test]
    async fn all_sessions_learn_of_a_move_once() {
        let cluster = topology("redis+cluster://h:1");
        assert_eq!(cluster.moves(), 0);
        cluster.move_on(0);
        cluster.move_on(0);
        assert_eq!(cluster.moves(), 1, "both connections report the same move");
        cluster.moved_since(0).await;
        cluster.move_on(1);
        assert_eq!(cluster.moves(), 2);
    }

    #[test]
    fn the_sentinel_that_answered_is_asked_first() {
        let sentinels = topology("redis+sentinel://h:1,h:2,h:3/m");
        sentinels.prefer(&door(3));
        assert_eq!(sentinels.doors(), [door(3), door(1), door(2)]);
        sentinels.prefer(&door(1));
        assert_eq!(sentinels.doors(), [door(1), door(3), door(2)]);
        assert!(sentinels.may_appear(2) && !sentinels.may_appear(3));
    }

    #[tokio::test]
    async fn sentinels_get_more_time_only_as_long_as_none_answers() {
        // A port to which nobody listens refuses at once.
        let sentinels = topology("redis+sentinel://127.0.0.1:1/m");
        let mut patience = Vec::new();
        for _ in 0..5 {
            patience.push(sentinels.sentinel_patience().as_millis());
            assert!(sentinels.next().await.is_err());
        }
        assert_eq!(patience, [300, 600, 1200, 2400, 2400]);
    }

    #[tokio::test]
    async fn a_host_name_and_its_address_lead_to_one_server() {
        let door = |host: &str, port| Door { host: host.into(), port };
        let same = async |one: Door, other: Door| lead_to_one_server(&one, &other, SENTINEL_PATIENCE).await;
        assert!(same(door("localhost", 1), door("127.0.0.1", 1)).await);
        assert!(same(door("no such host", 1), door("no such host", 1)).await);
        assert!(!same(door("localhost", 1), door("127.0.0.1", 2)).await);
        assert!(!same(door("127.0.0.2", 1), door("127.0.0.1", 1)).await);
        assert!(!same(door("no such host", 1), door("127.0.0.1", 1)).await);
    }
}
