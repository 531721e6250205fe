//! `status`: one moment of the ring, whether it adds up, and what it never shows.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use estafeta_testbed::{Process, RedisServer, Signal};
use serde_json::Value;

use crate::support::{SOON, TestRing, run, start};

/// The members that stand in line, first the heir.
fn line_of_succession(status: &Value) -> Vec<&Value> {
    let mut line: Vec<_> =
        status["members"].as_array().unwrap().iter().filter(|m| !m["rank"].is_null()).collect();
    line.sort_by_key(|member| member["rank"].as_u64());
    line
}

#[test]
fn an_empty_ring_adds_up() {
    let ring = TestRing::new();
    let text = ring.success(&["status"]);
    assert!(text.contains("ring estafeta at ") && text.contains("no members"), "{text}");
    assert!(text.contains("errors taken 0: adds up"), "{text}");
    let status = ring.status();
    assert_eq!((&status["generator"], &status["balanced"]), (&Value::Null, &true.into()));
    let keys: u64 = redis::from_redis_value(ring.redis_cli(&["DBSIZE"])).unwrap();
    assert_eq!(keys, 0, "looking at a ring does not make one");
}

#[test]
fn json_tells_everything_about_the_ring() {
    let ring = TestRing::new();
    let copies = ring.copies(3, &["--interval", "10ms"]);
    ring.generator(&copies);
    let status = ring.eventually(SOON, "some work is done", |status| status["done"].as_u64() > Some(3));
    assert_eq!(status["ring"], "estafeta");
    let counts = [
        "waiting",
        "in_flight",
        "published",
        "done",
        "errors_kept",
        "errors_taken",
        "takeovers",
        "buried",
        "returned",
        "fenced",
        "retried",
        "dropped",
    ];
    for name in counts {
        assert!(status[name].is_u64(), "{name} in {status}");
    }
    assert_eq!(status["balanced"], true);
    let generator = &status["generator"];
    assert!(generator["epoch"].as_u64() > Some(0) && generator["host"].is_string(), "{generator}");
    let members = status["members"].as_array().unwrap();
    let mut pids: Vec<u64> = members.iter().map(|member| member["pid"].as_u64().unwrap()).collect();
    let mut started: Vec<u64> = copies.iter().map(|copy| copy.pid().into()).collect();
    pids.sort_unstable();
    started.sort_unstable();
    assert_eq!(pids, started);
    for member in members {
        assert!(member["in_flight"].is_u64() && member["host"] == generator["host"], "{member}");
        let leads = member["id"] == generator["member"];
        assert_eq!(member["role"], if leads { "generator" } else { "handler" });
        assert_eq!(member["rank"].is_null(), leads, "{member}");
    }
    // Nobody has gone, so what the members did is all that was done.
    let total = |name: &str| members.iter().map(|member| member[name].as_u64().unwrap()).sum::<u64>();
    let count = |name: &str| status[name].as_u64().unwrap();
    assert_eq!(total("generated"), count("published"), "{status}");
    assert_eq!(total("processed"), count("done") + count("errors_kept"), "{status}");
    assert_eq!(total("failed"), count("errors_kept"), "{status}");
    let events = status["events"].as_array().unwrap();
    assert!(!events.is_empty(), "{status}");
    for event in events {
        let time = event["time_ms"].as_u64().unwrap().to_string();
        assert!(event["id"].as_str().unwrap().starts_with(&time), "{event}");
    }
    let text = ring.success(&["status"]);
    assert!(text.contains(&format!("generator member {}", generator["member"])), "{text}");
}

#[test]
fn ranks_are_the_order_in_which_the_copies_succeed() {
    let ring = TestRing::new();
    let copies = ring.copies(4, &[]);
    ring.generator(&copies);
    for left in [3, 2, 1] {
        let status = ring.eventually(SOON, "one leads and the others stand in line", |status| {
            !status["generator"].is_null() && line_of_succession(status).len() == left
        });
        let line = line_of_succession(&status);
        for (place, member) in line.iter().enumerate() {
            assert_eq!(member["rank"], place, "{status}");
        }
        assert!(
            line.is_sorted_by_key(|member| member["id"].as_u64()),
            "who joined first stands first: {status}"
        );
        let (outgoing, heir) = (&status["generator"], line[0]);
        let process = copies.iter().find(|copy| u64::from(copy.pid()) == outgoing["pid"]).unwrap();
        process.signal(Signal::SIGTERM);
        let other = |status: &Value| {
            let new = &status["generator"];
            !new.is_null() && new["member"] != outgoing["member"]
        };
        let after = ring.eventually(SOON, "another leads", other);
        assert_eq!(after["generator"]["member"], heir["id"], "{after}");
        assert!(process.wait(SOON).success());
    }
}

#[test]
fn a_balance_that_does_not_add_up_fails_loudly() {
    let ring = TestRing::new();
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
fn watching_goes_on_until_told_to_stop() {
    let ring = TestRing::new();
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

/// A signal must not get lost between two waits, so it is sent while the program waits for Redis.
#[test]
fn watching_stops_also_when_told_so_while_it_looks() {
    let ring = TestRing::new();
    let slow = SlowRedis::before(ring.redis.socket());
    let watch = run_watch(&slow.url);
    let mut lines = 0;
    watch.wait_for_line(SOON, |_| {
        lines += 1;
        lines == 2
    });
    slow.stall.store(true, Ordering::SeqCst);
    slow.stalled.recv_timeout(SOON).unwrap();
    watch.signal(Signal::SIGTERM);
    // The signal is pending or delivered once the call above has returned; nothing more can be awaited of it.
    slow.stall.store(false, Ordering::SeqCst);
    assert_eq!(watch.wait(SOON).code(), Some(0));
}

fn run_watch(url: &str) -> Process {
    start(&["status", "--watch", "--json"], &[("REDIS_URL", url)])
}

/// A way to Redis on which requests can be held up.
struct SlowRedis {
    url: String,
    stall: Arc<AtomicBool>,
    /// Told when a request is being held up.
    stalled: Receiver<()>,
}

impl SlowRedis {
    fn before(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let stall = Arc::new(AtomicBool::new(false));
        let (tell, stalled) = channel();
        let held = Arc::clone(&stall);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&socket).unwrap());
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || forward(from, to, || {}));
                let (held, tell) = (Arc::clone(&held), tell.clone());
                std::thread::spawn(move || {
                    forward(client, server, || {
                        if held.load(Ordering::SeqCst) {
                            let _ = tell.send(());
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
fn watching_ends_with_the_pipe() {
    let ring = TestRing::new();
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
    let ring = TestRing::on(RedisServer::builder().tcp().password(PASSWORD).start());
    let (url, port) = (ring.redis.url(), ring.redis.port());
    let encoded = url.split(['@', ':']).nth(2).unwrap().to_owned();
    let wrong = url.replace(&encoded, &format!("{encoded}2"));
    let unreadable = format!("redis://:{encoded}@127.0.0.1:port");
    let away = format!("redis://:{encoded}@127.0.0.1:1");
    let port = port.to_string();
    let by_url = |url| run(&["-vv", "status"], &[("REDIS_URL", url)]);
    let copies = ring.copies(2, &["-vv", "--interval", "10ms", "--limit", "3", "--until-done"]);
    let outputs = [
        (0, copies[0].output(SOON)),
        (0, copies[1].output(SOON)),
        (0, by_url(&url)),
        (0, run(&["-vv", "getErrors"], &[("ESTAFETA_REDIS", &url)])),
        (0, run(&["--help"], &[("ESTAFETA_REDIS", &url), ("ESTAFETA_PASSWORD", PASSWORD)])),
        (0, run(&["-vv", "status", "--port", &port, "--password", PASSWORD], &[])),
        (3, by_url(&wrong)),
        (3, by_url(&away)),
        (2, by_url(&unreadable)),
        (2, run(&["-vv", "status", "--redis", &encoded], &[])),
        (3, run(&["-vv", "run", "--redis", &wrong], &[])),
        (2, run(&["status", "--redis", &url, "--password", PASSWORD], &[])),
        (2, run(&["status", "--prot", "1", "--redis", &url], &[])),
    ];
    for (code, output) in outputs {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(!text.contains(PASSWORD) && !text.contains(&encoded), "{text}");
    }
}
