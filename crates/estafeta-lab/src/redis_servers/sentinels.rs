//! Sentinels that watch a master and its replicas.
//!
//! A sentinel whose machine stalled for 2 s distrusts its own clock: for a while it watches, but does not act. That mode
//! is called TILT. Here it lasts 3 s instead of 30 s.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::{DOWN_AFTER, RedisServers, field, info, is_master};
use crate::ephemeral_redis::{EphemeralRedis, ServerKind};

/// The name under which the sentinels know the master.
pub const NAME: &str = "estafeta";
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// Sentinels give up a failover if one of its steps takes longer than this.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time without a promotion, the failover has to be requested again.
const FAILOVER_GIVEN_UP: Duration = Duration::from_secs(6);

/// Starts the sentinels of this master.
pub fn start(directory: &Path, master: &EphemeralRedis) -> Result<Vec<EphemeralRedis>> {
    let (port, down_after, timeout) = (master.port(), DOWN_AFTER.as_millis(), FAILOVER_TIMEOUT.as_millis());
    let lines = [
        format!("sentinel monitor {NAME} 127.0.0.1 {port} {QUORUM}"),
        format!("sentinel down-after-milliseconds {NAME} {down_after}"),
        format!("sentinel failover-timeout {NAME} {timeout}"),
    ];
    let lines = lines.map(|line| line + "\n").concat();
    let mut sentinels = Vec::new();
    for number in 1..=SENTINELS {
        let directory = directory.join(format!("sentinel-{number}"));
        let sentinel = EphemeralRedis::on_port(&directory, ServerKind::Sentinel(lines.clone()), &[])?;
        // This only makes them quicker: they learn of each other and of new roles sooner, and TILT is short. A server
        // that does not know these settings is slower.
        let quick = ["PUBLISH-PERIOD", "200", "INFO-PERIOD", "1000", "TILT-PERIOD", "3000"];
        let _ = sentinel.ask::<()>(&[&["SENTINEL", "DEBUG"], &quick[..]].concat());
        sentinels.push(sentinel);
    }
    Ok(sentinels)
}

impl RedisServers {
    /// Makes the sentinels promote a replica. Requests it again if they have given up.
    pub(super) fn sentinel_failover(&self) -> Result<()> {
        let old = self.owner()?;
        let mut requested: Option<Instant> = None;
        let promoted = self.wait_for("promoted replica", || {
            if self.owner_now().is_some_and(|owner| owner.port() != old.port()) {
                return Some(Ok(()));
            }
            if requested.is_some_and(|requested| requested.elapsed() < FAILOVER_GIVEN_UP) {
                return None;
            }
            match self.acting_sentinels().next()?.ask::<()>(&["SENTINEL", "FAILOVER", NAME]) {
                Ok(()) => requested = Some(Instant::now()),
                // An earlier failover is not over yet, or the sentinel has no fresh news of the replicas.
                Err(error) if matches!(error.code(), Some("INPROG" | "NOGOODSLAVE")) => {}
                Err(error) => return Some(Err(anyhow!("SENTINEL FAILOVER: {error}"))),
            }
            None
        });
        promoted?
    }

    /// The master that most sentinels name.
    pub(super) fn named_master(&self) -> Option<&EphemeralRedis> {
        let named: Vec<u16> = self.acting_sentinels().filter_map(master_port).collect();
        self.servers.iter().find(|server| {
            let votes = named.iter().filter(|port| **port == server.port()).count();
            votes >= QUORUM
        })
    }

    pub(super) fn sentinels_agree(&self) -> bool {
        let Some(master) = self.named_master().filter(|master| is_master(master)) else { return false };
        let replicas = self.servers.len() - 1;
        let sees = |sentinel: &EphemeralRedis| {
            let info = info(sentinel, "sentinel");
            let line = field(&info, "master0");
            master_port(sentinel) == Some(master.port())
                && line.contains("status=ok")
                && line.contains(&format!("slaves={replicas},"))
                && line.ends_with(&format!("sentinels={SENTINELS}"))
                && self.knows_replicas(sentinel, master)
        };
        self.acting_sentinels().filter(|sentinel| sees(sentinel)).count() == SENTINELS
            && self.has_replicas(master, replicas)
    }

    /// Whether a sentinel is in contact with every replica. Only then can it promote one.
    fn knows_replicas(&self, sentinel: &EphemeralRedis, master: &EphemeralRedis) -> bool {
        let known = sentinel.ask::<Vec<HashMap<String, String>>>(&["SENTINEL", "REPLICAS", NAME]);
        let known = known.unwrap_or_default();
        let is_well = |replica: &EphemeralRedis| {
            known.iter().any(|known| {
                let get = |name: &str| known.get(name).map(String::as_str).unwrap_or_default();
                get("port") == replica.port().to_string()
                    && get("flags") == "slave"
                    && get("master-link-status") == "ok"
            })
        };
        self.others(master).all(is_well)
    }

    /// The sentinels that are not in TILT.
    fn acting_sentinels(&self) -> impl Iterator<Item = &EphemeralRedis> {
        self.sentinels.iter().filter(|sentinel| !is_in_tilt(sentinel))
    }

    /// Whether a sentinel distrusts its clock.
    pub(super) fn is_in_tilt(&self) -> bool {
        self.sentinels.iter().any(is_in_tilt)
    }
}

fn is_in_tilt(sentinel: &EphemeralRedis) -> bool {
    field(&info(sentinel, "sentinel"), "sentinel_tilt") == "1"
}

fn master_port(sentinel: &EphemeralRedis) -> Option<u16> {
    let named: (String, u16) = sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]).ok()?;
    Some(named.1)
}
