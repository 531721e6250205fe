//! The examples, as real processes that are killed and stopped.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use estafeta::{Activity, Publisher};
use estafeta_testbed::{Process, RedisServer};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{SOON, changed, config, eventually};

fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    // `cargo test` builds the examples, unless it runs only some tests.
    assert!(program.exists(), "run `cargo build --examples` first: there is no {}", program.display());
    program
}

fn start(redis: &RedisServer, name: &str, args: &[&str]) -> Process {
    Process::spawn(&example(name), args, [("REDIS_URL", redis.url())])
}

async fn ring(redis: &RedisServer, name: &str) -> estafeta::Ring {
    estafeta::Ring::connect(redis.url().parse().unwrap(), name.parse().unwrap()).await.unwrap()
}

/// How often each line was printed.
fn counts(lines: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    lines.iter().for_each(|line| *counts.entry(line.as_str()).or_default() += 1);
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cron_publishes_each_tick_once_on_three_machines() {
    let redis = RedisServer::start();
    let nodes: Vec<_> = (0..3).map(|_| start(&redis, "cron", &["* * * * * *", "UTC"])).collect();
    let reports = ring(&redis, "reports").await;
    eventually(&reports, "three ticks", |snapshot| snapshot.done >= 9).await;
    let mut lines = Vec::new();
    for node in nodes {
        node.signal(Signal::SIGTERM);
        let output = node.output(SOON);
        assert!(output.status.success(), "{output:?}");
        lines.extend(String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned));
    }
    let snapshot = reports.snapshot(0).await.unwrap();
    assert_eq!((snapshot.done, snapshot.members.len()), (lines.len() as u64, 0), "all have left");
    assert!(counts(&lines).values().all(|count| *count == 1), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_publishes_each_line_once_although_it_is_killed_in_the_middle() {
    const LINES: usize = 2000;
    let redis = RedisServer::start();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let mut node = start(&redis, "feed", &[&path]);
    let lines = ring(&redis, "lines").await;
    for line in 0..LINES {
        writeln!(file, "line {line}").unwrap();
        if line % 400 == 399 {
            eventually(&lines, "some lines", |snapshot| snapshot.published > line as u64 / 2).await;
            node.kill();
            node = start(&redis, "feed", &[&path]);
        }
    }
    let done = |snapshot: &estafeta::Snapshot| snapshot.done == LINES as u64;
    let snapshot = eventually(&lines, "all lines are done", done).await;
    assert_eq!(snapshot.published, LINES as u64);
    node.signal(Signal::SIGTERM);
    assert!(node.output(SOON).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pipeline_counts_exactly_although_its_nodes_are_killed() {
    const ORDERS: i64 = 300;
    let redis = RedisServer::start();
    let mut nodes = vec![start(&redis, "pipeline", &[]), start(&redis, "pipeline", &[])];
    let settings = changed(config(&redis), |config| {
        config.ring = "shop/orders".parse().unwrap();
        config.application = "shop/orders".to_owned();
    });
    let orders: Publisher = Publisher::of(&settings).await.unwrap();
    let (accepted, mails) = (ring(&redis, "shop/orders").await, ring(&redis, "shop/mails").await);
    for order in 1..=ORDERS {
        let body = format!(r#"{{"customer":"c{order}","pizzas":{order}}}"#);
        orders.publish(body).patient(Duration::from_secs(5)).await.unwrap();
        if order % 100 == 0 {
            eventually(&accepted, "some orders", |snapshot| snapshot.done > order as u64 / 2).await;
            nodes.remove(0).kill();
            nodes.push(start(&redis, "pipeline", &[]));
        }
    }
    eventually(&mails, "all mails are sent", |snapshot| snapshot.done == ORDERS as u64).await;
    let number = |key: &str| -> i64 { redis::cmd("GET").arg(key).query(&mut redis.connect()).unwrap() };
    assert_eq!(number("{shop}/orders:u:pizzas"), ORDERS * (ORDERS + 1) / 2);
    assert_eq!(number("{shop}/mails:u:sent"), ORDERS);
    for node in nodes {
        node.signal(Signal::SIGTERM);
        assert!(node.output(SOON).status.success());
    }
}

/// Requests to one path of the receiver: their idempotency keys.
type Requests = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// A receiver of webhooks that fails on purpose, as the path of a request says. Returns its address, and what it got.
async fn receiver() -> (SocketAddr, Requests) {
    async fn answer(
        State(requests): State<Requests>,
        Path(path): Path<String>,
        headers: HeaderMap,
    ) -> Response {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        let mut requests = requests.lock().unwrap();
        let keys = requests.entry(path.clone()).or_default();
        keys.push(key);
        let status = match (path.as_str(), keys.len()) {
            ("gone", _) => StatusCode::GONE,
            ("busy", 1) => return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "0")]).into_response(),
            ("broken", 1 | 2) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::OK,
        };
        status.into_response()
    }
    let requests = Requests::default();
    let service = Router::new().route("/{path}", post(answer)).with_state(Arc::clone(&requests));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    (address, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_sender_snoozes_retries_and_gives_up_as_its_receivers_answer() {
    let redis = RedisServer::start();
    let (address, requests) = receiver().await;
    let node = start(&redis, "webhooks", &["0"]);
    let publisher = Publisher::<serde_json::Value>::on(&redis.url(), "hooks").await.unwrap();
    for path in ["fine", "busy", "broken", "gone"] {
        let hook = json!({ "url": format!("http://{address}/{path}"), "event": { "order": 17 } });
        publisher.publish(&hook).await.unwrap();
    }
    let hooks = ring(&redis, "hooks").await;
    let snapshot = eventually(&hooks, "all are settled", |now| now.done == 3 && now.errors_kept == 1).await;
    assert_eq!((snapshot.retries, snapshot.snoozes), (2, 1), "{snapshot:?}");
    let errors = hooks.errors(0, 9).await.unwrap();
    assert_eq!((errors[0].message.id, &*errors[0].reason), (4, "410 Gone"));
    let requests = requests.lock().unwrap().clone();
    for (path, count) in [("fine", 1), ("busy", 2), ("broken", 3), ("gone", 1)] {
        let keys = &requests[path];
        assert_eq!(keys.len(), count, "{path}: {keys:?}");
        assert!(keys.iter().all(|key| *key == keys[0] && key.starts_with("hooks/")), "{path}: {keys:?}");
    }
    node.signal(Signal::SIGTERM);
    assert!(node.output(SOON).status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_service_publishes_an_order_once_however_often_it_is_sent() {
    let redis = RedisServer::start();
    let service = start(&redis, "http_service", &["127.0.0.1:0"]);
    let line = service.wait_for_line(SOON, |line| line.starts_with("listening on "));
    let url = format!("http://{}/orders", line.trim_start_matches("listening on "));
    let http = reqwest::Client::new();
    let send = async |id: &str, pizzas: u32| {
        let order = json!({ "id": id, "pizzas": pizzas });
        let reply = http.post(&url).json(&order).send().await.unwrap();
        (reply.status().as_u16(), reply.text().await.unwrap())
    };
    assert_eq!(send("17", 2).await, (202, r#"{"number":1,"duplicate":false}"#.into()));
    assert_eq!(send("17", 2).await, (202, r#"{"number":1,"duplicate":true}"#.into()), "a second click");
    let (status, text) = send("17", 3).await;
    assert!(status == 409 && text.contains("key '17' is taken by another message"), "{status}: {text}");
    assert_eq!(send("", 1).await.0, 400, "a key needs a byte");
    let orders = ring(&redis, "orders").await;
    assert_eq!(orders.snapshot(0).await.unwrap().waiting, 1);
    orders.pause(Activity::Producing, None).await.unwrap();
    let (status, text) = send("18", 1).await;
    assert!(status == 503 && text.contains("producing is paused"), "{status}: {text}");
    service.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_of_a_container_finishes_its_job_on_sigterm_and_returns_the_rest() {
    let redis = RedisServer::start();
    let worker = start(&redis, "graceful_stop", &[]);
    let publisher = Publisher::<String>::on(&redis.url(), "slow-jobs").await.unwrap();
    publisher.publish_all(&["one film".to_owned(), "another film".to_owned()]).await.unwrap();
    worker.wait_for_line(SOON, |line| line == "begin one film");
    worker.signal(Signal::SIGTERM);
    let output = worker.output(SOON);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "begin one film\nend one film\n");
    let snapshot = ring(&redis, "slow-jobs").await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.done, snapshot.waiting, snapshot.members.len()), (1, 1, 0), "{snapshot:?}");
}

/// `timeout` signals a process and then its group, which is one request.
#[tokio::test(flavor = "multi_thread")]
async fn two_signals_at_once_are_one_and_a_later_one_ends_the_process() {
    let redis = RedisServer::start();
    let publisher = Publisher::<String>::on(&redis.url(), "slow-jobs").await.unwrap();
    for (pause, code) in [(Duration::ZERO, Some(0)), (Duration::from_millis(300), Some(143))] {
        let worker = start(&redis, "graceful_stop", &[]);
        publisher.publish(&"film".to_owned()).await.unwrap();
        worker.wait_for_line(SOON, |line| line == "begin film");
        worker.signal(Signal::SIGTERM);
        tokio::time::sleep(pause).await;
        worker.signal(Signal::SIGTERM);
        assert_eq!(worker.output(SOON).status.code(), code, "{pause:?}");
    }
}
