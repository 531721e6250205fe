use std::collections::HashMap;

use super::*;

/// What a good server reports.
const GOOD: &str = "redis_version:7.0.15\r\nrun_id:a\r\nrole:master\r\nconnected_slaves:0\r\nmaster_repl_offset:5000000\r\n\
                    maxmemory:1000\r\nmaxmemory_policy:noeviction\r\nused_memory:100\r\naof_enabled:1\r\n";

fn facts(info: &str, settings: &[(&str, &str)]) -> ServerFacts {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    ServerFacts::new(info, settings.collect::<HashMap<_, _>>())
}

/// The facts of a good server, except for these replacements and additions.
fn except(changes: &[(&str, &str)]) -> ServerFacts {
    let mut info = GOOD.to_owned();
    for (name, value) in changes {
        let kept = info.lines().filter(|line| !line.starts_with(&format!("{name}:")));
        info = kept.map(|line| format!("{line}\r\n")).collect::<String>() + &format!("{name}:{value}\r\n");
    }
    facts(&info, &[])
}

fn words(finding: &ServerFinding) -> (&'static str, String) {
    (finding.severity.word(), finding.remedy.clone().unwrap_or_default())
}

#[test]
fn a_node_warns_of_each_dangerous_setting_with_its_remedy() {
    assert_eq!(warnings(&facts(GOOD, &[("save", "")])), [""; 0]);
    assert_eq!(warnings(&facts("", &[])), [""; 0], "what cannot be read is not judged");
    let memory_only = GOOD.replace("aof_enabled:1", "aof_enabled:0");
    assert_eq!(
        warnings(&facts(&memory_only, &[("save", "3600 1")])),
        [""; 0],
        "snapshots are persistence, too"
    );
    assert_eq!(warnings(&facts(&memory_only, &[])), [""; 0]);
    let cases = [
        (GOOD.replace("noeviction", "allkeys-lru"), "maxmemory-policy noeviction"),
        (memory_only, "set appendonly yes"),
        (GOOD.replace("role:master", "role:slave"), "connect to its master"),
    ];
    for (info, remedy) in cases {
        let found = warnings(&facts(&info, &[("save", "")]));
        assert_eq!(found.len(), 1, "{info}");
        assert!(found[0].contains(remedy), "{found:?}");
    }
}

#[test]
fn the_program_behind_the_address_is_named() {
    assert_eq!(version(&facts(GOOD, &[])).found, "Redis 7.0.15");
    let valkey = version(&except(&[("server_name", "valkey"), ("valkey_version", "9.1.2")]));
    assert_eq!(valkey.found, "Valkey 9.1.2, compatible with Redis 7.0.15");
}

#[test]
fn each_topology_is_told_apart() {
    let good = facts(GOOD, &[]);
    let case = |facts: &ServerFacts, other: &ServerFacts, sentinels, through| {
        let finding = topology(facts, other, sentinels, through);
        (finding.severity.word(), finding.found)
    };
    let at = |facts: &ServerFacts| case(facts, facts, 0, false);
    assert_eq!(at(&good), ("good", "a single server".into()));
    assert_eq!(at(&except(&[("connected_slaves", "1")])), ("good", "a master with 1 replica".into()));
    assert_eq!(at(&except(&[("cluster_enabled", "1")])), ("good", "a node of a cluster".into()));
    let replica = except(&[("role", "slave"), ("master_host", "h"), ("master_port", "7")]);
    assert_eq!(at(&replica), ("broken", "a replica of h:7".into()));
    assert_eq!(case(&good, &good, 3, true).0, "good");
    assert_eq!(case(&good, &good, 3, false), ("warning", "a master that 3 sentinels watch".into()));
    assert_eq!(case(&good, &except(&[("run_id", "b")]), 0, false).0, "broken");
    assert_eq!(at(&facts("", &[])).0, "unknown");
}

#[test]
fn persistence_is_as_good_as_what_a_crash_leaves() {
    let of = |aof: &str, settings: &[(&str, &str)]| {
        let info = GOOD.replace("aof_enabled:1", &format!("aof_enabled:{aof}"));
        words(&persistence(&facts(&info, settings)))
    };
    assert_eq!(of("1", &[("appendfsync", "always")]).0, "good");
    assert_eq!(of("1", &[]).0, "good");
    assert_eq!(of("1", &[("appendfsync", "no")]).0, "warning");
    assert_eq!(of("0", &[("save", "3600 1")]), ("warning", "set appendonly yes".into()));
    assert_eq!(of("0", &[("save", "")]), ("broken", "set appendonly yes, or save".into()));
    assert_eq!(of("0", &[]).0, "unknown");
    assert_eq!(words(&persistence(&facts("", &[]))).0, "unknown");
    assert_eq!(words(&persistence(&except(&[("aof_last_write_status", "err")]))).0, "broken");
    let failed = except(&[("rdb_last_bgsave_status", "err")]);
    assert_eq!(words(&persistence(&failed)).0, "broken");
    let info = format!("{GOOD}rdb_last_bgsave_status:err\r\n");
    let goes_on = facts(&info, &[("stop-writes-on-bgsave-error", "no")]);
    assert_eq!(words(&persistence(&goes_on)).0, "good");
}

#[test]
fn a_policy_that_evicts_breaks_a_promise_where_there_is_a_limit() {
    let of =
        |policy: &str, limit: &str| eviction(&except(&[("maxmemory_policy", policy), ("maxmemory", limit)]));
    assert_eq!(words(&of("noeviction", "1000")).0, "good");
    assert_eq!(words(&of("allkeys-lru", "1000")), ("broken", "set maxmemory-policy noeviction".into()));
    assert_eq!(words(&of("allkeys-lru", "0")).0, "warning");
    assert!(of("volatile-ttl", "1000").meaning.contains("publish keys"));
    assert_eq!(words(&eviction(&facts("", &[]))).0, "unknown");
}

#[test]
fn memory_is_judged_by_what_is_left() {
    let of = |used: &str, limit: &str, machine: &str| {
        let changes = [("used_memory", used), ("maxmemory", limit), ("total_system_memory", machine)];
        words(&memory(&except(&changes))).0
    };
    assert_eq!(of("100", "1000", "5000"), "good");
    assert_eq!(of("900", "1000", "5000"), "warning");
    assert_eq!(of("1000", "1000", "5000"), "broken");
    assert_eq!(of("100", "0", "5000"), "good");
    assert_eq!(of("4900", "0", "5000"), "warning");
    assert_eq!(words(&memory(&facts("", &[]))).0, "unknown");
}

#[test]
fn a_replica_that_lags_is_named() {
    assert_eq!(replicas(&facts(GOOD, &[])).found, "none");
    let with = |line: &str| replicas(&except(&[("connected_slaves", "1"), ("slave0", line)]));
    let near = with("ip=h,port=7,state=online,offset=4999000,lag=1");
    assert_eq!(near.severity.word(), "good");
    assert_eq!(near.figures, [("count", 1.0), ("lagS", 1.0), ("behindBytes", 1000.0)]);
    let far = [
        "ip=h,port=7,state=online,offset=0,lag=1",
        "ip=h,port=7,state=online,offset=5000000,lag=60",
        "ip=h,port=7,state=wait_bgsave,offset=5000000,lag=0",
    ];
    for line in far {
        let finding = with(line);
        assert_eq!(finding.severity.word(), "warning", "{line}");
        assert!(finding.found.contains("h:7"), "{finding:?}");
    }
    assert_eq!(words(&replicas(&except(&[("role", "slave")]))).0, "unknown");
}

#[test]
fn min_replicas_are_judged_by_whether_writes_pass() {
    let free = Rights::Tried(Vec::new());
    let of = |count: &str, wanted: &[(&str, &str)], good: Option<&str>, rights: &Rights| {
        let mut info = GOOD.replace("connected_slaves:0", &format!("connected_slaves:{count}"));
        info.extend(good.map(|good| format!("min_slaves_good_slaves:{good}\r\n")));
        words(&min_replicas(&facts(&info, wanted), rights)).0
    };
    let one: &[_] = &[("min-replicas-to-write", "1")];
    let none: &[_] = &[("min-replicas-to-write", "0")];
    assert_eq!(of("1", one, Some("1"), &free), "good");
    assert_eq!(of("1", one, Some("0"), &free), "broken");
    assert_eq!(of("0", none, None, &free), "good");
    assert_eq!(of("1", none, None, &free), "warning");
    assert_eq!(of("1", &[], Some("1"), &free), "good");
    assert_eq!(of("1", &[], None, &free), "unknown");
    let refused = Rights::NotTried("NOREPLICAS Not enough good replicas to write.".into());
    assert_eq!(of("0", &[], None, &refused), "broken");
}
