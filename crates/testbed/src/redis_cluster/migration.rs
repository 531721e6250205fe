use redis::RedisResult;

use super::{RedisCluster, id_of};
use crate::RedisServer;
use crate::question::ask;

/// A slot on its way from one master to another, as `redis-cli --cluster reshard` moves it.
///
/// The test decides how fast the keys move. A migration that is dropped stays open.
#[derive(Debug)]
pub struct SlotMigration<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    source: &'a RedisServer,
    target: &'a RedisServer,
}

impl<'a> SlotMigration<'a> {
    pub(super) fn begin(
        cluster: &'a RedisCluster,
        slot: u16,
        source: &'a RedisServer,
        target: &'a RedisServer,
    ) -> Self {
        let migration = Self { cluster, slot, source, target };
        migration.set_slot(target, "IMPORTING", &id_of(source)).unwrap();
        migration.set_slot(source, "MIGRATING", &id_of(target)).unwrap();
        migration
    }

    /// The master that gives the slot away.
    pub fn source(&self) -> &'a RedisServer {
        self.source
    }

    /// The master that receives it.
    pub fn target(&self) -> &'a RedisServer {
        self.target
    }

    /// Moves at most `count` keys, and returns how many there were.
    #[track_caller]
    pub fn move_keys(&self, count: usize) -> usize {
        let (slot, count) = (self.slot.to_string(), count.to_string());
        let keys: Vec<Vec<u8>> = ask(self.source, &["CLUSTER", "GETKEYSINSLOT", &slot, &count]).unwrap();
        if keys.is_empty() {
            return 0;
        }
        let mut command = redis::cmd("MIGRATE");
        // An empty key means that the keys follow. The database is 0, and the time limit 5 s.
        command.arg("127.0.0.1").arg(self.target.port()).arg("").arg(0).arg(5000);
        if let Some(password) = self.source.options().secret() {
            command.arg("AUTH").arg(password);
        }
        command.arg("KEYS").arg(&keys).exec(&mut self.source.connect()).unwrap();
        keys.len()
    }

    /// Moves all keys that are left, then gives the slot to the target.
    #[track_caller]
    pub fn finish(self) {
        while self.move_keys(100) > 0 {}
        let target = id_of(self.target);
        // The target first: otherwise no node would serve the slot for a moment.
        self.set_slot(self.target, "NODE", &target).unwrap();
        self.set_slot(self.source, "NODE", &target).unwrap();
        let both = [self.target.port(), self.source.port()];
        for server in self.cluster.servers().iter().filter(|server| server.can_answer()) {
            if !both.contains(&server.port()) {
                // A replica refuses this command, and hears it from its master.
                let _ = self.set_slot(server, "NODE", &target);
            }
        }
    }

    fn set_slot(&self, server: &RedisServer, state: &str, id: &str) -> RedisResult<()> {
        ask(server, &["CLUSTER", "SETSLOT", &self.slot.to_string(), state, id])
    }
}
