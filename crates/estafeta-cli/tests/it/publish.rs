//! `publish`: receipts, keys, lines and exit codes, and publishers that run beside a ring of real nodes.

use std::io::Write as _;
use std::path::Path;

use estafeta_testbed::{Output, Process, Signal, eventually};
use serde_json::{Value, json};

use crate::support::{ProgramRing, SOON, TextFile};

impl ProgramRing {
    /// Runs `publish` with this input on stdin.
    fn publish(&self, args: &[&str], input: &[u8]) -> Output {
        let (process, mut stdin) = self.start_fed(&[&["publish"], args].concat());
        // A command that needs no input may end before all of it is written.
        let _ = stdin.write_all(input);
        drop(stdin);
        process.output(SOON)
    }

    /// The elements that wait, as text.
    fn waiting(&self) -> Vec<String> {
        let elements: Vec<Vec<u8>> =
            redis::from_redis_value(self.redis_cli(&["LRANGE", "{estafeta}:ready", "0", "-1"])).unwrap();
        elements.iter().map(|element| String::from_utf8_lossy(element).into_owned()).collect()
    }
}

fn receipts(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn ids(output: &Output) -> Vec<u64> {
    receipts(output).iter().map(|receipt| receipt["id"].as_u64().unwrap()).collect()
}

fn failure(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

#[test]
fn a_receipt_is_one_json_object_and_a_duplicate_succeeds() {
    let ring = ProgramRing::new();
    let args = ["publish", "--key", "order-17", "--header", "shop=ber=lin", "two pizzas"];
    assert_eq!(ring.success(&args), "{\"id\":1,\"duplicate\":false}\n");
    assert_eq!(ring.success(&args), "{\"id\":1,\"duplicate\":true}\n");
    let waiting = ring.waiting();
    assert!(
        waiting.len() == 1 && waiting[0].ends_with(" 40 4:shop7:ber=lin12:estafeta-key8:order-17two pizzas"),
        "{waiting:?}"
    );
    let other = ring.command(&["publish", "--key", "order-17", "a salad"]);
    assert_eq!(
        failure(&other),
        (
            65,
            "estafeta: key 'order-17' is taken by another message: publish this one with another key\n"
                .into()
        )
    );
    assert_eq!(ring.status()["published"], 1);
}

#[test]
fn a_body_may_come_from_stdin_as_it_is() {
    let ring = ProgramRing::new();
    for (args, input) in [(&[][..], &b"a\nb\r\n"[..]), (&["-"], b""), (&["--", "-x"], b"ignored")] {
        let output = ring.publish(args, input);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let bodies: Vec<String> =
        ring.waiting().iter().map(|element| element.splitn(9, ' ').nth(8).unwrap().to_owned()).collect();
    assert_eq!(bodies, ["a\nb\r\n", "", "-x"]);
    let large = ring.publish(&["--max-body", "3"], b"abcd");
    assert_eq!(failure(&large), (65, "estafeta: message body: expected at most 3 bytes, got 4\n".into()));
}

#[test]
fn each_line_is_a_message_and_has_a_receipt() {
    let ring = ProgramRing::new();
    let input: String = (1..=2500).map(|n| format!("line {n}\n")).collect();
    let output = ring.publish(&["--lines"], input.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(ids(&output), (1..=2500).collect::<Vec<_>>());
    assert_eq!(ring.status()["waiting"], 2500);
    let none = ring.publish(&["--lines"], b"");
    assert_eq!((none.status.code(), ids(&none)), (Some(0), vec![]));
}

/// A program that writes a line now and then must not wait for its receipt until the end of its input.
#[test]
fn a_line_is_published_as_soon_as_it_is_there() {
    let ring = ProgramRing::new();
    let (process, mut stdin) = ring.start_fed(&["publish", "--lines"]);
    for id in 1..=3 {
        writeln!(stdin, "line").unwrap();
        let receipt = format!(r#"{{"id":{id},"duplicate":false}}"#);
        process.wait_for_line(SOON, |line| line == receipt);
    }
    drop(stdin);
    assert!(process.wait(SOON).success());
}

#[test]
fn a_line_that_is_too_long_is_named_and_those_before_it_are_published() {
    let ring = ProgramRing::new();
    let mut input = b"one\ntwo\n".to_vec();
    input.extend(vec![b'x'; 5_000_000]);
    input.extend(b"\nfour\n");
    let output = ring.publish(&["--lines"], &input);
    let (code, error) = failure(&output);
    assert_eq!((code, ids(&output)), (65, vec![1, 2]), "{error}");
    assert!(
        error.starts_with("estafeta: line 3 is too long, and no line from there on was published"),
        "{error}"
    );
    assert_eq!(ring.status()["published"], 2);
}

#[test]
fn receipts_that_nobody_reads_do_not_stop_the_publish() {
    let ring = ProgramRing::new();
    let input: String = (1..=20_000).map(|n| format!("line {n}\n")).collect();
    let file = TextFile::new(&input);
    let script = r#"{ "$0" publish --lines < "$1"; echo "code $?" >&2; } | head -n 1"#;
    let words = ["-c", script, env!("CARGO_BIN_EXE_estafeta"), file.path()];
    let shell = Process::spawn(Path::new("/bin/sh"), words, [("REDIS_URL", ring.redis.url())]);
    let output = shell.output(SOON);
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), ids(&output)), ("code 0\n", vec![1]));
    assert_eq!(ring.status()["published"], 20_000);
}

#[test]
fn a_full_ring_and_a_missing_redis_may_pass() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "a"]);
    let (code, error) = failure(&ring.command(&["publish", "--max-waiting", "1", "b"]));
    assert_eq!(
        (code, error.as_str()),
        (75, "estafeta: ring estafeta is full: more than 1 messages would wait\n")
    );
    let full = ring.publish(&["--lines", "--max-waiting", "1"], b"b\nc\n");
    let (code, error) = failure(&full);
    assert_eq!(code, 75);
    assert!(
        error.contains("were not published, and no line after them was: ring estafeta is full"),
        "{error}"
    );
    // It is patient until there is room.
    let patient = ring.start(&["publish", "--max-waiting", "1", "--patient", "1m", "b"]);
    ring.redis_cli(&["DEL", "{estafeta}:ready"]);
    patient.wait_for_line(SOON, |line| line == r#"{"id":2,"duplicate":false}"#);
    let nowhere = ring.command(&["publish", "--redis", "redis://127.0.0.1:1", "a"]);
    assert_eq!(failure(&nowhere).0, 75);
}

#[test]
fn a_patient_publish_waits_for_a_redis_that_is_busy() {
    let ring = ProgramRing::new();
    ring.redis_cli(&["CONFIG", "SET", "lua-time-limit", "10"]);
    let mut script = ring.redis.connect();
    let endless =
        std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut script));
    eventually(SOON, "a busy Redis", || {
        let answer = redis::cmd("GET").arg("a").exec(&mut ring.redis.connect());
        answer.is_err_and(|error| error.code() == Some("BUSY")).then_some(())
    });
    let patient = ring.start(&["publish", "--patient", "1m", "a"]);
    let (code, error) = failure(&ring.command(&["publish", "b"]));
    assert_eq!(code, 75);
    assert!(error.contains("BUSY"), "{error}");
    redis::cmd("SCRIPT").arg("KILL").exec(&mut ring.redis.connect()).unwrap();
    endless.join().unwrap().unwrap_err();
    patient.wait_for_line(SOON, |line| line == r#"{"id":1,"duplicate":false}"#);
}

#[test]
fn wrong_calls_have_their_own_exit_code() {
    let ring = ProgramRing::new();
    let long = "k".repeat(513);
    let cases: [(&[&str], &str); 14] = [
        (&["--dance"], "unexpected argument '--dance'"),
        (&["--lines", "body"], "cannot be used with"),
        (&["--lines", "--key", "k"], "cannot be used with"),
        (&["--window", "1h", "x"], "--key <KEY>"),
        (&["--header", "novalue", "x"], "--header: expected NAME=VALUE, got 'novalue'"),
        (&["--header", "a b=c", "x"], "header name: expected 1 to 64 visible ASCII characters"),
        (&["--key", &long, "x"], "key: expected 1 to 512 bytes, got '513 bytes'"),
        (&["--single", &long, "x"], "single: expected 1 to 512 bytes, got '513 bytes'"),
        (&["--single", "s", "--key", "k", "x"], "cannot be used with"),
        (&["--single", "s", "--delay", "1s", "x"], "cannot be used with"),
        (&["--single", "s", "--lines"], "cannot be used with"),
        (&["--delay", "-10m", "x"], "expected a duration such as 500ms, 2s or 0, got '-10m'"),
        (&["--delay=soon", "x"], "expected a duration such as 500ms, 2s or 0, got 'soon'"),
        (&["--delay", "11y", "x"], "delay: expected at most 10 years, got"),
    ];
    for (args, expected) in cases {
        let (code, error) = failure(&ring.publish(args, b""));
        assert_eq!(code, 64, "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    assert_eq!(ring.redis_cli(&["DBSIZE"]), redis::Value::Int(0));
}

#[test]
fn a_delayed_message_waits_for_its_time() {
    let ring = ProgramRing::new();
    assert_eq!(ring.success(&["publish", "--delay", "10m", "later"]), "{\"id\":1,\"duplicate\":false}\n");
    assert_eq!(ids(&ring.publish(&["--lines", "--delay", "1h"], b"a\nb\n")), [2, 3]);
    let status = ring.status();
    assert_eq!(
        (&status["published"], &status["later"], &status["waiting"]),
        (&json!(3), &json!(3), &json!(0))
    );
    let due: Vec<f64> = ["000000000000001", "000000000000003"]
        .map(|id| redis::from_redis_value(ring.redis_cli(&["ZSCORE", "{estafeta}:later", id])).unwrap())
        .into();
    let apart = due[1] - due[0];
    assert!((3_000_000.0..3_060_000.0).contains(&apart), "{apart}");
}

#[test]
fn a_single_message_is_published_again_once_it_has_begun() {
    let ring = ProgramRing::new();
    let args = ["publish", "--single", "rebuild", "rebuild the pages"];
    assert_eq!(ring.success(&args), "{\"id\":1,\"duplicate\":false}\n");
    let other = ["publish", "--single", "rebuild", "another body"];
    assert_eq!(ring.success(&other), "{\"id\":1,\"duplicate\":true}\n");
    let nodes = ring.nodes(1, &["--never-generate", "--error-rate", "0"]);
    ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    drop(nodes);
    assert_eq!(ring.success(&other), "{\"id\":2,\"duplicate\":false}\n");
}

/// Nodes of the demo have an application of their own. `publish` may use any ring.
#[test]
fn publishers_beside_a_running_ring_lose_and_repeat_nothing() {
    let ring = ProgramRing::new();
    let nodes = ring.nodes(3, &["--journal", "--interval", "1ms", "--limit", "3000", "--error-rate", "0"]);
    let input: String = (1..=4000).map(|n| format!("line {n}\n")).collect();
    let publishers: Vec<_> = (0..2)
        .map(|_| {
            let (process, mut stdin) = ring.start_fed(&["publish", "--lines", "--patient", "1m"]);
            let input = input.clone();
            let feeding = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
            (process, feeding)
        })
        .collect();
    // A take-over in between: the next generator goes on with the ids after all others.
    ring.generator(&nodes).signal(Signal::SIGKILL);
    let mut all = Vec::new();
    for (process, feeding) in publishers {
        feeding.join().unwrap();
        let output = process.output(SOON);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        all.extend(ids(&output));
    }
    assert_eq!(all.len(), 8000);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8000, "an id was given out twice");
    let status = ring.eventually(SOON, "everything is handled", |status| {
        status["waiting"] == 0 && status["inFlight"] == 0 && status["published"].as_u64() >= Some(8000)
    });
    // Beyond its limit the generator makes nothing, so the count stays as it is.
    let published = status["published"].as_u64().unwrap();
    assert!(published >= 8000, "{status}");
    ring.assert_each_once(published);
}

/// A caller that does not know whether its publish arrived repeats it with the same key.
#[test]
fn a_publisher_that_was_killed_repeats_with_the_same_key() {
    let ring = ProgramRing::new();
    ring.success(&["publish", "--key", "order-0", "order 0"]);
    for order in 1..=30_u64 {
        let (key, body) = (format!("order-{order}"), format!("order {order}"));
        let args = ["publish", "--key", &key, &body];
        let first = ring.start(&args);
        // It dies at any moment, when its message is in Redis, or after it printed its receipt.
        match order % 3 {
            0 => {}
            1 => {
                let published = ["HGET", "{estafeta}:ledger", "published"];
                let expected = redis::Value::BulkString((order + 1).to_string().into_bytes());
                eventually(SOON, "it published", || (ring.redis_cli(&published) == expected).then_some(()));
            }
            _ => {
                first.wait_for_line(SOON, |line| line.contains("duplicate"));
            }
        }
        first.kill();
        let receipt: Value = serde_json::from_str(&ring.success(&args)).unwrap();
        assert_eq!(receipt["id"], order + 1, "{receipt}");
    }
    let status = ring.status();
    assert_eq!((&status["published"], &status["waiting"]), (&json!(31), &json!(31)));
}

#[test]
fn lines_come_in_calls_that_fit_into_a_small_ring() {
    let ring = ProgramRing::new();
    let _node = ring.node(&["--never-generate", "--work-per-char", "0s", "--error-rate", "0"]);
    let input: String = (0..300).map(|line| format!("{line}\n")).collect();
    let output = ring.publish(&["--lines", "--max-waiting", "50", "--patient", "20s"], input.as_bytes());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 300);
}
