//! One look at all servers: who keeps the ring, who may acknowledge writes, and who has all of them.

use super::{RedisServers, Topology, field, info};
use crate::clock::now_ms;

/// What one look at the servers showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// When it began and when it ended.
    pub from_ms: u64,
    pub until_ms: u64,
    /// The port of the server that keeps the ring, if the servers agree.
    pub owner: Option<u16>,
    pub servers: Vec<SeenServer>,
}

/// One server in a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenServer {
    pub port: u16,
    pub state: ServerState,
    /// A count that grows with each write. None if it did not answer.
    pub changes: Option<u64>,
    /// It is a replica of the owner, and has everything that the owner had when the look began.
    pub is_complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It may acknowledge writes: it is a master, or it runs but did not answer.
    MayWrite,
    Replica,
    /// It was killed or is frozen.
    Away,
}

impl RedisServers {
    /// Looks at all servers.
    pub fn look(&self) -> Look {
        let from_ms = now_ms();
        let first: Vec<(u16, ServerState, String)> = self
            .servers
            .iter()
            .map(|server| {
                let info = info(server, "default");
                let state = match field(&info, "role") {
                    _ if !server.can_answer() => ServerState::Away,
                    "slave" => ServerState::Replica,
                    _ => ServerState::MayWrite,
                };
                (server.port(), state, info)
            })
            .collect();
        // The owner is asked for after the states. So a server that was promoted meanwhile was seen as a replica.
        let owner = self.owner_now().map(|owner| owner.port()).or_else(|| self.only_master(&first));
        let of_owner = first.iter().find(|(port, ..)| Some(*port) == owner).map(|(.., info)| &info[..]);
        let seen = self.servers.iter().zip(&first).map(|(server, (port, state, of_server))| {
            // A replica is asked after its master, so it may be ahead of what the master reported.
            let is_complete = *state == ServerState::Replica
                && of_owner
                    .is_some_and(|of_owner| is_complete(of_owner, owner, &info(server, "replication")));
            let changes = field(of_server, "rdb_changes_since_last_save").parse().ok();
            SeenServer { port: *port, state: *state, changes, is_complete }
        });
        let servers = seen.collect();
        Look { from_ms, until_ms: now_ms(), owner, servers }
    }

    /// The only server that calls itself a master, if the sentinels do not act. A sentinel in TILT watches the servers,
    /// but distrusts what it sees.
    fn only_master(&self, seen: &[(u16, ServerState, String)]) -> Option<u16> {
        if self.topology != Topology::Sentinel || !self.is_in_tilt() {
            return None;
        }
        let mut masters = seen.iter().filter(|(.., info)| field(info, "role") == "master");
        match (masters.next(), masters.next()) {
            (Some((port, ..)), None) => Some(*port),
            _ => None,
        }
    }
}

/// Whether a replica has all that its master reported before.
fn is_complete(of_owner: &str, owner: Option<u16>, of_replica: &str) -> bool {
    let number = |info, name| field(info, name).parse::<u64>().ok();
    let (Some(has), Some(needs)) =
        (number(of_replica, "slave_repl_offset"), number(of_owner, "master_repl_offset"))
    else {
        return false;
    };
    field(of_owner, "role") == "master"
        && field(of_replica, "master_port").parse().ok() == owner
        && field(of_replica, "master_link_status") == "up"
        && field(of_replica, "master_replid") == field(of_owner, "master_replid")
        && has >= needs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_complete_only_with_every_byte_of_the_same_history() {
        let owner = "role:master\r\nmaster_replid:abc\r\nmaster_repl_offset:100\r\n";
        let replica = |offset: u64, id: &str, link: &str| {
            format!(
                "role:slave\r\nmaster_port:7\r\nmaster_link_status:{link}\r\nslave_repl_offset:{offset}\r\n\
                 master_replid:{id}\r\n"
            )
        };
        assert!(is_complete(owner, Some(7), &replica(100, "abc", "up")));
        assert!(is_complete(owner, Some(7), &replica(101, "abc", "up")));
        for wrong in [replica(99, "abc", "up"), replica(100, "abd", "up"), replica(100, "abc", "down")] {
            assert!(!is_complete(owner, Some(7), &wrong), "{wrong}");
        }
        assert!(!is_complete(owner, Some(8), &replica(100, "abc", "up")), "of another master");
        assert!(!is_complete("", Some(7), &replica(100, "abc", "up")), "its master did not answer");
    }
}
