//! A ring with partitions is one ring for its users: sums, all members, events and errors.

use std::io::{BufReader, Write as _};

use estafeta_testbed::{RedisServer, eventually};
use serde_json::{Value, json};

use crate::server::event;
use crate::support::{SOON, WebServer, run, start};

const RUN: [&str; 6] = ["run", "--ring", "orders", "--generator-handles", "--partitions", "3"];

/// A ring with three partitions and this many errors in each, and a server that shows all rings.
fn divided(errors: u64) -> (RedisServer, WebServer) {
    let redis = RedisServer::start();
    let limit = (3 * errors).to_string();
    let args = ["--limit", &limit, "--until-done", "--error-rate", "1", "--interval", "0"];
    assert!(run(&redis, &[&RUN[..], &args].concat()).status.success());
    let server = WebServer::start(&redis, &[]);
    (redis, server)
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

/// Changes errors until the answer says that there is no more to do. Returns how many were changed.
fn change(server: &WebServer, verb: &str, mut chosen: Value) -> u64 {
    let mut changed = 0;
    loop {
        let done = server.post(&format!("/api/rings/orders/errors/{verb}"), &chosen).json();
        changed += done["changed"].as_u64().unwrap();
        match &done["next"] {
            Value::Null => return changed,
            next => chosen["after"] = next.clone(),
        }
    }
}

#[test]
fn the_page_shows_the_whole_ring_as_status_does() {
    let (redis, server) = divided(4);
    assert_eq!(server.json("/api/meta")["rings"], json!(["orders"]));
    let printed = run(&redis, &["status", "--json", "--ring", "orders"]);
    let mut printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let mut shown = server.json("/api/rings/orders");
    for value in [&mut printed, &mut shown] {
        value.as_object_mut().unwrap().remove("timeMs");
        for part in value["partitions"].as_array_mut().unwrap() {
            part.as_object_mut().unwrap().remove("timeMs");
        }
    }
    assert_eq!(shown, printed);
    assert_eq!((&shown["published"], &shown["errorsKept"]), (&json!(12), &json!(12)));
    // One partition can be looked at alone.
    assert_eq!(server.json("/api/rings/orders%3A2")["published"], 4);
    server.get("/api/rings/orders%3A3").problem(404);
    let backlog = server.json("/api/rings/orders/backlog");
    assert_eq!((&backlog["backlog"], &backlog["waiting"]), (&json!(0), &json!(0)));
    assert_eq!(server.json("/api/rings/orders/schedule"), json!([]));
    let checkpoints = server.json("/api/rings/orders/checkpoint");
    assert_eq!(list(&checkpoints["partitions"]).len(), 3, "{checkpoints}");

    // Sums over the label are right, because no series has the sum already.
    let metrics = server.get("/metrics").body;
    let published: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("estafeta_ring_published_total")).collect();
    let expected = [0, 1, 2]
        .map(|index| format!("estafeta_ring_published_total{{ring=\"orders\",partition=\"{index}\"}} 4"));
    let mut published: Vec<String> = published.into_iter().map(ToOwned::to_owned).collect();
    published.sort();
    assert_eq!(published, expected);
}

#[test]
fn events_of_all_partitions_are_one_stream_in_which_none_is_skipped() {
    let (_redis, server) = divided(1);
    server.post("/api/rings/orders/pause", &json!({"what": "handling"}));
    let all = eventually(SOON, "the pauses of all partitions", || {
        let all = server.json("/api/rings/orders/events");
        (list(&all).iter().filter(|event| event["kind"] == "paused").count() == 3).then_some(all)
    });
    let ids = |events: &Value| -> Vec<String> {
        list(events).iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect()
    };
    let joined: Vec<&Value> = list(&all).iter().filter(|event| event["kind"] == "joined").collect();
    let members: Vec<&str> = joined.iter().map(|event| event["member"].as_str().unwrap()).collect();
    assert!(["0:1", "1:1", "2:1"].iter().all(|member| members.contains(member)), "{all}");
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.json(&format!("/api/rings/orders/events?count=2&after={after}"));
        match ids(&page).last() {
            Some(last) => after.clone_from(last),
            None => break,
        }
        paged.extend(ids(&page));
    }
    assert_eq!(paged, ids(&all), "page by page, the same");
    assert!(
        list(&server.json("/api/rings/orders")["partitions"])
            .iter()
            .all(|part| part["handlingPause"].is_object())
    );
    assert_eq!(server.post("/api/rings/orders/resume", &json!({"what": "both"})).status, 204);
    let paused = |part: &Value| part["handlingPause"].is_object();
    assert!(!list(&server.json("/api/rings/orders")["partitions"]).iter().any(paused));
}

#[test]
fn errors_of_all_partitions_are_one_list_and_are_changed_by_partition_and_id() {
    let (_redis, server) = divided(70);
    let (mut items, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.json(&format!("/api/rings/orders/errors?count=25&after={after}"));
        assert_eq!(page["kept"], 210);
        items.extend(list(&page["errors"]).clone());
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let mut ids: Vec<&str> = items.iter().map(|item| item["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((items.len(), ids.len()), (210, 210), "each once");
    let times = items.iter().map(|item| item["failedMs"].as_u64().unwrap());
    assert!(times.rev().is_sorted(), "the newest of all partitions first");

    let one = server.json("/api/rings/orders/errors/2:17");
    assert_eq!((&one["id"], &one["partition"]), (&json!(17), &json!(2)));
    server.get("/api/rings/orders/errors/17").problem(404);
    server.get("/api/rings/orders/errors/3:17").problem(404);
    let found = server.json("/api/rings/orders/errors?text=2:17");
    assert!(list(&found["errors"]).iter().any(|error| error["id"] == "2:17"), "{found}");
    let reasons = server.json("/api/rings/orders/errors/reasons");
    assert_eq!((&reasons["kept"], &reasons["reasons"][0]["count"]), (&json!(210), &json!(210)));
    assert_eq!(server.get("/api/rings/orders/errors.ndjson").body.lines().count(), 210);

    let why = server.post("/api/rings/orders/errors/drop", &json!({"ids": [17]})).problem(400);
    assert!(why.contains("such as \"0:17\", because ring orders has 3 partitions"), "{why}");
    assert_eq!(change(&server, "drop", json!({"ids": ["7:17"]})), 0, "there is no such partition");
    // The search begins at the cursors of the chosen errors, in each partition.
    let chosen: Vec<&Value> = items.iter().rev().step_by(40).collect();
    let ids: Vec<&Value> = chosen.iter().map(|item| &item["id"]).collect();
    let cursors: Vec<&str> = chosen.iter().map(|item| item["cursor"].as_str().unwrap()).collect();
    let chosen = json!({"ids": ids, "after": cursors.join(",")});
    assert_eq!(change(&server, "retry", chosen), ids.len() as u64);
    assert_eq!(change(&server, "drop", json!({"all": true})), 210 - ids.len() as u64);
    let ring = server.json("/api/rings/orders");
    assert_eq!((&ring["errorsKept"], &ring["waiting"]), (&json!(0), &json!(ids.len())));
    assert_eq!(ring["balanced"], true);
}

#[test]
fn a_page_without_errors_of_a_partition_keeps_the_place_in_that_partition() {
    let (redis, server) = divided(4);
    // These fail again, one after another, so the last one is the newest.
    for id in ["0:1", "0:2", "1:1"] {
        assert_eq!(change(&server, "retry", json!({"ids": [id]})), 1);
        let again = ["--limit", "12", "--until-done", "--error-rate", "1", "--interval", "0"];
        assert!(run(&redis, &[&RUN[..], &again].concat()).status.success());
    }
    let mut after = String::new();
    let mut next_id = || {
        let page = server.json(&format!("/api/rings/orders/errors?count=1&after={after}"));
        after = page["next"].as_str().unwrap().to_owned();
        page["errors"][0]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!((next_id(), next_id()), ("1:1".to_owned(), "0:2".to_owned()));
    // Everything in the list of partition 1 moves down by one place.
    assert_eq!(change(&server, "drop", json!({"ids": ["1:2"]})), 1);
    assert_eq!(next_id(), "0:1", "and not 1:1 once more");
}

#[test]
fn the_charts_and_the_stream_show_all_partitions() {
    let redis = RedisServer::start();
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    // The ring is divided only after the page knows it.
    assert_eq!(server.json("/api/rings/orders")["partitions"], Value::Null);
    let node = start(&redis, &[&RUN[..], &["--interval", "20ms"]].concat(), &[]);
    let history = eventually(SOON, "points of all partitions", || {
        let history = server.json("/api/rings/orders/history?range=5m");
        let is_rate = |point: &Value| point["generated"].as_f64() > Some(0.0);
        list(&history["points"]).iter().any(is_rate).then_some(history)
    });
    assert_eq!(history["points"][0]["member"], "0:1", "{history}");
    assert_eq!(history["gaps"], json!([]));
    let mut stream = server.connect();
    stream.write_all(b"GET /api/rings/orders/live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    let snapshot: Value = serde_json::from_str(&event(&mut stream, "snapshot")).unwrap();
    let parts = list(&snapshot["partitions"]);
    let sum: u64 = parts.iter().map(|part| part["published"].as_u64().unwrap()).sum();
    assert_eq!((parts.len(), snapshot["published"].as_u64()), (3, Some(sum)));
    assert_eq!(list(&snapshot["members"]).len(), 3);
    let events: Value = serde_json::from_str(&event(&mut stream, "events")).unwrap();
    assert!(list(&events).iter().all(|event| event["id"].as_str().unwrap().contains(':')), "{events}");
    event(&mut stream, "sample");
    drop(stream);

    // The ring begins again with another number of partitions.
    drop(node);
    assert!(run(&redis, &["reset", "--ring", "orders", "--yes"]).status.success());
    let two = [
        "run",
        "--ring",
        "orders",
        "--partitions",
        "2",
        "--limit",
        "2",
        "--until-done",
        "--generator-handles",
    ];
    assert!(run(&redis, &two).status.success());
    eventually(SOON, "two partitions", || {
        (server.json("/api/rings/orders")["partitions"].as_array()?.len() == 2).then_some(())
    });
}
