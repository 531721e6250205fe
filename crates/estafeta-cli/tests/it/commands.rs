//! Commands as handlers and sources: what each of their answers and misdeeds means, and that none of them outlives its
//! node.

mod feeds;
mod lines;
mod nodes;
mod processes;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use estafeta_testbed::{Process, Signal, eventually};
use serde_json::{Value, json};

use crate::support::{ProgramRing, SOON, reports, run};

/// A directory with programs that the test writes, and files that they leave.
struct Workshop(tempfile::TempDir);

impl Workshop {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a program that can be executed. `$DIR` in its text is this directory. Returns its path.
    fn program(&self, name: &str, text: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let text = text.replace("$DIR", self.0.path().to_str().unwrap());
        let path = self.path(name);
        // Written under another name first, because a program that is open for writing cannot be executed.
        let draft = self.path(&format!("{name}.draft"));
        std::fs::write(&draft, text).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&draft, &path).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn sh(&self, name: &str, text: &str) -> String {
        self.program(name, &format!("#!/bin/sh\n{text}\n"))
    }

    fn python(&self, name: &str, text: &str) -> String {
        self.program(name, &format!("#!/usr/bin/env python3\n{text}\n"))
    }

    /// The lines of a file, or none if it does not exist yet.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// The process ids that programs have written to a file, as soon as there are so many.
    fn pids(&self, name: &str, count: usize) -> Vec<u32> {
        eventually(SOON, "the process ids", || {
            let pids: Vec<u32> = self.lines(name).iter().filter_map(|line| line.parse().ok()).collect();
            (pids.len() >= count).then_some(pids)
        })
    }
}

impl ProgramRing {
    /// Publishes these bodies, one message each.
    fn submit(&self, bodies: &[&str]) {
        let (publisher, mut stdin) = self.start_fed(&["publish", "--lines"]);
        stdin.write_all((bodies.join("\n") + "\n").as_bytes()).unwrap();
        drop(stdin);
        let output = publisher.output(SOON);
        assert!(output.status.success(), "{output:?}");
    }

    /// All errors, as (id, reason), sorted.
    fn failed(&self) -> Vec<(u64, String)> {
        let text = self.success(&["errors", "list", "--json"]);
        let read = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
        let pair =
            |error: Value| (error["id"].as_u64().unwrap(), error["reason"].as_str().unwrap().to_owned());
        let mut failed: Vec<_> = text.lines().map(read).map(pair).collect();
        failed.sort();
        failed
    }
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn await_end(pids: &[u32]) {
    eventually(SOON, "all of them have ended", || {
        let left: Vec<u32> = pids.iter().copied().filter(|pid| is_alive(*pid)).collect();
        left.is_empty().then_some(())
    });
}

/// The resident memory of a process in MiB.
fn memory(node: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

fn has_report(node: &Process, msg: &str) -> bool {
    reports(node).iter().any(|report| report["msg"] == msg)
}

#[test]
fn the_exit_code_decides_what_becomes_of_a_message() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh(
        "handle",
        r#"read -r word
        echo "$word" >&2
        case $word in
            kill) kill -9 $$ ;;
            *) exit "$word" ;;
        esac"#,
    );
    let node =
        ring.node(&["--handle", &handler, "--retry", "2,1ms", "--max-deaths", "2", "--json", "--journal"]);
    ring.submit(&["0", "65", "100", "75", "1", "kill"]);
    let status = ring.eventually(SOON, "all have an outcome", |status| status["errorsKept"] == 5);
    assert_eq!((&status["done"], &status["retries"]), (&1.into(), &3.into()), "{status}");
    let expected = [
        (2, "exit code 65: 65"),
        (3, "exit code 100: 100"),
        (4, "exit code 75: 75"),
        (5, "exit code 1: 1"),
        (6, "SIGKILL: kill"),
    ];
    assert_eq!(ring.failed(), expected.map(|(id, reason)| (id, reason.to_owned())));
    assert_eq!(status["application"], "estafeta", "the ring belongs to its user, and not to the demo");
    ring.assert_each_once(6);
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
}

#[test]
fn a_command_learns_everything_about_its_message_and_stdout_is_its_result() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh(
        "handle",
        r#"cat > $DIR/body
        env | grep -E '^(ESTAFETA_(RING|MESSAGE_|HEADERS|DEADLINE)|TRACEPARENT)' | sort > $DIR/env
        printf 'to the result'"#,
    );
    let _node = ring.node(&["--handle", &handler, "--results", "1h", "--time-limit", "1m"]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let args =
        ["publish", "--header", "shop=berlin", "--header", &format!("traceparent={trace}"), "two\npizzas"];
    ring.success(&[&args[..], &["--key", "order-17"]].concat());
    ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    assert_eq!(std::fs::read(shop.path("body")).unwrap(), b"two\npizzas");
    let found = shop.lines("env");
    let value = |name: &str| found.iter().find_map(|line| line.strip_prefix(&format!("{name}="))).unwrap();
    assert_eq!((value("ESTAFETA_RING"), value("ESTAFETA_MESSAGE_ID")), ("estafeta", "1"));
    assert_eq!((value("ESTAFETA_MESSAGE_ATTEMPT"), value("ESTAFETA_MESSAGE_ATTEMPTS")), ("1", "8"));
    let epoch = value("ESTAFETA_MESSAGE_EPOCH");
    assert_eq!(value("ESTAFETA_MESSAGE_NAME"), format!("estafeta/{epoch}/1"));
    assert_eq!((value("ESTAFETA_MESSAGE_KEY"), value("TRACEPARENT")), ("order-17", trace));
    let headers: Value = serde_json::from_str(value("ESTAFETA_HEADERS")).unwrap();
    assert_eq!(headers, json!({ "shop": "berlin", "traceparent": trace }));
    assert!(ring.success(&["results", "1"]).contains("to the result"));
}

#[test]
fn a_command_that_publishes_reaches_the_redis_and_the_ring_of_its_node() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let publish = env!("CARGO_BIN_EXE_estafeta");
    let handler = shop.sh("handle", &format!("n=$(cat); [ \"$n\" = 0 ] || {publish} publish $((n - 1))"));
    // The node knows its Redis from a flag, which its command does not see.
    let elsewhere =
        [("REDIS_URL", "redis://127.0.0.1:1"), ("ESTAFETA_HOST", "127.0.0.1"), ("ESTAFETA_PORT", "1")];
    let url = ring.redis.url();
    let node = crate::support::start(&["run", "--redis", &url, "--handle", &handler], &elsewhere);
    ring.submit(&["3"]);
    ring.eventually(SOON, "the chain is done", |status| status["done"] == 4);
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
}

#[test]
fn a_reply_on_descriptor_3_says_more_than_an_exit_code() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh(
        "handle",
        r#"read -r word
        case $word in
            effects) echo '{"outcome":"done","effects":[{"add":"sold","n":3}]}' >&3 ;;
            snooze) if [ -n "$ESTAFETA_MESSAGE_CARRY" ]; then echo "$ESTAFETA_MESSAGE_CARRY" > $DIR/carry
                    else echo '{"outcome":"snooze","after":"1ms","carry":"page 2"}' >&3; fi ;;
            fail) echo '{"outcome":"fail","reason":"no such user"}' >&3 ;;
            liar) echo '{"outcome":"done"}' >&3; exit 65 ;;
            garbage) echo 'done' >&3 ;;
            half) printf '{"outcome":"done"' >&3 ;;
            twice) echo '{"outcome":"done"}{"outcome":"done"}' >&3 ;;
            foreign) echo '{"id":99,"outcome":"fail","reason":"the id means nothing"}' >&3 ;;
        esac"#,
    );
    let _node = ring.node(&["--handle", &handler, "--retry", "1"]);
    ring.submit(&["effects", "snooze", "fail", "liar", "garbage", "half", "twice", "foreign"]);
    ring.eventually(SOON, "all have an outcome", |status| status["errorsKept"] == 6 && status["done"] == 2);
    let sold: u64 = redis::from_redis_value(ring.redis_cli(&["GET", "{estafeta}:u:sold"])).unwrap();
    assert_eq!((sold, shop.lines("carry")), (3, vec!["page 2".to_owned()]));
    let failed = ring.failed();
    assert_eq!(failed[0], (3, "no such user".to_owned()));
    assert_eq!(failed[1], (4, "exit code 65".to_owned()), "done does not count beside such a code");
    for (_, reason) in &failed[2..5] {
        assert!(reason.starts_with("reply: expected a JSON object with an outcome"), "{failed:?}");
    }
    assert_eq!(failed[5], (8, "the id means nothing".to_owned()));
}

#[test]
fn a_reply_counts_even_if_a_daemon_of_the_command_holds_its_outputs_open() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh(
        "handle",
        r#"setsid sleep 3600 &
        echo '{"outcome":"fail","reason":"not this one"}' >&3"#,
    );
    let _node = ring.node(&["--handle", &handler]);
    ring.submit(&["x"]);
    ring.eventually(SOON, "it has an outcome", |status| status["errorsKept"] == 1);
    assert_eq!(ring.failed(), [(1, "not this one".to_owned())]);
}

#[test]
fn a_command_that_prints_without_end_or_reads_nothing_harms_nobody() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", "exec head -c 100000000 /dev/zero");
    let node = ring.node(&["--handle", &handler, "--results", "1h", "--max-body", "1000000"]);
    // More than a pipe holds, and nobody reads it.
    ring.submit(&[&"x".repeat(900_000)]);
    ring.eventually(SOON, "it has an outcome", |status| status["errorsKept"] == 1);
    assert_eq!(ring.failed(), [(1, "result: expected at most 262144 bytes, got more".to_owned())]);
    assert!(memory(&node) < 200, "{} MiB", memory(&node));
    drop(node);
    // Without results, stdout is log output.
    let node = ring.start(&["run", "--handle", &handler]);
    ring.submit(&["again"]);
    ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    assert!(memory(&node) < 200, "{} MiB", memory(&node));
}

#[test]
fn a_command_may_close_its_stdin_or_read_slowly_and_what_it_prints_is_log_output() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.python(
        "handle",
        r#"
import os, sys, time
size = len(os.read(0, 5))
if os.environ["ESTAFETA_MESSAGE_ID"] == "1":
    # The rest of the body cannot be written any more.
    os.close(0)
    time.sleep(0.2)
else:
    while part := os.read(0, 16384):
        size += len(part)
        time.sleep(0.002)
print(f"garbage after {size} bytes {{", flush=True)
"#,
    );
    let node = ring.node(&["--handle", &handler, "--retry", "1", "--max-deaths", "1"]);
    let body = "x".repeat(900_000);
    ring.submit(&[&body, &body]);
    ring.eventually(SOON, "both are done", |status| status["done"] == 2);
    let has_logged = |line: &str| node.stderr_lines().iter().any(|logged| logged == line);
    for line in ["garbage after 5 bytes {", "garbage after 900000 bytes {"] {
        eventually(SOON, line, || has_logged(line).then_some(()));
    }
}

#[test]
fn a_command_over_its_time_limit_is_ended_even_if_it_ignores_that() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", "trap '' TERM; echo $$ >> $DIR/pids; while :; do sleep 0.1; done");
    let _node = ring.node(&["--handle", &handler, "--time-limit", "200ms", "--retry", "1"]);
    ring.submit(&["x"]);
    let pids = shop.pids("pids", 1);
    ring.eventually(SOON, "it has an outcome", |status| status["errorsKept"] == 1);
    assert_eq!(ring.failed(), [(1, "the command took longer than its time limit of 200ms".to_owned())]);
    assert!(!is_alive(pids[0]), "it ended before its outcome was recorded");
}

#[test]
fn a_command_that_can_no_longer_be_started_gives_its_message_back_uncounted() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", r#"echo "$ESTAFETA_MESSAGE_ATTEMPT" >> $DIR/attempts"#);
    let node = ring.node(&["--handle", &handler, "--retry", "1", "--json"]);
    std::fs::rename(&handler, shop.path("elsewhere")).unwrap();
    ring.submit(&["x"]);
    let report = eventually(SOON, "a report", || {
        reports(&node).into_iter().find(|report| report["msg"] == "handlerBroken")
    });
    assert_eq!((&report["id"], &report["restMs"]), (&1.into(), &1000.into()), "{report}");
    assert!(report["reason"].as_str().unwrap().contains("there is no file"), "{report}");
    ring.eventually(SOON, "it waits", |status| status["waiting"] == 1 && status["inFlight"] == 0);
    let events = |status: &Value| -> Vec<Value> {
        let all = status["events"].as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|event| event["kind"] == "handlerBroken").collect()
    };
    let several = || reports(&node).iter().filter(|report| report["msg"] == "handlerBroken").count() >= 2;
    eventually(SOON, "a second report", || several().then_some(()));
    let status = ring.eventually(SOON, "an event", |status| !events(status).is_empty());
    let [event] = &events(&status)[..] else { panic!("one event for several reports: {status}") };
    assert!(event["reason"].as_str().unwrap().contains("there is no file"), "{event}");
    std::fs::rename(shop.path("elsewhere"), &handler).unwrap();
    ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    assert_eq!(shop.lines("attempts"), ["1"]);
}

#[test]
fn wrong_options_are_refused_with_one_clear_line_each() {
    let shop = Workshop::new();
    let plain = shop.path("plain");
    std::fs::write(&plain, "").unwrap();
    let plain = plain.to_str().unwrap();
    let cases: [(&[&str], String); 20] = [
        (
            &["--handle", "true", "--never-handle"],
            "--never-handle: expected neither --handle nor --handle-lines with it, got one of them".into(),
        ),
        (
            &["--feed", "cat", "--never-generate"],
            "--never-generate: expected none of --generate, --feed and --feed-plain with it, got one of them"
                .into(),
        ),
        (&["--handle", "true", "--results", "0"], "--results: expected 1ms to 10 years, got '0s'".into()),
        (
            &["--handle", "no-such-program-here"],
            "--handle: expected a program that can be started: there is no \
            program no-such-program-here in the directories of PATH"
                .into(),
        ),
        (
            &["--handle", plain],
            format!(
                "--handle: expected a program that can be started: {plain} is not executable \
            (chmod +x {plain})"
            ),
        ),
        (&["--handle", ""], "--handle: expected a command such as 'python3 worker.py', got ''".into()),
        (&["--handle", "sh 'x"], "--handle: expected a command whose quotes are closed, got 'sh 'x'".into()),
        (
            &["--handle", "true", "--handle-lines", "cat"],
            "--handle-lines: expected --handle or --handle-lines, got \
            both"
                .into(),
        ),
        (
            &["--handle", "true", "--in-hand", "3"],
            "--in-hand: expected --handle-lines with it, got none".into(),
        ),
        (&["--handle-lines", "cat", "--in-hand", "0"], "--in-hand: expected 1 to 1024, got '0'".into()),
        (&["--retry", "3"], "--retry: expected a command with it, such as --handle, got none".into()),
        (
            &["--handle", "true", "--seed", "3"],
            "--seed: expected it only in the demo, got a command of your own".into(),
        ),
        (&["--generate", "date"], "--generate: expected --every or --cron with it, got neither".into()),
        (
            &["--generate", "date", "--every", "1s", "--cron", "* * * * *"],
            "--cron: expected --every or --cron, got \
            both"
                .into(),
        ),
        (&["--generate", "date", "--every", "0"], "--every: expected 10ms to 10 years, got '0ns'".into()),
        (
            &["--generate", "date", "--cron", "0 0 30 2 *"],
            "--cron: expected times that come some day, got '0 0 30 2 \
            *'"
            .into(),
        ),
        (
            &["--generate", "date", "--cron", "0 0 * * *", "--tz", "Mars/Base"],
            "--tz: expected an IANA name such as \
            Europe/Berlin, got 'Mars/Base'"
                .into(),
        ),
        (&["--feed", "cat", "--every", "1s"], "--every: expected --generate with it, got none".into()),
        (
            &["--feed", "cat", "--feed-plain", "cat"],
            "--feed-plain: expected one of --generate, --feed and \
            --feed-plain, got several"
                .into(),
        ),
        (
            &["--generate", "date", "--every", "1s", "--tz", "UTC"],
            "--tz: expected --cron with it, got none".into(),
        ),
    ];
    for (options, expected) in cases {
        let output = run(&[&["run", "--redis", "redis://127.0.0.1:1"], options].concat(), &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with(&format!("estafeta: {expected}")), "{options:?}: {stderr}");
        assert!(output.stdout.is_empty() && output.status.code() == Some(2), "{options:?}: {output:?}");
    }
}

#[test]
fn commands_may_come_from_the_settings_file() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", "cat >> $DIR/bodies; echo >> $DIR/bodies");
    let text = format!("handle = \"{handler}\"\nretry = 3\napp = \"shop\"\ntime-limit = \"1m\"\n");
    std::fs::write(shop.path("settings.toml"), text).unwrap();
    let file = shop.path("settings.toml");
    let _node = ring.node(&["--config", file.to_str().unwrap()]);
    ring.submit(&["one"]);
    let status = ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    assert_eq!(
        (&status["application"], shop.lines("bodies")),
        (&"shop".into(), vec!["one".to_owned()]),
        "{status}"
    );
}

#[test]
fn check_shows_what_a_handler_answers_and_needs_no_redis() {
    let shop = Workshop::new();
    let handler =
        shop.sh("handle", r#"read -r word; echo "log of $ESTAFETA_MESSAGE_NAME" >&2; exit "$word""#);
    let check = |args: &[&str]| {
        let output = run(&[&["check", "--ring", "shop"], args].concat(), &[]);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, stdout, stderr) = check(&["--handle", &handler, "0"]);
    assert!(stdout.starts_with(&format!("command  {handler}\noutcome  done\ntook     ")), "{stdout}");
    assert!(code == Some(0) && stderr.contains("log of shop/"), "{stderr}");
    let (code, stdout, _) = check(&["--handle", &handler, "65"]);
    assert!(code == Some(1) && stdout.contains("outcome  fail: exit code 65: log of shop/"), "{stdout}");
    // Backslashes are shown as they are, and control characters are not.
    let (_, stdout, _) = check(&["--handle", r#"sh -c 'printf "\\134d\\033" >&2; exit 65'"#, ""]);
    assert!(stdout.contains(r"outcome  fail: exit code 65: \d\u{1b}"), "{stdout}");
    let lines = shop.python(
        "lines",
        "import sys, json\nfor line in sys.stdin:\n    m = json.loads(line)\n    \
         print(json.dumps({'id': m['id'], 'outcome': 'done', 'result': m['body']}), flush=True)",
    );
    let (code, stdout, _) = check(&["--handle-lines", &lines, "--json", "four"]);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, &answer["outcome"]),
        (Some(0), &json!("done; result of 4 bytes for 3600s")),
        "{answer}"
    );
    let (code, _, stderr) = check(&[]);
    assert!(code == Some(2) && stderr.contains("expected --handle or --handle-lines"), "{stderr}");
    assert!(Path::new(&handler).exists());
}

#[test]
fn a_dead_letter_counts_the_last_death_of_its_command_as_a_death() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", "kill -9 $$");
    let _node = ring.node(&["--handle", &handler, "--retry", "8,1ms", "--max-deaths", "3"]);
    ring.submit(&["a"]);
    ring.eventually(SOON, "a dead letter", |status| status["errorsKept"] == 1);
    let error: Value = serde_json::from_str(&ring.success(&["errors", "list", "--json"])).unwrap();
    assert_eq!((&error["deaths"], &error["failures"]), (&json!(3), &json!(0)), "{error}");
}
