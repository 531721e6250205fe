use std::time::{Duration, Instant};

use crate::eventually;
use crate::question::{ask, field, info};
use crate::redis_server::{Builder, RedisServer, credentials};

mod migration;
mod node_line;
#[cfg(test)]
mod tests;

pub use migration::SlotMigration;
use node_line::NodeLine;

const SLOTS: u16 = 16384;
const MASTERS: u16 = 3;
const HEALTHY: Duration = Duration::from_secs(90);
/// Redis gives up a planned failover after 5 s. Then it has to be requested again.
const FAILOVER_GIVEN_UP: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(20);

/// A Redis Cluster of three masters with one replica each, for one test.
///
/// The servers are ordinary [`RedisServer`]s, which a test can kill, freeze and restart.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

/// Options of a [`RedisCluster`].
#[derive(Clone, Debug)]
pub struct ClusterBuilder {
    server: Builder,
    node_timeout: Duration,
}

impl ClusterBuilder {
    /// The options of the six servers: password, users, TLS, persistence, and any setting. With TLS, the nodes announce
    /// host names.
    pub fn servers(mut self, server: Builder) -> Self {
        self.server = server;
        self
    }

    /// How long a node must not answer until the others take it for dead: 1 s, if a test does not ask for less.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = node_timeout;
        self
    }

    /// Starts all servers, joins them to a cluster and waits until it is healthy.
    #[track_caller]
    pub fn start(self) -> RedisCluster {
        let node_timeout = self.node_timeout.as_millis().to_string();
        let mut server =
            self.server.into_cluster_node().arg("--cluster-node-timeout", &node_timeout).with_replicas();
        if server.tls_files().is_some() {
            let host = server.host();
            server = server
                .arg("--cluster-announce-hostname", host)
                .arg("--cluster-preferred-endpoint-type", "hostname");
        }
        let servers = (0..2 * MASTERS).map(|_| server.clone().start()).collect();
        let cluster = RedisCluster { servers };
        cluster.form();
        cluster.wait_until_healthy();
        cluster
    }
}

impl RedisCluster {
    /// Starts a cluster without passwords and TLS.
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Options for a cluster that differs from the default one.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder { server: RedisServer::builder(), node_timeout: Duration::from_secs(1) }
    }

    /// The URL that names all nodes, with the password.
    pub fn url(&self) -> String {
        self.url_with(&self.servers[0].options().credentials())
    }

    /// The same URL, for another user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url_with(&credentials(user, password))
    }

    fn url_with(&self, credentials: &str) -> String {
        let options = self.servers[0].options();
        let doors = self.servers.iter().map(|server| format!("{}:{}", options.host(), server.port()));
        let doors = doors.collect::<Vec<_>>().join(",");
        format!("{}+cluster://{credentials}{doors}", options.scheme())
    }

    /// The six servers. At the start, the first three are masters, and each of the others is the replica of the server
    /// three places before it.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The slot that holds all keys of a ring.
    #[track_caller]
    pub fn slot_of(&self, ring: &str) -> u16 {
        let server = self.answering().next().expect("a server that can answer");
        ask(server, &["CLUSTER", "KEYSLOT", &format!("{{{ring}}}")]).unwrap()
    }

    /// The master that serves a ring. Waits until there is one.
    #[track_caller]
    pub fn owner_of(&self, ring: &str) -> &RedisServer {
        let slot = self.slot_of(ring);
        self.wait_for("an owner of the slot", || self.owner(slot))
    }

    /// Waits until another server than `old` serves a ring, and returns it.
    #[track_caller]
    pub fn owner_after(&self, ring: &str, old: &RedisServer) -> &RedisServer {
        let slot = self.slot_of(ring);
        self.wait_for("another owner of the slot", || {
            self.owner(slot).filter(|owner| owner.port() != old.port())
        })
    }

    /// A replica of `master` that can answer. Waits until there is one.
    #[track_caller]
    pub fn replica_of(&self, master: &RedisServer) -> &RedisServer {
        let id = id_of(master);
        self.wait_for("a replica", || {
            self.answering().find(|server| own_line(server).is_some_and(|line| line.master == id))
        })
    }

    /// The masters that do not serve a ring.
    #[track_caller]
    pub fn other_masters(&self, ring: &str) -> Vec<&RedisServer> {
        let owner = self.owner_of(ring).port();
        let is_master = |server: &&RedisServer| own_line(server).is_some_and(|line| line.serves_any());
        self.answering().filter(|server| server.port() != owner).filter(is_master).collect()
    }

    /// Promotes the replica of a ring's owner (`CLUSTER FAILOVER`), and returns it when it serves the ring.
    #[track_caller]
    pub fn failover(&self, ring: &str) -> &RedisServer {
        let old = self.owner_of(ring);
        let (slot, replica) = (self.slot_of(ring), self.replica_of(old));
        let mut requested: Option<Instant> = None;
        self.wait_for("a promoted replica", || {
            if self.owner(slot).is_some_and(|owner| owner.port() == replica.port()) {
                return Some(replica);
            }
            if requested.is_none_or(|requested| requested.elapsed() > FAILOVER_GIVEN_UP) {
                ask::<()>(replica, &["CLUSTER", "FAILOVER"]).unwrap();
                requested = Some(Instant::now());
            }
            None
        })
    }

    /// Begins to move the slot of a ring to `target`, key by key. The caller decides how fast.
    #[track_caller]
    pub fn begin_migration<'a>(&'a self, ring: &str, target: &'a RedisServer) -> SlotMigration<'a> {
        SlotMigration::begin(self, self.slot_of(ring), self.owner_of(ring), target)
    }

    /// Moves the slot of a ring to another master, key by key, and returns that master.
    #[track_caller]
    pub fn migrate(&self, ring: &str) -> &RedisServer {
        let target = self.other_masters(ring)[0];
        self.begin_migration(ring, target).finish();
        target
    }

    /// Moves the slot of a ring to another master as a whole, and returns that master. A server that does not know
    /// `CLUSTER MIGRATESLOTS`, such as any Redis, moves it key by key.
    #[track_caller]
    pub fn migrate_at_once(&self, ring: &str) -> &RedisServer {
        let (source, target) = (self.owner_of(ring), self.other_masters(ring)[0]);
        let (slot, id) = (self.slot_of(ring), id_of(target));
        let range = slot.to_string();
        let command = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &range, &range, "NODE", &id];
        match ask::<()>(source, &command) {
            Ok(()) => self.wait_for("the slot at its target", || {
                self.owner(slot).filter(|owner| owner.port() == target.port())
            }),
            Err(error) if error.to_string().to_lowercase().contains("unknown subcommand") => {
                self.begin_migration(ring, target).finish();
                target
            }
            Err(error) => panic!("CLUSTER MIGRATESLOTS: {error}"),
        }
    }

    /// Waits until all servers that can answer agree who serves which slot, and each replica has the data of its master.
    #[track_caller]
    pub fn wait_until_healthy(&self) {
        self.wait_for("a healthy cluster", || self.is_healthy().then_some(()));
    }

    fn form(&self) {
        let masters = &self.servers[..usize::from(MASTERS)];
        for (master, index) in masters.iter().zip(0..MASTERS) {
            let first = u32::from(SLOTS) * u32::from(index) / u32::from(MASTERS);
            let end = u32::from(SLOTS) * u32::from(index + 1) / u32::from(MASTERS);
            let (first, last) = (first.to_string(), (end - 1).to_string());
            ask::<()>(master, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]).unwrap();
            // Different epochs spare the nodes an argument about who has which.
            ask::<()>(master, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]).unwrap();
        }
        for server in &self.servers[1..] {
            let (port, bus) = (server.port().to_string(), server.bus_port().to_string());
            ask::<()>(&self.servers[0], &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).unwrap();
        }
        for (master, replica) in masters.iter().zip(&self.servers[usize::from(MASTERS)..]) {
            let id = id_of(master);
            self.wait_for("a replica that knows its master", || {
                ask::<()>(replica, &["CLUSTER", "REPLICATE", &id]).ok()
            });
        }
    }

    fn is_healthy(&self) -> bool {
        let views: Vec<Vec<NodeLine>> = self.answering().map(lines).collect();
        let mut maps = views.iter().map(|view| node_line::slot_map(view));
        let Some(map) = maps.next() else { return false };
        let complete = map.iter().map(|(range, _)| range.len()).sum::<usize>() == usize::from(SLOTS);
        let answering: Vec<String> = self.answering().map(id_of).collect();
        let known = |view: &Vec<NodeLine>| {
            view.len() == self.servers.len()
                && view.iter().filter(|line| answering.contains(&line.id)).all(NodeLine::is_well)
        };
        complete
            && maps.all(|other| other == map)
            && views.iter().all(known)
            && self.answering().all(|server| field(&info_of_cluster(server), "cluster_state") == "ok")
            && self.answering().all(|server| self.has_its_masters_data(server))
    }

    fn has_its_masters_data(&self, server: &RedisServer) -> bool {
        let replication = info(server, "replication");
        let port = field(&replication, "master_port");
        let master_answers = self.answering().any(|master| master.port().to_string() == port);
        match field(&replication, "role") {
            "master" => own_line(server).is_some_and(|line| line.master == "-"),
            _ => !master_answers || field(&replication, "master_link_status") == "up",
        }
    }

    fn owner(&self, slot: u16) -> Option<&RedisServer> {
        let claims = self.answering().filter_map(|server| Some((own_line(server)?, server)));
        let claims = claims.filter(|(line, _)| line.serves(slot));
        // A master that was frozen still believes in its slots, but under an older epoch.
        claims.max_by_key(|(line, _)| line.epoch).map(|(_, server)| server)
    }

    fn answering(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().filter(|server| server.can_answer())
    }

    #[track_caller]
    fn wait_for<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + HEALTHY;
        eventually(10 * HEALTHY, what, || {
            if let Some(value) = condition() {
                return Some(value);
            }
            assert!(Instant::now() < deadline, "not within {HEALTHY:?}: {what}\n{}", self.describe());
            std::thread::sleep(POLL);
            None
        })
    }

    /// What each server says of the cluster, for a test that fails.
    fn describe(&self) -> String {
        let of = |server: &RedisServer| {
            if !server.can_answer() {
                return format!("{server:?}: does not answer");
            }
            let nodes: String = ask(server, &["CLUSTER", "NODES"]).unwrap_or_default();
            format!("{server:?}, {}:\n{nodes}", field(&info_of_cluster(server), "cluster_state"))
        };
        self.servers.iter().map(of).collect::<Vec<_>>().join("\n")
    }
}

fn id_of(server: &RedisServer) -> String {
    ask(server, &["CLUSTER", "MYID"]).unwrap()
}

fn info_of_cluster(server: &RedisServer) -> String {
    ask(server, &["CLUSTER", "INFO"]).unwrap_or_default()
}

fn lines(server: &RedisServer) -> Vec<NodeLine> {
    let nodes: String = ask(server, &["CLUSTER", "NODES"]).unwrap_or_default();
    nodes.lines().filter_map(NodeLine::parse).collect()
}

fn own_line(server: &RedisServer) -> Option<NodeLine> {
    lines(server).into_iter().find(|line| line.flags.iter().any(|flag| flag == "myself"))
}
