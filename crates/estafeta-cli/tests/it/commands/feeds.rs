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
    frozen.freeze();
    append(&mut written, 200);
    ring.eventually(SOON, "another node is in office", |status| {
        status["generator"]["pid"].as_u64().is_some_and(|other| other != u64::from(pid))
    });
    done(1700);
    frozen.thaw();
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

#[test]
fn a_feed_that_breaks_its_contract_fails_and_publishes_nothing_of_that_batch() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let feed = shop.sh(
        "feed",
        r#"read -r first; echo "$first" >> $DIR/first
        echo '{"body":"good"}'; echo '{"checkpoint":{"page":1}}'; echo '{"body":"bad"}'; echo 'no JSON'; sleep 3600"#,
    );
    let node = ring.node(&["--feed", &feed, "--json", "--never-handle"]);
    let report = eventually(SOON, "a report", || {
        reports(&node).into_iter().find(|report| report["msg"] == "sourceFailed")
    });
    assert!(report["reason"].as_str().unwrap().contains(r#"line: expected {"body":...}"#), "{report}");
    eventually(SOON, "it was opened again", || (shop.lines("first").len() >= 2).then_some(()));
    let epoch = ring.status()["generator"]["epoch"].clone();
    let first: Vec<Value> =
        shop.lines("first")[..2].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [json!(null), json!({ "page": 1 })];
    assert_eq!(first, expected.map(|checkpoint| json!({ "checkpoint": checkpoint, "epoch": epoch })));
    let bodies: Vec<Vec<u8>> =
        redis::from_redis_value(ring.redis_cli(&["LRANGE", "{estafeta}:ready", "0", "-1"])).unwrap();
    assert!(bodies.iter().all(|body| body.ends_with(b"good")), "{bodies:?}");
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
