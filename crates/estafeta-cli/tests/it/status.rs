//! `status`: the ring at one moment, whether its balance adds up, and what is never shown.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use estafeta_testbed::{Process, RedisServer, Signal};
use serde_json::Value;

use crate::support::{ProgramRing, SOON, run, start};

/// The members in the succession, beginning with the heir.
fn line_of_succession(status: &Value) -> Vec<&Value> {
    let mut line: Vec<_> =
        status["members"].as_array().unwrap().iter().filter(|m| !m["rank"].is_null()).collect();
    line.sort_by_key(|member| member["rank"].as_u64());
    line
}

#[test]
fn a_ring_that_does_not_exist_is_reported_with_its_redis() {
    let ring = ProgramRing::new();
    for args in [&["status"][..], &["status", "--json"]] {
        let output = ring.command(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let place = ring.redis.socket().display().to_string();
        assert!(stderr.contains(&format!("there is no ring estafeta at {place}")), "{stderr}");
        assert!(output.stdout.is_empty(), "nothing that a program could take for a ring");
    }
    let keys: u64 = redis::from_redis_value(ring.redis_cli(&["DBSIZE"])).unwrap();
    assert_eq!(keys, 0, "looking at a ring does not make one");
}

#[test]
fn json_shows_everything_about_the_ring() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &["--interval", "10ms"]);
    ring.generator(&nodes);
    let status = ring.eventually(SOON, "some work is done", |status| status["done"].as_u64() > Some(3));
    assert_eq!(status["ring"], "estafeta");
    assert_eq!((&status["application"], &status["layout"]), (&"estafeta-demo".into(), &4.into()), "{status}");
    let counts = [
        "waiting",
        "later",
        "inFlight",
        "published",
        "submitted",
        "done",
        "errorsKept",
        "errorsTaken",
        "takeovers",
        "buried",
        "returned",
        "fenced",
        "retried",
        "dropped",
        "retries",
        "snoozes",
    ];
    for name in counts {
        assert!(status[name].is_u64(), "{name} in {status}");
    }
    assert_eq!(status["balanced"], true);
    let generator = &status["generator"];
    assert!(generator["epoch"].as_u64() > Some(0) && generator["host"].is_string(), "{generator}");
    assert_eq!(generator["state"], "alive", "{generator}");
    let members = status["members"].as_array().unwrap();
    let mut pids: Vec<u64> = members.iter().map(|member| member["pid"].as_u64().unwrap()).collect();
    let mut started: Vec<u64> = nodes.iter().map(|node| node.pid().into()).collect();
    pids.sort_unstable();
    started.sort_unstable();
    assert_eq!(pids, started);
    for member in members {
        assert!(member["inFlight"].is_u64() && member["host"] == generator["host"], "{member}");
        let leads = member["id"] == generator["member"];
        assert_eq!(member["role"], if leads { "generator" } else { "handler" });
        assert_eq!(member["rank"].is_null(), leads, "{member}");
    }
    // No member has left, so the members did all that was done.
    let total = |name: &str| members.iter().map(|member| member[name].as_u64().unwrap()).sum::<u64>();
    let count = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(total("generated"), count("published"), "{status}");
    assert_eq!(total("processed"), count("done") + count("errorsKept"), "{status}");
    assert_eq!(total("failed"), count("errorsKept"), "{status}");
    let events = status["events"].as_array().unwrap();
    assert!(!events.is_empty(), "{status}");
    for event in events {
        let time = event["timeMs"].as_u64().unwrap().to_string();
        assert!(event["id"].as_str().unwrap().starts_with(&time), "{event}");
    }
    let text = ring.success(&["status"]);
    assert!(text.contains(&format!("generator member {}", generator["member"])), "{text}");
}

#[test]
fn a_generator_that_died_last_is_shown_as_dead() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(2, &["--lease", "300ms"]);
    ring.generator(&nodes);
    nodes.iter().for_each(|node| node.signal(Signal::SIGKILL));
    let status = ring.eventually(SOON, "the leases have run out", |status| {
        status["members"].as_array().unwrap().iter().all(|member| member["state"] == "expired")
    });
    let generator = &status["generator"];
    assert_eq!(generator["state"], "expired", "nobody is left to bury it: {status}");
    let text = ring.success(&["status"]);
    assert!(text.contains(&format!("generator member {} (expired) on ", generator["member"])), "{text}");
    let lines = ring.success(&["monitor", "--attach", "--for", "1s"]);
    assert!(lines.contains(" generator-state expired "), "{lines}");
}

#[test]
fn the_line_of_succession_is_shown_in_the_order_of_joining_and_loses_who_takes_office() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(4, &[]);
    ring.generator(&nodes);
    for left in [3, 2, 1] {
        let status = ring.eventually(SOON, "one leads and the others stand in line", |status| {
            !status["generator"].is_null() && line_of_succession(status).len() == left
        });
        let line = line_of_succession(&status);
        for (place, member) in line.iter().enumerate() {
            assert_eq!(member["rank"], place, "{status}");
            assert_ne!(member["id"], status["generator"]["member"], "{status}");
        }
        assert!(
            line.is_sorted_by_key(|member| member["id"].as_u64()),
            "who joined first stands first: {status}"
        );
        let outgoing = &status["generator"]["pid"];
        let process = nodes.iter().find(|node| u64::from(node.pid()) == *outgoing).unwrap();
        process.signal(Signal::SIGTERM);
        assert!(process.wait(SOON).success());
    }
}

#[test]
fn a_balance_that_does_not_add_up_is_shown_and_fails_the_command() {
    let ring = ProgramRing::new();
    ring.redis_cli(&["RPUSH", "{estafeta}:ready", "foreign"]);
    let output = ring.command(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("published 0 = waiting 1 ") && text.contains("DOES NOT ADD UP"), "{text}");
    let output = ring.command(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["balanced"], false);
}

#[test]
fn watching_goes_on_until_a_signal_ends_it() {
    let ring = ProgramRing::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let watch = ring.start(&["status", "--watch", "--json"]);
        let mut lines = 0;
        watch.wait_for_line(SOON, |line| {
            let status: Value = serde_json::from_str(line).expect(line);
            lines += 1;
            status["ring"] == "estafeta" && lines == 3
        });
        assert!(watch.is_running());
        watch.signal(signal);
        assert_eq!(watch.wait(SOON).code(), Some(0));
    }
}

/// A signal must not be lost between two waits. So it is sent while the program waits for Redis.
#[test]
fn a_signal_ends_watching_even_if_a_request_is_under_way() {
    let ring = ProgramRing::new();
    let slow = SlowRedis::before(ring.redis.socket());
    let watch = start_watch(&slow.url);
    let mut lines = 0;
    watch.wait_for_line(SOON, |_| {
        lines += 1;
        lines == 2
    });
    slow.stall.store(true, Ordering::SeqCst);
    slow.stalled.recv_timeout(SOON).unwrap();
    watch.signal(Signal::SIGTERM);
    // The signal is pending or delivered as soon as the call above has returned. The test cannot wait for anything
    // more.
    slow.stall.store(false, Ordering::SeqCst);
    assert_eq!(watch.wait(SOON).code(), Some(0));
}

fn start_watch(url: &str) -> Process {
    start(&["status", "--watch", "--json"], &[("REDIS_URL", url)])
}

/// A proxy before Redis that can hold requests back.
struct SlowRedis {
    url: String,
    stall: Arc<AtomicBool>,
    /// Receives a value when a request is being held back.
    stalled: Receiver<()>,
}

impl SlowRedis {
    fn before(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let stall = Arc::new(AtomicBool::new(false));
        let (report, stalled) = channel();
        let held = Arc::clone(&stall);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&socket).unwrap());
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || forward(from, to, || {}));
                let (held, report) = (Arc::clone(&held), report.clone());
                std::thread::spawn(move || {
                    forward(client, server, || {
                        if held.load(Ordering::SeqCst) {
                            let _ = report.send(());
                        }
                        while held.load(Ordering::SeqCst) {
                            std::thread::yield_now();
                        }
                    });
                });
            }
        });
        Self { url, stall, stalled }
    }
}

fn forward(mut from: impl Read, mut to: impl Write, mut wait: impl FnMut()) {
    let mut bytes = [0; 4096];
    while let Ok(size @ 1..) = from.read(&mut bytes) {
        wait();
        if to.write_all(&bytes[..size]).is_err() {
            return;
        }
    }
}

#[test]
fn watching_ends_when_its_pipe_is_closed() {
    let ring = ProgramRing::new();
    for args in [&["status", "--watch"][..], &["status", "--watch", "--json"]] {
        let (watch, pipe) = ring.start_unread(args);
        let mut line = String::new();
        BufReader::new(pipe).read_line(&mut line).unwrap();
        assert!(line.contains("estafeta"), "{line}");
        let output = watch.output(SOON);
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    }
}

#[test]
fn a_password_is_never_shown() {
    const PASSWORD: &str = "pa55 wörd";
    let ring = ProgramRing::on(RedisServer::builder().tcp().password(PASSWORD).start());
    let (url, port) = (ring.redis.url(), ring.redis.port());
    let encoded = url.split(['@', ':']).nth(2).unwrap().to_owned();
    let wrong = url.replace(&encoded, &format!("{encoded}2"));
    let unreadable = format!("redis://:{encoded}@127.0.0.1:port");
    let away = format!("redis://:{encoded}@127.0.0.1:1");
    let port = port.to_string();
    let by_url = |url| run(&["-vv", "status"], &[("REDIS_URL", url)]);
    let nodes = ring.nodes(2, &["-vv", "--interval", "10ms", "--limit", "3", "--until-done"]);
    let outputs = [
        (0, nodes[0].output(SOON)),
        (0, nodes[1].output(SOON)),
        (0, by_url(&url)),
        (0, run(&["-vv", "getErrors"], &[("ESTAFETA_REDIS", &url)])),
        (0, run(&["--help"], &[("ESTAFETA_REDIS", &url), ("ESTAFETA_PASSWORD", PASSWORD)])),
        (0, run(&["-vv", "status", "--port", &port, "--password", PASSWORD], &[])),
        (3, by_url(&wrong)),
        (3, by_url(&away)),
        (2, by_url(&unreadable)),
        (2, run(&["-vv", "status", "--redis", &encoded], &[])),
        (3, run(&["-vv", "run", "--redis", &wrong], &[])),
        (0, run(&["status", "--redis", &url, "--password", PASSWORD], &[])),
        (2, run(&["status", "--prot", "1", "--redis", &url], &[])),
    ];
    for (code, output) in outputs {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(!text.contains(PASSWORD) && !text.contains(&encoded), "{text}");
    }
}

#[test]
fn text_shows_the_application_the_layout_and_what_came_from_outside() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "one"]);
    let text = ring.success(&["status"]);
    assert_eq!(text.lines().nth(1), Some("application none, layout 4"), "{text}");
    assert!(text.contains("\nsubmitted 1\n"), "{text}");
    assert_eq!((&ring.status()["application"], &ring.status()["submitted"]), (&Value::Null, &1.into()));

    let other = ProgramRing::new();
    let _node = other.node(&["--interval", "1h"]);
    let text = other.success(&["status"]);
    assert_eq!(text.lines().nth(1), Some("application estafeta-demo, layout 4"), "{text}");
    assert!(!text.contains("submitted"), "nothing came from outside: {text}");
}

#[test]
fn rings_shows_what_waits_for_a_time() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "one"]);
    // As if the message had failed and waited for its next attempt.
    ring.redis_cli(&["DEL", "{estafeta}:ready"]);
    ring.redis_cli(&["ZADD", "{estafeta}:later", "9000000000000", "1"]);
    ring.redis_cli(&["HSET", "{estafeta}:delayed", "1", "1 7 1000 1 1 0 0 0 one"]);
    let row: Value = serde_json::from_str(&ring.success(&["rings", "--json"])).unwrap();
    assert_eq!(
        (&row["later"], &row["waiting"], &row["published"]),
        (&1.into(), &0.into(), &1.into()),
        "{row}"
    );
    let text = ring.success(&["rings"]);
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["ring", "nodes", "published", "waiting", "later", "errors", "application"]);
    assert_eq!(words[1], ["estafeta", "0", "1", "0", "1", "0", "-"]);
}
