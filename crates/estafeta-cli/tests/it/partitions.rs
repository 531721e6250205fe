//! Rings with partitions, as users of the program meet them: real nodes, kills, and every command.

use std::collections::BTreeSet;

use estafeta_testbed::{Fsync, RedisCluster, RedisServer, eventually};
use serde_json::Value;

use crate::support::{ProgramRing, SOON, reports, run, start};
use crate::telemetry::{free_address, try_get as get};

const RUN: [&str; 4] = ["run", "--partitions", "3", "--generator-handles"];

fn objects(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

impl ProgramRing {
    fn start_divided(&self, args: &[&str]) -> estafeta_testbed::Process {
        self.start(&[&RUN, args].concat())
    }

    /// Makes a ring with three partitions, and a number of errors in each.
    fn divided_with_errors(&self, errors: u64) {
        let limit = (3 * errors).to_string();
        let args = ["--limit", &limit, "--until-done", "--error-rate", "1", "--interval", "0", "--journal"];
        let output = self.start_divided(&args).output(SOON);
        assert!(output.status.success(), "{output:?}");
    }

    /// The ids of every outcome in the journal of a partition.
    fn outcomes_in(&self, partition: usize) -> Vec<u64> {
        let mut call = redis::cmd("XRANGE");
        call.arg(format!("{{estafeta:{partition}}}:journal")).arg("-").arg("+");
        let entries: Vec<(String, Vec<String>)> = call.query(&mut self.redis.connect()).unwrap();
        let ids = |(_, fields): &(String, Vec<String>)| {
            let at = fields.iter().position(|field| field == "ids").unwrap();
            fields[at + 1].split(' ').map(|id| id.parse().unwrap()).collect::<Vec<u64>>()
        };
        entries.iter().flat_map(ids).collect()
    }
}

#[test]
fn every_message_of_every_partition_is_settled_once_although_nodes_are_killed() {
    let ring = ProgramRing::new();
    let limit = ["--limit", "30000", "--interval", "0", "--max-waiting", "600", "--journal"];
    let settings = ["--until-done", "--concurrency", "3", "--max-deaths", "1000", "--lease", "1s"];
    let args = [&limit[..], &settings[..]].concat();
    let mut nodes: Vec<_> = (0..3).map(|_| ring.start_divided(&args)).collect();
    for victim in [0, 1, 0] {
        let published = |status: &Value| status["published"].as_u64();
        let before = eventually(SOON, "messages", || {
            let output = ring.command(&["status", "--json"]);
            let status: Value = serde_json::from_slice(&output.stdout).ok()?;
            assert!(output.status.success(), "the sums add up while nodes die: {status}");
            published(&status).filter(|count| *count > 0)
        });
        nodes.remove(victim).kill();
        nodes.push(ring.start_divided(&args));
        ring.eventually(SOON, "the ring goes on", |status| {
            published(status) > Some(before) || published(status) == Some(30_000)
        });
    }
    for node in nodes {
        let output = node.output(2 * SOON);
        assert!(output.status.success(), "until-done ends all nodes: {output:?}");
    }
    let status = ring.status();
    let sums = ["published", "waiting", "inFlight"].map(|name| status[name].as_u64().unwrap());
    assert_eq!(sums, [30_000, 0, 0], "{status}");
    assert_eq!(status["balanced"], true);
    for (index, part) in status["partitions"].as_array().unwrap().iter().enumerate() {
        assert_eq!(part["published"], 10_000, "each has its share: {part}");
        let mut outcomes = ring.outcomes_in(index);
        outcomes.sort_unstable();
        assert!(outcomes.into_iter().eq(1..=10_000), "one outcome each in partition {index}");
    }
}

#[test]
fn partitions_are_spread_over_a_cluster_and_nodes_end_when_all_are_done() {
    let redis = RedisCluster::start();
    let names: Vec<String> = (0..6).map(|index| format!("estafeta:{index}")).collect();
    let owners: BTreeSet<u16> = names.iter().map(|name| redis.owner_of(name).port()).collect();
    assert_eq!(owners.len(), 3, "each master has partitions");
    let url = redis.url();
    let envs = [("REDIS_URL", url.as_str())];
    let busy = ["--interval", "1ms", "--limit", "6000", "--until-done", "--journal", "--generator-handles"];
    let args = [&["run", "--partitions", "6", "--error-rate", "0.1"], &busy[..]].concat();
    let nodes = [start(&args, &envs), start(&args, &envs)];
    let status = || -> Option<Value> {
        let output = run(&["status", "--json"], &envs);
        // There is none before the first node has joined.
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        assert!(output.status.success(), "the sums add up: {status}");
        Some(status)
    };
    let handled = |status: &Value| status["done"].as_u64().unwrap() + status["errorsKept"].as_u64().unwrap();
    eventually(SOON, "messages are handled", || status().filter(|status| handled(status) > 100));
    redis.failover(&names[0]);
    redis.migrate(&names[1]);
    for node in nodes {
        let output = node.output(2 * SOON);
        assert!(output.status.success(), "until-done ends all nodes: {output:?}");
    }
    let status = status().unwrap();
    assert_eq!((status["published"].as_u64(), handled(&status)), (Some(6000), 6000), "{status}");
    assert_eq!((&status["buried"], &status["lost"]), (&0.into(), &0.into()), "{status}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for name in &names {
        let ring = estafeta::Ring::on(&url, name);
        let journal = runtime.block_on(async { ring.await.unwrap().journal().await.unwrap() });
        let mut outcomes: Vec<u64> = journal.into_iter().flat_map(|entry| entry.ids).collect();
        outcomes.sort_unstable();
        assert!(outcomes.into_iter().eq(1..=1000), "one outcome each in {name}");
    }
    let errors = status["errorsKept"].as_u64().unwrap();
    let printed = run(&["getErrors", "--json"], &envs);
    assert_eq!(String::from_utf8(printed.stdout).unwrap().lines().count() as u64, errors);
}

#[test]
fn status_shows_each_partition_and_the_sums() {
    let ring = ProgramRing::new();
    ring.divided_with_errors(4);
    let text = ring.success(&["status"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("ring estafeta at "), "{text}");
    let rows: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
    for index in ["0", "1", "2"] {
        let row = rows.iter().find(|row| row.first() == Some(&index)).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(row[1..], ["none", "4", "0", "0", "0", "0", "4", "adds", "up"], "{text}");
    }
    let sum = "adds up: published 12 = waiting 0 + in flight 0 + done 0 + errors kept 12 + errors taken 0";
    assert!(lines.contains(&sum), "{text}");
    let status = ring.status();
    assert_eq!((&status["ring"], &status["errorsKept"]), (&"estafeta".into(), &12.into()));
    let names: Vec<&Value> =
        status["partitions"].as_array().unwrap().iter().map(|part| &part["ring"]).collect();
    assert_eq!(names, ["estafeta:0", "estafeta:1", "estafeta:2"]);

    // A partition that does not add up is not hidden by another one.
    ring.redis_cli(&["HINCRBY", "{estafeta:0}:ledger", "done", "1"]);
    ring.redis_cli(&["HINCRBY", "{estafeta:1}:ledger", "done", "-1"]);
    let output = ring.command(&["status"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn another_number_of_partitions_is_refused_in_one_line() {
    let ring = ProgramRing::new();
    ring.divided_with_errors(1);
    for (args, expected) in [
        (&["run"][..], "has 3 partitions, and this program expects 1"),
        (&["run", "--partitions", "2"], "has 3 partitions, and this program expects 2"),
        (&["run", "--partitions", "0"], "--partitions: expected 1 to 1024, got '0'"),
        (
            &["run", "--partitions", "3", "--limit", "2"],
            "--limit: expected at least 3, one for each partition",
        ),
        (&["run", "--partitions", "3", "--record", "r"], "--record: expected a ring with one partition"),
        (&["run", "--ring", "estafeta:1"], "a name that does not end in ':' and a number"),
        (&["publish", "x", "--ring", "estafeta:1"], "a name that does not end in ':' and a number"),
        (&["schedule"], "ring estafeta has 3 partitions: name one of them, such as --ring estafeta:0"),
        (&["checkpoint", "show"], "ring estafeta has 3 partitions: name one of them"),
        (&["limit", "--in-flight", "2"], "expected a limit of at least 3, one for each partition"),
        (
            &["errors", "retry", "1"],
            "expected PARTITION:ID, such as 0:1, because ring estafeta has 3 partitions",
        ),
        (&["errors", "retry", "3:1"], "expected a partition from 0 to 2, got '3:1'"),
    ] {
        let output = ring.command(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(expected), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn two_readers_at_once_print_each_error_of_all_partitions_once() {
    let ring = ProgramRing::new();
    ring.divided_with_errors(1000);
    let readers = [ring.start(&["getErrors"]), ring.start(&["getErrors", "--json"])];
    let [text, json] = readers.map(|reader| {
        let output = reader.output(SOON);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    });
    let mut printed: Vec<String> =
        text.lines().map(|line| line.trim_start_matches('#').split(' ').next().unwrap().to_owned()).collect();
    printed.extend(objects(&json).iter().map(|error| format!("{}:{}", error["partition"], error["id"])));
    let different: BTreeSet<&String> = printed.iter().collect();
    assert_eq!((printed.len(), different.len()), (3000, 3000), "each once");
    let status = ring.status();
    assert_eq!((&status["errorsKept"], &status["errorsTaken"]), (&0.into(), &3000.into()));
}

#[test]
fn errors_are_listed_retried_and_dropped_by_partition_and_id() {
    let ring = ProgramRing::new();
    ring.divided_with_errors(2);
    let ids = |output: &str| -> Vec<String> {
        output.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let listed = ids(&ring.success(&["errors", "list"]));
    assert_eq!(listed, ["#0:1", "#0:2", "#1:1", "#1:2", "#2:1", "#2:2"]);
    assert_eq!(ids(&ring.success(&["errors", "list", "--ring", "estafeta:1"])), ["#1:1", "#1:2"]);
    assert_eq!(ring.success(&["errors", "count"]).trim(), "6");
    assert!(ring.success(&["errors", "list", "--by-reason"]).contains("the message contains an error"));

    assert_eq!(ring.success(&["errors", "retry", "0:1", "2:2"]).trim(), "2 errors retried");
    let output = ring.command(&["errors", "drop", "1:1", "0:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1 error dropped");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no error in Redis has the id #0:1"),
        "{output:?}"
    );
    assert_eq!(ids(&ring.success(&["errors", "list"])), ["#0:2", "#1:2", "#2:1"]);
    assert_eq!(ring.success(&["errors", "drop", "--all", "--yes"]).trim(), "3 errors dropped");
}

#[test]
fn publish_finds_the_partitions_and_cancel_accepts_their_ids() {
    let ring = ProgramRing::new();
    ring.divided_with_errors(1);
    let receipt = |args: &[&str]| objects(&ring.success(args)).remove(0);
    let first = receipt(&["publish", "x", "--key", "order-17"]);
    assert_eq!((&first["partition"], &first["duplicate"]), (&0.into(), &false.into()), "as SHA-1 decides");
    let again = receipt(&["publish", "x", "--key", "order-17"]);
    assert_eq!(
        (&again["id"], &again["partition"], &again["duplicate"]),
        (&first["id"], &0.into(), &true.into())
    );
    let delayed = receipt(&["publish", "later", "--delay", "1h"]);
    let id = format!("{}:{}", delayed["partition"], delayed["id"]);
    assert_eq!(ring.success(&["cancel", &id]).trim(), "1 message cancelled");
    receipt(&["publish", "later", "--delay", "1h", "--key", "k"]);
    assert_eq!(ring.success(&["cancel", "--key", "k"]).trim(), "1 message cancelled");
    let status = ring.status();
    assert_eq!((&status["cancelled"], &status["waiting"]), (&2.into(), &1.into()));
}

#[test]
fn pauses_limits_upgrades_and_a_reset_concern_all_partitions() {
    let ring = ProgramRing::new();
    ring.divided_with_errors(1);
    assert!(ring.success(&["pause", "--producing"]).contains("producing paused until resumed"));
    let paused = |part: &Value| part["producingPause"].is_object();
    assert!(ring.status()["partitions"].as_array().unwrap().iter().all(paused));
    assert!(ring.success(&["resume", "--producing"]).contains("nothing is paused"));
    let limited = ring.success(&["limit", "--in-flight", "7", "--rate", "10/s"]);
    assert_eq!(limited.trim(), "ring estafeta: limited to 7 in flight and 10/s");
    let status = ring.status();
    let each: Vec<Option<u64>> =
        status["partitions"].as_array().unwrap().iter().map(|part| part["inFlightLimit"].as_u64()).collect();
    assert_eq!(each, [Some(3), Some(2), Some(2)]);
    assert_eq!(ring.success(&["upgrade"]).lines().count(), 3);
    assert!(ring.success(&["cleanTemp"]).starts_with("0 messages of 0 dead members"));
    let rings = objects(&ring.success(&["rings", "--json"]));
    let seen =
        rings.iter().map(|row| (&row["ring"], &row["partitions"], &row["published"])).collect::<Vec<_>>();
    assert_eq!(seen, [(&"estafeta".into(), &3.into(), &3.into())], "one ring with the sums");

    assert!(ring.success(&["reset", "--yes"]).starts_with("ring estafeta is gone"));
    let left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut ring.redis.connect()).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn commands_of_the_user_learn_their_partition() {
    let ring = ProgramRing::new();
    let source = "echo made $ESTAFETA_PARTITION/$ESTAFETA_PARTITIONS of $ESTAFETA_RING";
    let generate = format!("sh -c '{source}'");
    let handle = "sh -c 'read body; echo handled in $ESTAFETA_PARTITION: $body'";
    let args =
        ["--generate", &generate, "--every", "50ms", "--handle", handle, "--limit", "6", "--until-done"];
    let output =
        ring.start(&[&["run", "--partitions", "2", "--results", "1h"], &args[..]].concat()).output(SOON);
    assert!(output.status.success(), "{output:?}");
    let results = ring.success(&["results"]);
    for index in 0..2 {
        let value = format!("\"handled in {index}: made {index}/2 of estafeta");
        let count =
            results.lines().filter(|line| line.starts_with(&format!("#{index}:")) && line.contains(&value));
        assert_eq!(count.count(), 3, "{results}");
    }
    assert_eq!(ring.success(&["results", "1:2"]).lines().count(), 1);
}

#[test]
fn a_node_reports_the_partition_of_each_notice() {
    let ring = ProgramRing::new();
    let node = ring.start_divided(&["--json", "--limit", "3", "--until-done", "--interval", "0"]);
    node.wait_for_line(SOON, |line| line.contains("\"left\""));
    let joined = |report: &Value| (report["msg"] == "createdTaskId").then(|| report["partition"].as_u64());
    let output = reports(&node);
    let partitions: BTreeSet<u64> = output.iter().filter_map(joined).flatten().collect();
    assert!(partitions.into_iter().eq(0..3), "{output:?}");
    let node = ring.start_divided(&["--limit", "6", "--until-done", "--interval", "0"]).output(SOON);
    let text = String::from_utf8_lossy(&node.stdout);
    assert!((0..3).all(|index| text.contains(&format!("partition {index}: joined as member"))), "{text}");
}

#[test]
fn rings_lists_a_divided_ring_once_with_its_nodes() {
    let ring = ProgramRing::new();
    let _nodes = [ring.start_divided(&["--limit", "3"]), ring.start_divided(&["--limit", "3"])];
    ring.eventually(SOON, "two nodes in three partitions", |status| {
        status["members"].as_array().is_some_and(|members| members.len() == 6)
    });
    let text = ring.success(&["rings"]);
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((text.lines().count(), &row[..2]), (2, &["estafeta", "2"][..]), "{text}");
}

#[test]
fn health_is_well_if_a_node_lives_in_every_partition() {
    let ring = ProgramRing::new();
    let node = ring.start_divided(&["--lease", "60s", "--interval", "1h"]);
    let health = || {
        let output = ring.command(&["health"]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    eventually(SOON, "the node is alive", || (health().0 == Some(0)).then_some(()));
    node.freeze();
    ring.redis_cli(&["DEL", "{estafeta:1}:members"]);
    let (code, text) = health();
    assert_eq!((code, text.ends_with(" is alive in partition 1\n")), (Some(1), true), "{text}");
    node.thaw();
}

#[test]
fn doctor_examines_every_partition() {
    let rules = "~{estafeta}:* ~{estafeta:0}:* &* +@all";
    let redis = RedisServer::builder().tcp().append_only(Fsync::EverySec).user("app", "pw", rules).start();
    let ring = ProgramRing::on(redis);
    ring.divided_with_errors(1);
    let whole: Value = serde_json::from_str(&ring.success(&["doctor", "--json"])).unwrap();
    let names: Vec<&Value> =
        whole["partitions"].as_array().unwrap().iter().map(|part| &part["ring"]).collect();
    assert_eq!(names, ["estafeta:0", "estafeta:1", "estafeta:2"]);
    let subjects = |of: &Value| of["findings"].as_array().unwrap().len();
    assert_eq!(subjects(&whole), subjects(&whole["partitions"][2]), "each subject once");

    // A user who may use only one of the partitions.
    let output = run(&["doctor"], &[("REDIS_URL", &ring.redis.url_as("app", "pw"))]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("ring estafeta with 3 partitions at "), "{text}");
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("broken   rights")).collect();
    assert!(lines.iter().take(3).any(|line| line.trim() == "in estafeta:1, estafeta:2"), "{text}");
}

#[test]
fn the_metrics_of_a_node_are_about_all_its_partitions() {
    let (ring, address) = (ProgramRing::new(), free_address());
    let _node = ring.start_divided(&["--metrics", &address, "--limit", "30", "--interval", "0"]);
    let metrics = eventually(SOON, "the node generates in all partitions", || {
        let metrics = get(&address, "/metrics")?;
        metrics.contains("estafeta_generating{ring=\"estafeta\"} 3\n").then_some(metrics)
    });
    assert!(metrics.contains("estafeta_lanes{ring=\"estafeta\"} 3\n"), "{metrics}");
    eventually(SOON, "all messages are counted", || {
        get(&address, "/metrics")?.contains("estafeta_generated_total{ring=\"estafeta\"} 30\n").then_some(())
    });
    assert!(get(&address, "/readyz").unwrap().starts_with("the node is a member of its ring"));
}
