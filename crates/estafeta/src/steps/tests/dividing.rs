//! Tests of partitions: their number is fixed from the first step in the ring on.

use super::*;

const WHOLE: &str = "{estafeta}:requires";

fn expecting(partitions: u32, kind: MemberKind) -> Introduction<'static> {
    Introduction { partitions, ..introduction(Incarnation::random(), kind, 1, false) }
}

fn counts(error: &Error) -> (u32, u32) {
    match error {
        Error::Partitions { found, expected, .. } => (*found, *expected),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn the_first_node_or_publisher_decides_how_many_partitions_there_are() {
    for publisher_first in [false, true] {
        let bench = TestBench::new().await;
        let messages = [draft("a", None)];
        let of = |partitions, sequence| Submission { partitions, ..submission(sequence, &messages) };
        match publisher_first {
            true => drop(bench.store.submit(&of(3, 1)).await.unwrap()),
            false => drop(bench.store.join(&expecting(3, MemberKind::Node)).await.unwrap()),
        }
        assert_eq!(bench.ask::<Vec<String>>(&["SMEMBERS", WHOLE]), ["partitions=3"]);
        let before = bench.everything();
        for wrong in [1, 2, 4, 33] {
            let refused = bench.store.join(&expecting(wrong, MemberKind::Node)).await.unwrap_err();
            assert_eq!(counts(&refused), (3, wrong));
            let refused = bench.store.submit(&of(wrong, 2)).await.unwrap_err();
            assert_eq!(counts(&refused), (3, wrong));
            let cancels = Cancellation { partitions: wrong, ..cancellation(3, MessageRef::Id(1)) };
            assert_eq!(counts(&bench.store.cancel(&cancels).await.unwrap_err()), (3, wrong));
            assert_eq!(counts(&bench.store.divide(wrong.max(2)).await.unwrap_err()), (3, wrong.max(2)));
        }
        assert_eq!(bench.everything(), before, "a refused step writes nothing");
        bench.store.join(&expecting(3, MemberKind::Node)).await.unwrap();
        bench.store.submit(&of(3, 4)).await.unwrap();
        bench.store.join(&expecting(1, MemberKind::Reader)).await.unwrap();
    }
}

#[tokio::test]
async fn a_ring_that_was_not_divided_never_is() {
    let bench = TestBench::new().await;
    bench.store.join(&expecting(1, MemberKind::Node)).await.unwrap();
    let before = bench.everything();
    let messages = [draft("a", None)];
    assert_eq!(counts(&bench.store.join(&expecting(3, MemberKind::Node)).await.unwrap_err()), (1, 3));
    let submits = Submission { partitions: 3, ..submission(1, &messages) };
    assert_eq!(counts(&bench.store.submit(&submits).await.unwrap_err()), (1, 3));
    let refused = bench.store.divide(3).await.unwrap_err();
    assert_eq!(counts(&refused), (1, 3));
    let expected = "ring estafeta has 1 partition, and this program expects 3: the number is fixed for life, so set it \
                    to 1 (Node::partitions, --partitions), or choose another ring";
    assert_eq!(refused.to_string(), expected);
    assert_eq!(bench.everything(), before);
}

/// A reader may come back to a ring that was deleted meanwhile.
#[tokio::test]
async fn a_reader_that_begins_a_ring_leaves_the_number_open() {
    let bench = TestBench::new().await;
    bench.store.join(&expecting(1, MemberKind::Reader)).await.unwrap();
    bench.store.join(&expecting(3, MemberKind::Node)).await.unwrap();
    assert_eq!(bench.ask::<Vec<String>>(&["SMEMBERS", WHOLE]), ["partitions=3"]);
}

#[tokio::test]
async fn a_divided_name_admits_no_member_and_is_divided_once() {
    let bench = TestBench::new().await;
    bench.store.divide(3).await.unwrap();
    let before = bench.everything();
    bench.store.divide(3).await.unwrap();
    assert_eq!(bench.everything(), before, "a repeat changes nothing");
    assert_eq!(counts(&bench.store.join(&expecting(1, MemberKind::Node)).await.unwrap_err()), (3, 1));
    assert_eq!(counts(&bench.store.divide(2).await.unwrap_err()), (3, 2));
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn an_unknown_word_is_no_number_of_partitions() {
    let bench = TestBench::new().await;
    bench.ask::<()>(&["SADD", WHOLE, "tides=3"]);
    for kind in [MemberKind::Node, MemberKind::Reader] {
        let error = bench.store.join(&expecting(3, kind)).await.unwrap_err();
        assert!(matches!(&error, Error::Requires { word, .. } if word == "tides=3"), "{error}");
    }
    assert!(matches!(bench.store.divide(3).await.unwrap_err(), Error::Requires { .. }));
}
