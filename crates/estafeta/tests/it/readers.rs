//! Readers of dead letters that lose their registration or their caller.

use std::time::Duration;

use estafeta::{DeadLetter, DeadLetterReader, EventKind, Selection};
use estafeta_testbed::RedisServer;

use crate::support::{config, delete_member_hash, eventually, ring};

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_had_to_join_again_stays_alive_while_its_caller_holds_the_errors() {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("RPUSH")
        .arg("{estafeta}:errors")
        .arg("!1 1 2 no 1 1 1 0 0 0 0 0 body")
        .exec(&mut connection)
        .unwrap();
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
    let mut settings = config(&redis);
    settings.lease = Duration::from_millis(400);
    let mut reader = DeadLetterReader::join(settings).await.unwrap();
    assert_eq!(reader.next().await.unwrap().len(), 1);
    delete_member_hash(&redis, 1);
    assert_eq!(reader.next().await.unwrap().len(), 1, "it joins again and shows the same");
    // The caller works on the errors for three leases.
    let ring = ring(&redis).await;
    let start = ring.snapshot(0).await.unwrap().time_ms;
    eventually(&ring, "three leases", |snapshot| {
        let [reader] = &snapshot.members[..] else { panic!("{snapshot:?}") };
        assert!((reader.id.0, reader.lease_ms > 0) == (2, true), "{snapshot:?}");
        snapshot.time_ms > start + 1200
    })
    .await;
    assert_eq!(reader.next().await.unwrap().len(), 0);
    reader.leave().await.unwrap();
    let snapshot = ring.snapshot(0).await.unwrap();
    assert_eq!((snapshot.errors_taken, snapshot.errors_kept, snapshot.buried), (1, 0, 0), "{snapshot:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_a_reader_released_are_taken_and_those_it_did_not_go_back() {
    for is_released in [true, false] {
        let redis = RedisServer::start();
        let mut connection = redis.connect();
        redis::cmd("RPUSH")
            .arg("{estafeta}:errors")
            .arg("!1 1 2 no 1 1 1 0 0 0 0 0 body")
            .exec(&mut connection)
            .unwrap();
        redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
        let mut reader = DeadLetterReader::join(config(&redis)).await.unwrap();
        assert_eq!(reader.next().await.unwrap().len(), 1);
        if is_released {
            reader.release().await.unwrap();
        }
        reader.leave().await.unwrap();
        let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
        let expected = if is_released { (1, 0) } else { (0, 1) };
        assert_eq!((snapshot.errors_taken, snapshot.errors_kept), expected, "{snapshot:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_whose_member_hash_is_gone_shows_its_errors_again() {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("RPUSH")
        .arg("{estafeta}:errors")
        .arg("!1 1 2 no 1 1 1 0 0 0 0 0 body")
        .exec(&mut connection)
        .unwrap();
    redis::cmd("HSET").arg("{estafeta}:ledger").arg("published").arg(1).exec(&mut connection).unwrap();
    let mut reader = DeadLetterReader::join(config(&redis)).await.unwrap();
    for number in 1..=3 {
        let shown: Vec<_> = reader.next().await.unwrap().iter().map(|error| error.message.id).collect();
        assert_eq!(shown, [1]);
        delete_member_hash(&redis, number);
    }
    reader.leave().await.unwrap();
    let snapshot = ring(&redis).await.snapshot(0).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.errors_kept), (0, 1), "{snapshot:?}");
    assert!(snapshot.balanced);
}

/// Fills the list of errors with the ids from 1 to `count`.
fn fill_errors(redis: &RedisServer, count: u64) {
    let mut connection = redis.connect();
    for first in (1..=count).step_by(1000) {
        let mut push = redis::cmd("RPUSH");
        push.arg("{estafeta}:errors");
        for id in first..(first + 1000).min(count + 1) {
            push.arg(format!("!1 1 2 no {id} 1 1 0 0 0 0 0 body"));
        }
        push.exec(&mut connection).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_in_a_long_list_are_dropped_with_one_search() {
    const MANY: u64 = 200_000;
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    fill_errors(&redis, MANY);
    let mut connection = redis.connect();
    // The list is read in pages of 200, so each of these ranges is one step.
    for first in [MANY - 199, MANY / 2 - 199, 1] {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).unwrap();
        let ids: Vec<u64> = (first..first + 200).collect();
        assert_eq!(ring.drop_errors(&Selection::Ids(ids)).await.unwrap(), 200);
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).unwrap();
        assert!(stats.contains("cmdstat_lrem:calls=1,"), "{stats}");
    }
    assert_eq!(ring.error_count().await.unwrap(), MANY - 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_were_just_read_are_resolved_in_their_places_and_the_events_name_the_actor() {
    let redis = RedisServer::start();
    let ring = ring(&redis).await;
    fill_errors(&redis, 1000);
    let seen: Vec<(u64, DeadLetter)> = (0..).zip(ring.errors(0, 1000).await.unwrap()).collect();
    // A reader takes the first errors meanwhile, so the others move.
    redis::cmd("LTRIM").arg("{estafeta}:errors").arg(50).arg(-1).exec(&mut redis.connect()).unwrap();
    let chosen: Vec<_> = seen.iter().filter(|(place, _)| place % 2 == 1).cloned().collect();
    let anna = ring.acting_as("anna");
    assert_eq!(anna.drop_seen(&chosen).await.unwrap(), 475);
    assert_eq!(anna.drop_seen(&chosen).await.unwrap(), 0, "they are gone");
    assert_eq!(ring.retry_seen(&seen[60..61]).await.unwrap(), 1);
    let left = ring.errors(0, 1000).await.unwrap();
    assert!(left.iter().all(|error| error.message.id % 2 == 1 && error.message.id != 61), "{left:?}");
    assert_eq!(left.len(), 474);
    let events = ring.events_after("", 10).await.unwrap();
    let sentences: Vec<String> = events.iter().map(|event| event.kind.to_string()).collect();
    let dropped: u64 = events.iter().map(|event| dropped_by_anna(&event.kind)).sum();
    assert_eq!(
        (dropped, sentences.last().map(String::as_str)),
        (475, Some("1 error retried")),
        "{sentences:?}"
    );
}

fn dropped_by_anna(kind: &EventKind) -> u64 {
    match kind {
        EventKind::Dropped { count, by } if by.as_deref() == Some("anna") => *count,
        _ => 0,
    }
}
