//! What broken, hostile and slow clients send: clear answers, nothing changed, bounded memory.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use estafeta_testbed::{Process, RedisServer, eventually};
use serde_json::json;

use crate::support::{RawAnswer, SOON, WebServer, add_errors, add_many_errors};

const PAGE: &str = "Sec-Fetch-Site: same-origin\r\nContent-Type: application/json\r\n";
const DROP: &str = "/api/rings/orders/errors/drop";

fn server() -> (RedisServer, WebServer) {
    let redis = RedisServer::start();
    add_many_errors(&redis, 3);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    (redis, server)
}

#[track_caller]
fn assert_unchanged(server: &WebServer) {
    assert_eq!(server.json("/api/rings/orders")["errorsKept"], 3, "nothing was changed");
}

#[test]
fn a_path_that_is_no_text_is_a_problem() {
    let (_redis, server) = server();
    for path in ["/api/rings/%ff", "/api/rings/orders/errors/%c3%28", "/api/rings/%ff/history?range=5m"] {
        server.get(path).problem(400);
    }
    for path in [
        "/api/rings/%00",
        "/api/rings/..%2f..%2fetc",
        "/api/rings/",
        "/api/rings/%7Borders%7D",
        "/%2e%2e/app.js",
    ] {
        server.get(path).problem(404);
    }
    let long = "r".repeat(10_000);
    server.get(&format!("/api/rings/{long}")).problem(404);
}

#[test]
fn an_id_beyond_every_number_is_a_problem() {
    let (_redis, server) = server();
    server.get("/api/rings/orders/errors/9007199254740991").problem(404);
    for id in ["9007199254740992", "18446744073709551615", "18446744073709551616", "+1", "1.0", "0x1", "%201"]
    {
        let detail = server.get(&format!("/api/rings/orders/errors/{id}")).problem(400);
        assert!(detail.starts_with("id: expected the id of a message"), "{detail}");
    }
    for ids in ["9007199254740992", "1e30", "0.5", "-1", "18446744073709551616", "null", "\"1\"", "[1]"] {
        server.post_with(DROP, PAGE, &format!("{{\"ids\":[{ids}]}}")).problem(400);
    }
    let long = format!(r#"{{"all":false,"text":"{}"}}"#, "x".repeat(201));
    server.post_with(DROP, PAGE, &long).problem(400);
    assert_unchanged(&server);
    assert_eq!(
        server.post_with(DROP, PAGE, r#"{"ids":[2.0,3e0,1922242298506057.0]}"#).json()["changed"],
        2,
        "whole numbers"
    );
}

#[test]
fn parameters_that_an_address_does_not_have_are_refused() {
    let (_redis, server) = server();
    for path in [
        "/api/meta?x=1",
        "/api/rings/orders?count=5",
        "/api/rings/orders/backlog?x",
        "/api/rings/orders/checkpoint?count=1",
        "/api/rings/orders/live?after=1",
        "/api/rings/orders/errors?cout=5",
        "/api/rings/orders/errors?count=5&count=6",
        "/api/rings/orders/errors/1?x=1",
        "/api/rings/orders/errors/reasons?text=x",
        "/api/rings/orders/errors.ndjson?count=1",
        "/api/rings/orders/events?since=1",
        "/api/rings/orders/history?range=5m&step=1",
        "/api/rings/orders/schedule?n=1",
    ] {
        server.get(path).problem(400);
    }
}

#[test]
fn a_method_that_an_address_does_not_have_is_answered_with_those_that_it_has() {
    let (_redis, server) = server();
    for (method, path, allowed) in [
        ("POST", "/livez", "get,head"),
        ("PUT", "/metrics", "get,head"),
        ("DELETE", "/api/rings/orders", "get,head"),
        ("PATCH", "/", "get,head"),
        ("GET", DROP, "post"),
        ("DELETE", "/api/rings/orders/pause", "post"),
    ] {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n");
        let answer = server.send(&format!("{head}Connection: close\r\n\r\n"));
        answer.problem(405);
        assert_eq!(answer.header("allow"), allowed, "{method} {path}");
    }
}

#[test]
fn only_json_is_a_change() {
    let (_redis, server) = server();
    for path in ["errors/drop", "errors/retry", "pause", "resume"] {
        for kind in
            ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"]
        {
            let headers = format!("Sec-Fetch-Site: same-origin\r\n{kind}");
            let body = r#"{"ids":[1],"what":"both"}"#;
            server.post_with(&format!("/api/rings/orders/{path}"), &headers, body).problem(415);
        }
    }
    let deep = "[".repeat(60_000);
    for body in [deep.as_str(), "{\"ids\":[1]}{", "\u{0}", "{\"ids\":[1],\"ids\":[2]}", "\"ids\"", "NaN"] {
        server.post_with(DROP, PAGE, body).problem(400);
    }
    let no_text = [
        format!(
            "POST {DROP} HTTP/1.1\r\nHost: localhost\r\n{PAGE}Content-Length: 11\r\nConnection: close\r\n\r\n"
        )
        .as_bytes(),
        b"{\"ids\":\"\xff\"}",
    ]
    .concat();
    raw(&server, &no_text).problem(400);
    assert_unchanged(&server);
}

/// Sends these bytes and reads until the server closes the connection.
fn raw(server: &WebServer, request: &[u8]) -> RawAnswer {
    let mut stream = server.connect();
    stream.write_all(request).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the server closes the connection");
    RawAnswer::parse(&bytes)
}

#[test]
fn a_request_that_two_readers_could_see_differently_is_refused_and_its_connection_ends() {
    let (_redis, server) = server();
    let hidden =
        format!("POST {DROP} HTTP/1.1\r\nHost: localhost\r\n{PAGE}Content-Length: 11\r\n\r\n{{\"ids\":[1]}}");
    let first = |framing: &str, body: &str| {
        format!("POST {DROP} HTTP/1.1\r\nHost: localhost\r\n{PAGE}{framing}\r\n{body}{hidden}")
    };
    for (what, framing, body) in [
        ("two lengths", "Content-Length: 2\r\nContent-Length: 40\r\n", "{}"),
        ("a list of lengths", "Content-Length: 2, 40\r\n", "{}"),
        ("a sign", "Content-Length: +2\r\n", "{}"),
        ("a negative length", "Content-Length: -2\r\n", "{}"),
        ("a length in hex", "Content-Length: 0x2\r\n", "{}"),
        ("a length beyond every number", "Content-Length: 99999999999999999999999\r\n", "{}"),
        ("a space before the colon", "Content-Length : 2\r\n", "{}"),
        ("a folded header", "X-Folded: a\r\n b: c\r\nContent-Length: 2\r\n", "{}"),
        ("a carriage return alone", "X-Alone: a\rContent-Length: 2\r\n", "{}"),
        ("a zero byte", "X-Zero: a\0b\r\nContent-Length: 2\r\n", "{}"),
        ("an unknown coding", "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        ("chunks that are not last", "Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"),
        ("chunks in an old version", "Transfer-Encoding: identity\r\n", "{}"),
        ("a chunk beyond every number", "Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n"),
        ("a chunk with a sign", "Transfer-Encoding: chunked\r\n", "-1\r\n"),
        ("a chunk that ends too late", "Transfer-Encoding: chunked\r\n", "2\r\n{}}\r\n0\r\n\r\n"),
    ] {
        let answer = raw(&server, first(framing, body).as_bytes());
        assert_eq!((answer.status, answer.count()), (400, 1), "{what}: {answer:?}");
    }
    // By the standard, chunks count and not the length. What comes after such a request is not read.
    for (what, framing, body) in [
        ("length, then chunks", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("chunks, then length", "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "0\r\n\r\n"),
    ] {
        let answer = raw(&server, first(framing, body).as_bytes());
        assert_eq!(
            (answer.status, answer.count(), answer.header("connection")),
            (400, 1, "close"),
            "{what}: {answer:?}"
        );
    }
    for (what, request) in [
        ("another version", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n"),
        ("no version", "GET /\r\n\r\n"),
        ("no request", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\r\n\r\n"),
        ("a broken method", "GE T / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("a broken name", "GET / HTTP/1.1\r\nHo st: localhost\r\n\r\n"),
    ] {
        let answer = raw(&server, request.as_bytes());
        assert_eq!((answer.status, answer.count()), (400, 1), "{what}: {answer:?}");
    }
    let many = "X-Many: 1\r\n".repeat(1000);
    let answer = raw(&server, format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n").as_bytes());
    assert_eq!(answer.status, 431, "{answer:?}");
    assert_unchanged(&server);
}

#[test]
fn a_body_that_never_ends_is_cut_off() {
    let (_redis, server) = server();
    let head = |framing: &str| format!("POST {DROP} HTTP/1.1\r\nHost: localhost\r\n{PAGE}{framing}\r\n");
    // Larger than any memory, by its own words.
    let answer = raw(&server, head("Content-Length: 99999999999\r\n").as_bytes());
    assert_eq!(answer.problem(413), "expected a body of at most 65536 bytes");
    // Without words: chunk after chunk.
    let mut stream = server.connect();
    stream.write_all(head("Transfer-Encoding: chunked\r\n").as_bytes()).unwrap();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    let begun = Instant::now();
    while stream.write_all(chunk.as_bytes()).is_ok() {
        assert!(begun.elapsed() < SOON, "the server reads on and on");
    }
    // Slowly: the client promises more than it sends.
    let answer = raw(&server, format!("{}{{", head("Content-Length: 20\r\n")).as_bytes());
    assert_eq!(answer.problem(408), "the body did not arrive in time");
    assert_unchanged(&server);
}

/// The largest memory that a process has had so far, in MiB.
fn peak_memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
#[cfg(target_os = "linux")]
fn clients_that_read_nothing_cost_little_memory() {
    let redis = RedisServer::start();
    let body = "x".repeat(100_000);
    let errors: Vec<_> = (1..=200).map(|id| (id, "no", body.as_str())).collect();
    add_errors(&redis, &errors);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    assert_eq!(server.get("/livez").status, 200);
    let before = peak_memory(&server.process);
    // 20 downloads of 20 MB, and 20 streams.
    let idle: Vec<_> = ["errors.ndjson", "live"]
        .iter()
        .flat_map(|what| (0..20).map(move |_| what))
        .map(|what| {
            let mut stream = server.connect();
            let request = format!("GET /api/rings/orders/{what} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            // The answer has begun.
            stream.read_exact(&mut [0; 12]).unwrap();
            stream
        })
        .collect();
    // Others are served meanwhile.
    for _ in 0..20 {
        assert_eq!(server.json("/api/rings/orders")["errorsKept"], json!(200));
        std::thread::sleep(Duration::from_millis(50));
    }
    let cost = peak_memory(&server.process) - before;
    assert!(cost < 300, "{cost} MiB for {} clients", idle.len());
    drop(idle);
    eventually(SOON, "others are served", || (server.get("/livez").status == 200).then_some(()));
}
