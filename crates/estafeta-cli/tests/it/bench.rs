//! `bench`: every bench runs, finds something, and leaves nothing behind. How fast is no subject of a test.

use std::collections::BTreeSet;
use std::time::Duration;

use estafeta_testbed::{DataDir, RedisServer, Signal, eventually};
use serde_json::Value;

use super::support::{SOON, processes_of, run, start};

/// All of them for a moment, on a loaded machine.
const LONG: Duration = Duration::from_secs(120);

fn rows(output: &estafeta_testbed::Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Waits until a bench has begun to measure on this Redis.
fn await_work(redis: &RedisServer) {
    let keys = || redis::cmd("KEYS").arg("{bench-*").query::<Vec<String>>(&mut redis.connect()).unwrap();
    eventually(SOON, "something to be measured", || keys().iter().any(|key| is_work(key)).then_some(()));
}

/// Not the key by which it finds out whether it may write.
fn is_work(key: &str) -> bool {
    !key.ends_with(":nothing")
}

/// The named figures of a row are there and greater than nothing.
fn assert_positive(row: &Value, keys: &[&str]) {
    for key in keys {
        assert!(row[key].as_f64().is_some_and(|figure| figure > 0.0), "{key}: {row}");
    }
}

#[test]
fn every_bench_finds_something_and_leaves_nothing_behind() {
    let (place, pictures) = (DataDir::new(), DataDir::new());
    let plot = pictures.path().join("bench.svg");
    let args = ["bench", "all", "--quick", "--json", "--plot", plot.to_str().unwrap()];
    // One that the environment names is not meant.
    let envs = [("TMPDIR", place.path().to_str().unwrap()), ("REDIS_URL", "redis://127.0.0.1:1")];
    let output = start(&args, &envs).output(LONG);
    assert!(output.status.success(), "{output:?}");
    let rows = rows(&output);
    let of = |bench: &str| rows.iter().filter(|row| row["bench"] == bench).collect::<Vec<_>>();

    let throughput = of("throughput");
    assert_eq!(throughput.len(), 14, "{throughput:?}");
    for row in &throughput {
        let all = ["batch", "messages_per_s", "server_us_per_message", "commands_per_message"];
        assert_positive(row, &all);
        let what = row["what"].as_str().unwrap();
        if what == "end to end" || what == "consume" {
            assert_positive(row, &["of_floor"]);
        }
        if what == "consume" || what == "floor, pop" {
            assert_positive(row, &["bytes_per_waiting_message"]);
        }
    }
    let files: Vec<&str> = throughput.iter().map(|row| row["append_only"].as_str().unwrap()).collect();
    assert_eq!(files[10..], ["everysec", "everysec", "always", "always"]);

    for (bench, count) in [("latency", 2), ("failover", 9), ("redelivery", 1)] {
        let rows = of(bench);
        assert_eq!(rows.len(), count, "{rows:?}");
        for row in rows {
            assert_positive(row, &["samples"]);
            // A tick may be in time.
            if row["what"] != "tick late by" {
                assert_positive(row, &["p50_ms", "p99_ms", "max_ms"]);
            }
        }
    }
    let (idle, scale) = (of("idle"), of("scale"));
    assert_eq!((idle.len(), scale.len()), (2, 2));
    for row in idle {
        assert_positive(row, &["copies", "commands_per_s", "round_trips_per_s", "joined_p50_ms"]);
    }
    let many = scale[1];
    assert_positive(many, &["copies", "messages_per_s", "server_us_per_message", "failover_p50_ms"]);
    assert_eq!(scale[0]["messages_per_s"], Value::Null, "a copy alone handles nothing");

    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("end to end") && !svg.contains("NaN"), "{svg}");
    assert_eq!(processes_of(&place), Vec::<u32>::new());
    assert!(std::fs::read_dir(place.path()).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn on_a_given_redis_only_its_own_keys_go_even_if_it_is_stopped() {
    let redis = RedisServer::builder().tcp().password("p@ss:word").start();
    redis::cmd("SET").arg("mine").arg("1").exec(&mut redis.connect()).unwrap();
    let keys = || redis::cmd("KEYS").arg("*").query::<Vec<String>>(&mut redis.connect()).unwrap();
    let url = redis.tcp_url();

    let latency = run(&["bench", "latency", "--quick", "--markdown", "--redis", &url], &[]);
    let told = String::from_utf8(latency.stdout).unwrap();
    assert!(told.contains("| publish to handler start |") && told.contains("redis://127.0.0.1:"), "{told}");
    assert!(!told.contains("p@ss"), "a password is never shown");
    assert_eq!(keys(), ["mine"]);

    let bench = start(&["bench", "throughput", "--for", "60s", "--redis", &url], &[]);
    await_work(&redis);
    bench.signal(Signal::SIGINT);
    let output = bench.output(SOON);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(keys(), ["mine"]);
}

#[test]
fn what_a_killed_bench_left_behind_goes_with_the_next_one_and_what_a_live_one_has_stays() {
    let (redis, place) = (RedisServer::builder().tcp().start(), DataDir::new());
    let (mine, url) = ("{bench-mine}:floor", redis.tcp_url());
    let envs = [("TMPDIR", place.path().to_str().unwrap())];
    let directories = || std::fs::read_dir(place.path()).unwrap().count();
    redis::cmd("SET").arg(mine).arg("1").exec(&mut redis.connect()).unwrap();
    let keys = || redis::cmd("KEYS").arg("*").query::<BTreeSet<String>>(&mut redis.connect()).unwrap();
    let rings = || -> BTreeSet<String> {
        keys()
            .iter()
            .filter(|key| *key != mine && is_work(key))
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

/// Whatever is measured, and whoever finds out first.
#[test]
fn a_redis_that_is_gone_ends_it_soon_and_is_named_as_the_reason() {
    for what in ["throughput", "failover", "redelivery", "idle"] {
        let redis = RedisServer::builder().tcp().start();
        let url = redis.tcp_url();
        let args = ["bench", what, "--for", "60s", "--tries", "1000", "--copies", "2", "--redis", &url];
        let bench = start(&args, &[]);
        await_work(&redis);
        drop(redis);
        // It would measure for a minute and more.
        let output = bench.output(Duration::from_secs(15));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("cannot reach Redis at redis://127.0.0.1:"), "{what}: {told}");
        assert_eq!(output.status.code(), Some(3), "{what}: {told}");
    }
}

#[test]
fn a_redis_that_takes_nothing_is_told_of_before_anything_is_measured() {
    let redis = RedisServer::builder().tcp().start();
    let refuse = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    redis::cmd(refuse[0]).arg(&refuse[1..]).exec(&mut redis.connect()).unwrap();
    let output = run(&["bench", "failover", "--redis", &redis.tcp_url()], &[]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("refuses") && told.matches("NOREPLICAS").count() == 1, "{told}");
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let keys: u64 = redis::cmd("DBSIZE").query(&mut redis.connect()).unwrap();
    assert_eq!(keys, 0);
}

#[test]
fn a_redis_that_does_not_answer_keeps_nobody_from_stopping_it() {
    let redis = RedisServer::builder().tcp().start();
    let bench = start(&["bench", "latency", "--for", "60s", "--redis", &redis.tcp_url()], &[]);
    await_work(&redis);
    redis.freeze();
    bench.signal(Signal::SIGTERM);
    let output = bench.output(SOON);
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the next one removes what it left"), "{told}");
}

#[test]
fn wrong_calls_say_what_was_expected() {
    let cases: [(&[&str], &str); 11] = [
        (&["speed"], "expected throughput, latency, failover, redelivery, idle, scale or all, got 'speed'"),
        (&["--for", "10ms"], "--for: expected 100ms to 1h, got 10ms"),
        (&["--tries", "0"], "--tries: expected 1 to 100000, got 0"),
        (&["--messages", "7"], "--messages: expected 100 to 100000000, got 7"),
        (&["--handlers", "0"], "--handlers: expected 1 to 100, got 0"),
        (&["--copies", "5,201"], "--copies: expected 1 to 200, got 201"),
        (&["--json", "--markdown"], "cannot be used with"),
        (&["--plot", "/nowhere/at/all.svg"], "cannot write the plot"),
        (&["--plot", "plot.png"], "--plot: expected a name that ends in .svg, got plot.png"),
        (&["--db", "3"], "--db and --password make no sense here without --redis, --host or --port"),
        (&["--ring", "mine"], "--ring makes no sense here: a bench makes rings of its own"),
    ];
    for (args, expected) in cases {
        let output = run(&[&["bench"], args].concat(), &[]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && told.contains(expected), "{args:?}: {told}");
    }
    let unreachable = run(&["bench", "latency", "--redis", "redis://127.0.0.1:1"], &[]);
    assert_eq!(unreachable.status.code(), Some(3), "{unreachable:?}");
}
