//! No process of a command outlives its node.

use super::*;
use crate::support::monitored::Monitored;

/// A handler that becomes a tree of processes: itself, a child, a grandchild in a session of its own, and a child with an
/// empty environment. Each writes its id.
const TREE: &str = r#"
echo $$ >> $DIR/pids
sh -c 'echo $$ >> $DIR/pids; setsid sh -c "echo \$\$ >> $DIR/pids; while :; do sleep 0.05; done" & while :; do sleep 0.05; done' &
env -i /bin/sh -c 'echo $$ >> $DIR/pids; while :; do sleep 0.05; done' &
[ "$ESTAFETA_MESSAGE_DELIVERY" = 1 ] || { echo "$ESTAFETA_MESSAGE_DELIVERY" > $DIR/again; exit 0; }
while :; do sleep 0.05; done"#;

#[test]
fn the_whole_tree_of_a_command_ends_with_a_killed_node_and_its_message_comes_again_once() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", TREE);
    let args = ["--handle", &handler, "--journal"];
    let first = ring.node(&args);
    ring.submit(&["x"]);
    let tree = shop.pids("pids", 4);
    let second = ring.node(&args);
    first.kill();
    await_end(&tree);
    let status = ring.eventually(SOON, "it is done", |status| status["done"] == 1);
    assert_eq!((&status["returned"], &status["retries"]), (&1.into(), &0.into()), "{status}");
    assert_eq!(shop.lines("again"), ["2"]);
    ring.assert_each_once(1);
    second.signal(Signal::SIGTERM);
    assert!(second.wait(SOON).success());
    // What the second tree has left of itself is gone, too.
    await_end(&shop.pids("pids", 5));
}

#[test]
fn a_guard_that_is_killed_is_replaced_and_knows_the_commands_that_run() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh(
        "handle",
        r#"read -r word; echo $$ >> $DIR/$word; [ "$word" = quick ] || while :; do sleep 0.05; done"#,
    );
    let node = ring.node(&["--handle", &handler, "--concurrency", "2"]);
    ring.submit(&["slow"]);
    let slow = shop.pids("slow", 1);
    let guards = || {
        let children = format!("/proc/{0}/task/{0}/children", node.pid());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let name = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut all: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        // The guard may have been started by another thread.
        for task in std::fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap().flatten() {
            let more = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(more.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        all.sort_unstable();
        all.dedup();
        all.into_iter()
            .filter(|pid| name(pid).trim() == "command-guard" && is_alive(*pid))
            .collect::<Vec<_>>()
    };
    let guard = eventually(SOON, "a guard", || guards().first().copied());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(guard as i32), nix::sys::signal::Signal::SIGKILL)
        .unwrap();
    await_end(&[guard]);
    ring.submit(&["quick"]);
    ring.eventually(SOON, "the quick one is done", |status| status["done"] == 1);
    eventually(SOON, "another guard", || guards().first().copied().filter(|other| *other != guard));
    node.kill();
    await_end(&slow);
}

#[test]
fn what_a_command_leaves_in_its_group_ends_with_it() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    // It exits when its child has written its id.
    let handler = shop.sh(
        "handle",
        "read -r body; sh -c 'echo $$ >> $DIR/pids; while :; do sleep 0.05; done' &\n\
         while [ ! -s $DIR/pids ]; do sleep 0.01; done",
    );
    for (option, done, errors) in [("--handle", 1, 0), ("--handle-lines", 1, 1)] {
        let node = ring.node(&[option, &handler, "--retry", "1"]);
        ring.submit(&["x"]);
        let fits = |status: &Value| status["done"] == done && status["errorsKept"] == errors;
        ring.eventually(SOON, "it has an outcome", fits);
        await_end(&shop.pids("pids", 1));
        std::fs::remove_file(shop.path("pids")).unwrap();
        drop(node);
    }
    assert_eq!(ring.failed(), [(2, "the command ended with exit code 0 and without a reply".to_owned())]);
}

/// A node that is frozen with a message in hand is declared dead. As soon as it learns that, it ends its command.
fn assert_a_command_ends_with_the_membership_of_its_node(option: &str, shop: &Workshop, handler: &str) {
    let ring = ProgramRing::new();
    let args = [option, handler, "--lease", "1s", "--journal"];
    let frozen = ring.node(&args);
    ring.submit(&["x"]);
    let pids = shop.pids("pids", 1);
    let _heir = ring.node(&args);
    frozen.freeze();
    let status = ring.eventually(SOON, "the other node has done it", |status| status["done"] == 1);
    assert!(is_alive(pids[0]), "a frozen node ends nothing: {status}");
    frozen.thaw();
    eventually(SOON, "the command gets SIGTERM", || (shop.lines("signals") == ["TERM"]).then_some(()));
    await_end(&pids);
    ring.eventually(SOON, "the node is back", |status| {
        status["members"]
            .as_array()
            .is_some_and(|all| all.iter().filter(|one| one["state"] == "alive").count() == 2)
    });
    ring.assert_each_once(1);
}

#[test]
fn a_command_ends_when_its_node_learns_that_it_was_declared_dead() {
    let shop = Workshop::new();
    let handler = shop.sh(
        "handle",
        r#"[ "$ESTAFETA_MESSAGE_DELIVERY" = 1 ] || exit 0
        trap 'echo TERM >> $DIR/signals; exit 0' TERM
        echo $$ >> $DIR/pids; while :; do sleep 0.05; done"#,
    );
    assert_a_command_ends_with_the_membership_of_its_node("--handle", &shop, &handler);
}

#[test]
fn a_process_that_lives_on_ends_when_its_node_learns_that_it_was_declared_dead() {
    let shop = Workshop::new();
    let handler = shop.python(
        "lines",
        r#"
import json, os, signal, sys, time
def end(*_):
    with open("$DIR/signals", "a") as signals: print("TERM", file=signals)
    os._exit(0)
for line in sys.stdin:
    m = json.loads(line)
    if m["delivery"] == 1:
        signal.signal(signal.SIGTERM, end)
        with open("$DIR/pids", "a") as pids: print(os.getpid(), file=pids)
        time.sleep(3600)
    print(json.dumps({"id": m["id"], "outcome": "done"}), flush=True)
"#,
    );
    assert_a_command_ends_with_the_membership_of_its_node("--handle-lines", &shop, &handler);
}

#[test]
fn a_monitor_starts_nodes_with_commands_and_a_killed_generator_is_replaced() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", r#"echo $$ >> $DIR/pids; read -r body; echo "$body" >> $DIR/bodies"#);
    let generate = shop.sh("generate", "echo tick");
    let args =
        ["-n", "3", "--ring", "estafeta", "--handle", &handler, "--generate", &generate, "--every", "100ms"];
    let monitored = Monitored::start(&args, &[("REDIS_URL", &ring.redis.url())]);
    let first = monitored.wait_for_ring(3);
    ring.eventually(SOON, "some are done", |status| status["done"].as_u64() >= Some(5));
    monitored.terminal.type_keys("k");
    monitored.wait_for_successor(&first);
    let done = ring.status()["done"].as_u64();
    ring.eventually(SOON, "more are done", |status| status["done"].as_u64() > done);
    monitored.quit();
    await_end(&shop.pids("pids", 5));
    assert!(shop.lines("bodies").iter().all(|body| body == "tick"));
    assert_eq!(ring.status()["application"], "estafeta");
}
