//! `docs/keyspace.md` is correct. Every key of a live ring is on that page, with its type. The access rights that it
//! recommends are enough, and none of them is superfluous.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{
    Activity, Batch, Config, DeadLetterReader, Durability, Failure, Feed, Message, Node, Outcome, Overlap,
    Publisher, Ring, Schedule, Selection,
};
use estafeta_testbed::{Fsync, RedisServer};

use crate::support::{Counter, Keep, Notices, RunningNode, TestHandler, config, endpoint, eventually, ring};

const PAGE: &str = include_str!("../../../../docs/keyspace.md");

/// The rows of the table of keys on the page: name pattern and type.
fn documented() -> Vec<(String, String)> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `{ring}:"));
    rows.map(|line| {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
        (cells[1].clone(), cells[2].clone())
    })
    .collect()
}

/// The name of a key on the page. Random parts are replaced by what they stand for.
fn name_of(key: &str) -> String {
    let rest = key.strip_prefix("{estafeta}:").unwrap();
    let parts: Vec<_> = rest.split(':').collect();
    match parts[..] {
        ["member", _] => "{ring}:member:<incarnation>".into(),
        ["inflight", _] => "{ring}:inflight:<incarnation>".into(),
        ["publisher", _] => "{ring}:publisher:<incarnation>".into(),
        ["key", _] => "{ring}:key:<key>".into(),
        ["result", _] => "{ring}:result:<id>".into(),
        ["u", _] => "{ring}:u:<name>".into(),
        _ => format!("{{ring}}:{rest}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_of_a_live_ring_is_on_the_page_and_every_key_of_the_page_is_used() {
    let redis = RedisServer::builder().append_only(Fsync::Always).start();
    let mut settings = config(&redis);
    settings.journal = true;
    let documented = documented();
    let mut seen = BTreeSet::new();
    let mut look = || {
        let mut connection = redis.connect();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        for key in keys {
            let kind: String = redis::cmd("TYPE").arg(&key).query(&mut connection).unwrap();
            // The key may be gone again by now.
            if kind != "none" {
                let row = (name_of(&key), kind);
                assert!(documented.contains(&row), "{row:?} is not on the page: {documented:?}");
                seen.insert(row);
            }
        }
        seen.len()
    };
    // The ticks of a schedule stay in Redis. The next generator removes the plan.
    let pulse = Schedule::every("pulse", Duration::from_millis(10)).unwrap();
    let pulse = pulse.overlap(Overlap::Skip).body(Bytes::from("x"));
    let heard = Notices::new();
    let (notices, scheduled) = (heard.clone(), Node::with(settings.clone()).generate(pulse));
    let scheduled = scheduled.observe(move |notice| notices.add(notice));
    let scheduled = RunningNode::spawn(scheduled, heard);
    scheduled.notices.wait_for("generated").await;
    assert!(look() < documented.len());
    scheduled.stop().await.unwrap();
    let one = RunningNode::start_feed(settings.clone(), Checkpoints, Keep::default());
    one.notices.wait_for("generated").await;
    settings.max_body = 1;
    let other = RunningNode::start(settings.clone(), Counter(0), SlowHandler);
    other.notices.wait_for("failed").await;
    // What a reader prints stays in its list until it is released.
    let mut reader = DeadLetterReader::join(settings).await.unwrap();
    assert!(!reader.next().await.unwrap().is_empty());
    let mut settings = Config::new(endpoint(&redis), "estafeta".parse().unwrap());
    settings.durability = Durability::Disk;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    publisher.publish("x").key("k").await.unwrap();
    // A single name is taken only for a moment, so it is taken again and again.
    let single = tokio::spawn(async move {
        while publisher.publish("x").single("s").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let ring = ring(&redis).await;
    eventually(&ring, "every documented key but one was seen", |_| look() == documented.len() - 1).await;
    // No release writes this key yet. Members that joined before do not mind, but the publisher does.
    redis::cmd("SADD").arg("{estafeta}:requires").arg("tides").exec(&mut redis.connect()).unwrap();
    assert_eq!(look(), documented.len());
    single.abort();
    reader.leave().await.unwrap();
    one.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// Moves a checkpoint with each message.
struct Checkpoints;

impl Feed for Checkpoints {
    type Body = Bytes;
    type Checkpoint = String;

    async fn open(&mut self, _: Option<String>) -> Result<(), Failure> {
        Ok(())
    }

    async fn next(&mut self) -> Result<Batch<Bytes, String>, Failure> {
        Ok(Batch::one("x".into()).checkpoint("here".to_owned()))
    }
}

/// Fails slowly, so that the test finds messages in flight. Every third message is tried again much later, and another
/// third has effects when it is tried again.
struct SlowHandler;

impl TestHandler<Outcome> for SlowHandler {
    async fn handle(&self, message: &Message) -> Result<Outcome, Failure> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match message.id % 3 {
            0 => Err(Failure::fatal("no good")),
            1 if message.failures == 0 => Err(Failure::retry_after(Duration::from_millis(10), "perhaps")),
            1 => {
                let outcome = Outcome::done().add("count", 1).append("log", [("a", "b")], Some(100));
                let hour = Duration::from_secs(3600);
                Ok(outcome.set("last", "x", Some(hour)).result("fine", hour))
            }
            _ => Err(Failure::retry_after(Duration::from_secs(3600), "much later")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recommended_rights_are_enough() {
    let redis = RedisServer::start();
    let rule = PAGE.lines().find(|line| line.starts_with("ACL SETUSER")).expect("the page has a rule");
    let rule = rule.replace("{ring}", "{estafeta}").replace("<password>", "secret");
    let mut call = redis::cmd("ACL");
    for word in rule.split_whitespace().skip(1) {
        call.arg(word);
    }
    call.exec(&mut redis.connect()).unwrap();
    let url = format!("{}?user=estafeta&pass=secret", redis.url());
    let mut settings = config(&redis);
    settings.redis = url.parse().unwrap();
    settings.journal = true;
    // A queue of single messages, longer than what a lane claims without checking their size.
    let mut singles = settings.clone();
    (singles.max_batch, singles.interval, singles.limit) = (1, Duration::ZERO, Some(300));
    let one = RunningNode::start(singles.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    singles.max_batch = 1000;
    let quick = RunningNode::start(singles, Counter(0), Keep::default());
    quick.notices.wait_for("handled #300.1").await;
    quick.stop().await.unwrap();
    one.stop().await.unwrap();

    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("generated").await;
    let other = RunningNode::start(settings.clone(), Counter(0), SlowHandler);
    other.notices.wait_for("failed #309").await;
    other.notices.wait_for("handled #304.2").await;
    other.notices.wait_for("handled #307.2").await;
    one.stop().await.unwrap();
    other.notices.wait_for("BecameGenerator").await;
    other.stop().await.unwrap();

    let limited = Ring::connect(settings.redis.clone(), "estafeta".parse().unwrap()).await.unwrap();
    assert!(limited.snapshot(5).await.unwrap().balanced);
    let results = limited.result_ids().await.unwrap();
    assert_eq!(limited.result(results[0]).await.unwrap().unwrap().value, b"fine");
    assert_eq!(limited.erase_user_keys().await.unwrap(), 3);
    assert!(!limited.events_after("", 5).await.unwrap().is_empty());
    assert!(!limited.journal().await.unwrap().is_empty());
    let errors = limited.errors(0, 2).await.unwrap();
    assert_eq!(limited.retry_errors(&Selection::Ids(vec![errors[0].message.id])).await.unwrap(), 1);
    assert_eq!(limited.drop_errors(&Selection::Ids(vec![errors[1].message.id])).await.unwrap(), 1);
    assert_eq!(limited.upgrade().await.unwrap(), None);
    limited.set_checkpoint(Some(b"here")).await.unwrap();
    limited.set_checkpoint(None).await.unwrap();
    limited.limit_in_flight(Some(5)).await.unwrap();
    limited.pause(Activity::Handling, None).await.unwrap();
    limited.resume(Activity::Handling).await.unwrap();
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    assert!(!publisher.publish("x").key("k").await.unwrap().duplicate);
    let delayed = publisher.publish("later").delay(Duration::from_secs(3600)).await.unwrap();
    assert!(publisher.cancel(delayed.id).await.unwrap());
    publisher.publish("one").single("s").await.unwrap();
    let mut dead_member = redis::cmd("ZADD");
    dead_member.arg("{estafeta}:members").arg(1).arg("00000000000000aa").exec(&mut redis.connect()).unwrap();
    assert_eq!(limited.sweep().await.unwrap().len(), 1);
    let mut reader = DeadLetterReader::join(settings).await.unwrap();
    assert!(!reader.next().await.unwrap().is_empty());
    reader.release().await.unwrap();
    reader.leave().await.unwrap();
    assert!(!limited.is_untouched().await.unwrap());
    assert!(limited.erase().await.unwrap() > 0);
    assert!(limited.is_untouched().await.unwrap());
}

/// The text of all files below this directory, without tests, without the comments of scripts, and without the check-up,
/// which tries every command of the rule.
fn sources(directory: &Path) -> String {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => {
            let text = std::fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            code.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n")
        }
    };
    let is_left_out = |path: &PathBuf| path.ends_with("tests") || path.ends_with("checkup");
    entries.filter(|path| !is_left_out(path)).map(read).collect()
}

#[test]
fn the_recommended_rights_contain_every_command_of_the_scripts() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/steps"));
    let rule = PAGE.lines().find(|line| line.starts_with("ACL SETUSER")).unwrap();
    let rights: Vec<&str> = rule.split_whitespace().filter_map(|word| word.strip_prefix('+')).collect();
    let mut commands: Vec<_> = ["redis.call('", "redis.pcall('"]
        .iter()
        .flat_map(|call| sources.split(call).skip(1))
        .map(|rest| rest.split('\'').next().unwrap().to_lowercase())
        .collect();
    commands.sort_unstable();
    commands.dedup();
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands {
        let is_granted = rights.iter().any(|right| right.split('|').next() == Some(&command));
        assert!(is_granted, "the page does not grant +{command}");
    }
}

#[test]
fn the_recommended_rights_are_no_more_than_the_code_uses() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let rule = PAGE.lines().find(|line| line.starts_with("ACL SETUSER")).unwrap();
    let rights = rule.split_whitespace().filter_map(|word| word.strip_prefix('+'));
    for right in rights.filter(|right| !right.starts_with('@')) {
        let name = right.split('|').next().unwrap().to_uppercase();
        let named = [format!("'{name}'"), format!("\"{name}\"")];
        // The client sends these two by itself.
        let by_client = matches!(right, "subscribe" | "unsubscribe");
        assert!(by_client || named.iter().any(|name| sources.contains(name)), "nobody needs +{right}");
    }
}
