//! A master and its replica, and how their roles change.

use estafeta::Config;
use estafeta_testbed::RedisServer;

use super::{MovingAddress, SOON, changed, config};

/// A master and its replica behind one address.
pub struct Pair {
    pub master: RedisServer,
    pub replica: RedisServer,
    pub address: MovingAddress,
}

impl Pair {
    pub async fn start() -> Self {
        let [master, replica] = [(); 2].map(|()| RedisServer::builder().tcp().with_replicas().start());
        replica.follow(&master);
        let address = MovingAddress::of(&master).await;
        Self { master, replica, address }
    }

    pub fn config(&self) -> Config {
        changed(config(&self.master), |config| config.redis = self.address.url().parse().unwrap())
    }

    /// Swaps the roles without loss, and lets the address lead to the new master. Nothing is disconnected.
    pub fn switch(&self) {
        tell(&self.master, &["CLIENT", "PAUSE", "60000", "WRITE"]);
        let offset = |server: &RedisServer| {
            let info: String = redis::cmd("INFO").arg("replication").query(&mut server.connect()).unwrap();
            let field = |line: &str| line.strip_prefix("master_repl_offset:")?.trim().parse::<u64>().ok();
            info.lines().find_map(field).unwrap()
        };
        let all = offset(&self.master);
        estafeta_testbed::eventually(SOON, "the replica has all", || {
            (offset(&self.replica) >= all).then_some(())
        });
        tell(&self.replica, &["REPLICAOF", "NO", "ONE"]);
        self.address.move_to(&self.replica);
        self.master.follow(&self.replica);
        tell(&self.master, &["CLIENT", "UNPAUSE"]);
    }
}

/// Sends a command, and expects no error.
pub fn tell(server: &RedisServer, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.connect()).unwrap();
}
