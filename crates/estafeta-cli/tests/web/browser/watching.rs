//! What a page shows while things happen to the ring, without being loaded again.

use std::time::Duration;

use estafeta_testbed::{Fsync, Process, RedisServer, eventually};

use super::driver::Browser;
use crate::support::{SOON, WebServer, add_errors, start};

fn nodes(redis: &RedisServer, count: usize) -> Vec<Process> {
    let args = ["run", "--ring", "orders", "--interval", "50ms", "--error-rate", "0"];
    let nodes: Vec<Process> = (0..count).map(|_| start(redis, &args, &[])).collect();
    for node in &nodes {
        node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
    }
    nodes
}

#[tokio::test]
async fn the_page_shows_the_generator_and_its_successor_without_a_reload() {
    let Some(browser) = Browser::start("the successor of a generator").await else { return };
    let redis = RedisServer::start();
    let (nodes, server) = (nodes(&redis, 3), WebServer::start(&redis, &["--ring", "orders"]));
    browser.open(&server.url()).await;
    browser.wait_for_text("#verdict", "Healthy").await;
    let ring = server.json("/api/rings/orders");
    let (first, pid) = (ring["generator"]["member"].clone(), ring["generator"]["pid"].as_u64());
    browser.wait_for_text("[data-kpi=generator] .value", &format!("node {first}")).await;
    nodes.iter().find(|node| Some(u64::from(node.pid())) == pid).unwrap().kill();
    let next = eventually(SOON, "a successor", || {
        let generator = server.json("/api/rings/orders")["generator"].clone();
        (generator["member"] != first && generator["state"] == "alive").then(|| generator["member"].clone())
    });
    browser.wait_for_text("[data-kpi=generator] .value", &format!("node {next}")).await;
    browser.wait_for_text(".events li", &format!("node {next} took over from {first}")).await;
    browser.wait_for_text(".events li", &format!("node {first} died")).await;
    browser.wait_for_text("#fresh", "live").await;
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}

#[tokio::test]
async fn a_page_left_open_over_a_restart_of_redis_comes_back_by_itself() {
    let Some(browser) = Browser::start("a restart of Redis").await else { return };
    let redis = RedisServer::builder().append_only(Fsync::Always).start();
    let (_nodes, server) = (nodes(&redis, 2), WebServer::start(&redis, &["--ring", "orders"]));
    browser.open(&server.url()).await;
    browser.wait_for_text("#verdict", "Healthy").await;
    redis.kill();
    browser.wait_for_text("#verdict", "Redis away").await;
    browser.wait_for_text("#fresh", "Redis away").await;
    browser.wait_for_text("[data-kpi=picture] .value", "old").await;
    assert!(browser.driver.title().await.unwrap().starts_with("Redis away"));
    redis.restart();
    browser.wait_for_text("#verdict", "Healthy").await;
    browser.wait_for_text("#fresh", "live").await;
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}

#[tokio::test]
async fn a_page_that_lost_its_server_shows_so_and_finds_the_next_one() {
    let Some(browser) = Browser::start("a restart of the server").await else { return };
    let redis = RedisServer::start();
    let (_nodes, server) = (nodes(&redis, 2), WebServer::start(&redis, &["--ring", "orders"]));
    browser.open(&server.url()).await;
    browser.wait_for_text("#verdict", "Healthy").await;
    server.process.kill();
    browser.wait_for_text("#verdict", "Was healthy").await;
    browser.wait_for_text("#notice", "Reconnecting").await;
    let args = ["web", "--ring", "orders", "--listen", &server.address];
    let next = start(&redis, &args, &[]);
    next.wait_for_line(SOON, |line| line.starts_with("estafeta web: "));
    browser.wait_for_text("#verdict", "Healthy").await;
    browser.wait_for_text("#fresh", "live").await;
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}

#[tokio::test]
async fn a_hidden_tab_closes_its_stream_and_opens_it_again() {
    let Some(browser) = Browser::start("a hidden tab").await else { return };
    let redis = RedisServer::start();
    add_errors(&redis, &[(1, "no", "body")]);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&server.url()).await;
    browser.wait_for_text("#fresh", "live").await;
    let first = browser.driver.window().await.unwrap();
    let second = browser.driver.new_tab().await.unwrap();
    browser.driver.switch_to_window(second).await.unwrap();
    let mut connection = redis.connect();
    let mut calls = || {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).map(str::to_owned)
    };
    eventually(SOON, "the server reads nothing, because nobody looks", || {
        let before = calls();
        std::thread::sleep(Duration::from_millis(1500));
        (calls() == before).then_some(())
    });
    browser.driver.switch_to_window(first).await.unwrap();
    let before = calls();
    eventually(SOON, "the stream is back", || (calls() != before).then_some(()));
    browser.wait_for_text("#fresh", "live").await;
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}

#[tokio::test]
async fn each_bad_state_has_its_own_word() {
    let Some(browser) = Browser::start("bad states").await else { return };
    let redis = RedisServer::start();
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&server.url()).await;
    browser.wait_for_text("h1", "Nobody is on the ring yet").await;
    let handler = ["run", "--ring", "orders", "--handle", "true"];
    let only_generates = ["run", "--ring", "orders", "--generate", "echo hello", "--every", "100ms"];
    let generator = start(&redis, &only_generates, &[]);
    browser.wait_for_text("#verdict", "Nobody handles").await;
    let worker = start(&redis, &handler, &[]);
    browser.wait_for_text("#verdict", "Healthy").await;
    assert_eq!(server.post("/api/rings/orders/pause", &serde_json::json!({"what": "producing"})).status, 204);
    browser.wait_for_text("#verdict", "Paused").await;
    assert_eq!(server.post("/api/rings/orders/resume", &serde_json::json!({"what": "both"})).status, 204);
    browser.wait_for_text("#verdict", "Healthy").await;
    generator.freeze();
    browser.wait_for_text("#verdict", "No generator").await;
    generator.thaw();
    browser.wait_for_text("#verdict", "Healthy").await;
    drop((generator, worker));
    browser.quit().await;
}
