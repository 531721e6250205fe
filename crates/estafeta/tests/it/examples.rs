//! The examples, as real processes that are killed and stopped.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use estafeta::Publisher;
use estafeta_testbed::{Process, RedisServer};
use nix::sys::signal::Signal;

use crate::support::{SOON, changed, config, eventually};

fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    // `cargo test` builds the examples, unless it is told to run only some tests.
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
