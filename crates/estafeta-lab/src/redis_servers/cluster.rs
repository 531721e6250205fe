//! A cluster of three masters with one replica each. All keys of the rings under attack are in one slot.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::node_line::{self, NodeLine};
use super::{RedisServers, field, info};
use crate::ephemeral_redis::EphemeralRedis;

pub const MASTERS: usize = 3;
const SLOTS: usize = 16384;
/// Redis gives up a planned failover after 5 s. Then it has to be requested again.
const FAILOVER_GIVEN_UP: Duration = Duration::from_secs(6);
/// How many keys are moved at once.
const KEYS: &str = "20";

impl RedisServers {
    /// Joins the servers to a cluster.
    pub(super) fn form_cluster(&self) -> Result<()> {
        let (masters, replicas) = self.servers.split_at(MASTERS);
        for (index, master) in masters.iter().enumerate() {
            let (first, end) = (SLOTS * index / MASTERS, SLOTS * (index + 1) / MASTERS);
            let (first, last) = (first.to_string(), (end - 1).to_string());
            master.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            // Different epochs spare the nodes an argument about who has which.
            master.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
        }
        for server in &self.servers[1..] {
            let (port, bus) = (server.port().to_string(), server.bus_port().to_string());
            self.servers[0].ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        for (master, replica) in masters.iter().zip(replicas) {
            let id = id_of(master)?;
            self.wait_for("replica that knows its master", || {
                replica.ask::<()>(&["CLUSTER", "REPLICATE", &id]).ok()
            })?;
        }
        Ok(())
    }

    pub(super) fn cluster_agrees(&self) -> bool {
        let views: Vec<Vec<NodeLine>> = self.servers.iter().map(lines).collect();
        let mut maps = views.iter().map(|view| node_line::slot_map(view));
        let Some(map) = maps.next() else { return false };
        let is_complete = map.iter().map(|(range, _)| range.len()).sum::<usize>() == SLOTS;
        let is_known =
            |view: &Vec<NodeLine>| view.len() == self.servers.len() && view.iter().all(NodeLine::is_well);
        let is_well = |server: &EphemeralRedis| {
            let cluster: String = server.ask(&["CLUSTER", "INFO"]).unwrap_or_default();
            let replication = info(server, "replication");
            let is_up = match field(&replication, "role") {
                "master" => field(&replication, "slave0").contains("state=online"),
                _ => field(&replication, "master_link_status") == "up",
            };
            field(&cluster, "cluster_state") == "ok" && is_up
        };
        is_complete
            && maps.all(|other| other == map)
            && views.iter().all(is_known)
            && self.servers.iter().all(is_well)
    }

    /// The master that serves the ring.
    pub(super) fn slot_owner(&self) -> Option<&EphemeralRedis> {
        let answering = || self.servers.iter().filter(|server| server.can_answer());
        let tag = format!("{{{}}}", self.hash_tag);
        let slot: u16 = answering().find_map(|server| server.ask(&["CLUSTER", "KEYSLOT", &tag]).ok())?;
        let claims = answering().filter_map(|server| Some((own_line(server)?, server)));
        let claims = claims.filter(|(line, _)| line.serves(slot));
        // A master that was frozen still believes in its slots, but under an older epoch.
        claims.max_by_key(|(line, _)| line.epoch).map(|(_, server)| server)
    }

    /// Promotes the replica of the ring's owner.
    pub(super) fn cluster_failover(&self) -> Result<()> {
        let old = self.owner()?;
        let replica = *self.replicas(old).first().context("no replica answers")?;
        let mut requested: Option<Instant> = None;
        self.wait_for("promoted replica", || {
            if self.owner_now().is_some_and(|owner| owner.port() == replica.port()) {
                return Some(());
            }
            if requested.is_none_or(|requested| requested.elapsed() > FAILOVER_GIVEN_UP) {
                let _ = replica.ask::<()>(&["CLUSTER", "FAILOVER"]);
                requested = Some(Instant::now());
            }
            None
        })
    }

    /// Moves the slot of the ring to another master, key by key, as `redis-cli --cluster reshard` does. The first key
    /// moves at once, and the others after a pause. Meanwhile nothing can be done with the ring.
    pub fn migrate(&self, lasts: Duration) -> Result<()> {
        self.wait_until_agreed()?;
        let source = self.owner()?;
        let serves_others = |server: &&EphemeralRedis| own_line(server).is_some_and(|line| line.serves_any());
        let target = self.others(source).find(serves_others).context("no other master serves slots")?;
        let tag = format!("{{{}}}", self.hash_tag);
        let slot: u16 = source.ask(&["CLUSTER", "KEYSLOT", &tag])?;
        let slot = slot.to_string();
        let set_slot = |server: &EphemeralRedis, state: &str, id: &str| {
            server.ask::<()>(&["CLUSTER", "SETSLOT", &slot, state, id])
        };
        let (source_id, target_id) = (id_of(source)?, id_of(target)?);
        set_slot(target, "IMPORTING", &source_id)?;
        set_slot(source, "MIGRATING", &target_id)?;
        move_keys(source, target, &slot, "1")?;
        let paused = self.pause(lasts);
        while move_keys(source, target, &slot, KEYS)? > 0 {}
        // The target first: otherwise no node would serve the slot for a moment.
        set_slot(target, "NODE", &target_id)?;
        set_slot(source, "NODE", &target_id)?;
        for server in self.others(source) {
            // A replica refuses this command, and hears it from its master.
            let _ = set_slot(server, "NODE", &target_id);
        }
        paused?;
        self.wait_until_agreed()
    }
}

/// Moves at most `count` keys of a slot, and returns how many there were.
fn move_keys(source: &EphemeralRedis, target: &EphemeralRedis, slot: &str, count: &str) -> Result<usize> {
    let keys: Vec<Vec<u8>> = source.ask(&["CLUSTER", "GETKEYSINSLOT", slot, count])?;
    if keys.is_empty() {
        return Ok(0);
    }
    let mut command = redis::cmd("MIGRATE");
    // An empty key means that the keys follow. The database is 0, and the time limit 10 s.
    command.arg("127.0.0.1").arg(target.port()).arg("").arg(0).arg(10_000).arg("KEYS").arg(&keys);
    command.exec(&mut source.connect()?).context("MIGRATE")?;
    Ok(keys.len())
}

fn id_of(server: &EphemeralRedis) -> Result<String> {
    Ok(server.ask(&["CLUSTER", "MYID"])?)
}

fn lines(server: &EphemeralRedis) -> Vec<NodeLine> {
    if !server.can_answer() {
        return Vec::new();
    }
    let nodes: String = server.ask(&["CLUSTER", "NODES"]).unwrap_or_default();
    nodes.lines().filter_map(NodeLine::parse).collect()
}

fn own_line(server: &EphemeralRedis) -> Option<NodeLine> {
    lines(server).into_iter().find(|line| line.flags.iter().any(|flag| flag == "myself"))
}
