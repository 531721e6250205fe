//! Tests of `turn` and `take`: claims and settles, their repeats and their late arrivals.

use super::*;

#[tokio::test]
async fn a_turn_repeated_after_a_lost_reply_settles_once_and_answers_the_same() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 2).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d"]).await;
    let first = bench.claim(handler, 0, 2).await;
    assert_eq!(first.iter().map(|message| message.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(bench.claim(handler, 0, 2).await, first, "a repeated claim claims nothing more");

    let settlement =
        || Settlement { settled: 2, failures: vec![(1, "no good".into())], want: 1, ..Settlement::default() };
    let settled = bench.turn(handler, 0, settlement()).await.unwrap();
    assert_eq!((settled.0, settled.1[0].id), (2, 3));
    assert_eq!(bench.turn(handler, 0, settlement()).await.unwrap(), settled);
    assert_eq!((bench.ledger("done"), bench.ledger("failed")), (1, 1));
    let errors = bench.store.errors(0, 10).await.unwrap();
    assert_eq!((errors.len(), errors[0].message.id, errors[0].message.body()), (1, 2, &b"b"[..]));
    assert_eq!((errors[0].member, errors[0].reason.as_str()), (handler.number, "no good"));
    assert_eq!((errors[0].message.delivery, errors[0].message.failures, errors[0].message.deaths), (1, 1, 0));
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_settle_from_a_wrong_cursor_or_by_a_buried_member_is_refused_and_writes_nothing() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    bench.claim(handler, 0, 2).await;
    let settle = |cursor, settled| Settlement { cursor, settled, want: 5, ..Settlement::default() };

    let before = bench.everything();
    assert_eq!(bench.turn(handler, 0, settle(5, 2)).await, None);
    assert_eq!(bench.turn(handler, 0, settle(0, 3)).await, None, "more than it holds");
    assert_eq!(bench.everything(), before);

    bench.expire(handler);
    assert!(matches!(bench.bury(handler).await, Bury::Buried { returned: 2, .. }));
    let before = bench.everything();
    assert_eq!(bench.turn(handler, 0, settle(0, 2)).await, None);
    assert_eq!(bench.turn(handler, 0, settle(0, 0)).await, None, "it may not claim either");
    let beat = bench.store.beat(handler.incarnation, LEASE, Known::default()).await.unwrap();
    assert!(matches!(beat, Beat::Lost));
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn foreign_elements_become_errors_one_by_one_and_do_not_block_the_queue() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a"]).await;
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "what is this", "and this"]);
    bench.publish(generator, &term, 1, &["b"]).await;
    let (mut held, mut settlement) = (Vec::new(), Settlement { want: 5, ..Settlement::default() });
    loop {
        let (cursor, claimed) = bench.turn(handler, 0, settlement).await.unwrap();
        if claimed.is_empty() {
            break;
        }
        let foreign = claimed.iter().enumerate().filter(|(_, message)| message.id == 0);
        let failures = foreign.map(|(index, _)| (index, "foreign".into())).collect();
        settlement =
            Settlement { cursor, settled: claimed.len(), failures, want: 5, ..Settlement::default() };
        held.extend(claimed);
    }
    assert_eq!(held.iter().map(|message| message.id).collect::<Vec<_>>(), [1, 0, 0, 2]);
    let errors = bench.store.errors(0, 9).await.unwrap();
    let bodies: Vec<_> = errors.iter().map(|error| (error.message.id, error.message.body())).collect();
    assert_eq!(bodies, [(0, &b"what is this"[..]), (0, &b"and this"[..])]);
    let journal: Vec<(String, Vec<String>)> = bench.ask(&["XRANGE", "{estafeta}:journal", "-", "+"]);
    let noted = |field: usize| {
        let words =
            journal.iter().flat_map(|(_, fields)| fields[field].split(' ').filter(|id| !id.is_empty()));
        words.map(ToOwned::to_owned).collect::<Vec<String>>()
    };
    assert_eq!((noted(1).join(" "), noted(3).join(" ")), ("1 0 0 2".into(), "0 0".into()));
    for error in &errors {
        assert_eq!(
            (error.message.epoch.0, error.message.delivery, error.message.published_ms),
            (0, 0, 0),
            "nobody knows: {error:?}"
        );
    }
    assert_eq!(bench.ledger("done"), 2, "and what stood around them is done");
}

#[tokio::test]
async fn a_turn_that_its_own_repeat_overtook_claims_nothing() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    assert!(
        bench.claim(handler, 0, 5).await.is_empty(),
        "the repeat finds nothing, and its lane goes to sleep"
    );
    bench.publish(generator, &term, 0, &["a"]).await;

    let claim = Settlement { want: 5, ..Settlement::default() };
    let late = turn::call(bench.store.keys(), handler.identity(), 0, 0, &claim, true);
    let before = bench.everything();
    assert_eq!(bench.store.run(&turn::SCRIPT, &late).await.unwrap().text().unwrap(), "late");
    assert_eq!(bench.everything(), before);
}

#[tokio::test]
async fn turns_of_a_former_life_do_nothing_after_a_late_join_brings_the_identity_back() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b"]).await;
    bench.claim(handler, 0, 1).await;
    bench.store.leave(handler.incarnation, 1).await.unwrap();

    // Its join was held up in a dead connection and arrives only now. So do its claim and the settle that followed.
    bench.store.join(&introduction(handler.incarnation, MemberKind::Node, 1, false)).await.unwrap();
    let before = bench.everything();
    assert_eq!(bench.turn(handler, 0, Settlement { want: 1, ..Settlement::default() }).await, None);
    let settlement = Settlement { settled: 1, want: 1, ..Settlement::default() };
    assert_eq!(bench.turn(handler, 0, settlement).await, None);
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.ledger("done"), 0, "nobody handled it in this life");
}

/// A lane reads its list right after the step, but not within it. A burial can come in between.
#[tokio::test]
async fn a_lane_whose_member_is_buried_before_it_reads_its_list_is_lost_but_no_message_is() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let other = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    for script in [&turn::SCRIPT, &bury::SCRIPT] {
        bench.ask::<()>(&["SCRIPT", "LOAD", script.code()]);
    }
    let (keys, claim) = (bench.store.keys(), Settlement { want: 2, ..Settlement::default() });
    let tries = std::cell::Cell::new(0);
    let build = || {
        tries.set(tries.get() + 1);
        let mut turn = turn::call(keys, handler.identity(), 0, 1000 + tries.get(), &claim, false);
        if tries.get() > 1 {
            return turn;
        }
        // The step and the burial are made here. The command that is sent returns the answer of the step.
        turn.command.exec(&mut bench.redis.connect()).unwrap();
        bench.expire(handler);
        let facts = Facts { lanes: 1, ..Facts::default() };
        let bury = bury::call(keys, handler.incarnation, &facts, 0, GRACE, None);
        bury.command.exec(&mut bench.redis.connect()).unwrap();
        turn.command = redis::cmd("EVAL");
        turn.command.arg("return { 'turn', 0, 2 }").arg(0);
        turn
    };
    let (me, parse) = (handler.identity(), turn::messages);
    let store = bench.store.patient(CancellationToken::new());
    let turn = store.settle_and_hold(&turn::SCRIPT, build, me, 0, parse).await.unwrap();
    assert!(matches!(turn, Turn::Lost));
    assert_eq!(tries.get(), 2);
    let ids = bench.claim(other, 0, 5).await.iter().map(|message| (message.id, message.delivery)).next();
    assert_eq!(ids, Some((1, 2)), "what was claimed has gone back, as from any dead member");
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_list_that_never_matches_the_answer_is_an_error_and_a_stopping_node_does_not_wait_for_it() {
    let bench = TestBench::new().await;
    let handler = bench.join(MemberKind::Node, 1).await;
    let build = || {
        let nothing = Settlement::default();
        let mut turn = turn::call(bench.store.keys(), handler.identity(), 0, 1, &nothing, false);
        turn.command = redis::cmd("EVAL");
        turn.command.arg("return { 'turn', 0, 2 }").arg(0);
        turn
    };
    let stopped = CancellationToken::new();
    stopped.cancel();
    for (store, expected) in [
        (bench.store.clone(), "turn left 2 elements, and its list has 0"),
        (bench.store.patient(stopped), "stopped while waiting for Redis"),
    ] {
        let turn = store.settle_and_hold(&turn::SCRIPT, build, handler.identity(), 0, turn::messages);
        let turn = tokio::time::timeout(LEASE, turn).await.expect("it ends");
        let error = turn.map(drop).expect_err("it is not what the step left").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn large_messages_are_claimed_a_few_at_a_time_however_many_the_lane_wants() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    let (large, small) = ("x".repeat(100_000), "x".repeat(100));
    // The head of the queue does not show how large the rest is, even if one claim could take all that waits.
    let mixed = [vec![&small; 500], vec![&large; 60], vec![&small; 2000]].concat();
    let (in_packs, alone) = (false, true);
    let queues = [
        (vec![&large; 200], in_packs, 32),
        (vec![&small; 200], in_packs, 200),
        (mixed.clone(), in_packs, 520),
        (mixed[..560].to_vec(), in_packs, 520),
        (mixed.clone(), alone, 32),
        (mixed[..560].to_vec(), alone, 32),
    ];
    let (mut cursor, mut published) = (0, 0);
    for (n, (queue, alone, first_claim)) in (0..).zip(queues) {
        let bodies: Vec<&str> = queue.iter().map(|body| body.as_str()).collect();
        let mut messages = messages(term.epoch, published + 1, &bodies);
        // Messages with different publication times share no pack.
        for message in messages.iter_mut().filter(|message| alone && message.id % 2 == 0) {
            message.published_ms += 1;
        }
        let batch = Batch { max_waiting: 5000, limit: 0, ..batch(term.epoch, n, &messages) };
        bench.store.publish(generator.incarnation, &batch).await.unwrap();
        published += queue.len() as u64;
        let (mut claims, mut ids) = (Vec::new(), Vec::new());
        while claims.last() != Some(&0) {
            let settled = claims.last().copied().unwrap_or(0);
            let settlement = Settlement { cursor, settled, want: 600, ..Settlement::default() };
            let held = bench.turn(handler, 0, settlement).await.unwrap();
            cursor = held.0;
            let bytes: usize = held.1.iter().map(|message| message.body().len()).sum();
            assert!(bytes <= 2 * 1024 * 1024 || held.1.len() <= 32, "{bytes} bytes in {}", held.1.len());
            claims.push(held.1.len());
            ids.extend(held.1.iter().map(|message| message.id));
        }
        assert_eq!(
            ids,
            (published - queue.len() as u64 + 1..=published).collect::<Vec<_>>(),
            "each once, in order"
        );
        assert_eq!(claims[0], first_claim, "{claims:?}");
    }
    assert_eq!(bench.ledger("done"), published, "all of them, in the end");
    bench.assert_balanced().await;
}

#[tokio::test]
async fn the_generator_can_settle_but_never_claims() {
    let bench = TestBench::new().await;
    let (first, second) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(first).await;
    bench.publish(first, &term, 0, &["a", "b", "c"]).await;
    assert_eq!(bench.claim(first, 0, 5).await.len(), 0);
    assert_eq!(bench.claim(second, 0, 1).await.len(), 1);
    // The new generator may still settle what it held when it took office.
    bench.store.resign(first.incarnation, term.epoch).await.unwrap();
    bench.lead(second).await;
    let settlement = Settlement { settled: 1, want: 5, ..Settlement::default() };
    assert_eq!(bench.turn(second, 0, settlement).await, Some((1, Vec::new())));
    assert_eq!(bench.claim(first, 0, 5).await.len(), 2);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_reader_releases_as_many_errors_as_it_settles_and_keeps_the_others() {
    let bench = TestBench::new().await;
    let errors: Vec<String> = (1..=3).map(|id| format!("!1 1 2 no {id} 1 1 0 0 0 0 0 body")).collect();
    bench.ask::<()>(&["RPUSH", "{estafeta}:errors", &errors[0], &errors[1], &errors[2]]);
    let reader = bench.join(MemberKind::Reader, 1).await;
    let take = async |cursor, settled, want| {
        let settlement = Settlement { cursor, settled, want, ..Settlement::default() };
        match bench.store.take(reader.identity(), &settlement).await.unwrap() {
            Turn::Holds { cursor, held, .. } => {
                (cursor, held.iter().map(|error| error.message.id).collect::<Vec<_>>())
            }
            Turn::Lost => panic!("lost"),
        }
    };
    assert_eq!(take(0, 0, 3).await, (0, vec![1, 2, 3]));
    // The test looks at the first answer. The store would repeat the call if the list did not match it.
    let settlement = Settlement { settled: 1, want: 3, ..Settlement::default() };
    let call = take::call(bench.store.keys(), reader.identity(), &settlement);
    let reply = bench.store.run(&take::SCRIPT, &call).await.unwrap();
    assert_eq!(turn::read(reply).unwrap(), Some((1, 2)));
    assert_eq!(take(0, 1, 3).await, (1, vec![2, 3]));
    assert_eq!(take(1, 2, 3).await, (3, vec![]));
    assert_eq!(bench.ledger("taken"), 3);
    assert_eq!(bench.ask::<u64>(&["EXISTS", &bench.store.keys().inflight(reader.incarnation, 0)]), 0);
}

/// A message with headers stands between two without. It is handed back, fails and is retried.
#[tokio::test]
async fn headers_travel_with_their_message() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let (leaver, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    let mut sent = messages(term.epoch, 1, &["a", "1:x1:y", "c"]);
    let mut headers = Headers::new();
    headers.insert("traceparent", "00-1-2-01").unwrap();
    headers.insert("8", " 0 значение").unwrap();
    sent[1] = sent[1].clone().with_headers(headers);
    bench.store.publish(generator.incarnation, &batch(term.epoch, 0, &sent)).await.unwrap();
    assert_eq!(bench.claim(leaver, 0, 9).await, sent);

    bench.store.leave(leaver.incarnation, 1).await.unwrap();
    let counted = |sent: &Message, delivery, failures| {
        let mut message = sent.clone();
        (message.delivery, message.failures) = (delivery, failures);
        message
    };
    let again: Vec<_> = sent.iter().map(|sent| counted(sent, 2, 0)).collect();
    assert_eq!(bench.claim(handler, 0, 9).await, again);

    let fails = Settlement { settled: 3, failures: vec![(1, "no".into())], ..Settlement::default() };
    bench.turn(handler, 0, fails).await.unwrap();
    let errors = bench.store.errors(0, 9).await.unwrap();
    assert_eq!(errors[0].message, counted(&sent[1], 2, 1));
    assert_eq!(bench.store.resolve("retry", &[errors[0].element()]).await.unwrap(), 1);
    let next = bench.join(MemberKind::Node, 1).await;
    let held = bench.claim(next, 0, 9).await;
    assert_eq!(held, [counted(&sent[1], 3, 0)]);
    assert_eq!(held[0].key(), sent[1].key());
    bench.assert_balanced().await;
}
