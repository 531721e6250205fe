//! Nodes with commands: the signals, the application and the limits of the node itself.

use super::*;

#[test]
fn a_hangup_stops_a_node_unless_it_is_ignored() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", "exit 0");
    // Starts a node with this action for SIGHUP, whatever the action of this test is.
    let with_action = shop.python(
        "with_action",
        "import os, signal, sys\nsignal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))\n\
         os.execv(sys.argv[2], sys.argv[2:])",
    );
    let url = ring.redis.url();
    let start = |action: &str| {
        let program = env!("CARGO_BIN_EXE_estafeta");
        let args = [action, program, "run", "--redis", &url, "--handle", &handler];
        Process::spawn(Path::new(&with_action), args, std::iter::empty::<(&str, &str)>())
    };
    let node = start("SIG_DFL");
    node.wait_for_line(SOON, |line| line.starts_with("joined"));
    node.signal(Signal::SIGHUP);
    assert!(node.wait(SOON).success());
    let status = ring.status();
    assert_eq!(status["buried"], 0, "it left in peace: {status}");
    let node = start("SIG_IGN");
    ring.eventually(SOON, "it has joined", |status| {
        status["members"].as_array().is_some_and(|all| all.len() == 1)
    });
    node.signal(Signal::SIGHUP);
    ring.submit(&["a"]);
    ring.eventually(SOON, "it goes on", |status| status["done"] == 1);
    node.signal(Signal::SIGTERM);
    assert!(node.wait(SOON).success());
}

#[test]
fn a_ring_of_another_application_is_refused_with_the_option_to_set() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", "exit 0");
    let _node = ring.node(&["--handle", &handler, "--app", "shop"]);
    ring.eventually(SOON, "it has joined", |status| {
        status["members"].as_array().is_some_and(|all| all.len() == 1)
    });
    let output = ring.start(&["run", "--handle", &handler, "--app", "orders"]).output(SOON);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("and this node is of 'orders': set --app 'shop', or choose another ring (--ring)"),
        "{stderr}"
    );
    let output = ring.start(&["run"]).output(SOON);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("choose another ring for the demo (--ring)"), "{stderr}");
}

#[test]
fn many_commands_raise_the_limit_of_open_files_and_few_leave_it() {
    let (ring, shop) = (ProgramRing::new(), Workshop::new());
    let handler = shop.sh("handle", "ulimit -Sn >> $DIR/limits");
    let limited = shop.sh("limited", "ulimit -Sn 300\nexec \"$@\"");
    let (program, url) = (env!("CARGO_BIN_EXE_estafeta"), ring.redis.url());
    let start = |concurrency: &str| {
        let args = [program, "run", "--redis", &url, "--handle", &handler, "--concurrency", concurrency];
        Process::spawn(Path::new(&limited), args, std::iter::empty::<(&str, &str)>())
    };
    for (concurrency, done) in [("2", 1), ("64", 2)] {
        let node = start(concurrency);
        ring.submit(&["a"]);
        ring.eventually(SOON, "it is done", |status| status["done"] == done);
        node.signal(Signal::SIGTERM);
        assert!(node.wait(SOON).success());
    }
    let limits: Vec<u64> = shop.lines("limits").iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(limits, [300, 256 + 16 * 64]);
}
