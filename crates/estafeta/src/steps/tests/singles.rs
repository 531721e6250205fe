//! Tests of single names: at most one message with a name waits, and the name is free once its message begins.

use super::*;

impl TestBench {
    /// Publishes these messages. The ids of duplicates are negative.
    async fn receipts(&self, sequence: u64, messages: &[NewMessage]) -> Vec<i64> {
        match self.store.submit(&submission(sequence, messages)).await.unwrap() {
            Submit::Submitted(ids) => {
                ids.iter().map(|it| if it.duplicate { -(it.id as i64) } else { it.id as i64 }).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// The names that are taken, and how many the ledger counts.
    fn single_names(&self) -> (Vec<String>, u64) {
        let mut names: Vec<String> = self.ask(&["HKEYS", "{estafeta}:singles"]);
        names.sort();
        (names, self.ledger("singles"))
    }
}

/// A ring with a member that handles.
async fn bench() -> (TestBench, Actor) {
    let bench = TestBench::new().await;
    let (_, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    (bench, handler)
}

#[tokio::test]
async fn a_second_message_with_a_name_is_a_duplicate_until_the_first_one_begins() {
    let (bench, handler) = bench().await;
    assert_eq!(bench.receipts(1, &[draft("x", None)]).await, [1]);
    assert_eq!(bench.receipts(2, &[single("a", "n")]).await, [2]);
    assert_eq!(bench.receipts(3, &[single("b", "n"), single("c", "m"), single("d", "n")]).await, [-2, 3, -2]);
    assert_eq!(bench.single_names(), (vec!["m".into(), "n".into()], 2));
    // A claim of another message frees nothing.
    assert_eq!(bench.claim(handler, 1).await[0].id, 1);
    assert_eq!(bench.receipts(4, &[single("e", "n")]).await, [-2]);
    let begun = bench.settle(handler, 1, &[], 1).await;
    assert_eq!((begun[0].id, begun[0].text().as_ref()), (2, "a"), "the waiting message stays as it is");
    assert_eq!(bench.single_names(), (vec!["m".into()], 1));
    assert_eq!(bench.receipts(5, &[single("f", "n"), single("g", "n")]).await, [4, -4]);
    assert_eq!(bench.settle(handler, 1, &[], 9).await.len(), 2);
    assert_eq!(bench.single_names(), (vec![], 0));
    assert_eq!(["published", "submitted"].map(|count| bench.ledger(count)), [4, 4]);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_repeat_after_a_lost_reply_gets_the_same_answer_even_if_the_message_has_begun() {
    let (bench, handler) = bench().await;
    assert_eq!(bench.receipts(1, &[single("a", "n")]).await, [1]);
    assert_eq!(bench.receipts(2, &[single("b", "n"), draft("c", None)]).await, [-1, 2]);
    bench.claim(handler, 2).await;
    let before = bench.everything();
    assert_eq!(bench.receipts(2, &[single("b", "n"), draft("c", None)]).await, [-1, 2]);
    assert_eq!(bench.everything(), before);
}

/// However a message comes back, it takes its name not again, and frees none that another message has.
#[tokio::test]
async fn a_message_that_returns_neither_takes_its_name_again_nor_frees_it() {
    for way in ["returned", "retried", "snoozed", "left", "buried", "an error"] {
        let (bench, handler) = bench().await;
        let other = bench.join(MemberKind::Node, 1).await;
        bench.receipts(1, &[single("a", "n")]).await;
        assert_eq!(bench.claim(handler, 1).await.len(), 1);
        let fate = |fate: Fate| bench.hand(handler).settlement(|_| fate.clone());
        match way {
            "returned" => drop(bench.make(handler, &fate(Fate::Returns)).await),
            "retried" => drop(bench.make(handler, &fate(Fate::Retries(0))).await),
            "snoozed" => drop(bench.make(handler, &fate(Fate::Snoozes(0, Vec::new()))).await),
            "left" => drop(bench.store.leave(handler.incarnation).await.unwrap()),
            "buried" => {
                bench.expire(handler);
                bench.bury(handler).await;
            }
            _ => {
                bench.settle(handler, 1, &[(0, "no")], 0).await;
                let errors: Vec<Vec<u8>> = bench.ask(&["LRANGE", "{estafeta}:errors", "0", "-1"]);
                assert_eq!(bench.store.resolve("retry", &[(0, errors[0].as_slice())]).await.unwrap(), 1);
            }
        }
        assert_eq!((bench.ready().len(), bench.single_names()), (1, (vec![], 0)), "{way}");
        assert_eq!(bench.receipts(2, &[single("news", "n")]).await, [2], "{way}");
        assert_eq!(bench.claim(other, 1).await[0].id, 1, "{way}");
        assert_eq!(bench.single_names(), (vec!["n".into()], 1), "{way}");
        assert_eq!(bench.receipts(3, &[single("more", "n")]).await, [-2], "{way}");
        assert_eq!(bench.settle(other, 1, &[], 1).await[0].id, 2, "{way}");
        assert_eq!(bench.single_names(), (vec![], 0), "{way}");
        bench.assert_balanced().await;
    }
}

#[tokio::test]
async fn a_full_ring_accepts_a_duplicate_and_a_refused_publish_takes_no_name() {
    let (bench, _) = bench().await;
    bench.receipts(1, &[single("a", "n")]).await;
    bench.receipts(2, &vec![draft("x", None); 9]).await;
    assert_eq!(bench.receipts(3, &[single("b", "n")]).await, [-1]);
    let before = bench.everything();
    let full = [single("c", "m"), single("d", "n")];
    assert_eq!(bench.store.submit(&submission(4, &full)).await.unwrap(), Submit::Full);
    assert_eq!(bench.everything(), before);
}

/// A foreign client may remove messages. A name must not stay taken for ever.
#[tokio::test]
async fn in_an_empty_queue_every_name_is_free() {
    let (bench, handler) = bench().await;
    bench.receipts(1, &[single("a", "n"), single("b", "m")]).await;
    bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    assert_eq!(bench.receipts(2, &[single("c", "n")]).await, [3]);
    assert_eq!(bench.single_names(), (vec!["n".into()], 1), "what was stored before is gone");
    assert_eq!(bench.claim(handler, 1).await.len(), 1);
    assert_eq!(bench.single_names(), (vec![], 0));
}

#[tokio::test]
async fn only_a_message_without_key_and_delay_takes_a_name_and_only_by_its_first_header() {
    let (bench, _) = bench().await;
    let mut second = Headers::new();
    second.insert("a", "1").unwrap();
    second.insert("estafeta-single", "n").unwrap();
    let plain = draft("x", None);
    let messages = [
        NewMessage { terms: draft("k", Some("k")).terms, ..single("a", "n") },
        NewMessage { terms: PublishTerms { key: None, delay: LEASE }, ..single("b", "n") },
        NewMessage { message: plain.message.with_headers(second), ..plain },
        draft("0 0 0 0 19 15:estafeta-single1:nx", None),
        draft("15:estafeta-single1:n", None),
        draft("15:estafeta-single1:n", None),
    ];
    for (call, message) in messages.chunks(1).enumerate() {
        assert_eq!(bench.receipts(call as u64 + 1, message).await, [call as i64 + 1]);
    }
    assert_eq!(bench.single_names(), (vec![], 0));
}

#[tokio::test]
async fn any_text_may_be_a_name_and_a_thousand_of_them_are_taken_at_once() {
    let (bench, handler) = bench().await;
    let names = ["", " ", "15:estafeta-single1:n", "*1 2 3 4", "%d+", "й"].map(str::to_owned);
    let many = (0..994).map(|n| format!("{n:0512}"));
    let messages: Vec<_> = names.into_iter().chain(many).map(|name| single("x", &name)).collect();
    let call = Submission { max_waiting: 1000, ..submission(1, &messages) };
    bench.store.submit(&call).await.map(drop).unwrap();
    assert_eq!(bench.ledger("singles"), 1000);
    let again = Submission { sequence: 2, ..call };
    let Submit::Submitted(receipts) = bench.store.submit(&again).await.unwrap() else { panic!("refused") };
    assert!(receipts.iter().all(|receipt| receipt.duplicate));
    let mut claimed = bench.claim(handler, 1000).await.len();
    while bench.single_names().1 > 0 {
        claimed += bench.claim(handler, 1000).await.len();
    }
    assert_eq!((claimed, bench.single_names()), (1000, (vec![], 0)));
}

#[tokio::test]
async fn a_foreign_value_in_the_place_of_a_name_stops_a_publish() {
    let (bench, _) = bench().await;
    bench.receipts(1, &[single("a", "n")]).await;
    bench.ask::<()>(&["HSET", "{estafeta}:singles", "n", "x"]);
    let before = bench.everything();
    assert!(bench.store.submit(&submission(2, &[single("b", "n")])).await.is_err());
    assert_eq!(bench.everything(), before);
}
