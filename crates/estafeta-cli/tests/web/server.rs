//! The server itself: its bounds, its health, and how it stops.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::time::Duration;

use estafeta_testbed::{RedisServer, Signal, eventually};
use serde_json::json;

use crate::support::{SOON, WebServer, add_many_errors};

fn server() -> (RedisServer, WebServer) {
    let redis = RedisServer::start();
    add_many_errors(&redis, 3);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    (redis, server)
}

#[test]
fn a_connection_too_many_is_refused_and_others_go_on() {
    let (_redis, server) = server();
    let mut idle: Vec<_> = (0..256).map(|_| server.connect()).collect();
    let refused = eventually(SOON, "a refusal", || {
        let answer = server.get("/livez");
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(refused.header("retry-after"), "5");
    assert_eq!(refused.problem(503), "too many connections are open");
    assert_eq!(refused.header("content-length"), refused.body.len().to_string());
    idle[0].write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    idle[0].read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(idle);
    eventually(SOON, "free connections", || (server.get("/livez").status == 200).then_some(()));
}

#[test]
fn a_client_that_never_finishes_its_request_is_disconnected() {
    let (_redis, server) = server();
    let mut slow = server.connect();
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: loc").unwrap();
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).expect("the server closes the connection");
}

#[test]
fn large_malformed_and_smuggled_requests_get_clear_answers() {
    let (_redis, server) = server();
    let path = "/api/rings/orders/errors/drop";
    let same = "Sec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n";
    let large = format!(r#"{{"ids":[{}]}}"#, "1,".repeat(40_000) + "1");
    server.post_with(path, same, &large).problem(413);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"ids":["1"]}"#,
        r#"{"ids":[-1]}"#,
        r#"{"ids":[1],"all":true}"#,
        r#"{"all":true,"other":1}"#,
        r#"{"ids":[1],"text":"x"}"#,
        r#"{"all":true,"after":"x"}"#,
    ] {
        server.post_with(path, same, body).problem(400);
    }
    let two_lengths = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{same}Content-Length: 2\r\nContent-Length: 40\r\n\r\n{{}}GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    );
    assert_eq!(server.send(&two_lengths).status, 400, "two lengths");
    let both = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{same}Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    );
    assert_eq!(server.send(&both).status, 400, "an unknown encoding");
    let head = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Large: {}\r\n\r\n", "x".repeat(1024 * 1024));
    let mut stream = server.connect();
    // The server may answer and close before all of it is sent.
    let _ = stream.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(server.json("/api/rings/orders")["errorsKept"], 3, "nothing was changed");
}

#[test]
fn while_redis_is_away_the_process_is_alive_and_not_ready_and_both_pass() {
    let redis = RedisServer::builder().append_only(estafeta_testbed::Fsync::Always).start();
    add_many_errors(&redis, 3);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    assert_eq!(server.get("/readyz").body, "ready\n");
    redis.kill();
    let why = eventually(SOON, "it is not ready", || {
        let answer = server.get("/readyz");
        (answer.status == 503).then(|| answer.problem(503))
    });
    assert!(why.contains("Redis"), "{why}");
    assert_eq!((server.get("/livez").status, server.get("/livez").body.as_str()), (200, "alive\n"));
    server.get("/api/rings/orders").problem(503);
    assert!(server.get("/metrics").body.contains("estafeta_ring_up{ring=\"orders\"} 0.0"));
    redis.restart();
    eventually(SOON, "it is ready again", || (server.get("/readyz").status == 200).then_some(()));
    assert_eq!(server.json("/api/rings/orders")["errorsKept"], 3);
}

/// Reads events of a stream until one of this kind comes, and returns its data.
pub fn event(stream: &mut impl std::io::BufRead, kind: &str) -> String {
    let mut lines = stream.lines().map(Result::unwrap);
    lines.by_ref().find(|line| *line == format!("event: {kind}")).expect("such an event");
    lines.next().unwrap().trim_start_matches("data: ").to_owned()
}

#[test]
fn a_stop_ends_the_streams_first_and_exits_well() {
    let (_redis, server) = server();
    let mut stream = server.connect();
    stream.write_all(b"GET /api/rings/orders/live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let snapshot: serde_json::Value = serde_json::from_str(&event(&mut stream, "snapshot")).unwrap();
    assert_eq!((&snapshot["ring"], &snapshot["errorsKept"]), (&json!("orders"), &json!(3)));
    server.process.signal(Signal::SIGTERM);
    event(&mut stream, "bye");
    assert!(server.process.wait(Duration::from_secs(20)).success());
}

#[test]
fn many_pages_cost_redis_as_much_as_one_and_none_costs_nothing() {
    let (redis, server) = server();
    let mut connection = redis.connect();
    let mut calls = || {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap_or("0,");
        line.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let mut streams: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for stream in &mut streams {
        stream.write_all(b"GET /api/rings/orders/live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    let mut streams: Vec<_> = streams.into_iter().map(BufReader::new).collect();
    streams.iter_mut().for_each(|stream| drop(event(stream, "snapshot")));
    let before = calls();
    for _ in 0..4 {
        streams.iter_mut().for_each(|stream| drop(event(stream, "snapshot")));
    }
    let cost = calls() - before;
    assert!((2..=8).contains(&cost), "50 pages made {cost} calls for four snapshots");
    drop(streams);
    eventually(SOON, "nobody looks", || {
        let before = calls();
        std::thread::sleep(Duration::from_millis(1500));
        (calls() == before).then_some(())
    });
}
