//! The API: pages of errors, changes, and the same numbers as the commands print.

use estafeta_testbed::{RedisServer, eventually};
use serde_json::{Value, json};

use crate::support::{SOON, WebServer, add_errors, add_many_errors, changes, run, start};

fn server(errors: u64) -> (RedisServer, WebServer) {
    let redis = RedisServer::start();
    add_many_errors(&redis, errors);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    (redis, server)
}

#[test]
fn a_ring_is_what_status_prints() {
    let (redis, server) = server(7);
    let printed = run(&redis, &["status", "--json", "--ring", "orders"]);
    let mut printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let mut shown = server.json("/api/rings/orders");
    for value in [&mut printed, &mut shown] {
        value.as_object_mut().unwrap().remove("timeMs");
    }
    assert_eq!(shown, printed);
    assert_eq!((&shown["errorsKept"], &shown["balanced"]), (&json!(7), &json!(true)));
    assert_eq!(server.json("/api/rings/orders/backlog")["backlog"], 0);
}

/// Nodes may be started only if there is a backlog. While none runs, nobody moves a message that is due.
#[test]
fn a_delayed_message_that_is_due_is_a_backlog_even_if_no_node_runs() {
    let (redis, server) = server(1);
    run(&redis, &["publish", "--ring", "orders", "--delay", "1h", "x"]);
    assert_eq!(server.json("/api/rings/orders/backlog")["backlog"], 0);
    run(&redis, &["publish", "--ring", "orders", "--delay", "1ms", "x"]);
    eventually(SOON, "a backlog", || {
        let backlog = server.json("/api/rings/orders/backlog");
        (backlog["backlog"] == 1 && backlog["waiting"] == 0).then_some(())
    });
}

#[test]
fn wrong_parameters_are_refused_and_never_clamped() {
    let (_redis, server) = server(3);
    for path in [
        "history?range=7m",
        "history?range=",
        "history",
        "events?count=0",
        "events?count=501",
        "events?count=x",
        "events?after=soon",
        "errors?count=0",
        "errors?count=501",
        "errors?count=-1",
        "errors?after=1",
        "errors?after=a-b",
        "errors/x",
        "errors/-1",
        "errors/99999999999999999999",
        "errors/1?near=x",
        "schedule?count=0",
        "schedule?count=1001",
    ] {
        server.get(&format!("/api/rings/orders/{path}")).problem(400);
    }
    let long = "x".repeat(201);
    server.get(&format!("/api/rings/orders/errors?text={long}")).problem(400);
    for path in [
        "/api/rings/other",
        "/api/rings/no%20ring/history?range=5m",
        "/api/rings/orders/errors/99",
        "/api/nothing",
    ] {
        server.get(path).problem(404);
    }
    server.post("/api/rings/orders", &json!({})).problem(405);
    server.post("/api/rings/other/errors/drop", &json!({"ids": [1]})).problem(404);
    server.post("/api/rings/orders/pause", &json!({"what": "all"})).problem(400);
    server.post("/api/rings/orders/pause", &json!({"what": "both", "forMs": 0})).problem(400);
}

#[test]
fn pages_of_errors_have_each_error_once_newest_first() {
    let (_redis, server) = server(1234);
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = server.json(&format!("/api/rings/orders/errors?count=500&after={after}"));
        assert_eq!(page["kept"], 1234);
        ids.extend(page["errors"].as_array().unwrap().iter().map(|error| error["id"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(ids, (1..=1234).rev().collect::<Vec<_>>());
    let lines = server.get("/api/rings/orders/errors.ndjson");
    assert_eq!(lines.header("content-disposition"), "attachment; filename=\"orders-errors.ndjson\"");
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap();
    assert_eq!(lines.body.lines().map(id).collect::<Vec<_>>(), ids);
}

#[test]
fn a_search_looks_at_reasons_bodies_and_ids() {
    let redis = RedisServer::start();
    let errors =
        [(11, "no driver", "Pizza"), (12, "order 8127 is late", "pasta"), (13, "order 90210 is late", "{}")];
    add_errors(&redis, &errors);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    let found = |query: &str| {
        let page = server.json(&format!("/api/rings/orders/errors?{query}"));
        let ids = page["errors"].as_array().unwrap().iter().map(|error| error["id"].as_u64().unwrap());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(found("text=PIZZA"), [11]);
    assert_eq!(found("text=late"), [13, 12]);
    assert_eq!(found("text=12"), [12]);
    assert_eq!(found("reason=order%20%23%20is%20late"), [13, 12], "one group, whatever its numbers");
    assert_eq!(found("reason=no%20driver&text=pasta"), [0_u64; 0]);
    let reasons = server.json("/api/rings/orders/errors/reasons");
    let groups: Vec<_> =
        reasons["reasons"].as_array().unwrap().iter().map(|g| json!([g["reason"], g["count"]])).collect();
    assert_eq!(groups, [json!(["order # is late", 2]), json!(["no driver", 1])]);
    let one = server.json("/api/rings/orders/errors/11");
    assert_eq!(
        [&one["reason"], &one["body"], &one["size"]],
        [&json!("no driver"), &json!("Pizza"), &json!(5)]
    );
    assert_eq!(server.get("/api/rings/orders/errors.ndjson?text=pizza").body.lines().count(), 1);
}

#[test]
fn errors_are_changed_in_chunks_and_each_chunk_is_in_the_event_stream() {
    let (_redis, server) = server(1000);
    // On a slow machine, even a few errors may take several requests.
    let change = |verb: &str, chosen: Value| {
        let (mut changed, mut calls, mut body) = (0, 0, chosen);
        loop {
            let done = server.post(&format!("/api/rings/orders/errors/{verb}"), &body).json();
            (changed, calls) = (changed + done["changed"].as_u64().unwrap(), calls + 1);
            match &done["next"] {
                Value::Null => return (changed, calls),
                next => body["after"] = next.clone(),
            }
        }
    };
    assert_eq!(change("retry", json!({"ids": [999, 5, 4711]})).0, 2);
    let (dropped, calls) = change("drop", json!({"all": true, "text": "body"}));
    assert!(calls >= 3, "{calls} chunks");
    let ring = server.json("/api/rings/orders");
    assert_eq!((dropped, &ring["errorsKept"], &ring["waiting"]), (998, &json!(0), &json!(2)));
    assert_eq!(
        (&ring["balanced"], &ring["retried"], &ring["dropped"]),
        (&json!(true), &json!(2), &json!(998))
    );
    let events = changes(&server);
    let total = |kind: &str| {
        let fits = events.iter().filter(|event| event[0] == kind);
        fits.map(|event| event[1].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((total("retried"), total("dropped")), (2, 998), "{events:?}");
    assert!(events.iter().all(|event| event[2] == "web"), "{events:?}");
}

#[test]
fn a_ring_is_paused_and_resumed_under_the_name_of_the_visitor() {
    let (_redis, server) = server(1);
    let pause = json!({"what": "handling", "forMs": 3_600_000});
    assert_eq!(server.post("/api/rings/orders/pause", &pause).status, 204);
    let left = server.json("/api/rings/orders")["handlingPause"]["leftMs"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{left}");
    assert_eq!(server.post("/api/rings/orders/resume", &json!({"what": "both"})).status, 204);
    let ring = server.json("/api/rings/orders");
    assert_eq!(ring["handlingPause"], Value::Null);
    let kinds: Vec<_> =
        ring["events"].as_array().unwrap().iter().map(|e| json!([e["kind"], e["what"], e["by"]])).collect();
    assert_eq!(kinds, [json!(["paused", "handling", "web"]), json!(["resumed", "handling", "web"])]);
}

#[test]
fn several_rings_are_shown_and_others_do_not_exist() {
    let (redis, server) = server(1);
    let node = start(&redis, &["run", "--ring", "shop/mails"], &[]);
    node.wait_for_line(SOON, |line| line.starts_with("joined"));
    server.get("/api/rings/shop%2Fmails").problem(404);
    let all = WebServer::start(&redis, &[]);
    assert_eq!(all.json("/api/meta")["rings"], json!(["orders", "shop/mails"]));
    assert_eq!(all.json("/api/rings/shop%2Fmails")["ring"], "shop/mails");
    let both = WebServer::start(&redis, &["--ring", "orders, shop/mails"]);
    assert_eq!(both.json("/api/meta")["rings"], json!(["orders", "shop/mails"]));
    let metrics = both.get("/metrics").body;
    assert!(
        metrics.contains("estafeta_ring_messages{ring=\"orders\",state=\"errors_kept\"} 1.0"),
        "{metrics}"
    );
    assert!(
        metrics.contains("estafeta_ring_members{ring=\"shop/mails\",role=\"generator\",state=\"alive\"} 1.0"),
        "{metrics}"
    );
}

#[test]
fn the_history_has_rates_and_times_of_a_working_ring() {
    let redis = RedisServer::start();
    let nodes: Vec<_> =
        (0..2).map(|_| start(&redis, &["run", "--ring", "orders", "--interval", "5ms"], &[])).collect();
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    eventually(SOON, "points with rates and times", || {
        let history = server.json("/api/rings/orders/history?range=5m");
        let points = history["points"].as_array().unwrap();
        let is_full = |p: &Value| p["generated"].as_f64() > Some(1.0) && p["handled"].as_f64() > Some(1.0);
        let has_times = |p: &Value| p["waitMs"].is_array() && p["handlingMs"].is_array();
        points.iter().any(|point| is_full(point) && has_times(point)).then_some(())
    });
    drop(nodes);
}

#[test]
fn the_description_of_the_api_has_every_address() {
    let (_redis, server) = server(0);
    let description = server.json("/api/openapi.json");
    let paths: Vec<&String> = description["paths"].as_object().unwrap().keys().collect();
    let ring = [
        "",
        "/backlog",
        "/checkpoint",
        "/errors",
        "/errors.ndjson",
        "/errors/drop",
        "/errors/reasons",
        "/errors/retry",
        "/errors/{id}",
        "/events",
        "/history",
        "/live",
        "/pause",
        "/resume",
        "/schedule",
    ]
    .map(|path| format!("/api/rings/{{ring}}{path}"));
    let mut expected: Vec<String> =
        ["/api/meta", "/livez", "/metrics", "/readyz"].map(ToOwned::to_owned).to_vec();
    expected.extend(ring);
    expected.sort();
    let mut paths: Vec<String> = paths.into_iter().cloned().collect();
    paths.sort();
    assert_eq!(paths, expected);
}

#[test]
fn a_change_that_no_replica_has_is_reported_as_unconfirmed() {
    let redis = RedisServer::start();
    add_many_errors(&redis, 2);
    let server = WebServer::start(&redis, &["--ring", "orders", "--durability", "replicas=1"]);
    for verb in ["retry", "drop"] {
        let answer = server.post(&format!("/api/rings/orders/errors/{verb}"), &json!({"ids": [1, 2]}));
        let why = answer.problem(503);
        assert!(why.contains("only 0 of 1 replicas have it"), "{why}");
        add_many_errors(&redis, 2);
    }
    // A server that asks for less reports the same change.
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    assert_eq!(server.post("/api/rings/orders/errors/drop", &json!({"ids": [1]})).json()["changed"], 1);
}
