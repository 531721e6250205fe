use super::*;

/// Targets without nodes, on servers of their own.
async fn targets(directory: &tempfile::TempDir, topology: Topology) -> Arc<Targets> {
    let (place, ring) = (directory.path().to_owned(), "orders".parse().unwrap());
    let start = move || {
        RedisServers::start(&place, topology, true, estafeta::Durability::Memory, &ring, &Arc::default())
    };
    let redis = spawn_blocking(start).await.unwrap().unwrap();
    let proxy = Proxy::to_endpoint(&redis.endpoint().unwrap()).await.unwrap().unwrap();
    Arc::new(Targets::new(Vec::new(), Some(redis), proxy))
}

/// A fault of Redis that lasts longer than its test, unless the test fails.
fn long_fault(kind: FaultKind, form: u32) -> PlannedFault {
    let lasts = Duration::from_secs(60);
    PlannedFault { at: Duration::ZERO, kind, target: Target::Redis, lasts, form }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_broke_off_does_nothing_any_more_when_the_servers_are_back() {
    let directory = tempfile::tempdir().unwrap();
    let targets = targets(&directory, Topology::Single).await;
    let fault = long_fault(FaultKind::RedisKill, 0);
    let attack = tokio::spawn(Arc::clone(&targets).inject(fault, Vec::new(), "killed".to_owned(), |_| {}));
    let redis = targets.redis.as_ref().unwrap();
    while spawn_blocking(redis_is_up(&targets)).await.unwrap() {
        sleep(POLL).await;
    }
    attack.abort();
    assert!(attack.await.unwrap_err().is_cancelled());
    let before = now_ms();
    assert!(targets.faults()[0].until_ms >= before, "its effects last until now");
    targets.revive().await.unwrap();
    assert!(redis.owner_now().is_some());
    assert_eq!(Arc::strong_count(&targets), 1, "no action of the fault runs any more");
    assert!(targets.with_redis(|_| Ok(())).await.is_err(), "no other action begins");
}

/// Whether a server keeps the ring.
fn redis_is_up(targets: &Arc<Targets>) -> impl FnOnce() -> bool + use<> {
    let targets = Arc::clone(targets);
    move || targets.redis.as_ref().unwrap().owner_now().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_promotion_that_was_seen_and_may_lose_something_has_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let targets = targets(&directory, Topology::Cluster).await;
    let watch = tokio::spawn(Arc::clone(&targets).watch_moves());
    let attack = async |kind, form| {
        let fault = PlannedFault { lasts: Duration::from_millis(50), ..long_fault(kind, form) };
        targets.attack(vec![fault], || None, |_| {}).await.unwrap();
        targets.look().await.unwrap();
    };
    for kind in [FaultKind::Failover, FaultKind::Migrate, FaultKind::ReplicaLag] {
        attack(kind, 0).await;
        assert_eq!(targets.risky_times(), [], "{kind}");
    }
    attack(FaultKind::Demote, 0).await;
    let times = targets.risky_times();
    let last = targets.faults().pop().unwrap();
    assert!(!times.is_empty());
    let late_ms = LEASE.as_millis() as u64;
    assert!(times.iter().all(|(from, until)| *from > 0 && from < until), "{times:?}");
    assert!(times.iter().any(|(from, until)| *from <= last.from_ms + late_ms && last.from_ms < *until));
    watch.abort();
}

#[test]
fn a_report_may_be_late_by_a_lease_a_standstill_and_a_fault_that_delays_it() {
    let fault = |kind, from_ms, until_ms| InjectedFault {
        kind,
        from_ms,
        until_ms,
        victims: vec![0],
        what: String::new(),
    };
    let times = [(1000, 2000), (9000, 9500)];
    assert_eq!(with_late_reports(&times, &[], 0), [(1000, 3000), (9000, 10_500)]);
    assert_eq!(with_late_reports(&times[..1], &[], 70), [(1000, 3070)]);
    let faults = [
        fault(FaultKind::Freeze, 1900, 4000),
        fault(FaultKind::Kill, 1900, 5000),
        fault(FaultKind::Lag, 9600, 9700),
    ];
    assert_eq!(with_late_reports(&times, &faults, 0), [(1000, 5000), (9000, 10_500)]);
}
