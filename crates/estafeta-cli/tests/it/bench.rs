//! `bench`: every bench runs, reports figures, and leaves nothing behind. No test checks how fast anything is.

use std::collections::BTreeSet;
use std::time::Duration;

use estafeta_testbed::{DataDir, RedisCluster, RedisSentinels, RedisServer, Signal, eventually};
use serde_json::Value;

use super::support::{SOON, processes_of, run, start};

/// Enough time for all benches in their short form, on a loaded machine.
const LONG: Duration = Duration::from_secs(120);

fn rows(output: &estafeta_testbed::Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Waits until a bench has begun to measure on this Redis.
fn await_measurement(redis: &RedisServer) {
    let keys = || redis::cmd("KEYS").arg("{bench-*").query::<Vec<String>>(&mut redis.connect()).unwrap();
    eventually(SOON, "something to be measured", || {
        keys().iter().any(|key| is_measurement(key)).then_some(())
    });
}

/// Whether this is a key of a measurement. A bench also writes a key to find out whether it may write.
fn is_measurement(key: &str) -> bool {
    !key.ends_with(":nothing")
}

/// Asserts that the row has these figures and that they are greater than zero.
fn assert_positive(row: &Value, keys: &[&str]) {
    for key in keys {
        assert!(row[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {row}");
    }
}

#[test]
fn every_bench_reports_figures_and_leaves_nothing_behind() {
    let (scratch, plots) = (DataDir::new(), DataDir::new());
    let plot = plots.path().join("bench.svg");
    let args = ["bench", "all", "--quick", "--json", "--plot", plot.to_str().unwrap()];
    // A bench does not use the Redis that the environment names.
    let envs = [("TMPDIR", scratch.path().to_str().unwrap()), ("REDIS_URL", "redis://127.0.0.1:1")];
    let output = start(&args, &envs).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&output);
    let of = |bench: &str| rows.iter().filter(|row| row["bench"] == bench).collect::<Vec<_>>();

    let throughput = of("throughput");
    assert_eq!(throughput.len(), 14, "{throughput:?}");
    for row in &throughput {
        let all = ["batch", "messagesPerS", "serverUsPerMessage", "commandsPerMessage"];
        assert_positive(row, &all);
        let what = row["what"].as_str().unwrap();
        if what == "end to end" || what == "consume" {
            assert_positive(row, &["ofFloor"]);
        }
        if what == "consume" || what == "floor, pop" {
            assert_positive(row, &["bytesPerWaitingMessage"]);
        }
    }
    let files: Vec<&str> = throughput.iter().map(|row| row["appendOnly"].as_str().unwrap()).collect();
    assert_eq!(files[10..], ["everysec", "everysec", "always", "always"]);

    for (bench, count) in [("latency", 2), ("failover", 9), ("redelivery", 1)] {
        let rows = of(bench);
        assert_eq!(rows.len(), count, "{rows:?}");
        for row in rows {
            assert_positive(row, &["samples"]);
            // A tick may be in time, so its delay may be zero.
            if row["what"] != "tick late by" {
                assert_positive(row, &["p50Ms", "p99Ms", "maxMs"]);
            }
        }
    }
    let work = of("work");
    let rows_of_work: Vec<[&str; 2]> =
        work.iter().map(|row| ["load", "what"].map(|key| row[key].as_str().unwrap())).collect();
    let both = |load| [[load, "raw Streams"], [load, "estafeta"]];
    assert_eq!(rows_of_work, [both("full"), both("500/s")].concat());
    for row in work {
        let all = ["messagesPerS", "serverUsPerMessage", "commandsPerMessage", "waitP50Ms", "waitP99Ms"];
        assert_positive(row, &all);
        assert_eq!(row["ofStreams"].is_number(), row["what"] == "estafeta", "{row}");
    }
    let (idle, scale) = (of("idle"), of("scale"));
    assert_eq!((idle.len(), scale.len()), (2, 2));
    for row in idle {
        assert_positive(row, &["nodes", "commandsPerS", "roundTripsPerS", "joinedP50Ms"]);
    }
    let many = scale[1];
    assert_positive(many, &["nodes", "messagesPerS", "serverUsPerMessage", "failoverP50Ms"]);
    assert_eq!(scale[0]["messagesPerS"], Value::Null, "a node alone handles nothing");

    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("end to end") && !svg.contains("NaN"), "{svg}");
    assert_eq!(processes_of(&scratch), Vec::<u32>::new());
    assert!(std::fs::read_dir(scratch.path()).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn on_a_given_redis_a_bench_deletes_only_its_own_keys_even_if_it_is_stopped() {
    let redis = RedisServer::builder().tcp().password("p@ss:word").start();
    redis::cmd("SET").arg("mine").arg("1").exec(&mut redis.connect()).unwrap();
    let keys = || redis::cmd("KEYS").arg("*").query::<Vec<String>>(&mut redis.connect()).unwrap();
    let url = redis.tcp_url();

    let latency = run(&["bench", "latency", "--quick", "--markdown", "--redis", &url], &[]);
    let stdout = String::from_utf8(latency.stdout).unwrap();
    assert!(
        stdout.contains("| publish to handler start |") && stdout.contains("redis://127.0.0.1:"),
        "{stdout}"
    );
    assert!(!stdout.contains("p@ss"), "a password is never shown");
    assert_eq!(keys(), ["mine"]);

    let bench = start(&["bench", "throughput", "--for", "60s", "--redis", &url], &[]);
    await_measurement(&redis);
    bench.signal(Signal::SIGINT);
    let output = bench.output(SOON);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(keys(), ["mine"]);
}

#[test]
fn a_bench_deletes_what_a_killed_one_left_behind_and_nothing_of_a_live_one() {
    let (redis, scratch) = (RedisServer::builder().tcp().start(), DataDir::new());
    let (mine, url) = ("{bench-mine}:floor", redis.tcp_url());
    let envs = [("TMPDIR", scratch.path().to_str().unwrap())];
    let directories = || std::fs::read_dir(scratch.path()).unwrap().count();
    redis::cmd("SET").arg(mine).arg("1").exec(&mut redis.connect()).unwrap();
    let keys = || redis::cmd("KEYS").arg("*").query::<BTreeSet<String>>(&mut redis.connect()).unwrap();
    let rings = || -> BTreeSet<String> {
        keys()
            .iter()
            .filter(|key| *key != mine && is_measurement(key))
            .filter_map(|key| Some(key.split_once('}')?.0.to_owned()))
            .collect()
    };
    let long = || start(&["bench", "redelivery", "--tries", "1000", "--redis", &url], &envs);
    let ring = |after: &BTreeSet<String>| {
        eventually(SOON, "a ring of bench", || rings().difference(after).next().cloned())
    };

    let killed = long();
    let left = ring(&BTreeSet::new());
    killed.signal(Signal::SIGKILL);
    killed.output(SOON);
    assert_eq!((rings(), directories()), ([left.clone()].into(), 1));
    let alive = long();
    let live = ring(&[left].into());
    let next = run(&["bench", "latency", "--quick", "--redis", &url], &envs);
    assert!(next.status.success(), "{next:?}");
    assert_eq!((rings(), directories()), ([live].into(), 1));
    alive.signal(Signal::SIGINT);
    alive.output(SOON);
    assert_eq!((keys(), directories()), ([mine.to_owned()].into(), 0));
}

#[test]
fn a_bench_measures_the_server_that_sentinels_or_a_cluster_name() {
    let (sentinels, cluster) = (RedisSentinels::start(), RedisCluster::start());
    for url in [sentinels.url(), cluster.url()] {
        for what in ["throughput", "latency", "work"] {
            let output = start(&["bench", what, "--quick", "--json", "--redis", &url], &[]).output(LONG);
            assert!(output.status.success(), "{what} at {url}: {output:?}");
            assert!(!rows(&output).is_empty(), "{output:?}");
        }
    }
    for server in sentinels.servers().iter().chain(cluster.servers()) {
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.connect()).unwrap();
        assert_eq!(keys, Vec::<String>::new(), "{server:?}");
    }
}

/// Each kind of measurement notices the loss in a different place.
#[test]
fn a_bench_whose_redis_is_gone_ends_soon_and_names_it_as_the_reason() {
    for what in ["throughput", "work", "failover", "redelivery", "idle"] {
        let redis = RedisServer::builder().tcp().start();
        let url = redis.tcp_url();
        let args = ["bench", what, "--for", "60s", "--tries", "1000", "--nodes", "2", "--redis", &url];
        let bench = start(&args, &[]);
        await_measurement(&redis);
        drop(redis);
        // Without the fault it would measure for more than a minute.
        let output = bench.output(Duration::from_secs(15));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("cannot reach Redis at redis://127.0.0.1:"), "{what}: {stderr}");
        assert_eq!(output.status.code(), Some(3), "{what}: {stderr}");
    }
}

#[test]
fn a_redis_that_refuses_writes_is_reported_before_anything_is_measured() {
    let redis = RedisServer::builder().tcp().start();
    let refuse = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    redis::cmd(refuse[0]).arg(&refuse[1..]).exec(&mut redis.connect()).unwrap();
    let output = run(&["bench", "failover", "--redis", &redis.tcp_url()], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("refuses") && stderr.matches("NOREPLICAS").count() == 1, "{stderr}");
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let keys: u64 = redis::cmd("DBSIZE").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, 0);
}

#[test]
fn a_bench_stops_on_a_signal_even_if_redis_does_not_answer() {
    let redis = RedisServer::builder().tcp().start();
    let bench = start(&["bench", "latency", "--for", "60s", "--redis", &redis.tcp_url()], &[]);
    await_measurement(&redis);
    redis.freeze();
    bench.signal(Signal::SIGTERM);
    let output = bench.output(SOON);
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the next bench removes what it left"), "{stderr}");
}

#[test]
fn a_wrong_call_is_refused_with_what_was_expected() {
    let cases: [(&[&str], &str); 11] = [
        (
            &["speed"],
            "expected throughput, latency, work, failover, redelivery, idle, scale or all, got 'speed'",
        ),
        (&["--for", "10ms"], "--for: expected 100ms to 1h, got 10ms"),
        (&["--tries", "0"], "--tries: expected 1 to 100000, got 0"),
        (&["--messages", "7"], "--messages: expected 100 to 100000000, got 7"),
        (&["--handlers", "0"], "--handlers: expected 1 to 100, got 0"),
        (&["--nodes", "5,201"], "--nodes: expected 1 to 200, got 201"),
        (&["--json", "--markdown"], "cannot be used with"),
        (&["--plot", "/nowhere/at/all.svg"], "cannot write the plot"),
        (&["--plot", "plot.png"], "--plot: expected a name that ends in .svg, got plot.png"),
        (&["--db", "3"], "--db, --user and --password: expected --redis, --host or --port with them"),
        (&["--ring", "mine"], "--ring: expected no ring, because a benchmark makes its own rings"),
    ];
    for (args, expected) in cases {
        let output = run(&[&["bench"], args].concat(), &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(expected), "{args:?}: {stderr}");
    }
    let unreachable = run(&["bench", "latency", "--redis", "redis://127.0.0.1:1"], &[]);
    assert_eq!(unreachable.status.code(), Some(3), "{unreachable:?}");
}
