//! The times in which a promotion may have lost what Redis had acknowledged.
//!
//! Chaos looks at all servers again and again, and notes when each replica had everything that the owner of the ring had
//! acknowledged. When another server becomes the owner, two kinds of steps may be lost:
//!
//! - those that the old owner acknowledged after the new one had everything for the last time, as far as chaos saw,
//! - those that the old owner acknowledges later, because it does not know yet that it was replaced.
//!
//! Times in which the old owner was killed or frozen do not count, nor those in which it wrote nothing. A move without a loss has no such time: a slot that
//! migrates, and `CLUSTER FAILOVER`, which waits until the replica has everything.

use std::collections::HashMap;

use crate::redis_servers::{Look, SeenServer, ServerState};

/// From and until, in ms since 1970.
pub type TimeSpan = (u64, u64);

#[derive(Debug, Default)]
pub struct Promotions {
    owner: Option<u16>,
    /// When each replica had everything for the last time.
    complete: HashMap<u16, u64>,
    /// Until when each server may have acknowledged writes.
    wrote_until: HashMap<u16, u64>,
    /// Owners that were replaced and do not follow the new one yet.
    deposed: Vec<u16>,
    last: Option<Look>,
    times: Vec<TimeSpan>,
}

impl Promotions {
    /// Notes what a look showed. If another server keeps the ring since the look before, `is_lossless` is called with the
    /// time between the two. It returns whether the move loses nothing.
    pub fn note(&mut self, look: Look, is_lossless: impl FnOnce(TimeSpan) -> bool) {
        let before = self.last.as_ref();
        let since_ms = before.map_or(look.from_ms, |before| before.from_ms);
        let may_have_written = |port: u16| {
            let states = [before, Some(&look)].into_iter().flatten().map(|look| state(look, port));
            states.into_iter().any(|state| state == ServerState::MayWrite)
        };
        for server in look.servers.iter().filter(|server| may_have_written(server.port)) {
            self.wrote_until.insert(server.port, look.until_ms);
        }
        if let (Some(old), Some(new)) = (self.owner, look.owner)
            && old != new
        {
            self.deposed.retain(|port| *port != new);
            if is_lossless((since_ms, look.until_ms)) {
                // The replicas of the new owner may lack what came with the slot.
                self.complete.clear();
            } else {
                let from_ms = self.complete.get(&new).copied().unwrap_or(0);
                let until_ms = self.wrote_until.get(&old).copied().unwrap_or(look.until_ms);
                self.times.push((from_ms, until_ms.max(from_ms)));
                self.deposed.push(old);
            }
        }
        for port in &self.deposed {
            if !before.is_some_and(|before| wrote_nothing(before, &look, *port)) {
                self.times.push((since_ms, look.until_ms));
            }
        }
        self.deposed.retain(|port| state(&look, *port) != ServerState::Replica);
        self.owner = look.owner.or(self.owner);
        for server in look.servers.iter().filter(|server| server.is_complete) {
            self.complete.insert(server.port, look.from_ms);
        }
        self.last = Some(look);
    }

    /// Whether a replica had everything when chaos looked last.
    pub fn has_complete_replica(&self) -> bool {
        self.last.iter().flat_map(|look| &look.servers).any(|server| server.is_complete)
    }

    /// The times so far. Some of them overlap.
    pub fn times(&self) -> &[TimeSpan] {
        &self.times
    }
}

fn server(look: &Look, port: u16) -> Option<&SeenServer> {
    look.servers.iter().find(|server| server.port == port)
}

fn state(look: &Look, port: u16) -> ServerState {
    server(look, port).map_or(ServerState::Away, |server| server.state)
}

/// Whether a server surely wrote nothing between two looks.
fn wrote_nothing(before: &Look, after: &Look, port: u16) -> bool {
    let looks = [before, after];
    let changes = looks.map(|look| server(look, port).and_then(|server| server.changes));
    let is_away = looks.map(|look| state(look, port) == ServerState::Away);
    is_away == [true, true] || (is_away == [false, false] && changes[0].is_some() && changes[0] == changes[1])
}

#[cfg(test)]
mod tests {
    use super::ServerState::{Away, MayWrite, Replica};
    use super::*;
    use crate::chaos::losses::Losses;

    /// Looks at the servers 1 and 2 every 100 ms, each of which lasts 10 ms. A look has the owner, the states, and whether
    /// the second server has everything.
    fn times(looks: &[(Option<u16>, [ServerState; 2], bool)], is_lossless: bool) -> Vec<TimeSpan> {
        let mut promotions = Promotions::default();
        for (index, (owner, [first, second], is_complete)) in looks.iter().enumerate() {
            let from_ms = 1000 + 100 * index as u64;
            let servers = vec![
                SeenServer { port: 1, state: *first, changes: None, is_complete: false },
                SeenServer { port: 2, state: *second, changes: None, is_complete: *is_complete },
            ];
            promotions
                .note(Look { from_ms, until_ms: from_ms + 10, owner: *owner, servers }, |_| is_lossless);
        }
        promotions.times().to_vec()
    }

    const WELL: (Option<u16>, [ServerState; 2], bool) = (Some(1), [MayWrite, Replica], true);

    #[test]
    fn servers_that_keep_their_places_lose_nothing_whatever_happens_to_them() {
        let looks = [
            WELL,
            (None, [Away, Replica], false),
            (None, [MayWrite, Replica], false),
            (Some(1), [MayWrite, Away], false),
            WELL,
        ];
        assert_eq!(times(&looks, false), []);
    }

    #[test]
    fn a_dead_owner_loses_what_its_replica_did_not_have_and_nothing_after_its_death() {
        let promoted = (Some(2), [Away, MayWrite], false);
        let looks = [
            WELL,
            WELL,
            (Some(1), [MayWrite, Replica], false),
            (None, [Away, Replica], false),
            (None, [Away, Replica], false),
            promoted,
            promoted,
        ];
        assert_eq!(times(&looks, false), [(1100, 1310)]);
        assert_eq!(times(&looks, true), [], "a move without a loss");
    }

    #[test]
    fn an_owner_that_does_not_know_that_it_was_replaced_loses_writes_until_it_follows() {
        let looks = [
            WELL,
            (None, [Away, Replica], false),
            (None, [Away, Replica], false),
            (Some(2), [Away, MayWrite], false),
            (Some(2), [Away, MayWrite], false),
            (Some(2), [MayWrite, MayWrite], false),
            (Some(2), [Replica, MayWrite], false),
            (Some(2), [Replica, MayWrite], false),
        ];
        assert_eq!(times(&looks, false), [(1000, 1110), (1400, 1510), (1500, 1610)]);
        let planned =
            [WELL, (Some(2), [MayWrite, MayWrite], false), (Some(2), [Replica, MayWrite], false), WELL];
        assert_eq!(times(&planned[..3], false)[..], [(1000, 1110), (1000, 1110), (1100, 1210)]);
    }

    #[test]
    fn a_replaced_owner_that_writes_nothing_loses_nothing() {
        let look = |from_ms, owner, state, changes| Look {
            from_ms,
            until_ms: from_ms + 10,
            owner: Some(owner),
            servers: vec![
                SeenServer { port: 1, state, changes, is_complete: false },
                SeenServer { port: 2, state: Replica, changes: None, is_complete: owner == 1 },
            ],
        };
        let mut promotions = Promotions::default();
        promotions.note(look(1000, 1, MayWrite, Some(7)), |_| false);
        promotions.note(look(1100, 2, Away, None), |_| false);
        let times = promotions.times().len();
        // It comes back, and may have written something by then. Later it writes once.
        for (from_ms, changes) in [(1200, 3), (1300, 3), (1400, 3), (1500, 4), (1600, 4)] {
            promotions.note(look(from_ms, 2, MayWrite, Some(changes)), |_| false);
        }
        assert_eq!(promotions.times()[times..], [(1100, 1210), (1400, 1510)]);
    }

    #[test]
    fn a_promoted_server_that_never_had_everything_may_have_lost_everything() {
        let looks = [(Some(1), [MayWrite, Replica], false), (Some(2), [Replica, MayWrite], false)];
        assert_eq!(times(&looks, false)[0], (0, 1110));
        let after_a_migration = {
            let mut promotions = Promotions::default();
            let look = |from_ms, owner, is_complete| Look {
                from_ms,
                until_ms: from_ms + 10,
                owner: Some(owner),
                servers: vec![SeenServer { port: 2, state: Replica, changes: None, is_complete }],
            };
            promotions.note(look(1000, 1, true), |_| true);
            promotions.note(look(1100, 3, false), |_| true);
            promotions.note(look(1200, 2, false), |_| false);
            promotions.times()[0]
        };
        assert_eq!(after_a_migration.0, 0, "it may lack what migrated");
    }

    #[test]
    fn the_time_at_risk_counts_overlapping_times_once_and_only_within_the_attack() {
        let losses = Losses::During(vec![(0, 150), (300, 400), (350, 500), (380, 390), (900, 2000)]);
        assert_eq!(losses.at_risk_ms(100, 1000), Some(50 + 200 + 100));
        assert_eq!(Losses::During(vec![]).at_risk_ms(100, 1000), Some(0));
        for nothing in [Losses::Nothing, Losses::Unconfirmed] {
            assert_eq!(nothing.at_risk_ms(100, 1000), None);
        }
    }
}
