//! What a node shows to its supervisors: metrics, health, `estafeta health`, and messages to systemd.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use estafeta_testbed::{Process, Signal, eventually};

use crate::support::{ProgramRing, SOON, start};

/// An address at which nobody listens.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The head and the body of an answer.
fn ask(address: &str, method: &str, path: &str) -> (String, String) {
    ask_with(address, method, path, "X-Nothing: 0")
}

fn ask_with(address: &str, method: &str, path: &str, header: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{header}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    (head.to_owned(), body.to_owned())
}

/// The body of an answer. None if nobody listens there yet.
pub fn try_get(address: &str, path: &str) -> Option<String> {
    TcpStream::connect(address).ok().map(|_| ask(address, "GET", path).1)
}

fn status_of(address: &str, path: &str) -> (u16, String) {
    let (head, body) = ask(address, "GET", path);
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

/// The value of a metric with these labels, besides the ring.
fn value_of(metrics: &str, name: &str, labels: &str) -> Option<f64> {
    let comma = if labels.is_empty() { "" } else { "," };
    let start = format!("{name}{{ring=\"estafeta\"{comma}{labels}}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start))?.parse().ok()
}

fn health(ring: &ProgramRing, args: &[&str]) -> (Option<i32>, String) {
    let output = ring.command(&[&["health"], args].concat());
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_node_serves_its_own_metrics() {
    let (ring, address) = (ProgramRing::new(), free_address());
    let node = ring.node(&[
        "--metrics",
        &address,
        "--interval",
        "10ms",
        "--generator-handles",
        "--max-waiting",
        "77",
    ]);
    let metrics = eventually(SOON, "messages were handled and some failed", || {
        let metrics = ask(&address, "GET", "/metrics").1;
        let handled =
            |result: &str| value_of(&metrics, "estafeta_handled_total", &format!("result=\"{result}\""));
        (handled("done") > Some(20.0) && handled("failed") > Some(0.0)).then_some(metrics)
    });
    let head = ask(&address, "GET", "/metrics").0.to_lowercase();
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let accept = "Accept: application/openmetrics-text;q=0.8,text/plain;q=0.5";
    let (head, open) = ask_with(&address, "GET", "/metrics", accept);
    assert!(head.to_lowercase().contains("content-type: application/openmetrics-text"), "{head}");
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE estafeta_build info\n"), "{open}");
    let value = |name, labels| value_of(&metrics, name, labels).unwrap_or_else(|| panic!("{name} {metrics}"));
    assert_eq!(value("estafeta_generating", ""), 1.0);
    assert_eq!(value("estafeta_lanes", ""), 1.0);
    assert_eq!(value("estafeta_max_waiting", ""), 77.0);
    assert_eq!(value("estafeta_redis_lost_total", ""), 0.0);
    assert_eq!(value("estafeta_takeover_seconds_count", ""), 0.0, "it took over from nobody");
    assert!((0.0..=1.0).contains(&value("estafeta_lanes_busy", "")));
    let handled = value("estafeta_handled_total", "result=\"done\"");
    assert!(value("estafeta_generated_total", "") >= handled);
    assert_eq!(value("estafeta_handling_seconds_count", "result=\"done\""), handled);
    assert!(value("estafeta_wait_seconds_count", "") >= handled);
    assert!(value("estafeta_redis_step_seconds_count", "step=\"turn\"") > 0.0);
    assert!(value("estafeta_redis_step_seconds_count", "step=\"beat\"") > 0.0);
    let known = ["ring", "version", "result", "step", "le"];
    for labels in metrics.lines().filter_map(|line| line.split_once('{')?.1.split_once('}')) {
        for label in labels.0.split(',').filter_map(|label| label.split('=').next()) {
            assert!(known.contains(&label), "{label} in {labels:?}");
        }
    }
    assert_eq!(ask(&address, "GET", "/").0.split(' ').nth(1), Some("404"));
    assert_eq!(ask(&address, "POST", "/metrics").0.split(' ').nth(1), Some("405"));
    // Clients that send nothing do not keep others from their answer.
    let silent: Vec<_> = (0..31).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(status_of(&address, "/livez").0, 200);
    drop(silent);
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
}

#[test]
fn without_redis_a_node_lives_and_is_not_ready() {
    let (ring, address) = (ProgramRing::new(), free_address());
    let node = ring.node(&["--metrics", &address]);
    eventually(SOON, "the node is ready", || (status_of(&address, "/readyz").0 == 200).then_some(()));
    assert_eq!(health(&ring, &["--metrics", &address]).0, Some(0));
    ring.redis.freeze();
    let sentence = eventually(SOON, "the node is not ready", || {
        let (status, sentence) = status_of(&address, "/readyz");
        (status == 503).then_some(sentence)
    });
    assert!(sentence.starts_with("Redis has not answered this node for "), "{sentence}");
    assert_eq!(status_of(&address, "/livez"), (200, "the node lives\n".to_owned()));
    let (code, text) = health(&ring, &["--metrics", &address]);
    assert_eq!((code, text.contains("Redis has not answered")), (Some(1), true), "{text}");
    let (code, text) = health(&ring, &["--metrics", &address, "--live"]);
    assert_eq!((code, text.as_str()), (Some(0), "the node lives\n"));
    ring.redis.thaw();
    eventually(SOON, "the node is ready again", || (status_of(&address, "/readyz").0 == 200).then_some(()));
    let metrics = ask(&address, "GET", "/metrics").1;
    assert_eq!(value_of(&metrics, "estafeta_redis_lost_total", ""), Some(1.0));
    node.kill();
    let (code, text) = health(&ring, &["--metrics", &address]);
    assert_eq!((code, text.contains(&format!("no node answers at {address}"))), (Some(1), true), "{text}");
}

#[test]
fn health_looks_in_redis_if_it_knows_no_address() {
    let ring = ProgramRing::new();
    let (code, text) = health(&ring, &[]);
    assert_eq!((code, text.starts_with("no node of ring estafeta runs on ")), (Some(1), true), "{text}");
    let node = ring.node(&[]);
    let (code, text) = health(&ring, &[]);
    assert_eq!((code, text.ends_with(" is alive\n")), (Some(0), true), "{text}");
    node.freeze();
    let text = eventually(SOON, "its lease runs out", || {
        let (code, text) = health(&ring, &[]);
        (code == Some(1)).then_some(text)
    });
    assert!(text.ends_with(" does not look alive\n"), "{text}");
    node.thaw();
}

#[test]
fn an_address_at_which_a_node_cannot_listen_is_refused_by_its_name() {
    let ring = ProgramRing::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for address in [taken.as_str(), "nowhere"] {
        let output = ring.command(&["run", "--metrics", address]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("--metrics: expected an address that this node can listen at"), "{stderr}");
        assert_eq!(output.status.code(), Some(2), "{stderr}");
    }
}

/// Starts a node as systemd does, and returns what it sends.
fn supervised(ring: &ProgramRing, socket: &Path) -> Process {
    let (url, socket) = (ring.redis.url(), socket.to_str().unwrap());
    start(&["run"], &[("REDIS_URL", url.as_str()), ("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "10000000")])
}

/// Waits for a message that has this line.
fn wait_for(socket: &UnixDatagram, line: &str) -> String {
    let mut buffer = [0; 4096];
    eventually(SOON, line, || {
        let size = socket.recv(&mut buffer).expect("a message in time");
        let text = String::from_utf8_lossy(&buffer[..size]).into_owned();
        text.lines().any(|found| found == line).then_some(text)
    })
}

#[test]
fn systemd_hears_when_a_node_is_ready_lives_and_stops() {
    let (ring, directory) = (ProgramRing::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let node = supervised(&ring, &path);
    let ready = wait_for(&socket, "READY=1");
    assert!(ready.contains("STATUS=handler of ring estafeta"), "{ready}");
    wait_for(&socket, "STATUS=generator of ring estafeta");
    wait_for(&socket, "WATCHDOG=1");
    ring.redis.freeze();
    wait_for(&socket, "STATUS=waits for Redis");
    // The watchdog does not depend on Redis.
    wait_for(&socket, "WATCHDOG=1");
    wait_for(&socket, "WATCHDOG=1");
    ring.redis.thaw();
    node.signal(Signal::SIGTERM);
    wait_for(&socket, "STOPPING=1");
    assert!(node.wait(SOON).success());
}
