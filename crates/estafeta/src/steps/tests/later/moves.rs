//! Tests of how much of what is due one turn moves to the queue.

use super::*;

/// The first eight take three quarters of the two MiB. Two more fit, and the next one uses the rest up.
#[tokio::test]
async fn one_turn_moves_as_many_messages_as_fit_by_the_size_of_the_first_ones() {
    let bench = TestBench::new().await;
    let handler = bench.join(MemberKind::Node, 1).await;
    bench.fill_later(40);
    for id in 1..=40 {
        let element = format!("{id} 1 7 1 1 0 0 0 {}", "x".repeat(200_000));
        bench.ask::<()>(&["HSET", "{estafeta}:delayed", &format!("{id:015}"), &element]);
    }
    for left in [29, 18] {
        bench.claim(handler, 0).await;
        assert_eq!(bench.later().len(), left);
    }
}

/// The step knows the size of no message yet, so it goes on with one.
#[tokio::test]
async fn a_turn_whose_first_times_have_no_message_moves_no_more_bytes_than_others() {
    let bench = TestBench::new().await;
    let handler = bench.join(MemberKind::Node, 1).await;
    bench.fill_later(30);
    for id in 1..=30 {
        let element = format!("{id} 1 7 1 1 0 0 0 {}", "x".repeat(1_000_000));
        let name = format!("{id:015}");
        match id {
            1..=8 => bench.ask::<()>(&["HDEL", "{estafeta}:delayed", &name]),
            _ => bench.ask::<()>(&["HSET", "{estafeta}:delayed", &name, &element]),
        }
    }
    bench.claim(handler, 0).await;
    assert_eq!((bench.ids_waiting(), bench.later().len()), (vec![9, 10, 11], 19));
}

/// A foreign client has deleted what waited.
#[tokio::test]
async fn an_earliest_time_at_which_nothing_is_due_is_forgotten() {
    let bench = TestBench::new().await;
    let (generator, term, [handler, _]) = bench.three_nodes().await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.fill_later(3);
    bench.ask::<()>(&["DEL", "{estafeta}:later", "{estafeta}:delayed"]);
    assert_eq!(bench.claim(handler, 1).await.len(), 1);
    assert_eq!(bench.soonest(), 0);
}
