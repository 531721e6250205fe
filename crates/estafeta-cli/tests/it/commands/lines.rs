//! Processes that answer line by line.

use super::*;

/// The beginning of a Python handler: `answer` replies, and `handle` is called for each message.
const LOOP: &str = r#"
import json, os, sys, time
def answer(m, outcome="done", **more):
    print(json.dumps({"id": m["id"], "outcome": outcome, **more}), flush=True)
def main(handle):
    for line in sys.stdin:
        handle(json.loads(line))
"#;

fn handler(shop: &Workshop, text: &str) -> String {
    shop.python("lines", &format!("{LOOP}{text}"))
}

#[test]
fn each_outcome_and_each_misdeed_has_its_documented_meaning() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = handler(
        &shop,
        r#"
def handle(m):
    body = m["body"]
    if body == "chatty":
        print("a line of log output")
        print('{"id": 999999, "outcome": "fail", "reason": "a foreign id"}')
        print('{"no": "id"}')
        print('[1, 2]', '{broken', sep="\n")
        answer(m)
        answer(m, "fail", reason="a second reply")
    elif body == "snooze" and m["carry"] is None:
        answer(m, "snooze", after="1ms", carry="page 2")
    elif body == "retry":
        answer(m, "retry", reason="503", after=0.001)
    elif body == "fail":
        answer(m, "fail", reason="no such user")
    elif body == "unknown":
        answer(m, "finished")
    elif body == "empty":
        print(json.dumps({"id": m["id"]}), flush=True)
    elif body == "effects":
        answer(m, effects=[{"add": "sold", "n": 2}], result={"ok": True})
    else:
        answer(m)
main(handle)
"#,
    );
    let node = ring.node(&["--handle-lines", &command, "--retry", "2,1ms", "--journal"]);
    ring.submit(&["chatty", "snooze", "retry", "fail", "unknown", "empty", "effects", "done"]);
    let status = ring
        .eventually(SOON, "all have an outcome", |status| status["done"] == 4 && status["errorsKept"] == 4);
    assert_eq!((&status["retries"], &status["snoozes"]), (&3.into(), &1.into()), "{status}");
    let unknown = "reply: expected the outcome done, retry, snooze or fail, got";
    let expected = [
        (3, "503".to_owned()),
        (4, "no such user".to_owned()),
        (5, format!("{unknown} 'finished'")),
        (6, format!("{unknown} ''")),
    ];
    assert_eq!(ring.failed(), expected);
    let result: Value = serde_json::from_str(&ring.success(&["results", "7", "--json"])).unwrap();
    assert_eq!(result["value"], r#"{"ok":true}"#, "{result}");
    let log = node.stderr_lines();
    for line in ["a line of log output", "[1, 2]", "{broken", r#"{"no": "id"}"#] {
        assert!(log.iter().any(|logged| logged == line), "{log:?}");
    }
    assert!(
        log.iter().any(|line| line.contains("a foreign id"))
            && log.iter().any(|line| line.contains("a second reply"))
    );
    ring.assert_each_once(8);
}

#[test]
fn a_body_that_is_no_text_arrives_as_base64() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = handler(
        &shop,
        r#"
import base64
main(lambda m: answer(m, resultBase64=base64.b64encode(base64.b64decode(m["bodyBase64"])[::-1]).decode()))
"#,
    );
    let _node = ring.node(&["--handle-lines", &command]);
    let (publisher, mut stdin) = ring.start_fed(&["publish", "-"]);
    stdin.write_all(b"\x00\xff").unwrap();
    drop(stdin);
    assert!(publisher.output(SOON).status.success());
    ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    let result: Value = serde_json::from_str(&ring.success(&["results", "1", "--json"])).unwrap();
    assert_eq!(result["valueBase64"], "/wA=", "{result}");
}

#[test]
fn of_several_messages_in_hand_only_the_one_that_crashes_its_process_has_deaths() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    // Answers nothing until it has four messages in hand, or one that came alone.
    let command = handler(
        &shop,
        r#"
import select
held = []
def handle(m):
    held.append(m)
    with open("$DIR/seen", "a") as seen: print(m["body"], len(held), file=seen)
    waits = select.select([sys.stdin.buffer.raw], [], [], 0.2)[0]
    if len(held) < 4 and waits and not alone: return
    if any(m["body"] == "poison" for m in held): os.kill(os.getpid(), 11)
    while held: answer(held.pop())
alone = os.path.exists("$DIR/crashed")
with open("$DIR/starts", "a") as starts: print(os.getpid(), file=starts)
if os.path.exists("$DIR/warm"):
    open("$DIR/crashed", "w")
    main(handle)
else:
    # The first message shows that the command works.
    answer(json.loads(sys.stdin.readline()))
    open("$DIR/warm", "w")
    sys.exit(0)
"#
        .replace("sys.stdin.buffer.raw", "sys.stdin")
        .as_str(),
    );
    let _node =
        ring.node(&["--handle-lines", &command, "--in-hand", "4", "--max-deaths", "2", "--retry", "3,1ms"]);
    ring.submit(&["warm"]);
    ring.eventually(SOON, "the first is done", |status| status["done"] == 1);
    ring.submit(&["a", "b", "poison", "c"]);
    let status = ring
        .eventually(SOON, "all have an outcome", |status| status["done"] == 4 && status["errorsKept"] == 1);
    let failed = ring.failed();
    assert_eq!(failed.len(), 1, "{status}");
    assert!(failed[0].0 == 4 && failed[0].1.contains("SIGSEGV"), "{failed:?}");
    // Nothing but the poison counts as failed or dead.
    let retries = status["retries"].as_u64().unwrap();
    assert!((1..=2).contains(&retries), "{status}");
}

#[test]
fn a_command_that_always_exits_at_once_harms_no_message() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = shop.sh("lines", "echo $$ >> $DIR/starts; echo broken >&2; exit 3");
    let node = ring.node(&["--handle-lines", &command, "--retry", "1", "--max-deaths", "1", "--json"]);
    ring.submit(&["x", "y"]);
    shop.pids("starts", 4);
    eventually(SOON, "a report", || has_report(&node, "handlerBroken").then_some(()));
    let status = ring.status();
    assert_eq!(
        (&status["errorsKept"], &status["retries"], &status["done"]),
        (&0.into(), &0.into(), &0.into()),
        "{status}"
    );
    handler(&shop, "main(answer)");
    ring.eventually(SOON, "both are done", |status| status["done"] == 2);
}

#[test]
fn a_process_that_hangs_is_ended_and_the_others_in_its_hand_are_done() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    // The first process answers nothing. Every other one answers all but one message.
    let command = handler(
        &shop,
        r#"
is_first = not os.path.exists("$DIR/pids")
with open("$DIR/pids", "a") as pids: print(os.getpid(), file=pids)
def handle(m):
    with open("$DIR/seen", "a") as seen: print(m["body"], file=seen)
    if not is_first and m["body"] != "hang": answer(m)
main(handle)
"#,
    );
    let args = ["--handle-lines", &command, "--in-hand", "3", "--time-limit", "5s", "--retry", "1"];
    let _node = ring.node(&args);
    let first = shop.pids("pids", 1)[0];
    let seen = |count| eventually(SOON, "it has them", || (shop.lines("seen").len() >= count).then_some(()));
    ring.submit(&["hang"]);
    seen(1);
    ring.submit(&["a", "b"]);
    seen(3);
    let fits = |status: &Value| status["errorsKept"] == 1 && status["done"] == 2;
    let status = ring.eventually(SOON, "all have an outcome", fits);
    assert_eq!(ring.failed(), [(1, "the command took longer than its time limit of 5s".to_owned())]);
    assert_eq!(status["retries"], 0, "{status}");
    assert!(!is_alive(first));
}

#[test]
fn a_process_that_does_not_answer_is_ended_whatever_it_does_meanwhile() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = handler(
        &shop,
        r#"
import signal
with open("$DIR/ready", "a") as ready: print(os.getpid(), file=ready)
def receive():
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 4096)
        if not part: sys.exit()
        line += part
        # Far slower than the time limit allows.
        if b'"body":"slow' in line: time.sleep(0.1)
        if b'"body":"good' not in line and len(line) == len(part):
            with open("$DIR/pids", "a") as pids: print(os.getpid(), file=pids)
    return json.loads(line)
while True:
    m = receive()
    body = m["body"]
    if body == "good":
        answer(m)
        continue
    if body == "garbage": print("garbage", "{]", flush=True)
    if body == "half": print('{"id": %d, "outcome": "done"}' % m["id"], end="", flush=True)
    if body == "flood": os.execvp("yes", ["yes", "flood " * 200])
    if body == "deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)
"#,
    );
    let args = ["--handle-lines", &command, "--concurrency", "6", "--time-limit", "2s", "--retry", "1"];
    let node = ring.node(&args);
    let slow = format!("slow{}", "x".repeat(900_000));
    ring.submit(&["silent", "garbage", "half", "flood", "deaf", &slow]);
    ring.eventually(SOON, "all have an outcome", |status| status["errorsKept"] == 6);
    let reason = "the command took longer than its time limit of 2s".to_owned();
    assert_eq!(ring.failed(), (1..=6).map(|id| (id, reason.clone())).collect::<Vec<_>>());
    await_end(&shop.pids("pids", 6));
    shop.pids("ready", 12);
    ring.submit(&["good"; 12]);
    ring.eventually(SOON, "the others are done", |status| status["done"] == 12);
    assert!(memory(&node) < 200, "{} MiB", memory(&node));
}

#[test]
fn a_message_that_waits_while_another_is_alone_still_has_its_full_time() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    // The first process crashes with two messages in hand, so each is handled alone from then on.
    let command = handler(
        &shop,
        r#"
if not os.path.exists("$DIR/crashed"):
    os.read(0, 1 << 20).count(b"\n") == 2 or os.read(0, 1 << 20)
    open("$DIR/crashed", "w")
    os.kill(os.getpid(), 9)
def handle(m):
    # More than half of its time.
    time.sleep(4.2)
    answer(m)
main(handle)
"#,
    );
    ring.submit(&["a", "b"]);
    let args = ["--handle-lines", &command, "--in-hand", "2", "--time-limit", "8s", "--retry", "1"];
    let _node = ring.node(&args);
    let status = ring.eventually(SOON, "both are done", |status| status["done"] == 2);
    assert_eq!((&status["errorsKept"], &status["retries"]), (&0.into(), &0.into()), "{status}");
}

#[test]
fn a_process_that_ends_in_the_middle_of_a_reply_has_not_replied() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = handler(
        &shop,
        r#"
def handle(m):
    if m["body"] != "good":
        # The line end is missing, and perhaps more.
        reply = '{"id": %d, "outcome": "done"}' % m["id"]
        print(reply[:-4] if m["body"] == "half" else reply, end="", flush=True)
        os._exit(0)
    answer(m)
main(handle)
"#,
    );
    let _node = ring.node(&["--handle-lines", &command, "--retry", "1"]);
    ring.submit(&["good", "half", "whole", "good"]);
    ring.eventually(SOON, "all have an outcome", |status| status["done"] == 2 && status["errorsKept"] == 2);
    let reason = "the command ended with exit code 0 and without a reply";
    assert_eq!(ring.failed(), [2, 3].map(|id| (id, reason.to_owned())));
}

#[test]
fn a_process_that_closes_its_stdin_or_prints_an_endless_line_is_replaced() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = handler(
        &shop,
        r#"
def handle(m):
    if m["body"] == "endless":
        for _ in range(100): sys.stdout.write("x" * 1000000)
        print(flush=True)
    if m["body"] == "late":
        # It has read its message, and may still answer it.
        os.close(0)
        time.sleep(1)
    answer(m)
    if m["body"] == "late": time.sleep(3600)
    if m["body"] == "close":
        # The next message is in the pipe by now, or comes when nobody can read it.
        time.sleep(m["id"] % 2 * 0.2)
        os.close(0)
        time.sleep(3600)
main(handle)
"#,
    );
    let node = ring.node(&["--handle-lines", &command, "--retry", "1", "--max-deaths", "1"]);
    ring.submit(&["close", "close", "a", "late", "b", "endless", "c"]);
    ring.eventually(SOON, "all are done", |status| status["done"] == 7);
    assert!(memory(&node) < 200, "{} MiB", memory(&node));
}

#[test]
fn a_node_that_stops_lets_its_processes_finish() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = handler(
        &shop,
        r#"
main(answer)
open("$DIR/finished", "w")
"#,
    );
    let node = ring.node(&["--handle-lines", &command, "--concurrency", "2"]);
    ring.submit(&["x"]);
    ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
    assert!(shop.path("finished").exists(), "it saw the end of its input");
}

#[test]
fn a_message_that_crashes_every_process_from_the_start_does_not_hold_up_the_others() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = handler(
        &shop,
        r#"
def handle(m):
    if m["body"] == "poison": os.kill(os.getpid(), 11)
    answer(m)
main(handle)
"#,
    );
    ring.submit(&["poison", "good", "good"]);
    let _node = ring.node(&["--handle-lines", &command, "--max-deaths", "2", "--retry", "3,1ms"]);
    ring.eventually(SOON, "all have an outcome", |status| status["done"] == 2 && status["errorsKept"] == 1);
    assert!(ring.failed()[0].1.contains("SIGSEGV"), "{:?}", ring.failed());
}

#[test]
fn a_process_that_ends_after_each_reply_costs_no_message_an_attempt() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let command = shop.python(
        "lines",
        r#"
import json, os
# Reads byte by byte, so that the next message stays in the pipe.
line = b""
while not line.endswith(b"\n"): line += os.read(0, 1)
print(json.dumps({"id": json.loads(line)["id"], "outcome": "done"}), flush=True)
"#,
    );
    let bodies = ["x"; 12];
    ring.submit(&bodies);
    let _node =
        ring.node(&["--handle-lines", &command, "--retry", "1", "--max-deaths", "1", "--in-hand", "2"]);
    let status = ring.eventually(SOON, "all are done", |status| status["done"] == 12);
    assert_eq!((&status["errorsKept"], &status["retries"]), (&0.into(), &0.into()), "{status}");
}
