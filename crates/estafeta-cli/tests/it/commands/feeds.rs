//! Commands that make messages.

use super::*;

#[test]
fn a_command_per_tick_publishes_its_lines_and_its_checkpoint_together_or_not_at_all() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    // Prints the next three numbers. Every other run fails after it has printed.
    let generate = shop.sh(
        "generate",
        r#"from=$(cat)
        from=${from:-0}
        for n in 1 2 3; do echo "$((from + n))"; done
        echo "$((from + 3))" >&3
        echo run >> $DIR/runs
        [ $(($(wc -l < $DIR/runs) % 2)) = 1 ] || { echo 'every other run fails' >&2; exit 1; }"#,
    );
    let handler = shop.sh("handle", "cat >> $DIR/bodies; echo >> $DIR/bodies");
    let args = ["--generate", &generate, "--every", "50ms", "--handle", &handler, "--json", "--journal"];
    let node = ring.node(&args);
    ring.eventually(SOON, "twelve are done", |status| status["done"].as_u64() >= Some(12));
    assert!(has_report(&node, "sourceFailed"));
    node.kill();
    let second = ring.node(&args);
    let status = ring.eventually(SOON, "more are done", |status| status["done"].as_u64() >= Some(24));
    second.signal(Signal::SIGTERM);
    assert!(second.wait(SOON).success());
    drop(status);
    let mut numbers: Vec<u64> = shop.lines("bodies").iter().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    // The handler of the killed node may have run for a message that was handled again.
    numbers.dedup();
    let published = ring.status()["published"].as_u64().unwrap();
    assert!(published % 3 == 0, "{published}");
    let settled = ring.journal().len();
    assert_eq!(numbers.len(), settled, "each number is one message");
    assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
}

/// A feed in Python that publishes the lines of a growing file. The checkpoint is a position.
const TAIL: &str = r#"
import json, sys, time, os
position = json.loads(sys.stdin.readline())["checkpoint"] or 0
with open("$DIR/feeds", "a") as pids: print(os.getpid(), file=pids)
with open("$DIR/input", "rb") as file:
    file.seek(position)
    while True:
        count = 0
        while count < 50 and (line := file.readline()).endswith(b"\n"):
            print(json.dumps({"body": line.decode().strip()}))
            count += 1
            position += len(line)
        if count: print(json.dumps({"checkpoint": position}), flush=True)
        else:
            file.seek(position)
            time.sleep(0.01)
"#;

#[test]
fn a_feed_publishes_every_line_once_whatever_is_killed_or_frozen() {
    let redis = estafeta_testbed::RedisServer::builder().append_only(estafeta_testbed::Fsync::Always).start();
    let (ring, shop) = (ProgramRing::on(redis), Workshop::new());
    std::fs::write(shop.path("input"), "").unwrap();
    let feed = shop.python("feed", TAIL);
    let handler = shop.python(
        "lines",
        "import sys, json\nfor line in sys.stdin:\n    m = json.loads(line)\n    \
         print(json.dumps({'id': m['id'], 'outcome': 'done', 'effects': [{'append': 'lines', 'fields': {'n': m['body']}}]}), flush=True)",
    );
    let args = ["--feed", &feed, "--handle-lines", &handler, "--in-hand", "16", "--journal", "--lease", "1s"];
    let mut nodes = ring.nodes(3, &args);
    let mut written = 0;
    let append = |written: &mut u64, count: u64| {
        let mut file = std::fs::File::options().append(true).open(shop.path("input")).unwrap();
        for _ in 0..count {
            *written += 1;
            writeln!(file, "{written}").unwrap();
        }
    };
    let done = |count: u64| {
        ring.eventually(SOON, "the lines are done", |status| status["done"].as_u64() >= Some(count))
    };
    append(&mut written, 200);
    done(100);
    // The node in office is killed.
    append(&mut written, 200);
    let pid = ring.generator(&nodes).pid();
    let at = nodes.iter().position(|node| node.pid() == pid).unwrap();
    nodes.remove(at).kill();
    nodes.push(ring.node(&args));
    append(&mut written, 200);
    done(500);
    // Its feed is killed.
    let feed_pid = *shop.pids("feeds", 2).iter().rev().find(|pid| is_alive(**pid)).unwrap();
    append(&mut written, 200);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(feed_pid as i32), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    append(&mut written, 200);
    done(900);
    // Redis is killed.
    append(&mut written, 200);
    ring.redis.kill();
    append(&mut written, 200);
    ring.redis.restart();
    done(1300);
    // The node in office freezes for three leases.
    append(&mut written, 200);
    let pid = ring.generator(&nodes).pid();
    let frozen = nodes.iter().find(|node| node.pid() == pid).unwrap();
    let frozen_feed = *shop.pids("feeds", 1).iter().rev().find(|pid| is_alive(**pid)).unwrap();
    frozen.freeze();
    append(&mut written, 200);
    // The fault lasts exactly this long.
    std::thread::sleep(3 * std::time::Duration::from_secs(1));
    ring.eventually(SOON, "another node is in office", |status| {
        status["generator"]["pid"].as_u64().is_some_and(|other| other != u64::from(pid))
    });
    done(1700);
    assert!(is_alive(frozen_feed), "a frozen node cannot end its feed");
    frozen.thaw();
    await_end(&[frozen_feed]);
    append(&mut written, 200);
    let status =
        ring.eventually(SOON, "all lines are done", |status| status["done"].as_u64() >= Some(written));
    assert_eq!((&status["published"], &status["done"]), (&written.into(), &written.into()), "{status}");
    ring.assert_each_once(written);
    let entries: Vec<(String, Vec<String>)> =
        redis::from_redis_value(ring.redis_cli(&["XRANGE", "{estafeta}:u:lines", "-", "+"])).unwrap();
    let mut numbers: Vec<u64> = entries.iter().map(|(_, fields)| fields[1].parse().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=written), "each line once");
}

#[test]
fn a_plain_feed_publishes_what_its_command_prints_and_ends_with_it() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let feed = shop.sh("feed", "seq 1 2500; printf last");
    let handler = shop.python(
        "lines",
        "import sys, json\nfor line in sys.stdin:\n    \
         print(json.dumps({'id': json.loads(line)['id'], 'outcome': 'done'}), flush=True)",
    );
    let _node =
        ring.node(&["--feed-plain", &feed, "--handle-lines", &handler, "--in-hand", "64", "--journal"]);
    let status = ring.eventually(SOON, "all are done", |status| status["done"] == 2501);
    assert_eq!(status["published"], 2501, "{status}");
    ring.assert_each_once(2501);
}

/// A feed publishes one batch with a checkpoint, prints a message of the next one, and ends it like this.
fn assert_publishes_only_whole_batches(ending: &str, reason: &str) {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let feed = shop.sh(
        "feed",
        &format!(
            r#"read -r first; echo "$first" >> $DIR/first
            echo '{{"body":"good"}}'; echo '{{"checkpoint":{{"page":1}}}}'; echo '{{"body":"bad"}}'; {ending}"#
        ),
    );
    let node = ring.node(&["--feed", &feed, "--json", "--never-handle"]);
    let report = eventually(SOON, "a report", || {
        reports(&node).into_iter().find(|report| report["msg"] == "sourceFailed")
    });
    assert!(report["reason"].as_str().unwrap().contains(reason), "{report}");
    eventually(SOON, "it was opened again", || (shop.lines("first").len() >= 2).then_some(()));
    let epoch = ring.status()["generator"]["epoch"].clone();
    let first: Vec<Value> =
        shop.lines("first")[..2].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [json!(null), json!({ "page": 1 })];
    assert_eq!(first, expected.map(|checkpoint| json!({ "checkpoint": checkpoint, "epoch": epoch })));
    let bodies: Vec<Vec<u8>> =
        redis::from_redis_value(ring.redis_cli(&["LRANGE", "{estafeta}:ready", "0", "-1"])).unwrap();
    assert!(!bodies.is_empty() && bodies.iter().all(|body| body.ends_with(b"good")), "{bodies:?}");
}

#[test]
fn a_feed_that_breaks_its_contract_fails_and_publishes_nothing_of_that_batch() {
    assert_publishes_only_whole_batches("echo 'no JSON'; sleep 3600", r#"line: expected {"body":...}"#);
}

#[test]
fn a_feed_that_is_killed_publishes_nothing_of_its_batch() {
    assert_publishes_only_whole_batches("kill -9 $$", "the feed ended with SIGKILL");
}

#[test]
fn a_feed_that_ends_without_its_last_checkpoint_fails() {
    assert_publishes_only_whole_batches("exit 0", "the feed ended with 1 messages after its last checkpoint");
}

#[test]
fn a_plain_feed_that_fails_has_published_its_whole_lines() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let feed = shop.sh(
        "feed",
        "if [ -e $DIR/ran ]; then exec sleep 3600; fi; touch $DIR/ran; echo one; echo two; printf half; exit 1",
    );
    let node = ring.node(&["--feed-plain", &feed, "--never-handle", "--json"]);
    eventually(SOON, "a report", || has_report(&node, "sourceFailed").then_some(()));
    let status = ring.status();
    assert_eq!(status["published"], 2, "{status}");
}

#[test]
fn a_feed_that_prints_much_before_its_checkpoint_fails_and_one_that_never_reads_goes_on() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let feed = shop.python(
        "feed",
        r#"
import json, os, sys
start = json.loads(sys.stdin.readline())["checkpoint"] or 0
if start < 3000:
    # More lines about published messages than a pipe holds.
    for n in range(start, 3000):
        print(json.dumps({"body": str(n)}), json.dumps({"checkpoint": n + 1}), sep="\n", flush=True)
while True: print(json.dumps({"body": "x" * 900000}), flush=True)
"#,
    );
    let node = ring.node(&["--feed", &feed, "--never-handle", "--json", "--max-waiting", "100000"]);
    let report = eventually(SOON, "a report", || {
        reports(&node).into_iter().find(|report| report["msg"] == "sourceFailed")
    });
    assert!(report["reason"].as_str().unwrap().contains("expected a checkpoint after at most"), "{report}");
    assert_eq!(ring.status()["published"], 3000);
    assert!(memory(&node) < 200, "{} MiB", memory(&node));
}

#[test]
fn lines_of_json_have_keys_delays_and_headers_and_their_messages_have_a_tick() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    // The first run is the only one with other messages than duplicates.
    let generate = shop.sh(
        "generate",
        r#"echo run >> $DIR/runs
        echo '{"body":"once","key":"k","headers":{"shop":"berlin"}}'
        if [ ! -e $DIR/ran ]; then
            touch $DIR/ran
            echo '{"body":"later","delay":"1h","key":"l"}'
            echo '{"body":"soon","delay":0.001}'
            echo '{"body":"another","key":"k"}'
        fi
        wc -l < $DIR/runs >&3"#,
    );
    let handler = shop.python(
        "lines",
        "import sys, json\nfor line in sys.stdin:\n    m = json.loads(line)\n    \
         print(json.dumps({k: m[k] for k in ('body', 'key', 'tick', 'headers')}), file=open('$DIR/seen', 'a'))\n    \
         print(json.dumps({'id': m['id'], 'outcome': 'done'}), flush=True)",
    );
    let args = ["--generate", &generate, "--every", "50ms", "--lines", "json", "--handle-lines", &handler];
    let node = ring.node(&args);
    eventually(SOON, "many runs", || (shop.lines("runs").len() >= 10).then_some(()));
    let fits = |status: &Value| status["done"] == 2 && status["later"] == 1 && status["errorsKept"] == 1;
    let status = ring.eventually(SOON, "each has its outcome", fits);
    assert_eq!(status["published"], 4, "{status}");
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
    // Messages and checkpoint moved together, and the checkpoint of runs with duplicates moved alone.
    let checkpoint: String =
        redis::from_redis_value(ring.redis_cli(&["GET", "{estafeta}:checkpoint"])).unwrap();
    let runs = shop.lines("runs").len() as u64;
    assert!((10..=runs).contains(&checkpoint.trim().parse().unwrap()), "{checkpoint} of {runs}");
    assert_eq!(ring.failed(), [(4, "key: expected one that no other message has, got 'k'".to_owned())]);
    let seen: Vec<Value> =
        shop.lines("seen").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |body: &str| seen.iter().find(|message| message["body"] == body).unwrap();
    let (once, soon) = (find("once"), find("soon"));
    assert_eq!((&once["key"], &once["headers"]), (&json!("k"), &json!({ "shop": "berlin" })));
    assert_eq!((&soon["key"], &soon["tick"]), (&Value::Null, &once["tick"]));
    let tick = once["tick"].as_u64().unwrap();
    assert!(tick > 1_700_000_000_000, "milliseconds since 1970: {tick}");
}

#[test]
fn a_feed_may_print_keys_and_delays() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let feed = shop.sh(
        "feed",
        r#"read -r first
        echo '{"body":"one","key":"k"}'; echo '{"checkpoint":1}'
        echo '{"body":"one","key":"k"}'; echo '{"checkpoint":2}'
        echo '{"body":"two","key":"k"}'; echo '{"body":"later","delay":"1h"}'; echo '{"checkpoint":3}'
        exec cat > /dev/null"#,
    );
    let handler = shop.sh("handle", r#"echo "$ESTAFETA_MESSAGE_KEY" >> $DIR/keys"#);
    let _node = ring.node(&["--feed", &feed, "--handle", &handler]);
    let fits = |status: &Value| status["done"] == 1 && status["later"] == 1 && status["errorsKept"] == 1;
    let status = ring.eventually(SOON, "each has its outcome", fits);
    assert_eq!(status["published"], 3, "{status}");
    assert_eq!(shop.lines("keys"), ["k"]);
    assert!(ring.success(&["checkpoint", "show"]).contains('3'));
}
