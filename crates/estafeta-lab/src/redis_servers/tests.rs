use super::*;

fn start(topology: Topology, has_replica: bool) -> (tempfile::TempDir, RedisServers) {
    let directory = tempfile::tempdir().unwrap();
    let ring = "orders/lines".parse().unwrap();
    let over = Arc::default();
    let servers =
        RedisServers::start(directory.path(), topology, has_replica, Durability::Memory, &ring, &over);
    (directory, servers.unwrap())
}

/// Writes a key of the ring at its owner, and returns the port of the owner.
fn write(servers: &RedisServers, value: &str) -> u16 {
    let owner = servers.owner().unwrap();
    owner.ask::<()>(&["SET", "{orders}:k", value]).unwrap();
    owner.port()
}

fn read(servers: &RedisServers) -> String {
    servers.owner().unwrap().ask(&["GET", "{orders}:k"]).unwrap()
}

#[test]
fn a_single_server_and_its_replica_swap_without_a_loss() {
    let (_directory, servers) = start(Topology::Single, true);
    let old = write(&servers, "1");
    let new = servers.swap().unwrap().port();
    assert_ne!(old, new);
    assert_eq!(read(&servers), "1");
    servers.end().unwrap();
    assert!(servers.revive().is_err(), "nothing starts after the end");
}

#[test]
fn sentinels_promote_a_replica_if_they_are_asked_or_the_master_is_frozen_or_dead() {
    let (_directory, servers) = start(Topology::Sentinel, false);
    let mut owners = vec![write(&servers, "1")];
    servers.fail_over().unwrap();
    owners.push(write(&servers, "2"));
    servers.depose().unwrap();
    owners.push(write(&servers, "3"));
    servers.wait_until_agreed().unwrap();
    servers.lag(Duration::from_millis(100), ReplicaLag::CutThenPromoted).unwrap();
    owners.push(servers.owner().unwrap().port());
    assert!(owners.windows(2).all(|pair| pair[0] != pair[1]), "{owners:?}");
    assert_eq!(read(&servers), "3", "it was written before the replicas were cut off");
}

#[test]
fn the_slot_of_a_ring_moves_in_a_cluster() {
    let (_directory, servers) = start(Topology::Cluster, false);
    let mut owners = vec![write(&servers, "1")];
    servers.fail_over().unwrap();
    owners.push(write(&servers, "2"));
    servers.migrate(Duration::from_millis(50)).unwrap();
    owners.push(servers.owner().unwrap().port());
    assert_eq!(read(&servers), "2");
    servers.depose().unwrap();
    owners.push(servers.owner().unwrap().port());
    assert!(owners.windows(2).all(|pair| pair[0] != pair[1]), "{owners:?}");
    servers.lag(Duration::from_millis(100), ReplicaLag::Frozen).unwrap();
    servers.lag(Duration::from_millis(100), ReplicaLag::Cut).unwrap();
    servers.kill_owner(Duration::ZERO).unwrap();
    assert_eq!(read(&servers), "2");
}

/// Whether the only replica has everything, by one look.
fn is_complete(servers: &RedisServers) -> bool {
    servers.look().servers.iter().any(|server| server.is_complete)
}

/// Lets the replica of a single server fall behind for as long as `act` runs.
fn during_lag(lag: ReplicaLag, act: impl FnOnce(&RedisServers, &EphemeralRedis)) {
    let (_directory, servers) = start(Topology::Single, true);
    write(&servers, "before");
    servers.wait_for("complete replica", || is_complete(&servers).then_some(())).unwrap();
    let replica = servers.replicas(servers.owner().unwrap())[0];
    std::thread::scope(|scope| {
        let lagging = scope.spawn(|| servers.lag(Duration::from_secs(60), lag));
        act(&servers, replica);
        servers.interrupt();
        let ended = lagging.join().unwrap().unwrap_err().to_string();
        assert_eq!(ended, "the attack has broken off");
    });
    servers.revive().unwrap();
    servers.wait_for("complete replica", || is_complete(&servers).then_some(())).unwrap();
    let value: String = replica.ask(&["GET", "{orders}:k"]).unwrap();
    assert_eq!(value, "after", "it has caught up");
}

#[test]
fn a_replica_that_is_cut_off_is_disconnected_and_lacks_what_is_written_meanwhile() {
    during_lag(ReplicaLag::Cut, |servers, replica| {
        let is_down = || field(&info(replica, "replication"), "master_link_status") == "down";
        servers.wait_for("disconnected replica", || is_down().then_some(())).unwrap();
        write(servers, "after");
        let value: String = replica.ask(&["GET", "{orders}:k"]).unwrap();
        assert_eq!((&value[..], is_down(), is_complete(servers)), ("before", true, false));
    });
}

#[test]
fn a_frozen_replica_does_not_confirm_what_is_written_meanwhile() {
    during_lag(ReplicaLag::Frozen, |servers, replica| {
        servers.wait_for("frozen replica", || (!replica.can_answer()).then_some(())).unwrap();
        write(servers, "after");
        let look = servers.look();
        let seen = look.servers.iter().find(|server| server.port == replica.port()).unwrap();
        assert_eq!((seen.state, seen.is_complete), (ServerState::Away, false));
        let owner = servers.owner().unwrap();
        let of_owner = info(owner, "replication");
        let confirmed = field(&of_owner, "slave0").split(',').find_map(|part| part.strip_prefix("offset="));
        let number = |text: &str| text.parse::<u64>().unwrap();
        assert!(number(confirmed.unwrap()) < number(field(&of_owner, "master_repl_offset")), "{of_owner}");
    });
}

#[test]
fn a_failover_that_the_sentinels_gave_up_is_requested_again() {
    let (_directory, servers) = start(Topology::Sentinel, false);
    let old = servers.owner().unwrap();
    let replicas = servers.replicas(old);
    let in_progress = || {
        let is_busy = |sentinel: &EphemeralRedis| {
            let masters =
                sentinel.ask::<Vec<std::collections::HashMap<String, String>>>(&["SENTINEL", "MASTERS"]);
            masters.unwrap_or_default().iter().any(|master| master["flags"].contains("failover_in_progress"))
        };
        servers.sentinels.iter().any(is_busy)
    };
    replicas.iter().for_each(|replica| replica.freeze().unwrap());
    std::thread::scope(|scope| {
        let failover = scope.spawn(|| servers.sentinel_failover());
        servers.wait_for("failover", || in_progress().then_some(())).unwrap();
        servers.wait_for("failover that was given up", || (!in_progress()).then_some(())).unwrap();
        assert_eq!(servers.owner_now().map(EphemeralRedis::port), Some(old.port()));
        replicas.iter().for_each(|replica| replica.thaw().unwrap());
        failover.join().unwrap().unwrap();
    });
    assert_ne!(servers.owner().unwrap().port(), old.port());
}

#[test]
fn a_start_that_is_interrupted_gives_up() {
    let directory = tempfile::tempdir().unwrap();
    let (ring, over) = ("orders".parse().unwrap(), Arc::new(AtomicBool::new(true)));
    for topology in [Topology::Sentinel, Topology::Cluster] {
        let started =
            RedisServers::start(directory.path(), topology, false, Durability::Memory, &ring, &over);
        assert_eq!(started.err().unwrap().to_string(), "the run is over");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no server was started");
}
