//! What keeps a mistake from doing harm: rings of other applications, a forgotten address, a typing error, dangerous
//! settings of Redis.

use estafeta_testbed::{NO_ENV, RedisServer};

use crate::support::{ProgramRing, SOON, run, start};

#[test]
fn the_demo_refuses_a_ring_of_another_application_and_leaves_it_alone() {
    let ring = ProgramRing::new();
    ring.redis_cli(&["SET", "{estafeta}:schema", "4"]);
    ring.redis_cli(&["SET", "{estafeta}:application", "orders"]);
    for args in [&["run"][..], &["monitor", "-n", "2"]] {
        let output = ring.command(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("belongs to the application 'orders'"), "{stderr}");
        assert!(stderr.contains("choose another ring"), "{stderr}");
    }
    let keys: u64 = redis::from_redis_value(ring.redis_cli(&["DBSIZE"])).unwrap();
    assert_eq!(keys, 2, "nothing was written");
    // A reader of errors and a monitor that only watches may look at any ring.
    assert_eq!(ring.success(&["getErrors"]), "");
    ring.success(&["monitor", "--for", "1s"]);
    assert!(ring.success(&["rings"]).contains("orders"));
}

#[test]
fn a_monitor_of_a_ring_in_use_only_watches_unless_it_is_asked_for_nodes() {
    let ring = ProgramRing::new();
    let _node = ring.node(&["--interval", "50ms"]);
    let watching = ring.success(&["monitor", "--for", "2s"]);
    assert!(watching.contains("mine 0"), "{watching}");
    assert_eq!(ring.status()["members"].as_array().unwrap().len(), 1);
    let joining = ring.success(&["monitor", "-n", "1", "--for", "2s"]);
    assert!(joining.contains("mine 1"), "{joining}");
}

#[test]
fn a_node_that_stays_alone_says_how_to_start_another() {
    let ring = ProgramRing::new();
    let node = ring.node(&["--interval", "1s"]);
    node.wait_for_line(SOON, |line| {
        line.contains("no other node is in this ring") && line.contains("the same command")
    });
}

#[test]
fn a_node_warns_of_settings_of_redis_that_may_lose_messages() {
    let redis = RedisServer::builder().tcp().start();
    let mut connection = redis.connect();
    for (name, value) in [("maxmemory-policy", "allkeys-lru"), ("save", ""), ("appendonly", "no")] {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(&mut connection).unwrap();
    }
    let node = start(&["run", "--interval", "1s"], &[("REDIS_URL", &redis.tcp_url())]);
    for remedy in ["set maxmemory-policy noeviction", "set appendonly yes"] {
        node.wait_for_stderr_line(SOON, |line| line.contains(remedy));
    }
}

#[test]
fn a_redis_that_hides_its_settings_is_used_without_warnings() {
    let ring = ProgramRing::new();
    // The connection itself needs the version of the server.
    ring.redis_cli(&["ACL", "SETUSER", "default", "-info", "+info|server", "-config"]);
    let output = ring.command(&["monitor", "-n", "1", "--for", "1s"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_bad_variable_is_named_and_only_by_commands_that_use_it() {
    let ring = ProgramRing::new();
    ring.plant_errors(1..=1, |_| b"body".to_vec());
    let url = ring.redis.url();
    let envs = [("ESTAFETA_INTERVAL", "fast"), ("REDIS_URL", url.as_str())];
    assert!(run(&["status"], &envs).status.success());
    for args in [&["run"][..], &["monitor"], &[]] {
        let output = run(args, &envs);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("variable ESTAFETA_INTERVAL") && stderr.contains("fast"), "{stderr}");
    }
    let envs = [("ESTAFETA_PORT", "many")];
    assert_eq!(run(&["status"], &envs).status.code(), Some(2));
    assert!(run(&["completions", "bash"], &envs).status.success());
}

#[test]
fn a_wrong_call_points_to_the_help_of_its_command_and_suggests_what_was_meant() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["statsu"], &["status", "(see estafeta --help)"]),
        (&["status", "--jsn"], &["--json", "(see estafeta status --help)"]),
        (&["errors"], &["list, count, retry, drop", "(see estafeta errors --help)"]),
        (&["errors", "retry"], &["(see estafeta errors retry --help)"]),
    ];
    for (args, expected) in cases {
        let output = run(args, &NO_ENV);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        for text in expected {
            assert!(stderr.contains(text), "{args:?}: {stderr}");
        }
    }
}

#[test]
fn rings_are_listed_with_their_applications() {
    let ring = ProgramRing::new();
    assert_eq!(ring.success(&["rings"]), "no rings\n");
    let _one = ring.node(&["--limit", "3", "--ring", "one"]);
    let _other = ring.node(&["--limit", "3", "--ring", "other"]);
    let text = ring.success(&["rings"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[1].starts_with("one ") && lines[2].starts_with("other "), "{text}");
    assert!(lines[1].ends_with("estafeta-demo"), "{text}");
    let json = ring.success(&["rings", "--json"]);
    let first: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((&first["ring"], &first["nodes"]), (&"one".into(), &1.into()));
}

#[test]
fn completions_and_man_pages_come_from_the_program_itself() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell], &NO_ENV);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("getErrors"), "{shell}: {script}");
    }
    let pages = tempfile::tempdir().unwrap();
    assert!(run(&["man", pages.path().to_str().unwrap()], &NO_ENV).status.success());
    for page in ["estafeta.1", "estafeta-run.1", "estafeta-errors-retry.1"] {
        let text = std::fs::read_to_string(pages.path().join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
}
