//! What a page shows while things happen to the ring, without being loaded again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use estafeta_testbed::{Fsync, Process, RedisServer, eventually};
use serde_json::json;

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

/// Notes each name that the page shows as generator, and when.
const WATCH_THE_GENERATOR: &str = "
    const value = document.querySelector('[data-kpi=generator] .value');
    window.seen = [];
    new MutationObserver(() => window.seen.push([Date.now(), value.innerText.trim()]))
        .observe(value, { subtree: true, childList: true, characterData: true });
";

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
    // The generator of the demo handles nothing, and does not count as a handler.
    browser.wait_for_text("[data-kpi=handlers] .value", "2 of 2").await;
    browser.js(WATCH_THE_GENERATOR).await;
    let generator = nodes.iter().find(|node| Some(u64::from(node.pid())) == pid).unwrap();
    let killed = SystemTime::now();
    generator.kill();
    let find =
        format!("return window.seen.find(([, who]) => /^node \\d+$/.test(who) && who !== 'node {first}')");
    let shown = browser.until("a successor", &find).await;
    let killed = killed.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    #[allow(clippy::print_stdout)]
    {
        println!("the page showed the successor {} ms after the kill", shown[0].as_u64().unwrap() - killed);
    }
    let next = server.json("/api/rings/orders")["generator"]["member"].clone();
    assert_eq!(shown[1], json!(format!("node {next}")));
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
    browser.wait_for_text(".events li", "Redis away, as this page sees it").await;
    browser.wait_for_svg(".chart .tag", "no Redis").await;
    // Long enough for a gap in the history.
    let age = "return parseInt(document.querySelector('[data-kpi=picture] .value').innerText) >= 6";
    browser.until("an old picture", age).await;
    assert!(browser.driver.title().await.unwrap().starts_with("Redis away"));
    redis.restart();
    browser.wait_for_text("#verdict", "Healthy").await;
    browser.wait_for_text("#fresh", "live").await;
    browser.wait_for_text(".events li", "Redis back").await;
    // The gap stays in the history, hatched and with its name.
    browser.wait_for_svg(".chart .tag", "no Redis").await;
    let gaps = "return [...document.querySelectorAll('.strip .gap')].filter(g => g.getAttribute('fill').startsWith('url(#hatch')).length";
    assert!(browser.js(gaps).await.as_u64() >= Some(5), "each strip has the gap");
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}

#[tokio::test]
async fn a_page_that_was_opened_without_redis_says_so_in_every_view_and_goes_on_by_itself() {
    let Some(browser) = Browser::start("a page without Redis").await else { return };
    let redis = RedisServer::builder().append_only(Fsync::Always).start();
    add_errors(&redis, &[(1, "no", "body")]);
    // This server has to connect to the ring when a page first looks at it.
    let server = WebServer::start(&redis, &[]);
    redis.kill();
    for view in ["", "errors", "schedules"] {
        browser.open("about:blank").await;
        browser.open(&format!("{}#/{view}", server.url())).await;
        browser.wait_for_text("h1", "Redis away").await;
        browser.wait_for_text("#fresh", "Redis away").await;
    }
    redis.restart();
    browser.wait_for_text(".pauses", "Producing").await;
    browser.js("location.hash = '#/errors'").await;
    browser.wait_for_text(".detail-top h2", "#1").await;
    browser.js("location.hash = '#/'").await;
    browser.wait_for_text("#verdict", "Nobody handles").await;
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}

#[tokio::test]
async fn a_ring_that_the_server_does_not_show_is_named_and_another_one_can_be_chosen() {
    let Some(browser) = Browser::start("an unknown ring").await else { return };
    let redis = RedisServer::start();
    add_errors(&redis, &[(1, "no", "body")]);
    let server = WebServer::start(&redis, &["--ring", "orders,invoices"]);
    browser.open(&format!("{}#/?ring=nonsense", server.url())).await;
    browser.wait_for_text("h1", "No such ring").await;
    browser.wait_for_text("main", "no ring “nonsense”").await;
    let choose = |name: &str| {
        format!(
            "const s = document.getElementById('ring'); s.value = '{name}'; s.dispatchEvent(new Event('change'))"
        )
    };
    browser.js(&choose("orders")).await;
    browser.wait_for_text(".ledger", "errors kept 1").await;
    browser.js(&choose("invoices")).await;
    browser.wait_for_text("h1", "No node has joined this ring yet").await;
    // The way back is the way back, and the choice follows.
    browser.driver.back().await.unwrap();
    browser.wait_for_text(".ledger", "errors kept 1").await;
    // At once: later the page looks for new rings, and would correct it.
    assert_eq!(browser.js("return document.getElementById('ring').value").await, json!("orders"));
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
async fn a_browser_that_was_offline_shows_the_age_of_its_picture_and_comes_back_by_itself() {
    let Some(browser) = Browser::start("a browser without a network").await else { return };
    let redis = RedisServer::start();
    let (_nodes, server) = (nodes(&redis, 2), WebServer::start(&redis, &["--ring", "orders"]));
    browser.open(&server.url()).await;
    browser.wait_for_text("#verdict", "Healthy").await;
    browser.cdp("Network.enable", json!({})).await;
    let network = |offline: bool| json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
    browser.cdp("Network.emulateNetworkConditions", network(true)).await;
    // Chromium refuses only new connections. So the old one ends, and the server is there again at once.
    server.process.kill();
    let next = start(&redis, &["web", "--ring", "orders", "--listen", &server.address], &[]);
    next.wait_for_line(SOON, |line| line.starts_with("estafeta web: "));
    shows_its_age(&browser).await;
    browser.cdp("Network.emulateNetworkConditions", network(false)).await;
    browser.wait_for_text("#verdict", "Healthy").await;
    browser.wait_for_text("#fresh", "live").await;
    browser.wait_for_text("[data-kpi=picture] .value", "live").await;
    browser.until("no notice", "return document.getElementById('notice').hidden").await;
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}

/// The page shows how old its picture is, and the age grows.
async fn shows_its_age(browser: &Browser) {
    browser.wait_for_text("#verdict", "Was healthy").await;
    browser.wait_for_text("#notice", "Reconnecting").await;
    for selector in ["#fresh", "[data-kpi=picture] .value"] {
        let age =
            format!("parseInt(/^(\\d+)\\s+s old/.exec(document.querySelector('{selector}').innerText)?.[1])");
        let first = browser.until("an age", &format!("return {age}")).await;
        browser.until("a higher age", &format!("return {age} > {first}")).await;
    }
}

#[tokio::test]
async fn a_page_whose_server_is_silent_shows_its_age_and_comes_back_by_itself() {
    let Some(browser) = Browser::start("a silent server").await else { return };
    let redis = RedisServer::start();
    let (_nodes, server) = (nodes(&redis, 2), WebServer::start(&redis, &["--ring", "orders"]));
    browser.open(&server.url()).await;
    browser.wait_for_text("#verdict", "Healthy").await;
    // The connection stays, as it does if a cable is pulled. Only nothing comes any more.
    server.process.freeze();
    shows_its_age(&browser).await;
    server.process.thaw();
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
    browser.wait_for_text("h1", "No node has joined this ring yet").await;
    let handler = ["run", "--ring", "orders", "--handle", "true"];
    let only_generates = ["run", "--ring", "orders", "--generate", "echo hello", "--every", "100ms"];
    let generator = start(&redis, &only_generates, &[]);
    browser.wait_for_text("#verdict", "Nobody handles").await;
    let worker = start(&redis, &handler, &[]);
    browser.wait_for_text("#verdict", "Healthy").await;
    assert_eq!(server.post("/api/rings/orders/pause", &json!({"what": "producing"})).status, 204);
    browser.wait_for_text("#verdict", "Paused").await;
    assert_eq!(server.post("/api/rings/orders/resume", &json!({"what": "both"})).status, 204);
    browser.wait_for_text("#verdict", "Healthy").await;
    generator.freeze();
    browser.wait_for_text("#verdict", "No generator").await;
    generator.thaw();
    browser.wait_for_text("#verdict", "Healthy").await;
    drop((generator, worker));
    browser.wait_for_text("#verdict + p", "Start a node of orders.").await;
    browser.quit().await;
}
