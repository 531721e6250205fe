//! The export of spans: real nodes send real spans to a small OTLP receiver.

#![allow(clippy::unwrap_used)]

mod receiver;

use std::path::Path;
use std::time::Duration;

use estafeta_testbed::{NO_ENV, Process, RedisServer, Signal, eventually};

use receiver::{ExportedSpan, Receiver};

/// A generous limit for events that must happen.
const SOON: Duration = Duration::from_secs(30);

fn start(redis: &RedisServer, args: &[&str], envs: &[(&str, &str)]) -> Process {
    let program = Path::new(env!("CARGO_BIN_EXE_estafeta"));
    let url = redis.url();
    let common = ["run", "--ring", "orders", "--redis", &url];
    let node = Process::spawn(program, common.iter().chain(args), envs.iter().copied());
    node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
    node
}

fn stop(node: &Process) {
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
}

/// Lets one node publish a message, and another one handle it. Returns the spans `send`, `process` and `settle`.
fn spans_of_one_message(envs: &[(&str, &str)]) -> [ExportedSpan; 3] {
    let (redis, receiver) = (RedisServer::start(), Receiver::start());
    let endpoint = receiver.endpoint();
    let envs = [&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())], envs].concat();
    let handles = start(&redis, &["--handle", "true", "--never-generate"], &envs);
    let publishes = start(&redis, &["--feed-plain", "echo pizza", "--never-handle"], &envs);
    handles.wait_for_line(SOON, |line| line.contains("#1"));
    // The last spans are sent when a node ends.
    stop(&publishes);
    stop(&handles);
    assert!(receiver.resources().iter().all(|service| service == "estafeta"), "{:?}", receiver.resources());
    ["send orders", "process orders", "settle orders"].map(|name| {
        let spans = receiver.spans();
        let [span] = &spans.iter().filter(|span| span.name == name).collect::<Vec<_>>()[..] else {
            panic!("one span {name}: {spans:#?}");
        };
        (*span).clone()
    })
}

#[test]
fn a_message_is_sent_processed_and_settled_in_spans_that_are_linked() {
    // Nothing is sent before the nodes end.
    let [send, process, settle] = spans_of_one_message(&[("OTEL_BSP_SCHEDULE_DELAY", "3600000")]);
    for (span, kind, operation) in [(&send, 4, "send"), (&process, 5, "process"), (&settle, 3, "settle")] {
        assert_eq!(span.kind, kind, "{span:?}");
        assert_eq!(span.get("messaging.system"), "estafeta", "{span:?}");
        assert_eq!(span.get("messaging.destination.name"), "orders", "{span:?}");
        assert_eq!(span.get("messaging.operation.name"), operation, "{span:?}");
        assert_eq!(span.get("messaging.operation.type"), operation, "{span:?}");
        assert!(span.parent.is_empty(), "{span:?}");
    }
    let name = send.get("messaging.message.id");
    assert!(name.starts_with("orders/") && name.ends_with("/1"), "{name}");
    assert_eq!(process.get("messaging.message.id"), name);
    assert_eq!((process.get("outcome"), settle.get("done")), ("done", "1"));
    assert_eq!(send.links, []);
    assert_eq!(process.links, [send.context()]);
    assert_eq!(settle.links, [send.context()]);
    assert_ne!(process.trace, send.trace);
}

#[test]
fn a_message_is_one_trace_if_the_user_wants_that() {
    let [send, process, settle] = spans_of_one_message(&[("ESTAFETA_TRACES", "parent")]);
    for span in [&process, &settle] {
        assert_eq!((&span.trace, &span.parent), (&send.trace, &send.id), "{span:?}");
        assert_eq!(span.links, []);
    }
}

#[test]
fn spans_arrive_while_a_node_runs_and_a_failure_is_one_of_them() {
    let (redis, receiver) = (RedisServer::start(), Receiver::start());
    let endpoint = receiver.endpoint();
    let envs = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "10")];
    let node = start(&redis, &["--feed-plain", "echo pizza", "--handle", "sh -c 'exit 65'"], &envs);
    let failed = eventually(SOON, "the span of the failure", || {
        receiver.spans().into_iter().find(|span| span.name == "process orders")
    });
    assert_eq!((failed.get("outcome"), failed.status.as_str()), ("failed", "exit code 65"), "{failed:?}");
    assert!(failed.get("error.type") == "_OTHER" && failed.is_error, "{failed:?}");
    stop(&node);
}

#[test]
fn a_node_needs_no_collector_that_answers() {
    let redis = RedisServer::start();
    // Nobody listens there.
    let envs = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_BSP_SCHEDULE_DELAY", "10")];
    let node = start(&redis, &["--feed-plain", "echo pizza", "--handle", "true"], &envs);
    node.wait_for_line(SOON, |line| line.contains("#1"));
    stop(&node);
}

#[test]
fn wrong_variables_are_refused_with_one_clear_line_each() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
    let cases = [
        (
            vec![endpoint, ("ESTAFETA_TRACES", "child")],
            "variable ESTAFETA_TRACES: expected link or parent, got 'child'",
        ),
        (
            vec![("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector")],
            "variable OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected an address that begins with http://",
        ),
    ];
    for (envs, expected) in cases {
        let args = ["run", "--redis", "redis://127.0.0.1:1", "--handle", "true"];
        let program = Path::new(env!("CARGO_BIN_EXE_estafeta"));
        let output = Process::spawn(program, args, envs).output(SOON);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with(&format!("estafeta: {expected}")), "{stderr}");
        assert_eq!(output.status.code(), Some(2));
    }
    // Other commands export nothing, and do not look.
    let output =
        Process::spawn(Path::new(env!("CARGO_BIN_EXE_estafeta")), ["--version"], NO_ENV).output(SOON);
    assert!(output.status.success());
}
