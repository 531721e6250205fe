//! Tests of messages that are forwarded to several rings, and to rings of another layout.

use super::*;

#[tokio::test]
async fn each_of_several_rings_gets_its_messages_its_application_and_its_call() {
    let ring = HeldRing::new(2).await;
    let names = ["estafeta/one", "estafeta/two", "estafeta/three"];
    let mut listener = ring.bench.redis.connect();
    let mut channel = listener.as_pubsub();
    channel.set_read_timeout(Some(LEASE)).unwrap();
    let mut called = Vec::new();
    for name in names {
        let (store, _keeper) = ring.other(name).await;
        let incarnation = Incarnation::random();
        // A reader does not decide to which application the ring belongs. An idle node would.
        store.join(&introduction(incarnation, MemberKind::Reader, 1, false)).await.unwrap();
        ring.bench.ask::<()>(&["HSET", &store.keys().ledger, "idle", &format!("{incarnation} ")]);
        channel.subscribe(store.keys().wakeup(incarnation)).unwrap();
        called.push(store.keys().wakeup(incarnation));
    }
    ring.settle(vec![
        vec![forward(names[0], "a"), forward(names[1], "b"), forward(names[2], "c")],
        vec![forward(names[2], "d"), forward(names[0], "e")],
    ])
    .await;
    for (name, bodies) in names.iter().zip([&["a", "e"][..], &["b"], &["c", "d"]]) {
        let key = |what: &str| format!("{{estafeta}}{}:{what}", name.strip_prefix("estafeta").unwrap());
        let ready: Vec<String> = ring.bench.ask(&["LRANGE", &key("ready"), "0", "-1"]);
        let ready: Vec<_> = ready.iter().map(|it| it.rsplit(' ').next().unwrap()).collect();
        assert_eq!(ready, bodies, "{name}");
        assert_eq!(ring.bench.ask::<String>(&["GET", &key("application")]), *name);
        assert_eq!(ring.bench.ask::<usize>(&["HGET", &key("ledger"), "published"]), bodies.len());
    }
    for expected in called {
        let call = channel.get_message().unwrap();
        assert_eq!(
            (call.get_channel_name(), call.get_payload::<String>().unwrap().as_str()),
            (&*expected, "work")
        );
    }
}

/// A later release knows another layout as well. Only `upgrade` raises the layout of a ring.
#[tokio::test]
async fn a_forward_leaves_the_layout_of_a_ring_as_it_is() {
    let ring = HeldRing::new(1).await;
    let settlement = ring.settlement(vec![vec![forward("estafeta/old", "x"), forward("estafeta/new", "x")]]);
    ring.bench.ask::<()>(&["SET", "{estafeta}/old:schema", "4"]);
    let me = ring.handler.identity();
    let mut call = turn::call(ring.bench.store.keys(), me, u64::from(u32::MAX), &settlement, false);
    // The name of the command, of the script, and how many keys follow.
    let first = 3 + call.keys.len();
    let newest = first + call.arguments.iter().position(|name| *name == "newest").unwrap();
    let mut words: Vec<Vec<u8>> = call.command.args_iter().map(word).collect();
    assert_eq!(words[newest], b"4");
    words[newest] = b"5".to_vec();
    call.command = redis::Cmd::new();
    call.command.arg(words);
    let reply = ring.bench.store.run(&turn::SCRIPT, &call).await.unwrap();
    assert!(matches!(turn::read(reply).unwrap(), Turn::Applied { bad, .. } if bad.is_empty()));
    let layout = |name: &str| ring.bench.ask::<String>(&["GET", &format!("{{estafeta}}/{name}:schema")]);
    assert_eq!((layout("old"), layout("new")), ("4".into(), "5".into()));
}

fn word(argument: redis::Arg<&[u8]>) -> Vec<u8> {
    match argument {
        redis::Arg::Simple(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}
