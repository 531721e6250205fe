//! What a node does in its ring: everything if it is alone, or only a part of the work.

use std::time::Duration;

use estafeta::{Duties, Failure, MemberId, Role};
use estafeta_testbed::RedisServer;

use crate::support::{Counter, Keep, RunningNode, TestSource, config, eventually, ring};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_generates_and_handles() {
    let redis = RedisServer::start();
    for concurrency in [1, 3] {
        let mut settings = config(&redis);
        settings.ring = format!("lanes-{concurrency}").parse().unwrap();
        (settings.generator_handles, settings.concurrency) = (true, concurrency);
        (settings.limit, settings.until_done) = (Some(20), true);
        let kept = Keep::default();
        let one = RunningNode::start(settings, Counter(0), kept.clone());
        one.ended().await.unwrap();
        let mut bodies: Vec<u64> = kept
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|body| std::str::from_utf8(body).unwrap().parse().unwrap())
            .collect();
        bodies.sort_unstable();
        assert!(bodies.iter().copied().eq(1..=20), "{bodies:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_also_handles_does_not_make_others_idle() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.generator_handles, settings.interval) = (true, Duration::ZERO);
    let nodes = [(); 2].map(|()| RunningNode::start(settings.clone(), Counter(0), Keep::default()));
    let ring = ring(&redis).await;
    let both_work = |snapshot: &estafeta::Snapshot| {
        snapshot.members.len() == 2 && snapshot.members.iter().all(|member| member.processed > 100)
    };
    let snapshot = eventually(&ring, "both nodes handle", both_work).await;
    let roles: Vec<Role> = snapshot.members.iter().map(|member| member.role).collect();
    assert!(roles.contains(&Role::Generator) && roles.contains(&Role::Handler), "{snapshot:?}");
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_handles_generates_and_holds_nothing() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.generator_handles, settings.never_handle, settings.limit) = (true, true, Some(5));
    let one = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    one.notices.wait_for("LimitReached").await;
    // Nor does another one that waits for the office.
    let heir = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    let ring = ring(&redis).await;
    let snapshot = eventually(&ring, "the heir is there", |snapshot| snapshot.members.len() == 2).await;
    assert_eq!((snapshot.waiting, snapshot.members[1].rank), (5, Some(0)), "{snapshot:?}");
    assert_eq!(snapshot.members[1].duties, Some(Duties::Generate));
    settings.never_handle = false;
    let kept = Keep::default();
    let handler = RunningNode::start(settings, Counter(0), kept.clone());
    eventually(&ring, "all are handled", |snapshot| snapshot.done == 5).await;
    assert_eq!(kept.0.lock().unwrap().len(), 5);
    for node in [one, heir, handler] {
        assert!(!node.notices.all().contains(&"DeclaredDead".to_owned()));
        node.stop().await.unwrap();
    }
}

/// A source that must not be called.
struct Forbidden;

impl TestSource for Forbidden {
    async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        Ok(b"forbidden".to_vec())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_generates_leaves_a_vacant_office_alone() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.never_generate = true;
    settings.lease = Duration::from_millis(400);
    let kept = Keep::default();
    let handler = RunningNode::start(settings.clone(), Forbidden, kept.clone());
    settings.never_generate = false;
    let generator = RunningNode::start(settings.clone(), Counter(0), Keep::default());
    handler.notices.wait_for("handled #3").await;
    let ring = ring(&redis).await;
    let snapshot = ring.snapshot(0).await.unwrap();
    let member = snapshot.members.iter().find(|member| member.duties == Some(Duties::Handle)).unwrap();
    assert_eq!((member.rank, member.role), (None, Role::Handler), "{snapshot:?}");
    generator.stop().await.unwrap();
    // The office stays vacant for several beats, and the node stays the same member.
    let start = ring.snapshot(0).await.unwrap().time_ms;
    let later = eventually(&ring, "three leases", |snapshot| snapshot.time_ms > start + 1200).await;
    assert!(later.generator.is_none() && later.members.len() == 1, "{later:?}");
    let next = RunningNode::start(settings, Counter(0), Keep::default());
    next.notices.wait_for("BecameGenerator").await;
    next.notices.wait_for("generated").await;
    let notices = handler.notices.all();
    handler.stop().await.unwrap();
    next.stop().await.unwrap();
    assert!(
        !notices.iter().any(|line| line.starts_with("DeclaredDead") || line.starts_with("Became")),
        "{notices:?}"
    );
    assert!(!kept.0.lock().unwrap().contains(&b"forbidden".to_vec()));
    let members: Vec<MemberId> = later.members.iter().map(|member| member.id).collect();
    assert_eq!(members, [member.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_would_do_nothing_is_refused() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.never_generate, settings.never_handle) = (true, true);
    let error = RunningNode::start(settings, Counter(0), Keep::default()).ended().await.unwrap_err();
    assert_eq!(error.to_string(), "never-handle: expected a node that may generate, got 'never-generate'");
}
