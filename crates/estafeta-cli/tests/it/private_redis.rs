//! No Redis is named, and none answers at the usual port. The nodes start a private one and meet there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use estafeta_testbed::{DataDir, NO_ENV, Output, Process, Signal};
use serde_json::Value;

use crate::support::{SOON, command_away_from_the_usual_redis};

/// Starts the program where no Redis answers at 127.0.0.1:6379.
fn start(data: &DataDir, args: &[&str], envs: &[(&str, &str)]) -> Process {
    let words = command_away_from_the_usual_redis();
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

fn await_join(node: &Process) {
    node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
}

#[test]
fn nodes_started_at_the_same_moment_share_one_server() {
    let data = DataDir::new();
    let nodes = [(); 4].map(|()| start(&data, &[], &[]));
    nodes.iter().for_each(await_join);
    let lines: Vec<String> = nodes.iter().flat_map(Process::stderr_lines).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("no Redis at 127.0.0.1:6379, started a private one in"), "{lines:?}");
    assert!(lines[0].contains(data.path().to_str().unwrap()) && lines[0].contains("redis stop"), "{lines:?}");
    let status = status(&data);
    assert_eq!(status["members"].as_array().unwrap().len(), 4, "{status}");
}

#[test]
fn killed_nodes_leave_the_server_running() {
    let data = DataDir::new();
    let nodes = [(); 2].map(|()| start(&data, &["run", "--interval", "10ms"], &[]));
    nodes.iter().for_each(await_join);
    let server = server_pid(&data);
    for node in &nodes {
        node.kill();
    }
    assert_eq!(server_pid(&data), server);

    let next = start(&data, &["run"], &[]);
    await_join(&next);
    assert_eq!(next.stderr_lines(), Vec::<String>::new(), "it was found, not started");
    next.signal(Signal::SIGINT);
    assert!(next.wait(SOON).success());
    assert_eq!(server_pid(&data), server);
}

#[test]
fn the_server_can_be_inspected_and_stopped_and_keeps_its_data() {
    let data = DataDir::new();
    let absent = run(&data, &["redis", "status"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&absent.stdout).starts_with("no private Redis runs in"), "{absent:?}");
    assert!(!data.path().join("redis").exists(), "to look for it does not make it");
    assert!(run(&data, &["redis", "stop"]).status.success());

    let settings = ["run", "--interval", "0", "--limit", "50", "--error-rate", "0.5", "--until-done"];
    let nodes = [(); 2].map(|()| start(&data, &settings, &[]));
    nodes.iter().for_each(|node| assert!(node.wait(SOON).success()));
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
    for name in ["published", "done", "errorsKept", "waiting"] {
        assert_eq!(after[name], before[name], "{name}");
    }
}

#[test]
fn nodes_survive_a_stop_and_a_new_start_of_the_server() {
    let data = DataDir::new();
    let nodes = [(); 2].map(|()| start(&data, &["run", "--interval", "10ms"], &[]));
    nodes.iter().for_each(await_join);
    let unasked = run(&data, &["redis", "stop"]);
    assert!(unasked.status.code() == Some(1) && String::from_utf8_lossy(&unasked.stderr).contains("--yes"));
    assert!(run(&data, &["redis", "stop", "--yes"]).status.success());
    nodes.iter().for_each(|node| drop(node.wait_for_line(SOON, |line| line.starts_with("lost Redis at "))));
    let before = status(&data)["published"].as_u64().unwrap();
    nodes.iter().for_each(|node| drop(node.wait_for_line(SOON, |line| line == "Redis is back")));
    estafeta_testbed::eventually(SOON, "the ring goes on", || {
        (status(&data)["published"].as_u64()? > before + 5).then_some(())
    });
    assert_eq!(status(&data)["members"].as_array().unwrap().len(), 2);
}

#[test]
fn if_redis_server_is_not_installed_the_message_names_what_to_install() {
    let data = DataDir::new();
    let empty = tempfile::tempdir().unwrap();
    for command in ["run", "status", "getErrors"] {
        let output = start(&data, &[command], &[("PATH", empty.path().to_str().unwrap())]).output(SOON);
        assert_no_redis(&output, "");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let installs = stderr.contains("apt install redis-server");
        assert_eq!(
            installs,
            command == "run",
            "only a command that starts nodes may create a Redis: {stderr}"
        );
    }
}

/// Checks the one line that a command prints if there is no Redis and a private one cannot be had.
#[track_caller]
fn assert_no_redis(output: &Output, reason: &str) {
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let begin = "estafeta: no Redis was named and none answers at 127.0.0.1:6379: start one there, or name yours with \
                 --redis URL or REDIS_URL";
    assert!(stderr.starts_with(begin) && stderr.contains(reason), "{stderr}");
}

#[test]
fn without_a_home_directory_a_command_asks_for_a_redis() {
    let unset = ["-u", "HOME", "-u", "ESTAFETA_DATA", "-u", "XDG_DATA_HOME"];
    let words = [&unset[..], &command_away_from_the_usual_redis()].concat();
    for command in ["run", "monitor", "status"] {
        let process = Process::spawn(Path::new("/usr/bin/env"), words.iter().chain([&command]), NO_ENV);
        assert_no_redis(&process.output(SOON), "REDIS_URL\n");
    }
}

#[test]
fn if_the_private_redis_does_not_start_a_command_asks_for_a_redis_and_gives_the_reason() {
    let data = DataDir::new();
    for command in ["run", "monitor"] {
        let nowhere = start(&data, &[command], &[("ESTAFETA_DATA", "/dev/null/data")]).output(SOON);
        assert_no_redis(
            &nowhere,
            "; a private one did not start: creating /dev/null/data/redis: Not a directory",
        );
    }
    let broken = tempfile::tempdir().unwrap();
    let server = broken.path().join("redis-server");
    std::fs::write(&server, "#!/bin/sh\necho no memory for that\nexit 1\n").unwrap();
    std::fs::set_permissions(&server, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = start(&data, &["run"], &[("PATH", broken.path().to_str().unwrap())]).output(SOON);
    assert_no_redis(&output, "the private redis-server did not start: no memory for that");
}

#[test]
fn in_a_container_with_redis_server_and_a_home_directory_the_private_redis_is_created() {
    let data = DataDir::new();
    let node = start(&data, &["run"], &[("container", "podman")]);
    await_join(&node);
    server_pid(&data);
}

#[test]
fn only_commands_that_start_nodes_create_a_private_redis() {
    let data = DataDir::new();
    for args in [&["status"][..], &["getErrors"], &["errors", "count"], &["rings"], &["reset", "--yes"]] {
        let output = run(&data, args);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("no Redis was named and none answers at 127.0.0.1:6379"), "{stderr}");
        assert!(!data.path().join("redis").exists(), "{args:?} made one");
    }
    let refused = start(&data, &["run"], &[("ESTAFETA_NO_PRIVATE_REDIS", "1")]).output(SOON);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(!data.path().join("redis").exists());

    let worked = run(&data, &["monitor", "-n", "2", "--for", "2s", "--interval", "10ms"]);
    assert!(worked.status.success(), "{worked:?}");
    // The monitor stopped it again. Its data are still there, so it is started for them.
    let status = run(&data, &["status"]);
    assert!(status.status.success(), "{status:?}");
    assert!(String::from_utf8_lossy(&status.stdout).contains("adds up"), "{status:?}");
}

#[test]
fn a_monitor_with_a_page_also_stops_the_private_redis_that_it_started() {
    let data = DataDir::new();
    let worked = run(&data, &["monitor", "-n", "2", "--for", "2s", "--web=127.0.0.1:0"]);
    let stderr = String::from_utf8(worked.stderr).unwrap();
    assert!(
        worked.status.success() && stderr.contains("the page of this ring: http://127.0.0.1:"),
        "{stderr}"
    );
    assert!(!stderr.contains("others use the private Redis"), "{stderr}");
}

/// A server that answers LOADING has started, but does not serve yet.
#[test]
fn a_private_redis_that_still_loads_its_data_is_waited_for() {
    let data = DataDir::new();
    let worked = run(&data, &["monitor", "-n", "2", "--for", "2s", "--interval", "100ms"]);
    assert!(worked.status.success(), "{worked:?}");
    let slow = tempfile::tempdir().unwrap();
    let (wrapper, path) = (slow.path().join("redis-server"), std::env::var("PATH").unwrap());
    let script = format!(
        "#!/bin/sh\nPATH='{path}' exec redis-server \"$@\" --key-load-delay 10000 --loading-process-events-interval-bytes 1024\n"
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{path}", slow.path().display());
    let status = start(&data, &["status"], &[("PATH", &path)]).output(SOON);
    assert!(status.status.success(), "{status:?}");
}
