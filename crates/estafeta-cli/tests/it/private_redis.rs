//! Nothing given and no Redis at the usual port: the copies start one of their own and meet there.

use std::path::Path;

use estafeta_testbed::{DataDir, Output, Process, Signal};
use serde_json::Value;

use crate::support::{SOON, away_from_the_usual_redis};

/// Starts the program where nothing answers at 127.0.0.1:6379.
fn start(data: &DataDir, args: &[&str], envs: &[(&str, &str)]) -> Process {
    let words = away_from_the_usual_redis();
    let envs = [&[("ESTAFETA_DATA", data.path().to_str().unwrap())], envs].concat();
    Process::spawn(Path::new(words[0]), words[1..].iter().chain(args), envs)
}

fn run(data: &DataDir, args: &[&str]) -> Output {
    start(data, args, &[]).output(SOON)
}

fn status(data: &DataDir) -> Value {
    let output = run(data, &["status", "--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn server_pid(data: &DataDir) -> u64 {
    let output = run(data, &["redis", "status", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let server: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(server["running"], true);
    server["pid"].as_u64().unwrap()
}

fn joined(copy: &Process) {
    copy.wait_for_line(SOON, |line| line.starts_with("joined as member"));
}

#[test]
fn copies_started_in_one_instant_meet_in_one_server() {
    let data = DataDir::new();
    let copies = [(); 4].map(|()| start(&data, &[], &[]));
    copies.iter().for_each(joined);
    let told: Vec<String> = copies.iter().flat_map(Process::stderr_lines).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("no Redis at 127.0.0.1:6379, started a private one in"), "{told:?}");
    assert!(told[0].contains(data.path().to_str().unwrap()) && told[0].contains("redis stop"), "{told:?}");
    let status = status(&data);
    assert_eq!(status["members"].as_array().unwrap().len(), 4, "{status}");
}

#[test]
fn killed_copies_leave_it_running() {
    let data = DataDir::new();
    let copies = [(); 2].map(|()| start(&data, &["run", "--interval", "10ms"], &[]));
    copies.iter().for_each(joined);
    let server = server_pid(&data);
    for copy in &copies {
        copy.kill();
    }
    assert_eq!(server_pid(&data), server);

    let next = start(&data, &["run"], &[]);
    joined(&next);
    assert_eq!(next.stderr_lines(), Vec::<String>::new(), "it was found, not started");
    next.signal(Signal::SIGINT);
    assert!(next.wait(SOON).success());
    assert_eq!(server_pid(&data), server);
}

#[test]
fn it_can_be_looked_at_and_stopped_and_keeps_its_data() {
    let data = DataDir::new();
    let absent = run(&data, &["redis", "status"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&absent.stdout).starts_with("no private Redis runs in"), "{absent:?}");
    assert!(!data.path().join("redis").exists(), "to look for it does not make it");
    assert!(run(&data, &["redis", "stop"]).status.success());

    let settings = ["run", "--interval", "0", "--limit", "50", "--error-rate", "0.5", "--until-done"];
    let copies = [(); 2].map(|()| start(&data, &settings, &[]));
    copies.iter().for_each(|copy| assert!(copy.wait(SOON).success()));
    let before = status(&data);
    assert_eq!(before["published"], 50);

    let text = String::from_utf8(run(&data, &["redis", "status"]).stdout).unwrap();
    assert!(text.contains(&format!("pid {}", server_pid(&data))), "{text}");
    assert!(text.contains("redis.sock") && text.contains(data.path().to_str().unwrap()), "{text}");
    let stopped = run(&data, &["redis", "stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(String::from_utf8_lossy(&stopped.stdout).contains("stopped; its data stay in"), "{stopped:?}");
    assert_eq!(run(&data, &["redis", "status"]).status.code(), Some(1));
    assert_eq!(run(&data, &["redis", "status", "--json"]).status.code(), Some(1));

    let after = status(&data);
    for name in ["published", "done", "errors_kept", "waiting"] {
        assert_eq!(after[name], before[name], "{name}");
    }
}

#[test]
fn copies_live_through_a_stop_and_a_new_start() {
    let data = DataDir::new();
    let copies = [(); 2].map(|()| start(&data, &["run", "--interval", "10ms"], &[]));
    copies.iter().for_each(joined);
    assert!(run(&data, &["redis", "stop"]).status.success());
    copies
        .iter()
        .for_each(|copy| drop(copy.wait_for_line(SOON, |line| line.starts_with("Redis does not serve us"))));
    let before = status(&data)["published"].as_u64().unwrap();
    copies.iter().for_each(|copy| drop(copy.wait_for_line(SOON, |line| line == "Redis is back")));
    estafeta_testbed::eventually(SOON, "the ring goes on", || {
        (status(&data)["published"].as_u64()? > before + 5).then_some(())
    });
    assert_eq!(status(&data)["members"].as_array().unwrap().len(), 2);
}

#[test]
fn without_redis_server_installed_it_says_what_to_install() {
    let data = DataDir::new();
    let empty = tempfile::tempdir().unwrap();
    for command in ["run", "status", "getErrors"] {
        let output = start(&data, &[command], &[("PATH", empty.path().to_str().unwrap())]).output(SOON);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains("redis-server is not installed") && told.contains("apt install"), "{told}");
        assert!(told.contains("--redis URL"), "{told}");
    }
}
