//! The Redis servers of one topology, which the program starts for itself and chaos attacks.
//!
//! | topology   | servers                                         | a client asks        |
//! |------------|-------------------------------------------------|----------------------|
//! | `single`   | one, or one with a replica behind one address   | that address         |
//! | `sentinel` | a master and two replicas, with three sentinels | the sentinels        |
//! | `cluster`  | three masters with one replica each             | any node             |
//!
//! Every server writes each command to a file before it acknowledges the command. So a server that was killed and
//! started again has lost nothing. Only a promotion of a replica loses what the replica does not have.
//!
//! All functions block. They wait until the servers agree who has which part, but not for ever.

mod cluster;
mod look;
mod node_line;
mod sentinels;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use estafeta::{Durability, Endpoint, RingName};

use crate::ephemeral_redis::{Disk, EphemeralRedis, ServerKind};

pub use look::{Look, SeenServer, ServerState};

/// How long the servers may take to agree, not counting the time that a sentinel spends in TILT.
const AGREED: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// How long a server must not answer until the others take it for dead.
pub const DOWN_AFTER: Duration = Duration::from_secs(1);

/// How the servers of a ring are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    #[default]
    Single,
    Sentinel,
    Cluster,
}

impl Topology {
    pub const ALL: [Self; 3] = [Self::Single, Self::Sentinel, Self::Cluster];

    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Sentinel => "sentinel",
            Self::Cluster => "cluster",
        }
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let topology = Self::ALL.into_iter().find(|topology| topology.name() == word);
        topology.ok_or_else(|| format!("expected single, sentinel or cluster, got '{word}'"))
    }
}

/// The servers of one topology. Dropping this value kills them.
pub struct RedisServers {
    topology: Topology,
    servers: Vec<EphemeralRedis>,
    sentinels: Vec<EphemeralRedis>,
    /// The part of a key that decides its slot. It is the same for all keys of the rings under attack.
    hash_tag: String,
    /// The run is over, so nothing is waited for any more.
    over: Arc<AtomicBool>,
    /// The attack has broken off, so no fault waits any more.
    is_interrupted: AtomicBool,
}

impl RedisServers {
    /// Starts the servers in `directory`, and waits until they agree. A single server gets a replica if `has_replica` is
    /// set. Gives up soon after `over` is set, and kills what it has started.
    pub fn start(
        directory: &Path,
        topology: Topology,
        has_replica: bool,
        durability: Durability,
        ring: &RingName,
        over: &Arc<AtomicBool>,
    ) -> Result<Self> {
        // Without a sync, the kernel has a write before Redis acknowledges it. That survives the death of the process,
        // which is all that chaos does to it.
        let sync = if durability == Durability::Disk { "always" } else { "no" };
        let settings = [
            ("appendonly", "yes"),
            ("appendfsync", if topology == Topology::Single { "always" } else { sync }),
            ("repl-diskless-sync", "no"),
            ("repl-ping-replica-period", "1"),
            ("cluster-node-timeout", &DOWN_AFTER.as_millis().to_string()),
        ];
        let (count, kind, settings) = match topology {
            Topology::Single => (1 + usize::from(has_replica), ServerKind::Server, &settings[..4]),
            Topology::Sentinel => (3, ServerKind::Server, &settings[..4]),
            Topology::Cluster => (2 * cluster::MASTERS, ServerKind::ClusterNode, &settings[..]),
        };
        let mut servers = Vec::new();
        if topology == Topology::Single && !has_replica {
            servers.push(EphemeralRedis::start(directory, Disk::Everything)?);
        }
        for number in servers.len()..count {
            if over.load(Ordering::Relaxed) {
                bail!("the run is over");
            }
            let directory = directory.join(format!("redis-{}", number + 1));
            servers.push(EphemeralRedis::on_port(&directory, kind.clone(), settings)?);
        }
        let hash_tag = ring.as_str().split('/').next().unwrap_or_default().to_owned();
        let (over, is_interrupted) = (Arc::clone(over), AtomicBool::new(false));
        let mut all = Self { topology, servers, sentinels: Vec::new(), hash_tag, over, is_interrupted };
        match topology {
            Topology::Single => all.follow(&all.servers[0])?,
            Topology::Sentinel => {
                all.follow(&all.servers[0])?;
                all.sentinels = sentinels::start(directory, &all.servers[0])?;
            }
            Topology::Cluster => all.form_cluster()?,
        }
        all.wait_until_agreed()?;
        Ok(all)
    }

    /// Makes all other servers replicas of this one.
    fn follow(&self, master: &EphemeralRedis) -> Result<()> {
        for replica in self.others(master) {
            replica.ask::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()])?;
        }
        Ok(())
    }

    /// Where a client finds the ring. A single server with a replica has the address of its first server here.
    pub fn endpoint(&self) -> Result<Endpoint> {
        let doors = |servers: &[EphemeralRedis]| {
            let doors = servers.iter().map(|server| format!("127.0.0.1:{}", server.port()));
            doors.collect::<Vec<_>>().join(",")
        };
        Ok(match (self.topology, &self.servers[..]) {
            (Topology::Single, [only]) => only.endpoint()?,
            (Topology::Single, servers) => format!("redis://{}", doors(&servers[..1])).parse()?,
            (Topology::Sentinel, _) => {
                format!("redis+sentinel://{}/{}", doors(&self.sentinels), sentinels::NAME).parse()?
            }
            (Topology::Cluster, servers) => format!("redis+cluster://{}", doors(servers)).parse()?,
        })
    }

    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// The server with this port.
    pub fn server_at(&self, port: u16) -> Result<&EphemeralRedis> {
        self.servers.iter().find(|server| server.port() == port).context("no server has this port")
    }

    /// The server that keeps the ring. Waits until there is one.
    pub fn owner(&self) -> Result<&EphemeralRedis> {
        self.wait_for("server that keeps the ring", || self.owner_now())
    }

    /// The server that keeps the ring at this moment, if the servers agree.
    pub fn owner_now(&self) -> Option<&EphemeralRedis> {
        match self.topology {
            Topology::Single => {
                self.servers.iter().find(|server| self.servers.len() == 1 || is_master(server))
            }
            Topology::Sentinel => self.named_master().filter(|server| is_master(server)),
            Topology::Cluster => self.slot_owner(),
        }
    }

    /// Waits until another server than `old` keeps the ring, and returns it.
    fn owner_after(&self, old: &EphemeralRedis) -> Result<&EphemeralRedis> {
        self.wait_for("other server that keeps the ring", || {
            self.owner_now().filter(|owner| owner.port() != old.port())
        })
    }

    fn others(&self, server: &EphemeralRedis) -> impl Iterator<Item = &EphemeralRedis> {
        let port = server.port();
        self.servers.iter().filter(move |other| other.port() != port)
    }

    /// The replicas of this server that can answer.
    fn replicas(&self, master: &EphemeralRedis) -> Vec<&EphemeralRedis> {
        let port = master.port().to_string();
        let follows = |server: &&EphemeralRedis| {
            let info = info(server, "replication");
            field(&info, "role") == "slave" && field(&info, "master_port") == port
        };
        self.others(master).filter(|server| server.can_answer()).filter(follows).collect()
    }

    /// Waits until every server plays its part: there is one master for each part of the data, and each replica has the
    /// data of its master.
    pub fn wait_until_agreed(&self) -> Result<()> {
        self.wait_for("servers that agree", || self.is_agreed().then_some(()))
    }

    fn is_agreed(&self) -> bool {
        match self.topology {
            Topology::Single if self.servers.len() == 1 => self.servers[0].can_answer(),
            Topology::Single => self.owner_now().is_some_and(|master| self.has_replicas(master, 1)),
            Topology::Sentinel => self.sentinels_agree(),
            Topology::Cluster => self.cluster_agrees(),
        }
    }

    /// Whether so many replicas have the data of this master and receive its writes.
    fn has_replicas(&self, master: &EphemeralRedis, count: usize) -> bool {
        let info = info(master, "replication");
        let online = (0..count).all(|n| field(&info, &format!("slave{n}")).contains("state=online"));
        let is_up = |replica: &&EphemeralRedis| {
            field(&self::info(replica, "replication"), "master_link_status") == "up"
        };
        online && self.replicas(master).into_iter().filter(is_up).count() >= count
    }

    /// Waits for a condition. A time limit that passes while a sentinel is in TILT begins again.
    fn wait_for<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
        let mut deadline = Instant::now() + AGREED;
        loop {
            if let Some(value) = condition() {
                return Ok(value);
            }
            self.check_interrupt()?;
            if self.is_in_tilt() {
                deadline = Instant::now() + AGREED;
            }
            if Instant::now() > deadline {
                bail!("no {what} within {} s: {}", AGREED.as_secs(), self.describe());
            }
            std::thread::sleep(POLL);
        }
    }

    fn check_interrupt(&self) -> Result<()> {
        if self.over.load(Ordering::Relaxed) {
            bail!("the run is over");
        }
        if self.is_interrupted.load(Ordering::Relaxed) {
            bail!("the attack has broken off");
        }
        Ok(())
    }

    /// Lets all faults that still wait for something fail soon. [`revive`](Self::revive) waits again.
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::Relaxed);
    }

    /// Waits, unless the run is over or the attack has broken off.
    pub fn pause(&self, length: Duration) -> Result<()> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.check_interrupt()?;
            std::thread::sleep(POLL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// What each server reports of itself, for people.
    fn describe(&self) -> String {
        let of = |server: &EphemeralRedis| {
            let info = info(server, "replication");
            format!("{} is {} ({})", server.port(), field(&info, "role"), field(&info, "master_link_status"))
        };
        let sentinels = self.sentinels.iter().map(|sentinel| {
            let info = info(sentinel, "sentinel");
            field(&info, "master0").to_owned()
        });
        self.servers.iter().map(of).chain(sentinels).collect::<Vec<_>>().join("; ")
    }

    /// Makes another server keep the ring, as an operator does. Sentinels leave the old master running as it is.
    pub fn fail_over(&self) -> Result<()> {
        self.wait_until_agreed()?;
        match self.topology {
            Topology::Single => self.swap().map(drop)?,
            Topology::Sentinel => self.sentinel_failover()?,
            Topology::Cluster => self.cluster_failover()?,
        }
        self.wait_until_agreed()
    }

    /// Swaps a single server with its replica, without a loss. Returns the server that has the address from now on.
    pub fn swap(&self) -> Result<&EphemeralRedis> {
        self.wait_until_agreed()?;
        let old = self.owner()?;
        let new = self.others(old).next().context("a single server without a replica")?;
        // The server pauses its clients until the replica has everything.
        old.ask::<()>(&["FAILOVER", "TO", "127.0.0.1", &new.port().to_string()])?;
        self.wait_for("swapped server", || (is_master(new) && !is_master(old)).then_some(()))?;
        Ok(new)
    }

    /// Freezes the owner until another server keeps the ring, and then lets it go on. It believes for a while that it
    /// still keeps the ring.
    pub fn depose(&self) -> Result<()> {
        self.wait_until_agreed()?;
        let old = self.owner()?;
        old.freeze()?;
        let deposed = self.owner_after(old);
        old.thaw()?;
        deposed?;
        self.wait_until_agreed()
    }

    /// Kills the owner, and starts it again later. That may be before anyone has noticed.
    pub fn kill_owner(&self, lasts: Duration) -> Result<()> {
        self.wait_until_agreed()?;
        let owner = self.owner()?;
        owner.kill()?;
        self.pause(lasts)?;
        owner.start_again()?;
        self.wait_until_agreed()
    }

    /// Lets the replicas of the owner fall behind.
    pub fn lag(&self, lasts: Duration, lag: ReplicaLag) -> Result<()> {
        self.wait_until_agreed()?;
        let owner = self.owner()?;
        let replicas = self.replicas(owner);
        if lag == ReplicaLag::Frozen {
            let replica = replicas.first().context("no replica answers")?;
            replica.freeze()?;
            let paused = self.pause(lasts);
            replica.thaw()?;
            paused?;
            return self.wait_until_agreed();
        }
        replicas.iter().try_for_each(|replica| cut(replica))?;
        let paused = self.pause(lasts);
        if lag == ReplicaLag::CutThenPromoted {
            owner.kill()?;
        }
        replicas.iter().try_for_each(|replica| mend(replica))?;
        paused?;
        if lag == ReplicaLag::CutThenPromoted {
            let promoted = self.owner_after(owner).map(drop);
            owner.start_again()?;
            promoted?;
        }
        self.wait_until_agreed()
    }

    /// Brings all servers back after any fault.
    pub fn revive(&self) -> Result<()> {
        self.is_interrupted.store(false, Ordering::Relaxed);
        self.sentinels.iter().chain(&self.servers).try_for_each(EphemeralRedis::revive)?;
        if self.servers.len() > 1 {
            self.servers.iter().try_for_each(mend)?;
        }
        self.wait_until_agreed()
    }

    /// Kills all servers. None of them is started again.
    pub fn end(&self) -> std::io::Result<()> {
        self.over.store(true, Ordering::Relaxed);
        self.sentinels.iter().chain(&self.servers).try_for_each(EphemeralRedis::end)
    }
}

/// How replicas fall behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaLag {
    /// One of them is frozen for a while.
    Frozen,
    /// All of them are disconnected for a while.
    Cut,
    /// All of them are disconnected for a while. Then the owner dies, and one of them is promoted.
    CutThenPromoted,
}

/// Disconnects a replica from its master. It tries again, but with a password that the master does not know.
fn cut(replica: &EphemeralRedis) -> Result<()> {
    replica.ask::<()>(&["CONFIG", "SET", "masterauth", "cut"])?;
    replica.ask::<u64>(&["CLIENT", "KILL", "TYPE", "master"])?;
    Ok(())
}

fn mend(replica: &EphemeralRedis) -> Result<()> {
    Ok(replica.ask::<()>(&["CONFIG", "SET", "masterauth", ""])?)
}

/// A section of what a server reports. Empty if it does not answer.
fn info(server: &EphemeralRedis, section: &str) -> String {
    if !server.can_answer() {
        return String::new();
    }
    server.ask(&["INFO", section]).unwrap_or_default()
}

/// The value of a field in an answer to `INFO`. Empty if there is none.
fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).unwrap_or_default().trim_end()
}

fn is_master(server: &EphemeralRedis) -> bool {
    field(&info(server, "replication"), "role") == "master"
}

#[cfg(test)]
mod tests;
