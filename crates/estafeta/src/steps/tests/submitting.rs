//! Tests of `submit`: ids, keys, repeats and refusals of publishers outside the ring.

use super::*;

impl TestBench {
    async fn submit(&self, sequence: u64, messages: &[NewMessage]) -> Submit {
        self.store.submit(&submission(sequence, messages)).await.unwrap()
    }

    /// Like `submit`, but returns the ids. Those of duplicates are negative.
    async fn ids(&self, sequence: u64, messages: &[NewMessage]) -> Vec<i64> {
        match self.submit(sequence, messages).await {
            Submit::Submitted(ids) => {
                ids.iter().map(|it| if it.duplicate { -(it.id as i64) } else { it.id as i64 }).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn bodies(&self) -> Vec<(u64, String)> {
        let mut messages = Vec::new();
        for element in self.ready() {
            crate::pack::read(&RingName::sample(), element.into_bytes(), &mut messages);
        }
        messages.iter().map(|message| (message.id, message.text().into_owned())).collect()
    }
}

fn drafts(bodies: &[&str]) -> Vec<NewMessage> {
    bodies.iter().map(|body| draft(body, None)).collect()
}

fn listed(bodies: &[&str], first: u64) -> Vec<(u64, String)> {
    (first..).zip(bodies.iter().map(ToString::to_string)).collect()
}

#[tokio::test]
async fn a_ring_without_nodes_begins_with_the_first_publish() {
    let bench = TestBench::new().await;
    let before = bench.store.suspects(LEASE).await.unwrap().now_ms;
    assert_eq!(bench.ids(1, &drafts(&["a", "b", "c"])).await, [1, 2, 3]);
    assert_eq!(bench.bodies(), listed(&["a", "b", "c"], 1));
    assert_eq!(["published", "submitted"].map(|count| bench.ledger(count)), [3, 3]);
    assert!(bench.ledger("born") >= before);
    assert_eq!(bench.ask::<String>(&["GET", "{estafeta}:application"]), "tests");
    bench.assert_balanced().await;
    // Nodes that come later handle the messages, and know the same ring.
    let born = bench.ledger("born");
    let (_, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    assert_eq!(bench.ledger("born"), born);
    let messages = bench.claim(handler, 3).await;
    assert!(
        messages.iter().all(|message| message.epoch.0 == message.published_ms && message.epoch.0 >= before)
    );
}

#[tokio::test]
async fn ids_continue_whoever_publishes() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(one).await;
    bench.publish(one, &term, 0, &["a"]).await;
    assert_eq!(bench.ids(1, &drafts(&["b", "c"])).await, [2, 3]);
    let answer = bench.publish_from(one, &term, 1, 2, &["d", "e"]).await;
    assert!(matches!(answer, Publish::Published { first_id: 4, .. }), "{answer:?}");
    assert_eq!(bench.ids(2, &drafts(&["f"])).await, [6]);
    assert_eq!(bench.bodies(), listed(&["a", "b", "c", "d", "e", "f"], 1));
    bench.assert_balanced().await;
}

/// A roll-back takes messages away that were published in the same term. Their ids come again.
#[tokio::test]
async fn a_message_never_has_the_epoch_and_the_id_of_a_lost_one() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await;
    bench.lead(one).await;
    let before = bench.everything();
    bench.ids(1, &drafts(&["a"])).await;
    let lost = bench.ready();
    until("the clock moved on", async || {
        let now = bench.store.suspects(LEASE).await.unwrap().now_ms.to_string();
        !lost[0].contains(&format!(" {now} "))
    })
    .await;
    bench.restore(&before);
    bench.ids(1, &drafts(&["a"])).await;
    let start = |element: &str| element.split(' ').take(2).collect::<Vec<_>>().join(" ");
    assert_ne!(start(&bench.ready()[0]), start(&lost[0]), "the same epoch and id");
}

#[tokio::test]
async fn a_publish_repeated_after_a_lost_reply_is_applied_once_and_a_late_one_never() {
    let bench = TestBench::new().await;
    bench.ids(1, &[draft("x", Some("k"))]).await;
    let mixed = [draft("a", None), draft("x", Some("k")), draft("b", None)];
    for _ in 0..2 {
        assert_eq!(bench.ids(2, &mixed).await, [2, -1, 3]);
    }
    // The answer does not depend on what became of the key meanwhile.
    bench.ask::<()>(&["DEL", "{estafeta}:key:k"]);
    assert_eq!(bench.ids(2, &mixed).await, [2, -1, 3]);
    assert_eq!(bench.ids(3, &drafts(&["c"])).await, [4]);
    let before = bench.everything();
    let late = bench.store.submit(&submission(2, &mixed)).await;
    assert!(matches!(late, Err(Error::Answer(_))), "{late:?}");
    assert_eq!(bench.everything(), before);
    // Another publisher has its own numbers.
    let other = Submission { publisher: Incarnation::random(), ..submission(3, &mixed[..1]) };
    assert!(matches!(bench.store.submit(&other).await.unwrap(), Submit::Submitted(ids) if ids[0].id == 5));
    let memory: i64 = bench.ask(&["PTTL", "{estafeta}:publisher:00000000000000ff"]);
    assert!((1..=600_000).contains(&memory), "{memory}");
}

#[tokio::test]
async fn a_key_is_taken_until_its_window_ends_whatever_becomes_of_the_message() {
    let bench = TestBench::new().await;
    let (_, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    assert_eq!(bench.ids(1, &[draft("a", Some("k"))]).await, [1]);
    assert_eq!(bench.ids(2, &[draft("a", Some("k"))]).await, [-1]);
    bench.claim(handler, 1).await;
    bench.settle(handler, 1, &[], 0).await;
    assert_eq!(bench.ids(3, &[draft("a", Some("k")), draft("b", Some("l"))]).await, [-1, 2]);
    let window: i64 = bench.ask(&["PTTL", "{estafeta}:key:k"]);
    assert!((1..=60_000).contains(&window), "{window}");
    bench.ask::<()>(&["PEXPIRE", "{estafeta}:key:k", "0"]);
    assert_eq!(bench.ids(4, &[draft("other", Some("k"))]).await, [3]);
    assert_eq!(["published", "submitted"].map(|count| bench.ledger(count)), [3, 3]);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_key_twice_in_one_batch_is_a_duplicate_of_itself() {
    let bench = TestBench::new().await;
    let batch =
        [draft("a", Some("k")), draft("p", None), draft("q", None), draft("a", Some("k")), draft("r", None)];
    assert_eq!(bench.ids(1, &batch).await, [1, 2, 3, -1, 4]);
    assert_eq!(bench.bodies(), listed(&["a", "p", "q", "r"], 1));
}

#[tokio::test]
async fn a_reused_key_publishes_nothing_of_its_batch() {
    let bench = TestBench::new().await;
    bench.ids(1, &[draft("a", Some("k"))]).await;
    let before = bench.everything();
    let batches = [
        vec![draft("new", Some("n")), draft("p", None), draft("q", None), draft("b", Some("k"))],
        vec![draft("p", None), draft("x", Some("n")), draft("q", None), draft("y", Some("n"))],
    ];
    for batch in batches {
        assert_eq!(bench.submit(2, &batch).await, Submit::Reused(3));
        assert_eq!(bench.everything(), before);
    }
}

/// Deleting a ring takes several steps if it has many keys, and a publisher may write one in between.
#[tokio::test]
async fn a_key_of_a_deleted_ring_is_free() {
    let bench = TestBench::new().await;
    bench.ids(1, &[draft("a", Some("k"))]).await;
    let born = bench.ledger("born");
    let key: Vec<u8> = bench.ask(&["DUMP", "{estafeta}:key:k"]);
    bench.store.erase().await.unwrap();
    assert_eq!(bench.ask::<u64>(&["DBSIZE"]), 0);
    until("the next ring begins later", async || bench.store.suspects(LEASE).await.unwrap().now_ms > born)
        .await;
    let mut restore = redis::cmd("RESTORE");
    restore.arg("{estafeta}:key:k").arg(0).arg(key);
    restore.exec(&mut *bench.connection.borrow_mut()).unwrap();
    assert_eq!(bench.ids(2, &[draft("b", None), draft("other", Some("k"))]).await, [1, 2]);
}

#[tokio::test]
async fn a_full_ring_accepts_duplicates_only() {
    let bench = TestBench::new().await;
    bench.ids(1, &[draft("a", Some("k"))]).await;
    bench.ids(2, &drafts(&["x"; 9])).await;
    let before = bench.everything();
    assert_eq!(bench.submit(3, &drafts(&["y"])).await, Submit::Full);
    assert_eq!(bench.submit(3, &[draft("a", Some("k")), draft("y", None)]).await, Submit::Full);
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.ids(3, &[draft("a", Some("k"))]).await, [-1]);
    assert_eq!(bench.ledger("published"), 10);
}

#[tokio::test]
async fn a_ring_of_another_version_or_application_is_left_alone() {
    let bench = TestBench::new().await;
    bench.join(MemberKind::Node, 1).await;
    let message = drafts(&["a"]);
    let stranger = Submission { application: "another", ..submission(1, &message) };
    let before = bench.everything();
    let refused = bench.store.submit(&stranger).await;
    assert!(matches!(refused, Err(Error::Application { .. })), "{refused:?}");
    assert_eq!(bench.everything(), before);
    let anybody = Submission { application: "", ..submission(1, &message) };
    assert!(matches!(bench.store.submit(&anybody).await.unwrap(), Submit::Submitted(_)));
    bench.ask::<()>(&["SET", "{estafeta}:schema", "1"]);
    let before = bench.everything();
    assert!(matches!(bench.store.submit(&anybody).await, Err(Error::Layout { .. })));
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn foreign_values_in_the_place_of_a_key_or_a_publisher_stop_a_publish() {
    let bench = TestBench::new().await;
    let message = [draft("a", None), draft("b", Some("k"))];
    for key in ["{estafeta}:key:k", "{estafeta}:publisher:00000000000000ff"] {
        for foreign in [&["RPUSH", key, "x"], &["SET", key, "x"], &["SET", key, "1 x"], &["SET", key, ""]] {
            bench.ask::<()>(&["FLUSHALL"]);
            bench.ask::<()>(foreign);
            let before = bench.everything();
            assert!(bench.store.submit(&submission(1, &message)).await.is_err(), "{foreign:?}");
            assert_eq!(bench.everything(), before, "{foreign:?}");
        }
    }
}

#[tokio::test]
async fn headers_arrive_and_a_thousand_messages_travel_in_packs() {
    let bench = TestBench::new().await;
    let mut headers = Headers::new();
    headers.insert("a", "1").unwrap();
    let mut batch: Vec<_> = (0..1000).map(|n| draft(&n.to_string(), None)).collect();
    batch[500].message = batch[500].message.clone().with_headers(headers.clone());
    let call = Submission { max_waiting: 1000, ..submission(1, &batch) };
    assert!(matches!(bench.store.submit(&call).await.unwrap(), Submit::Submitted(ids) if ids.len() == 1000));
    assert_eq!(bench.ready().len(), 5 + 1 + 5);
    assert_eq!(bench.bodies(), (1..).zip((0..1000).map(|n| n.to_string())).collect::<Vec<_>>());
    assert_eq!(bench.ledger("packed"), 1000 - 11);
    let mut messages = Vec::new();
    crate::pack::read(&RingName::sample(), bench.ready()[5].clone().into_bytes(), &mut messages);
    assert_eq!((messages[0].id, messages[0].headers()), (501, &headers));
}
