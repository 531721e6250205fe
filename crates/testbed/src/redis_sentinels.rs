use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::eventually;
use crate::question::{ask, field, info};
use crate::redis_server::{Builder, RedisServer, credentials, percent_encoded};

#[cfg(test)]
mod tests;

/// How long a topology may take to become healthy, not counting the time that a sentinel spends in TILT.
const HEALTHY: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
const QUORUM: usize = 2;

/// A master, two replicas, and three sentinels that watch them, for one test.
///
/// The servers are ordinary [`RedisServer`]s, which a test can kill, freeze and restart. A server that restarts poses as
/// a master until the sentinels demote it, like a server whose configuration names no master.
///
/// # TILT
///
/// A sentinel whose machine stalled for 2 s distrusts its own clock: for a while it watches, but does not act. That
/// mode is called TILT. Here it lasts 3 s instead of 30 s. All waits of this type recognise it: their time limits
/// begin again when it ends.
#[derive(Debug)]
pub struct RedisSentinels {
    name: String,
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

/// Options of [`RedisSentinels`].
#[derive(Clone, Debug)]
pub struct SentinelsBuilder {
    name: String,
    server: Builder,
    sentinel_password: Option<String>,
    down_after: Duration,
}

impl SentinelsBuilder {
    /// The name under which the sentinels know the master.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// The options of the three servers: password, users, TLS, persistence, and any setting. With TLS, the sentinels
    /// speak it too, and announce host names.
    pub fn servers(mut self, server: Builder) -> Self {
        self.server = server;
        self
    }

    /// Requires a password at the sentinels themselves.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// How long a server must not answer until a sentinel takes it for dead: 1 s, if a test does not ask for less.
    pub fn down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// Starts all six processes, and waits until each sentinel knows the two others and both replicas.
    #[track_caller]
    pub fn start(self) -> RedisSentinels {
        let host = self.server.host();
        let mut server = self.server.clone().tcp().with_replicas();
        if self.server.tls_files().is_some() {
            server = server.arg("--replica-announce-ip", host);
        }
        let servers: Vec<_> = (0..3).map(|_| server.clone().start()).collect();
        let master = servers[0].port().to_string();
        for replica in &servers[1..] {
            ask::<()>(replica, &["REPLICAOF", host, &master]).unwrap();
        }
        let sentinel = self.sentinel(host, &master);
        let sentinels: Vec<_> = (0..3).map(|_| sentinel.clone().start()).collect();
        let topology = RedisSentinels { name: self.name, servers, sentinels };
        for sentinel in &topology.sentinels {
            topology.hurry(sentinel);
        }
        topology.wait_until_healthy();
        topology
    }

    fn sentinel(&self, host: &str, port: &str) -> Builder {
        let (name, down_after) = (&self.name, self.down_after.as_millis());
        let mut lines = String::new();
        let mut add = |line: String| lines.push_str(&format!("sentinel {line}\n"));
        add("resolve-hostnames yes".into());
        add("announce-hostnames yes".into());
        add(format!("monitor {name} {host} {port} {QUORUM}"));
        add(format!("down-after-milliseconds {name} {down_after}"));
        add(format!("failover-timeout {name} 5000"));
        if let Some(password) = self.server.secret() {
            add(format!("auth-pass {name} \"{password}\""));
        }
        let mut sentinel = RedisServer::builder().into_sentinel(lines);
        if let Some(files) = self.server.tls_files() {
            sentinel = sentinel.tls(files);
        }
        match &self.sentinel_password {
            Some(password) => sentinel.password(password),
            None => sentinel,
        }
    }
}

impl RedisSentinels {
    /// Starts a topology without passwords and TLS. The master has the name `estafeta`.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options for a topology that differs from the default one.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder {
            name: "estafeta".into(),
            server: RedisServer::builder(),
            sentinel_password: None,
            down_after: Duration::from_secs(1),
        }
    }

    /// The URL that names all sentinels, with the password of the servers.
    pub fn url(&self) -> String {
        self.url_with(&self.servers[0].options().credentials())
    }

    /// The same URL, for another user of the servers.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&credentials(user, password))
    }

    fn url_with(&self, credentials: &str) -> String {
        let options = self.servers[0].options();
        let doors = self.sentinels.iter().map(|sentinel| format!("{}:{}", options.host(), sentinel.port()));
        let doors = doors.collect::<Vec<_>>().join(",");
        format!("{}+sentinel://{credentials}{doors}/{}", options.scheme(), percent_encoded(&self.name))
    }

    /// The name under which the sentinels know the master.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The three servers. The first one was the master at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The three sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The master that at least two sentinels name at this moment, if they agree.
    pub fn named_master(&self) -> Option<&RedisServer> {
        let named: Vec<u16> =
            self.acting_sentinels().filter_map(|sentinel| self.master_port(sentinel)).collect();
        self.servers.iter().find(|server| {
            let votes = named.iter().filter(|port| **port == server.port()).count();
            votes >= QUORUM
        })
    }

    /// The server that at least two sentinels name and that is a master in fact. Waits for it.
    #[track_caller]
    pub fn master(&self) -> &RedisServer {
        self.wait_for("a master that two sentinels name", || self.writable_master())
    }

    /// The servers other than the [`master`](Self::master).
    #[track_caller]
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let master = self.master().port();
        self.servers.iter().filter(|server| server.port() != master).collect()
    }

    /// Waits until the sentinels have promoted another server than `old`, and returns it.
    #[track_caller]
    pub fn master_after(&self, old: &RedisServer) -> &RedisServer {
        self.wait_for("a master other than the old one", || {
            self.writable_master().filter(|master| master.port() != old.port())
        })
    }

    /// Makes the sentinels promote a replica (`SENTINEL FAILOVER`), and returns the new master.
    ///
    /// The old master keeps running, and poses as a master for up to 10 s. [`Self::wait_until_healthy`] waits until it
    /// is a replica.
    #[track_caller]
    pub fn failover(&self) -> &RedisServer {
        let old = self.master();
        assert!(self.request_failover(&[]), "every sentinel knows this command");
        self.master_after(old)
    }

    /// Like [`Self::failover`], but the old master gives its office away (`SENTINEL FAILOVER name COORDINATED`). Returns
    /// None if the sentinels do not know that, as those of any Redis.
    #[track_caller]
    pub fn coordinated_failover(&self) -> Option<&RedisServer> {
        let old = self.master();
        self.request_failover(&["COORDINATED"]).then(|| self.master_after(old))
    }

    /// Requests a failover until a sentinel begins it. Returns false if it does not know the command.
    fn request_failover(&self, words: &[&str]) -> bool {
        let command = [&["SENTINEL", "FAILOVER", &self.name], words].concat();
        self.wait_for("a sentinel that starts a failover", || {
            match ask::<()>(self.acting_sentinels().next()?, &command) {
                Ok(()) => Some(true),
                // An earlier failover is not over yet, or the sentinel has no fresh news of the replicas.
                Err(error) if matches!(error.code(), Some("INPROG" | "NOGOODSLAVE")) => None,
                Err(error) if error.to_string().contains("rong number of arguments") => Some(false),
                Err(error) => panic!("{}: {error}", command.join(" ")),
            }
        })
    }

    /// Starts another sentinel, which watches the same master and names it by this host. The others do not wait for it.
    #[track_caller]
    pub fn sentinel_that_names(&self, host: &str) -> RedisServer {
        let builder = SentinelsBuilder { name: self.name.clone(), ..Self::builder() };
        let sentinel = builder.sentinel(host, &self.master().port().to_string()).start();
        self.hurry(&sentinel);
        sentinel
    }

    /// Waits until every process that can answer plays its part: the sentinels agree on one master, know each other and
    /// all replicas, and each replica has the data of that master.
    #[track_caller]
    pub fn wait_until_healthy(&self) {
        self.wait_for("a healthy topology", || self.is_healthy().then_some(()));
    }

    /// Starts a sentinel again that was killed. It still knows what it knew.
    #[track_caller]
    pub fn restart_sentinel(&self, sentinel: &RedisServer) {
        sentinel.restart();
        self.hurry(sentinel);
    }

    /// Shortens what only makes a test slow: how long a sentinel takes to get to know the others, and how long TILT lasts.
    fn hurry(&self, sentinel: &RedisServer) {
        ask::<()>(sentinel, &["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200", "TILT-PERIOD", "3000"]).unwrap();
    }

    fn is_healthy(&self) -> bool {
        let Some(master) = self.writable_master() else { return false };
        let sentinels = self.sentinels.iter().filter(|sentinel| sentinel.can_answer()).count();
        let running = || self.servers.iter().filter(|server| server.can_answer());
        let replicas = running().filter(|server| server.port() != master.port());
        let follows = |replica: &RedisServer| {
            let info = info(replica, "replication");
            field(&info, "role") == "slave"
                && field(&info, "master_port") == master.port().to_string()
                && field(&info, "master_link_status") == "up"
        };
        let sees = |sentinel: &RedisServer| {
            let info = info(sentinel, "sentinel");
            let line = field(&info, "master0");
            self.master_port(sentinel) == Some(master.port())
                && line.contains("status=ok")
                && line.contains(&format!("slaves={},", self.servers.len() - 1))
                && line.ends_with(&format!("sentinels={}", self.sentinels.len()))
        };
        let healthy = self.acting_sentinels().all(|sentinel| sees(sentinel) && self.knows_replicas(sentinel));
        self.acting_sentinels().count() == sentinels && healthy && replicas.clone().all(follows)
    }

    /// Whether a sentinel is in contact with every replica that can answer. Only then can it promote one.
    fn knows_replicas(&self, sentinel: &RedisServer) -> bool {
        let Ok(replicas) =
            ask::<Vec<HashMap<String, String>>>(sentinel, &["SENTINEL", "REPLICAS", &self.name])
        else {
            return false;
        };
        let well = |port: u16| {
            replicas.iter().any(|replica| {
                let get = |name: &str| replica.get(name).map(String::as_str).unwrap_or_default();
                get("port") == port.to_string()
                    && get("flags") == "slave"
                    && get("master-link-status") == "ok"
            })
        };
        let master = self.master_port(sentinel);
        let replicas = self.servers.iter().filter(|server| server.can_answer());
        replicas.filter(|server| Some(server.port()) != master).all(|server| well(server.port()))
    }

    fn writable_master(&self) -> Option<&RedisServer> {
        let master = self.named_master().filter(|master| master.can_answer())?;
        (field(&info(master, "replication"), "role") == "master").then_some(master)
    }

    fn master_port(&self, sentinel: &RedisServer) -> Option<u16> {
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.name];
        let (_, port): (String, u16) = ask(sentinel, &command).ok()?;
        Some(port)
    }

    /// The sentinels that can answer and are not in TILT.
    fn acting_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.can_answer() && !in_tilt(sentinel))
    }

    /// Like [`eventually`], but a time limit that passes while a sentinel is in TILT begins again.
    #[track_caller]
    fn wait_for<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let mut deadline = Instant::now() + HEALTHY;
        eventually(10 * HEALTHY, what, || {
            if let Some(value) = condition() {
                return Some(value);
            }
            let now = Instant::now();
            if self.sentinels.iter().any(|sentinel| sentinel.can_answer() && in_tilt(sentinel)) {
                deadline = now + HEALTHY;
            }
            assert!(now < deadline, "not within {HEALTHY:?}: {what}\n{}", self.describe());
            std::thread::sleep(POLL);
            None
        })
    }

    /// What each process says of itself, for a test that fails.
    fn describe(&self) -> String {
        let of = |server: &RedisServer, section: &str| {
            let text = if server.can_answer() { info(server, section) } else { "does not answer".into() };
            format!("{server:?}:\n{text}")
        };
        let servers = self.servers.iter().map(|server| of(server, "replication"));
        let sentinels = self.sentinels.iter().map(|sentinel| of(sentinel, "sentinel"));
        servers.chain(sentinels).collect::<Vec<_>>().join("\n")
    }
}

fn in_tilt(sentinel: &RedisServer) -> bool {
    field(&info(sentinel, "sentinel"), "sentinel_tilt") == "1"
}
