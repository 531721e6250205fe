//! Tests of layouts: who may join a ring, who keeps it from being upgraded, and what an upgrade ends.

use super::*;

fn knowing(oldest: u32, newest: u32) -> Introduction<'static> {
    let layouts = Layouts { oldest, newest };
    Introduction { layouts, ..introduction(Incarnation::random(), MemberKind::Node, 1, false) }
}

impl TestBench {
    fn layout(&self) -> Option<String> {
        self.ask(&["GET", "{estafeta}:schema"])
    }
}

#[tokio::test]
async fn a_new_ring_gets_the_newest_layout_and_keeps_it() {
    let bench = TestBench::new().await;
    bench.store.join(&knowing(4, 5)).await.unwrap();
    assert_eq!(bench.layout().as_deref(), Some("5"));
    bench.store.join(&knowing(5, 6)).await.unwrap();
    assert_eq!(bench.layout().as_deref(), Some("5"), "only an upgrade raises it");
}

#[tokio::test]
async fn a_member_joins_only_a_layout_that_it_knows() {
    let bench = TestBench::new().await;
    for (layout, remedy) in [
        ("3", "empty it with the release that made it"),
        ("6", "use the newer release of estafeta that made it"),
        ("four", "it does not belong to estafeta"),
        ("", "it does not belong to estafeta"),
    ] {
        bench.ask::<()>(&["SET", "{estafeta}:schema", layout]);
        let before = bench.everything();
        let error = bench.store.join(&knowing(4, 5)).await.unwrap_err().to_string();
        let expected = format!("has layout {layout}, this program knows layouts 4 to 5: {remedy}");
        assert!(error.contains(&expected), "{error}");
        assert_eq!(bench.everything(), before, "{layout}");
    }
}

#[tokio::test]
async fn a_requirement_that_a_member_does_not_know_keeps_it_out() {
    let bench = TestBench::new().await;
    bench.join(MemberKind::Node, 1).await;
    bench.ask::<()>(&["SADD", "{estafeta}:requires", "tides"]);
    let before = bench.everything();
    for kind in [MemberKind::Node, MemberKind::Reader] {
        let me = introduction(Incarnation::random(), kind, 1, false);
        let error = bench.store.join(&me).await.unwrap_err();
        assert!(matches!(&error, Error::Requires { word, .. } if word == "tides"), "{error}");
    }
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn one_member_that_does_not_know_the_layout_prevents_the_upgrade() {
    let bench = TestBench::new().await;
    let (old, new) = (knowing(3, 4), knowing(4, 5));
    bench.store.join(&old).await.unwrap();
    bench.store.join(&new).await.unwrap();
    let before = bench.everything();
    let error = bench.store.upgrade_to(5).await.unwrap_err().to_string();
    let pid = std::process::id();
    assert!(error.contains(&format!("member 1 (here, pid {pid}) knows layouts 3 to 4; stop it")), "{error}");
    assert_eq!(bench.everything(), before, "nothing has changed");

    bench.store.leave(old.incarnation).await.unwrap();
    assert_eq!(bench.store.upgrade_to(5).await.unwrap(), Some(4));
    assert_eq!(bench.layout().as_deref(), Some("5"));
    assert_eq!(bench.store.upgrade_to(5).await.unwrap(), None, "it is done");
    assert_eq!(bench.store.upgrade_to(4).await.unwrap(), None, "never back");
    assert_eq!(bench.layout().as_deref(), Some("5"));
}

#[tokio::test]
async fn a_member_that_registered_little_prevents_the_upgrade_and_a_deleted_one_does_not() {
    let bench = TestBench::new().await;
    assert_eq!(bench.store.upgrade_to(5).await.unwrap(), None, "there is no ring");
    assert_eq!(bench.ask::<u64>(&["DBSIZE"]), 0);
    let member = bench.store.keys().member(bench.join(MemberKind::Node, 1).await.incarnation);
    bench.ask::<()>(&["HDEL", &member, "host", "pid", "layouts"]);
    let error = bench.store.upgrade_to(5).await.unwrap_err().to_string();
    assert!(error.contains("member 1 (, pid ) knows no span of layouts; stop it"), "{error}");
    bench.ask::<()>(&["DEL", &member]);
    assert_eq!(bench.store.upgrade_to(5).await.unwrap(), Some(4));
}

#[tokio::test]
async fn foreign_data_stops_an_upgrade_before_it_writes() {
    let bench = TestBench::new().await;
    let member = bench.join(MemberKind::Node, 1).await;
    bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "layouts", "4 5"]);
    let whole = bench.everything();
    let keys = ["succession", "ready", "errors", "ledger", "events"];
    for (key, kind) in keys.into_iter().zip(["zset", "list", "list", "hash", "stream"]) {
        bench.restore(&whole);
        bench.plant_foreign(&format!("{{estafeta}}:{key}"), kind);
        let before = bench.everything();
        let error = bench.store.upgrade_to(5).await.unwrap_err();
        assert!(matches!(error, Error::ForeignKey { .. }), "{key}: {error}");
        assert_eq!(bench.everything(), before, "{key}");
    }
}

/// A member writes the layout with which it joined. After the upgrade, it must not write at all until it has joined
/// again. Messages and errors that members held are back, without a death.
#[tokio::test]
async fn an_upgrade_ends_every_membership_and_loses_nothing() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let idle = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    for (n, body) in (0..).zip(["a", "b", "c"]) {
        bench.publish(generator, &term, n, &[body]).await;
    }
    assert_eq!(bench.claim(handler, 2).await.len(), 2);
    bench.settle(handler, 1, &[(0, "no")], 0).await;
    assert_eq!(bench.claim(idle, 9).await.len(), 1);
    let more = Settlement { want: 1, each: 1, listens: true, ..bench.settlement(idle, 1, &[]) };
    bench.make(idle, &more).await.unwrap();
    assert_eq!(bench.line().len(), 1);
    let reader = bench.join(MemberKind::Reader, 1).await;
    let take = ShownLetters { want: 1, ..ShownLetters::default() };
    bench.store.take(reader.identity(), &take).await.unwrap();
    for member in [generator, handler, idle, reader] {
        bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "layouts", "4 5"]);
    }
    let mut connection = bench.redis.connect();
    connection.set_read_timeout(Some(LEASE)).unwrap();
    let mut calls = connection.as_pubsub();
    calls.subscribe(format!("{}{}", bench.store.keys().channels, idle.incarnation)).unwrap();
    assert_eq!(bench.store.upgrade_to(5).await.unwrap(), Some(4));
    assert_eq!(calls.get_message().unwrap().get_payload::<String>().unwrap(), "office");
    let event = ["kind", "upgraded", "from", "4", "to", "5", "returned", "1"];
    assert_eq!(bench.last_event(), event, "an error is not a message that returns");
    assert_eq!(bench.ask::<u64>(&["EXISTS", "{estafeta}:members", "{estafeta}:succession"]), 0);

    let held = bench.settlement(handler, 1, &[]);
    assert!(bench.turn(handler, &held).await.is_none(), "it is lost");
    let more = messages(term.epoch, 4, &["d"]);
    let published = bench.store.publish(generator.incarnation, &batch(term.epoch, 3, &more)).await.unwrap();
    assert_eq!(published, Publish::Fenced);
    for member in [generator, handler, idle] {
        let beat = bench.store.beat(member.incarnation, LEASE, Known::default()).await.unwrap();
        assert!(matches!(beat, Beat::Lost));
    }
    assert!(matches!(bench.store.take(reader.identity(), &take).await.unwrap(), Take::Lost));
    assert_eq!(bench.line(), Vec::<String>::new());
    assert_eq!(bench.ask::<u64>(&["LLEN", "{estafeta}:errors"]), 1);

    bench.ask::<()>(&["SET", "{estafeta}:schema", "4"]);
    let again = bench.join(MemberKind::Node, 1).await;
    let back = bench.claim(again, 9).await;
    assert_eq!(
        back.iter().map(|message| (message.id, message.delivery, message.deaths)).collect::<Vec<_>>(),
        [(2, 2, 0)]
    );
    bench.assert_balanced().await;
    assert_eq!(bench.lead(again).await.predecessor, None, "no take-over");
}

#[tokio::test]
async fn what_an_upgrade_returns_no_longer_counts_for_the_limit_in_flight() {
    let bench = TestBench::new().await;
    let (generator, term, [one, two]) = bench.three_nodes().await;
    for (n, body) in (0..).zip(["a", "b", "c"]) {
        bench.publish(generator, &term, n, &[body]).await;
    }
    bench.limit_in_flight(Some(3)).await;
    assert_eq!((bench.claim(one, 2).await.len(), bench.claim(two, 9).await.len()), (2, 1));
    assert_eq!(bench.brake(3), 3);
    for member in [generator, one, two] {
        bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "layouts", "4 5"]);
    }
    assert_eq!(bench.store.upgrade_to(5).await.unwrap(), Some(4));
    assert_eq!((bench.brake(3), bench.ready().len()), (0, 3));
}

#[tokio::test]
async fn members_that_the_caller_did_not_name_make_it_ask_again() {
    let bench = TestBench::new().await;
    let one = bench.join(MemberKind::Node, 1).await.incarnation;
    bench.join(MemberKind::Node, 1).await;
    let before = bench.everything();
    for members in [vec![], vec![one], vec![one, Incarnation::random()]] {
        let call = upgrade::call(bench.store.keys(), 5, &Roll::new(members.len(), &members));
        let mut reply = bench.store.run(&upgrade::SCRIPT, &call).await.unwrap();
        let expected = if members.len() == 2 { "holds" } else { "changed" };
        // The first of two members does not know the layout, and the script looks at it first.
        assert_eq!(reply.text().unwrap(), expected);
        assert_eq!(bench.everything(), before);
    }
    bench.ask::<()>(&["HSET", &bench.store.keys().member(one), "layouts", "4 5"]);
    let before = bench.everything();
    let call = upgrade::call(bench.store.keys(), 5, &Roll::new(2, &[one, Incarnation::random()]));
    assert_eq!(bench.store.run(&upgrade::SCRIPT, &call).await.unwrap().text().unwrap(), "changed");
    assert_eq!(bench.everything(), before);
}

/// The members that could take over are gone, even if one of them had left the office to others.
#[tokio::test]
async fn after_an_upgrade_the_next_election_is_a_first_one() {
    let bench = TestBench::new().await;
    let (former, other) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(former).await;
    bench.store.resign(former.incarnation, term.epoch).await.unwrap();
    for member in [former, other] {
        bench.ask::<()>(&["HSET", &bench.store.keys().member(member.incarnation), "layouts", "4 5"]);
    }
    assert_eq!(bench.ask::<Option<u64>>(&["HGET", "{estafeta}:ledger", "last"]), Some(former.number.0));
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "vacated", "1", "yielded", "x"]);
    assert_eq!(bench.store.upgrade_to(5).await.unwrap(), Some(4));
    let left: [Option<String>; 2] = bench.ask(&["HMGET", "{estafeta}:ledger", "vacated", "yielded"]);
    assert_eq!(left, [Some("1".into()), None], "the office was vacant before");
    bench.ask::<()>(&["SET", "{estafeta}:schema", "4"]);
    let again = bench.join(MemberKind::Node, 1).await;
    assert_eq!(bench.lead(again).await.predecessor, None, "no take-over");
}
