//! A body may consist of any bytes. It arrives unchanged, unless it is larger than the limit.

use estafeta_testbed::RedisServer;

use crate::support::{Counter, Keep, ListedBodies, RunningNode, config, ring};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_any_bytes_arrives_unchanged() {
    let redis = RedisServer::start();
    let bodies = vec![
        Vec::new(),
        b"\0".to_vec(),
        b"\xff\xfe not UTF-8 \x80".to_vec(),
        b"1 2 3 4 5 6 7 8 looks like a header".to_vec(),
        b"\r\n$3\r\nfoo\r\n".to_vec(),
        b"\x1b[2J<script>alert(1)</script>".to_vec(),
        "эстафета".as_bytes().to_vec(),
        (0..=255).cycle().take(1024 * 1024).collect(),
    ];
    let mut settings = config(&redis);
    settings.limit = Some(bodies.len() as u64);
    settings.until_done = true;
    let one = RunningNode::start(settings.clone(), ListedBodies(bodies.clone()), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let kept = Keep::default();
    let other = RunningNode::start(settings, Counter(0), kept.clone());
    other.ended().await.unwrap();
    one.ended().await.unwrap();
    let kept = kept.0.lock().unwrap();
    assert_eq!(kept.len(), bodies.len());
    assert!(*kept == bodies, "bodies differ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_becomes_an_error_and_the_source_goes_on() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.max_body, settings.limit, settings.until_done) = (3, Some(3), true);
    let bodies = ["one", "seven", "two"].map(|body| body.as_bytes().to_vec());
    let one = RunningNode::start(settings.clone(), ListedBodies(bodies.into()), Keep::default());
    one.notices.wait_for("LimitReached").await;
    let kept = Keep::default();
    // This node would accept the body. It cannot handle it, because a part of it is missing.
    settings.max_body = 100;
    let other = RunningNode::start(settings, Counter(0), kept.clone());
    let notices = other.notices.clone();
    other.ended().await.unwrap();
    one.ended().await.unwrap();
    notices.wait_for("failed #2.1: body: expected at most 3 bytes, got 5").await;
    assert_eq!(*kept.0.lock().unwrap(), [b"one".to_vec(), b"two".to_vec()]);
    let ring = ring(&redis).await;
    let errors = ring.errors(0, 10).await.unwrap();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!((errors[0].message.id, errors[0].message.body()), (2, &b"sev"[..]));
    let snapshot = ring.snapshot(0).await.unwrap();
    assert!(snapshot.balanced && (snapshot.published, snapshot.done) == (3, 2), "{snapshot:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_of_a_handler_becomes_an_error_and_is_not_handled() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.limit = Some(1);
    let one = RunningNode::start(settings.clone(), ListedBodies(vec![b"too long".to_vec()]), Keep::default());
    one.notices.wait_for("LimitReached").await;
    settings.max_body = 3;
    let kept = Keep::default();
    let other = RunningNode::start(settings, Counter(0), kept.clone());
    other.notices.wait_for("failed #1.1: body: expected at most 3 bytes, got 8").await;
    assert!(kept.0.lock().unwrap().is_empty());
    other.stop().await.unwrap();
    one.stop().await.unwrap();
}
