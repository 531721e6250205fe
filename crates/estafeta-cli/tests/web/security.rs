//! What keeps strangers and foreign pages out. Each rule has its test.

use std::time::{Duration, Instant};

use base64::Engine as _;
use estafeta_testbed::RedisServer;
use serde_json::json;

use crate::support::{SOON, WebServer, add_many_errors, changes, run, start};

const JSON: &str = "Content-Type: application/json\r\n";

fn server(args: &[&str]) -> (RedisServer, WebServer) {
    let redis = RedisServer::start();
    add_many_errors(&redis, 20);
    let server = WebServer::start(&redis, &[&["--ring", "orders"], args].concat());
    (redis, server)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn basic(name: &str, secret: &str) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{secret}"));
    format!("Authorization: Basic {encoded}\r\n")
}

#[test]
fn every_answer_forbids_foreign_content_and_no_answer_of_the_api_is_stored() {
    let (_redis, server) = server(&[]);
    for path in ["/", "/app.js", "/api/meta", "/api/rings/nothing", "/nothing", "/metrics", "/livez"] {
        let answer = server.get(path);
        assert_eq!(
            answer.header("content-security-policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
             trusted-types 'none'",
            "{path}"
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{path}");
        let cache = if ["/", "/app.js"].contains(&path) { "no-cache" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), cache, "{path}");
    }
    let refused = server.send("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    assert!(refused.header("content-security-policy").contains("frame-ancestors 'none'"), "{refused:?}");
}

#[test]
fn only_requests_for_our_own_names_are_answered() {
    let (_redis, server) = server(&["--allow-host", "rings.example.com"]);
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    let status = |head: &str| {
        let request = format!("GET /api/meta HTTP/1.1\r\n{head}Connection: close\r\n\r\n");
        server.send(&request).status
    };
    for host in ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "rings.example.com"] {
        assert_eq!(status(&format!("Host: {host}:{port}\r\n")), 200, "{host}");
        assert_eq!(status(&format!("Host: {host}\r\n")), 200, "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "127.0.0.2", "192.0.2.1", ""] {
        assert_eq!(status(&format!("Host: {host}\r\n")), 421, "{host}");
    }
    assert_eq!(status(""), 400, "no host");
    assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), 400, "two hosts");
    let absolute =
        "GET http://evil.example/api/meta HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(server.send(absolute).status, 421, "another host in the address");
}

#[test]
fn a_change_comes_from_our_own_page_or_carries_a_token() {
    let secret = file("ops:correct horse\n");
    let (_redis, server) = server(&["--admin-file", secret.path().to_str().unwrap()]);
    let (login, address) = (basic("ops", "correct horse"), server.address.clone());
    let status = |headers: &str| {
        let headers = format!("{headers}{JSON}");
        server.post_with("/api/rings/orders/errors/drop", &headers, r#"{"ids":[1]}"#).status
    };
    assert_eq!(status(&format!("{login}Sec-Fetch-Site: same-origin\r\n")), 200);
    assert_eq!(status(&format!("{login}Origin: http://{address}\r\n")), 200, "an old browser");
    assert_eq!(status(&format!("{login}Origin: https://{address}\r\n")), 200, "behind a proxy with TLS");
    assert_eq!(status("Authorization: Bearer correct horse\r\n"), 200, "a script");
    for site in ["cross-site", "same-site", "none", ""] {
        let ours = format!("{login}Origin: http://{address}\r\nSec-Fetch-Site: {site}\r\n");
        assert_eq!(status(&ours), 403, "{site}");
    }
    for origin in ["http://evil.example", "null", &format!("http://{address}.evil"), "http://localhost:1"] {
        assert_eq!(status(&format!("{login}Origin: {origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(status(&login), 403, "a browser that sends neither, and its login by itself");
    let form = format!("{login}Sec-Fetch-Site: same-origin\r\nContent-Type: text/plain\r\n");
    let answer = server.post_with("/api/rings/orders/errors/drop", &form, r#"{"ids":[2]}"#);
    answer.problem(415);
    let ring = server.get_with("/api/rings/orders", &login).json();
    assert_eq!(ring["dropped"], 1, "the same error four times, and nothing else");
}

#[test]
fn without_a_login_a_script_cannot_change_anything() {
    let (_redis, server) = server(&[]);
    let path = "/api/rings/orders/errors/drop";
    let problem = server.post_with(path, JSON, r#"{"ids":[1]}"#).problem(403);
    assert!(problem.contains("bearer token"), "{problem}");
    let forged = format!("{JSON}Authorization: Bearer anything\r\n");
    server.post_with(path, &forged, r#"{"ids":[1]}"#).problem(403);
    assert_eq!(changes(&server), Vec::<serde_json::Value>::new());
}

#[test]
fn a_read_only_server_refuses_every_method_but_get_and_head_before_routing() {
    let (_redis, server) = server(&["--read-only"]);
    assert_eq!(server.json("/api/meta")["mayChange"], false);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        for path in ["/api/rings/orders/errors/drop", "/api/rings/orders/pause", "/", "/nothing"] {
            let head =
                format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n");
            let request =
                format!("{head}{JSON}Content-Length: 12\r\nConnection: close\r\n\r\n{{\"ids\":[1]}} ");
            let problem = server.send(&request).problem(403);
            assert_eq!(problem, "this server is read-only", "{method} {path}");
        }
    }
    let head = server.send("HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(server.json("/api/rings/orders")["errorsKept"], 20);
}

#[test]
fn a_server_that_strangers_can_reach_does_not_start_without_a_login() {
    let redis = RedisServer::start();
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7070"] {
        let output = run(&redis, &["web", "--listen", listen]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("expected an address of this machine alone"), "{stderr}");
    }
    let args = ["web", "--listen", "0.0.0.0:0", "--ring", "orders"];
    let server = start(&redis, &args, &[("ESTAFETA_WEB_VIEWER", "right-secret")]);
    let line = server.wait_for_line(SOON, |line| line.starts_with("estafeta web: "));
    let address = line.trim_start_matches("estafeta web: http://").trim_end_matches('/').to_owned();
    let server = WebServer { process: server, address };
    assert_eq!(server.get("/api/meta").status, 401);
    assert_eq!(server.get_with("/api/meta", "Authorization: Bearer right-secret\r\n").status, 200);
}

#[test]
fn bad_secrets_are_refused_at_the_start() {
    let redis = RedisServer::start();
    for text in ["", "short", "anna:short"] {
        let secret = file(text);
        let output = run(&redis, &["web", "--viewer-file", secret.path().to_str().unwrap()]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("--viewer-file: expected"), "{stderr}");
    }
}

#[test]
fn a_login_decides_who_looks_and_who_changes_and_its_name_is_in_the_event() {
    let (admins, viewers) = (file("anna:correct horse\nboris:battery staple\n"), file("just-looking\n"));
    let (admin_file, viewer_file) = (admins.path().to_str().unwrap(), viewers.path().to_str().unwrap());
    let (_redis, server) = server(&["--admin-file", admin_file, "--viewer-file", viewer_file]);
    let challenge = server.get("/");
    challenge.problem(401);
    assert_eq!(challenge.header("www-authenticate"), "basic realm=\"estafeta\", charset=\"utf-8\"");
    assert_eq!(server.get("/livez").status, 200, "health needs no login");
    let meta = |headers: &str| server.get_with("/api/meta", headers);
    let boris = meta(&basic("boris", "battery staple")).json();
    assert_eq!((&boris["user"], &boris["mayChange"]), (&json!("boris"), &json!(true)));
    let viewer = meta("Authorization: Bearer just-looking\r\n").json();
    assert_eq!((&viewer["user"], &viewer["mayChange"]), (&json!("viewer"), &json!(false)));
    let body = r#"{"ids":[3,4]}"#;
    let path = "/api/rings/orders/errors/drop";
    let viewer = format!("Authorization: Bearer just-looking\r\n{JSON}");
    assert_eq!(server.post_with(path, &viewer, body).problem(403), "this login may only look");
    let anna = format!("Authorization: Bearer correct horse\r\n{JSON}");
    assert_eq!(server.post_with(path, &anna, body).json()["changed"], 2);
    let events = server.get_with("/api/rings/orders/events", &basic("anna", "correct horse")).json();
    let last = events.as_array().unwrap().last().unwrap();
    assert_eq!([&last["kind"], &last["count"], &last["by"]], [&json!("dropped"), &json!(2), &json!("anna")]);
}

#[test]
fn a_failed_login_costs_time_and_a_right_one_does_not_wait_for_others() {
    let secret = file("anna:correct horse\n");
    let (_redis, server) = server(&["--admin-file", secret.path().to_str().unwrap()]);
    let wrong = [
        basic("anna", "wrong horse!"),
        basic("boris", "correct horse"),
        basic("anna", ""),
        "Authorization: Bearer no\r\n".to_owned(),
        "Authorization: Digest x\r\n".to_owned(),
    ];
    let begun = Instant::now();
    for headers in &wrong {
        assert_eq!(server.get_with("/api/meta", headers).status, 401, "{headers}");
    }
    assert!(begun.elapsed() >= Duration::from_millis(250) * wrong.len() as u32);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let failing: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| server.get_with("/api/meta", "Authorization: Bearer no\r\n").status))
            .collect();
        let right = server.get_with("/api/meta", "Authorization: Bearer correct horse\r\n");
        assert_eq!(right.status, 200);
        assert!(failing.into_iter().all(|failing| failing.join().unwrap() == 401));
    });
    assert!(begun.elapsed() >= Duration::from_secs(2), "failed logins wait for each other");
}
