//! A ring with partitions in the page: one ring, whose members and errors carry their partitions.

use std::collections::BTreeSet;

use estafeta_testbed::{Process, RedisServer, eventually};
use serde_json::{Value, json};

use super::driver::Browser;
use crate::support::{SOON, WebServer, run, start};

const RUN: [&str; 8] =
    ["run", "--ring", "orders", "--partitions", "2", "--generator-handles", "--interval", "20ms"];

/// Two nodes on a ring with two partitions, with one error in each: `0:1` and `1:1`.
fn divided(redis: &RedisServer) -> Vec<Process> {
    let failing = ["--limit", "2", "--until-done", "--error-rate", "1"];
    assert!(run(redis, &[&RUN[..], &failing].concat()).status.success());
    let nodes: Vec<Process> =
        (0..2).map(|_| start(redis, &[&RUN[..], &["--error-rate", "0"]].concat(), &[])).collect();
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.contains("joined as member"));
    }
    nodes
}

/// The members as the API shows them, when both nodes are in both partitions and both partitions have generators.
fn settled_ring(server: &WebServer) -> Value {
    eventually(SOON, "two nodes in two partitions", || {
        let ring = server.json("/api/rings/orders");
        let alive = |member: &Value| member["state"] == "alive";
        let parts = ring["partitions"].as_array()?;
        (ring["members"].as_array()?.iter().filter(|member| alive(member)).count() == 4
            && parts.iter().all(|part| alive(&part["generator"])))
        .then_some(ring)
    })
}

#[tokio::test]
async fn a_ring_with_partitions_is_one_ring_whose_nodes_and_errors_can_be_opened() {
    let Some(browser) = Browser::start("a ring with partitions").await else { return };
    let redis = RedisServer::start();
    let (nodes, server) = (divided(&redis), WebServer::start(&redis, &["--ring", "orders"]));
    let ring = settled_ring(&server);
    browser.open(&server.url()).await;
    browser.wait_for_text("#verdict", "Healthy").await;
    browser.wait_for_text(".ledger", "errors kept 2").await;

    // Each member has a row, and each generator a lane with a term that has not ended.
    let ids: BTreeSet<&str> =
        ring["members"].as_array().unwrap().iter().map(|member| member["id"].as_str().unwrap()).collect();
    let rows = "return [...document.querySelectorAll('.members .who')].map(e => e.innerText.trim())";
    let rows = browser.js(rows).await;
    let rows: BTreeSet<&str> = rows.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(rows, ids);
    let generators = [0, 1].map(|index: usize| {
        format!("{index}:{}", ring["partitions"][index]["generator"]["member"].as_u64().unwrap())
    });
    browser.wait_for_text("[data-kpi=generator] .value", &format!("node {}", generators[0])).await;
    for generator in &generators {
        browser.wait_for_svg(".strip.lanes .lane-name", &format!("node {generator}")).await;
    }
    browser
        .until("both in office", "return document.querySelectorAll('.strip.lanes .term.now').length === 2")
        .await;

    for generator in &generators {
        browser.click(".members button", &format!("Node {generator}, details")).await;
        browser.wait_for_text("#drawer h2", &format!("Node {generator}")).await;
        browser.wait_for_text("#drawer .kv", "in office").await;
        browser.wait_for_text("#drawer .events-of", "became generator").await;
        browser.click("#drawer button", "Close").await;
    }

    // An error is opened, and retried in its own partition.
    browser.js("location.hash = '#/errors?open=1:1'").await;
    browser.wait_for_text(".detail-top h2", "Message #1:1").await;
    browser.wait_for_text(".detail", "estafeta errors retry --ring orders 1:1").await;
    browser.click(".detail button", "Retry").await;
    browser.click("#ask button", "Retry 1 error").await;
    browser.wait_for_text(".detail-top h2", "Message #0:1").await;
    let ring = server.json("/api/rings/orders");
    let kept = |index: usize| ring["partitions"][index]["errorsKept"].as_u64().unwrap();
    assert_eq!((kept(0), kept(1)), (1, 0));

    // The office of one partition without a generator is the verdict on the whole ring.
    browser.js("location.hash = '#/'").await;
    nodes.iter().for_each(Process::freeze);
    browser.wait_for_text("#verdict", "No generator").await;
    nodes.iter().for_each(Process::thaw);
    browser.wait_for_text("#verdict", "Healthy").await;
    assert_eq!(browser.js("return window.neverReloaded").await, json!(true));
    browser.quit().await;
}
