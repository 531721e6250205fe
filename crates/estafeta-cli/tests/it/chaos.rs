//! `chaos` attacks a real ring. Its verdict is good for a ring that is correct, and broken for a ring that the test has
//! tampered with.

use std::time::Duration;

use estafeta_testbed::{DataDir, Process, RedisCluster, RedisSentinels, RedisServer, Signal, eventually};
use serde_json::Value;

use super::reset::dump;
use super::support::{ProgramRing, SOON, TextFile, ids_in, processes_of, run, start};

/// A short run takes its time, and on a loaded machine as long again until the ring is at rest.
const LONG: Duration = Duration::from_secs(120);

/// No more of an attack may be at risk, in percent of its time. Standstills of a busy machine count as risk.
const AT_RISK_PERCENT: u64 = 90;

/// Starts chaos. Everything that it writes goes below `scratch`.
fn start_chaos(scratch: &DataDir, redis: Option<&str>, args: &[&str]) -> Process {
    let directory = scratch.path().to_str().unwrap();
    let mut args = [&["chaos"], args].concat();
    args.extend(redis.into_iter().flat_map(|url| ["--redis", url]));
    // Chaos does not use the Redis that the environment names.
    start(&args, &[("TMPDIR", directory), ("REDIS_URL", "redis://127.0.0.1:1")])
}

fn is_empty(scratch: &DataDir) -> bool {
    std::fs::read_dir(scratch.path()).unwrap().next().is_none()
}

fn verdict(output: &estafeta_testbed::Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_ring_under_all_faults_passes_and_the_report_page_is_complete() {
    let (scratch, pages) = (DataDir::new(), DataDir::new());
    let report = pages.path().join("report.html");
    let args = ["--nodes", "4", "--for", "5s", "--seed", "3", "--json", "--report", report.to_str().unwrap()];
    let output = start_chaos(&scratch, None, &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let verdict = verdict(&output);
    assert_eq!(verdict["verdict"], "good");
    assert!(verdict["messages"].as_u64().unwrap() > 500, "{verdict}");
    assert!(
        verdict["errors"].as_u64().unwrap() > 0 && verdict["snapshots"].as_u64().unwrap() > 10,
        "{verdict}"
    );
    let work = &verdict["work"];
    for count in ["submitted", "cancelled", "duplicates", "retries", "snoozes", "effects", "delayed"] {
        assert!(work[count].as_u64() > Some(0), "{count}: {verdict}");
    }
    let faults = verdict["faults"].as_array().unwrap();
    let injected = faults.iter().filter(|fault| fault["injected"].as_u64() > Some(0)).count();
    assert_eq!(injected, 12, "{faults:?}");

    let page = std::fs::read_to_string(&report).unwrap();
    for part in [
        "<svg",
        "node 4",
        "publisher 3",
        "Content-Security-Policy",
        "default-src 'none'",
        "GOOD",
        "redis-kill",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(
        !page.contains("http://") && !page.contains("https://") && !page.contains("<script"),
        "self-contained"
    );
    assert_eq!(processes_of(&scratch), Vec::<u32>::new());
    assert!(is_empty(&scratch), "nothing is left behind");
}

/// Runs chaos on servers that it starts itself, with faults that move the ring. Each kind must be injected, and the
/// verdict must be good.
fn attack_topology(topology: &str, durability: &str, kinds: &[&str]) -> Value {
    attack_topology_by(topology, durability, kinds, ["--for", "3s", "--seed", "2"])
}

/// The same, with this length and this seed.
fn attack_topology_by(topology: &str, durability: &str, kinds: &[&str], plan: [&str; 4]) -> Value {
    let scratch = DataDir::new();
    let faults = kinds.join(",");
    let args = ["--nodes", "3", "--json", "--faults", &faults];
    let args = [&["--topology", topology, "--durability", durability], &args[..], &plan].concat();
    let output = start_chaos(&scratch, None, &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let verdict = verdict(&output);
    assert_eq!((&verdict["topology"], &verdict["durability"]), (&topology.into(), &durability.into()));
    let faults = verdict["faults"].as_array().unwrap();
    for kind in kinds {
        let is_injected = |fault: &&Value| fault["kind"] == *kind && fault["injected"].as_u64() > Some(0);
        assert!(faults.iter().any(|fault| is_injected(&fault)), "{kind}: {faults:?}");
    }
    assert!(verdict["messages"].as_u64() > Some(200), "{verdict}");
    assert_eq!(processes_of(&scratch), Vec::<u32>::new());
    assert!(is_empty(&scratch), "nothing is left behind");
    verdict
}

#[test]
fn a_ring_keeps_its_promises_while_sentinels_promote_replicas() {
    let verdict = attack_topology("sentinel", "replicas=all", &["failover", "demote"]);
    assert_eq!((&verdict["outcomesLost"], &verdict["risk"]), (&0.into(), &Value::Null), "nothing is excused");
}

/// A loss is excused only at the time of a promotion. That must stay a small part of an attack, otherwise the judge would
/// excuse nearly everything.
#[test]
fn only_a_part_of_an_attack_on_sentinels_is_at_risk() {
    let kinds = ["kill", "replica-lag", "failover", "demote", "node-kill", "redis-stall"];
    let verdict = attack_topology("sentinel", "memory", &kinds);
    let (percent, at_risk) = (verdict["risk"]["percent"].as_u64(), verdict["risk"]["atRiskMs"].as_u64());
    assert!(at_risk > Some(0) && percent < Some(AT_RISK_PERCENT), "{verdict}");
}

#[test]
fn what_sentinels_lose_with_durability_memory_is_counted() {
    // The only fault of this plan cuts off all replicas for 1.3 s, and then promotes one of them.
    let plan = ["--for", "1s", "--seed", "4"];
    let verdict = attack_topology_by("sentinel", "memory", &["replica-lag"], plan);
    let [lost, outcomes] = ["lost", "outcomesLost"].map(|count| verdict[count].as_u64().unwrap());
    assert!(lost + outcomes > 0, "{verdict}");
}

#[test]
fn a_ring_keeps_its_promises_while_its_slot_moves_in_a_cluster() {
    let kinds = ["lost-reply", "failover", "migrate", "demote", "replica-lag", "node-kill"];
    let verdict = attack_topology("cluster", "replicas=all", &kinds);
    assert_eq!((&verdict["outcomesLost"], &verdict["risk"]), (&0.into(), &Value::Null), "{verdict}");
}

#[test]
fn a_single_server_swaps_with_its_replica_under_attack() {
    let verdict = attack_topology("single", "replicas=1", &["kill", "demote", "redis-kill"]);
    assert_eq!(verdict["lost"], 0, "{verdict}");
}

#[test]
fn chaos_attacks_connections_to_sentinels_and_to_a_cluster_that_the_user_names() {
    let (sentinels, cluster) = (RedisSentinels::start(), RedisCluster::start());
    for url in [sentinels.url(), cluster.url()] {
        let scratch = DataDir::new();
        // The generator is cut off for 1.6 s, which is longer than its lease.
        let args = ["--nodes", "3", "--for", "3s", "--seed", "14", "--ring", "arena", "--json"];
        let args = [&args[..], &["--faults", "cut,half-open"]].concat();
        let output = start_chaos(&scratch, Some(&url), &args).output(LONG);
        assert!(output.status.success(), "{url}: {output:?}");
        let verdict = verdict(&output);
        assert_eq!((&verdict["verdict"], &verdict["topology"]), (&"good".into(), &Value::Null), "{verdict}");
        let rows = verdict["faults"].as_array().unwrap();
        let kinds: Vec<&str> = rows.iter().filter_map(|row| row["kind"].as_str()).collect();
        assert_eq!(kinds, ["cut", "half-open"]);
        // A connection that is not through a proxy would survive these faults.
        let of_faults = rows.iter().filter(|row| row["kind"].is_string());
        let take_overs: u64 = of_faults.filter_map(|row| row["takeovers"].as_u64()).sum();
        assert!(take_overs > 0, "{verdict}");
    }
    for server in sentinels.servers().iter().chain(cluster.servers()) {
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connect()).unwrap();
        assert_eq!(keys, Vec::<String>::new(), "{server:?}");
    }
}

#[test]
fn on_a_given_redis_chaos_attacks_only_its_own_nodes_and_deletes_only_its_own_keys() {
    let (scratch, redis) = (DataDir::new(), RedisServer::builder().tcp().password("p@ss:word").start());
    redis::cmd("SET").arg("{other}:ready").arg("mine").exec(&mut redis.connect()).unwrap();
    let url = redis.tcp_url();
    // A busy machine must not make this lease end.
    let others = ["run", "--ring", "bystander", "--interval", "20ms", "--lease", "20s"];
    let bystander = start(&others, &[("REDIS_URL", &url)]);
    bystander.wait_for_line(SOON, |line| line.starts_with("generated"));
    let args = ["--nodes", "3", "--for", "3s", "--seed", "5", "--ring", "arena"];
    let output = start_chaos(&scratch, Some(&url), &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("GOOD: each of") && stdout.contains("publishers on redis://127.0.0.1:"),
        "{stdout}"
    );
    for kind in ["redis-kill", "redis-stall", "script-flush", "client-kill", "flood"] {
        assert!(!stdout.contains(kind), "{kind}: {stdout}");
    }
    let lines = bystander.stdout_lines();
    let is_trouble =
        |line: &String| line.starts_with("lost Redis at ") || line.starts_with("the ring gave this node up");
    assert!(bystander.is_running() && !lines.iter().any(is_trouble), "{lines:?}");
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    keys.retain(|key| !key.starts_with("{bystander}:"));
    assert_eq!(keys, ["{other}:ready"]);
    let value: String = redis::cmd("GET").arg("{other}:ready").query(&mut redis.connect()).unwrap();
    assert_eq!(value, "mine");
    let all = [stdout.as_bytes(), &output.stderr].concat();
    assert!(!String::from_utf8_lossy(&all).contains("p@ss"), "a password is never shown");
}

#[test]
fn a_ring_with_members_or_data_is_refused_and_not_touched() {
    let (scratch, ring) = (DataDir::new(), ProgramRing::new());
    let url = ring.redis.url();
    let later = u64::MAX.to_string();
    let plants: [&[&str]; 4] = [
        &["RPUSH", "{estafeta}:journal", "of another type"],
        &["RPUSH", "{estafeta}:errors", "!2000 3 7 planted 1 7 1000 0 0 0 0 0 body"],
        &["ZADD", "{estafeta}:members", "1", "00000000000000aa"],
        &["ZADD", "{estafeta}:members", &later, "00000000000000aa"],
    ];
    for plant in plants {
        ring.redis_cli(&["FLUSHALL"]);
        ring.redis_cli(plant);
        let before = dump(&ring);
        let output = start_chaos(&scratch, Some(&url), &["--for", "1s"]).output(SOON);
        assert_eq!(output.status.code(), Some(1), "{plant:?}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("has members or data: expected an empty ring"), "{plant:?}: {stderr}");
        assert_eq!(dump(&ring), before, "{plant:?}");
    }
}

#[test]
fn a_foreign_node_that_joins_ends_chaos() {
    let (scratch, ring) = (DataDir::new(), ProgramRing::new());
    // A node of the demo does not join a ring of another workload.
    let args = ["--workload", "demo", "--for", "60s", "--nodes", "2"];
    let chaos = start_chaos(&scratch, Some(&ring.redis.url()), &args);
    chaos.wait_for_stderr_line(SOON, |line| line.contains("attacking"));
    let _foreign = ring.node(&[]);
    let output = chaos.output(SOON);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("a foreign node joined the ring"), "{stderr}");
    assert_eq!(processes_of(&scratch), Vec::<u32>::new());
}

/// Starts chaos, does something to its ring that no fault does, and returns the verdict, which must be "broken".
fn verdict_after(workload: &str, tamper: impl Fn(&ProgramRing)) -> (Value, DataDir) {
    let (scratch, ring) = (DataDir::new(), ProgramRing::new());
    let args = ["--for", "3s", "--nodes", "3", "--faults", "lost-reply", "--seed", "77", "--json"];
    let args = [&["--workload", workload], &args[..]].concat();
    let chaos = start_chaos(&scratch, Some(&ring.redis.url()), &args);
    chaos.wait_for_stderr_line(SOON, |line| line.contains("attacking"));
    tamper(&ring);
    let output = chaos.output(LONG);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let verdict = verdict(&output);
    assert_eq!((&verdict["verdict"], &verdict["seed"]), (&"broken".into(), &77.into()), "{verdict}");
    (verdict, scratch)
}

/// Runs `command` until it returns a waiting element. The nodes of chaos are quick, so that takes several tries.
fn waiting_element(ring: &ProgramRing, command: &[&str]) -> Vec<u8> {
    eventually(SOON, "a message that waits", || match ring.redis_cli(command) {
        redis::Value::BulkString(element) => Some(element),
        _ => None,
    })
}

#[test]
fn a_message_that_vanished_is_found_and_its_story_reported() {
    let lost = std::cell::Cell::new(0);
    let (verdict, _scratch) = verdict_after("demo", |ring| {
        lost.set(ids_in(&waiting_element(ring, &["LPOP", "{estafeta}:ready"]))[0])
    });
    let breaches = verdict["breaches"].to_string();
    assert!(breaches.contains(&format!("#{} has no outcome", lost.get())), "{breaches}");
    assert!(breaches.contains("did not add up; the first: "), "{breaches}");
    let story = verdict["stories"][0].to_string();
    assert!(story.contains("has published it in epoch"), "{story}");
}

#[test]
fn a_redis_that_forgot_everything_is_the_first_breach_reported() {
    let (verdict, _scratch) = verdict_after("demo", |ring| {
        ring.eventually(SOON, "many messages", |status| status["published"].as_u64() > Some(2000));
        ring.redis_cli(&["FLUSHALL"]);
    });
    let first = verdict["breaches"][0]["what"].as_str().unwrap().to_owned();
    assert!(first.starts_with("Redis lost data"), "{first}");
}

#[test]
fn a_message_that_was_duplicated_is_found() {
    let duplicated = std::cell::Cell::new(0);
    let (verdict, _scratch) = verdict_after("demo", |ring| {
        let element = waiting_element(ring, &["LINDEX", "{estafeta}:ready", "0"]);
        duplicated.set(ids_in(&element)[0]);
        let text = String::from_utf8(element).unwrap();
        ring.redis_cli(&["RPUSH", "{estafeta}:ready", &text]);
    });
    let breaches = verdict["breaches"].to_string();
    assert!(breaches.contains(&format!("#{} has two outcomes", duplicated.get())), "{breaches}");
}

/// The keys of a ring that were deleted.
fn delete_keys(ring: &ProgramRing, pattern: &str) -> u64 {
    let keys: Vec<String> = redis::from_redis_value(ring.redis_cli(&["KEYS", pattern])).unwrap();
    keys.iter().for_each(|key| drop(ring.redis_cli(&["DEL", key])));
    keys.len() as u64
}

#[test]
fn a_message_that_was_published_twice_with_one_key_is_found() {
    let (verdict, _scratch) = verdict_after("work", |ring| {
        // The three publishers publish the same messages, each in its own time.
        let mut deleted = 0;
        eventually(SOON, "many keys to delete", || {
            deleted += delete_keys(ring, "{estafeta}:key:shared-*");
            (deleted > 10).then_some(())
        });
    });
    let breaches = verdict["breaches"].to_string();
    assert!(breaches.contains(" was published 2 times: as #") && breaches.contains("shared-"), "{breaches}");
}

/// Removes a message that waits for its time. `keys` is the beginning of the keys of its ring.
fn steal_delayed(ring: &ProgramRing, keys: &str) -> u64 {
    let (later, delayed) = (format!("{keys}later"), format!("{keys}delayed"));
    let name = eventually(SOON, "a message that waits for its time", || {
        let names: Vec<String> =
            redis::from_redis_value(ring.redis_cli(&["ZREVRANGE", &later, "0", "0"])).unwrap();
        let name = names.into_iter().next()?;
        let removed = ring.redis_cli(&["HDEL", &delayed, &name]);
        ring.redis_cli(&["ZREM", &later, &name]);
        (removed == redis::Value::Int(1)).then_some(name)
    });
    name.parse().unwrap()
}

#[test]
fn a_delayed_message_that_vanished_is_found() {
    let vanished = std::cell::Cell::new(0);
    let (verdict, _scratch) = verdict_after("work", |ring| vanished.set(steal_delayed(ring, "{estafeta}:")));
    let breaches = verdict["breaches"].to_string();
    assert!(breaches.contains(&format!("#{} has no outcome", vanished.get())), "{breaches}");
    assert!(breaches.contains("did not add up; the first: "), "{breaches}");
}

#[test]
fn a_pipeline_of_two_rings_under_all_faults_passes() {
    let scratch = DataDir::new();
    let args = ["--workload", "pipeline", "--nodes", "4", "--for", "5s", "--seed", "3", "--json"];
    let output = start_chaos(&scratch, None, &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let verdict = verdict(&output);
    assert_eq!(
        (&verdict["verdict"], &verdict["workload"]),
        (&"good".into(), &"pipeline".into()),
        "{verdict}"
    );
    let work = &verdict["work"];
    for count in ["lines", "forwarded", "submitted", "duplicates", "retries", "snoozes", "effects", "delayed"]
    {
        assert!(work[count].as_u64() > Some(0), "{count}: {verdict}");
    }
    assert!(verdict["messages"].as_u64() > Some(500), "{verdict}");
    assert!(is_empty(&scratch), "nothing is left behind");
}

#[test]
fn a_pipeline_on_a_given_redis_leaves_nothing_behind() {
    let (scratch, redis) = (DataDir::new(), RedisServer::builder().tcp().start());
    let args = ["--workload", "pipeline", "--nodes", "2", "--for", "2s", "--seed", "1", "--ring", "arena"];
    let output = start_chaos(&scratch, Some(&redis.tcp_url()), &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, Vec::<String>::new());
}

#[test]
fn a_forwarded_message_that_vanished_and_a_total_that_somebody_changed_are_found() {
    let vanished = std::cell::Cell::new(0);
    let (verdict, _scratch) = verdict_after("pipeline", |ring| {
        vanished.set(steal_delayed(ring, "{estafeta}/totals:"));
        ring.redis_cli(&["INCRBY", "{estafeta}/lines:u:fed", "1000000000"]);
    });
    let breaches = verdict["breaches"].to_string();
    assert!(breaches.contains(&format!("totals: #{} has no outcome", vanished.get())), "{breaches}");
    assert!(breaches.contains("snapshots did not add up; the first: "), "{breaches}");
    assert!(breaches.contains("but the lines that end as done add up to "), "{breaches}");
    assert_eq!(verdict["stories"][0]["ring"], "totals", "{verdict}");
}

#[test]
fn nodes_of_another_build_are_replaced_one_by_one_under_attack() {
    let scratch = DataDir::new();
    // Any build will do, even the same one.
    let args =
        ["--mixed", env!("CARGO_BIN_EXE_estafeta"), "--nodes", "3", "--for", "6s", "--seed", "4", "--json"];
    let output = start_chaos(&scratch, None, &args).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let verdict = verdict(&output);
    assert_eq!((&verdict["verdict"], &verdict["workload"]), (&"good".into(), &"demo".into()), "{verdict}");
    let version = concat!("estafeta ", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&verdict["upgrade"]["kind"], &verdict["upgrade"]["from"]),
        (&"rolling".into(), &version.into())
    );
    assert!(is_empty(&scratch), "nothing is left behind");
}

#[test]
fn a_program_that_is_no_build_of_estafeta_is_refused() {
    let file = TextFile::new("#!/bin/sh\necho estafeta 9\n");
    let cases = [
        (
            "/nowhere/estafeta",
            "expected a build of estafeta, got /nowhere/estafeta: No such file or directory",
        ),
        (file.path(), "Permission denied"),
        ("/", "Permission denied"),
        ("/bin/true", "its --version does not name estafeta"),
    ];
    for (path, expected) in cases {
        let output = run(&["chaos", "--mixed", path], &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{path}: {stderr}");
        assert!(
            stderr.starts_with("estafeta: --mixed: expected a build") && stderr.contains(expected),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    for workload in ["work", "pipeline"] {
        let both = run(&["chaos", "--workload", workload, "--mixed", env!("CARGO_BIN_EXE_estafeta")], &[]);
        let stderr = String::from_utf8(both.stderr).unwrap();
        let expected = format!("--workload {workload}: expected no --mixed with it");
        assert_eq!((both.status.code(), stderr.contains(&expected)), (Some(2), true), "{stderr}");
    }
}

#[test]
fn a_build_that_does_not_know_the_durability_or_the_servers_of_the_run_is_refused() {
    let directory = DataDir::new();
    let old = directory.path().join("old");
    std::fs::write(&old, "#!/bin/sh\necho estafeta 0.0.9\n").unwrap();
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let cases = [
        (["--durability", "disk"], "--durability disk: expected a build that knows --durability"),
        (["--topology", "sentinel"], "--topology sentinel: expected a build that knows redis+sentinel://"),
        (["--topology", "cluster"], "--topology cluster: expected a build that knows redis+cluster://"),
    ];
    for (option, expected) in cases {
        let output = run(&[&["chaos", "--mixed", old.to_str().unwrap()], &option[..]].concat(), &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let expected = format!("estafeta: {expected} with --mixed, got estafeta 0.0.9");
        assert_eq!((output.status.code(), stderr.contains(&expected)), (Some(2), true), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn chaos_that_is_interrupted_while_its_servers_start_leaves_nothing_behind() {
    let scratch = DataDir::new();
    let chaos = start_chaos(&scratch, None, &["--topology", "cluster", "--for", "60s"]);
    eventually(SOON, "the first server", || (!processes_of(&scratch).is_empty()).then_some(()));
    chaos.signal(Signal::SIGINT);
    assert_eq!(chaos.wait(SOON).code(), Some(130));
    assert_eq!(processes_of(&scratch), Vec::<u32>::new());
    assert!(is_empty(&scratch), "nothing is left behind");
}

#[test]
fn the_children_of_chaos_end_with_it_even_if_it_is_killed() {
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        let scratch = DataDir::new();
        let chaos = start_chaos(&scratch, None, &["--for", "60s", "--nodes", "3"]);
        chaos.wait_for_stderr_line(SOON, |line| line.contains("attacking"));
        // Chaos kills and restarts some of them all the time.
        eventually(SOON, "three nodes and Redis", || (processes_of(&scratch).len() >= 4).then_some(()));
        chaos.signal(signal);
        let status = chaos.wait(SOON);
        eventually(SOON, "all processes to be gone", || processes_of(&scratch).is_empty().then_some(()));
        if signal == Signal::SIGINT {
            assert_eq!(status.code(), Some(130));
            let stderr = chaos.output(SOON).stderr;
            assert!(String::from_utf8_lossy(&stderr).contains("there is no verdict"));
            assert!(is_empty(&scratch), "nothing is left behind");
        }
    }
}

#[test]
fn a_wrong_call_is_refused_with_what_was_expected() {
    let redis = ["--redis", "redis://127.0.0.1:1"];
    let cases: [(&[&str], &str); 15] = [
        (&["--workload", "play"], "expected work, pipeline or demo, got 'play'"),
        (
            &["--workload", "pipeline", "--ring", "a/b"],
            "--ring: expected a short name without '/' with --workload pipeline, got a/b",
        ),
        (&["--for", "25h"], "--for: expected 1s to 24h"),
        (&["--nodes", "1"], "--nodes: expected 2 to 200, got 1"),
        (&["--for", "10ms"], "--for: expected 1s to 24h"),
        (&["--faults", "kil"], "expected all, or some of kill, freeze"),
        (
            &["--faults", "kill,redis-kill", redis[0], redis[1]],
            "--faults redis-kill: expected no --redis with it",
        ),
        (&["--topology", "ring"], "expected single, sentinel or cluster, got 'ring'"),
        (&["--faults", "migrate"], "--faults migrate: expected --topology cluster with it, got single"),
        (
            &["--faults", "failover", "--topology", "single"],
            "--faults failover: expected --topology sentinel or cluster with it, got single",
        ),
        (
            &["--faults", "redis-kill", "--topology", "cluster"],
            "--faults redis-kill: expected --topology single with it, got cluster",
        ),
        (
            &["--topology", "sentinel", redis[0], redis[1]],
            "--topology sentinel: expected no --redis with it, because chaos starts these servers itself",
        ),
        (
            &["--topology", "cluster", "--durability", "replicas=2"],
            "--durability replicas=2: expected at most replicas=1 with --topology cluster",
        ),
        (&["--report", "/nowhere/at/all.html"], "cannot write the report"),
        (&["--interval", "1s"], "unexpected argument"),
    ];
    for (args, expected) in cases {
        let output = run(&[&["chaos"], args].concat(), &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(expected), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    for url in ["rediss://127.0.0.1:1", "rediss+cluster://127.0.0.1:1", "rediss+sentinel://127.0.0.1:1/m"] {
        let tls = run(&["chaos", "--redis", url], &[]);
        assert!(String::from_utf8_lossy(&tls.stderr).contains("do not support TLS"), "{tls:?}");
    }
}
