//! Tests of `turn` and `take`: claims and settles, their repeats and their late arrivals.

use super::*;

#[tokio::test]
async fn a_turn_repeated_after_a_lost_reply_settles_once_and_answers_the_same() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 2).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d"]).await;
    let first = bench.claim_for(handler, 2, 1).await;
    assert_eq!(first.iter().map(|message| message.id).collect::<Vec<_>>(), [1, 2]);

    let settlement = Settlement { want: 1, each: 1, ..bench.settlement(handler, 2, &[(1, "no good")]) };
    let settled = bench.turn(handler, &settlement).await.unwrap();
    assert_eq!((settled.cursor, settled.messages()[0].id), (2, 3));
    assert_eq!(bench.turn(handler, &settlement).await.unwrap(), settled);
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
    bench.claim(handler, 2).await;
    let settle = |count| Settlement { want: 5, ..bench.settlement(handler, count, &[]) };
    let beyond = |fate: Fate| {
        let mut settlement = bench.hand(handler).settlement(|_| fate.clone());
        settlement.not_done[0].index = 2;
        settlement
    };

    let before = bench.everything();
    let wrong = [
        ("another cursor", Settlement { cursor: 5, ..settle(2) }),
        ("more than it holds", Settlement { count: 3, ..settle(2) }),
        ("a claim that Redis never made", Settlement { seen: 3, ..settle(2) }),
        ("a claim that is not in its hand", Settlement { whole: vec!["7".into()], ..settle(1) }),
        ("a failure that its element does not hold", beyond(Fate::Fails("no".into()))),
        ("a retry that its element does not hold", beyond(Fate::Retries(9))),
    ];
    for (what, settlement) in wrong {
        assert_eq!(bench.turn(handler, &settlement).await, None, "{what}");
        assert_eq!(bench.everything(), before, "{what}");
    }

    bench.expire(handler);
    assert!(matches!(bench.bury(handler).await, Bury::Buried { returned: 2, .. }));
    let before = bench.everything();
    assert_eq!(bench.turn(handler, &settle(2)).await, None);
    assert_eq!(bench.turn(handler, &settle(0)).await, None, "it may not claim either");
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
    let mut held = Vec::new();
    let mut claimed = bench.claim(handler, 5).await;
    while !claimed.is_empty() {
        let foreign = claimed.iter().enumerate().filter(|(_, message)| message.id == 0);
        let failures: Vec<_> = foreign.map(|(index, _)| (index, "foreign")).collect();
        let next = bench.settle(handler, claimed.len(), &failures, 5).await;
        held.extend(std::mem::replace(&mut claimed, next));
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
    assert!(bench.claim(handler, 5).await.is_empty(), "the repeat finds nothing, and its node goes to sleep");
    bench.publish(generator, &term, 0, &["a"]).await;

    let claim = Settlement { want: 5, ..Settlement::default() };
    let late = turn::call(bench.store.keys(), handler.identity(), 0, &claim, true);
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
    bench.claim(handler, 1).await;
    bench.store.leave(handler.incarnation).await.unwrap();

    // Its join was held up in a dead connection and arrives only now. So do its claim and the settle that followed.
    bench.store.join(&introduction(handler.incarnation, MemberKind::Node, 1, false)).await.unwrap();
    let before = bench.everything();
    let settlement = Settlement { want: 1, ..bench.settlement(handler, 1, &[]) };
    assert_eq!(bench.turn(handler, &Settlement { want: 1, ..Settlement::default() }).await, None);
    assert_eq!(bench.turn(handler, &settlement).await, None);
    assert_eq!(bench.everything(), before);
    assert_eq!(bench.ledger("done"), 0, "nobody handled it in this life");
}

/// A reader reads its list right after the step, but not within it. A burial can come in between.
#[tokio::test]
async fn a_reader_that_is_buried_before_it_reads_its_list_is_lost_but_no_error_is() {
    let bench = TestBench::new().await;
    let reader = bench.join(MemberKind::Reader, 1).await;
    let errors: Vec<String> = (1..=3).map(|id| format!("!1 1 2 no {id} 1 1 0 0 0 0 0 body")).collect();
    bench.ask::<()>(&["RPUSH", "{estafeta}:errors", &errors[0], &errors[1], &errors[2]]);
    for script in [&take::SCRIPT, &bury::SCRIPT] {
        bench.ask::<()>(&["SCRIPT", "LOAD", script.code()]);
    }
    let (keys, shown) = (bench.store.keys(), ShownLetters { want: 2, ..ShownLetters::default() });
    let tries = std::cell::Cell::new(0);
    let build = || {
        tries.set(tries.get() + 1);
        let mut take = take::call(keys, reader.identity(), &shown);
        if tries.get() > 1 {
            return take;
        }
        // The step and the burial are made here. The command that is sent returns the answer of the step.
        take.command.exec(&mut bench.redis.connect()).unwrap();
        bench.expire(reader);
        let bury = bury::call(keys, reader.incarnation, 0, GRACE, None);
        bury.command.exec(&mut bench.redis.connect()).unwrap();
        take.command = redis::cmd("EVAL");
        take.command.arg("return { 'took', 0, 2 }").arg(0);
        take
    };
    let taken = bench.store.take_and_read(build, reader.identity()).await.unwrap();
    assert!(matches!(taken, Take::Lost));
    assert_eq!(tries.get(), 2);
    assert_eq!(bench.ask::<Vec<String>>(&["LRANGE", "{estafeta}:errors", "0", "-1"]), errors);
}

#[tokio::test]
async fn a_list_that_never_matches_the_answer_is_an_error() {
    let bench = TestBench::new().await;
    let reader = bench.join(MemberKind::Reader, 1).await;
    let build = || {
        let mut take = take::call(bench.store.keys(), reader.identity(), &ShownLetters::default());
        take.command = redis::cmd("EVAL");
        take.command.arg("return { 'took', 0, 2 }").arg(0);
        take
    };
    let taken = bench.store.take_and_read(build, reader.identity());
    let taken = tokio::time::timeout(LEASE, taken).await.expect("it ends");
    let error = taken.map(drop).expect_err("it is not what the step left").to_string();
    assert!(error.contains("take left 2 elements, and its list has 0"), "{error}");
}

#[tokio::test]
async fn large_messages_are_claimed_a_few_at_a_time_however_many_the_node_wants() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    let (large, small) = ("x".repeat(100_000), "x".repeat(100));
    // The head of the queue does not show how large the rest is, even if one claim could take all that waits.
    let mixed = [vec![&small; 500], vec![&large; 60], vec![&small; 2000]].concat();
    let (in_packs, alone) = (false, true);
    let queues = [
        (vec![&large; 200], in_packs),
        (vec![&small; 200], in_packs),
        (mixed.clone(), in_packs),
        (mixed[..560].to_vec(), in_packs),
        (mixed.clone(), alone),
        (mixed[..560].to_vec(), alone),
    ];
    let mut published = 0;
    for (n, (queue, alone)) in (0..).zip(queues) {
        let bodies: Vec<&str> = queue.iter().map(|body| body.as_str()).collect();
        let mut messages = messages(term.epoch, published + 1, &bodies);
        // Messages with different publication times share no pack.
        for message in messages.iter_mut().filter(|message| alone && message.id % 2 == 0) {
            message.published_ms += 1;
        }
        let batch = Dispatch { max_waiting: 5000, limit: 0, ..batch(term.epoch, n, &messages) };
        bench.store.publish(generator.incarnation, &batch).await.unwrap();
        let mut ids = Vec::new();
        let mut claimed = bench.claim(handler, 600).await;
        while !claimed.is_empty() {
            let bytes: usize = claimed.iter().map(|message| message.body().len()).sum();
            assert!(bytes <= 2_200_000, "{bytes} bytes in {} of queue {n}", claimed.len());
            ids.extend(claimed.iter().map(|message| message.id));
            claimed = bench.settle(handler, claimed.len(), &[], 600).await;
        }
        let all = published + 1..=published + queue.len() as u64;
        assert_eq!(ids, all.collect::<Vec<_>>(), "each once, in order");
        published += queue.len() as u64;
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
    assert_eq!(bench.claim(first, 5).await.len(), 0);
    assert_eq!(bench.claim(second, 1).await.len(), 1);
    // The new generator may still settle what it held when it took office.
    bench.store.resign(first.incarnation, term.epoch).await.unwrap();
    bench.lead(second).await;
    assert_eq!(bench.settle(second, 1, &[], 5).await, []);
    assert_eq!(bench.ledger("done"), 1);
    assert_eq!(bench.claim(first, 5).await.len(), 2);
    bench.assert_balanced().await;
}

#[tokio::test]
async fn a_reader_releases_as_many_errors_as_it_settles_and_keeps_the_others() {
    let bench = TestBench::new().await;
    let errors: Vec<String> = (1..=3).map(|id| format!("!1 1 2 no {id} 1 1 0 0 0 0 0 body")).collect();
    bench.ask::<()>(&["RPUSH", "{estafeta}:errors", &errors[0], &errors[1], &errors[2]]);
    let reader = bench.join(MemberKind::Reader, 1).await;
    let take = async |cursor, count, want| match bench
        .store
        .take(reader.identity(), &ShownLetters { cursor, count, want })
        .await
        .unwrap()
    {
        Take::Holds { cursor, held } => {
            (cursor, held.iter().map(|error| error.message.id).collect::<Vec<_>>())
        }
        Take::Lost => panic!("lost"),
    };
    assert_eq!(take(0, 0, 3).await, (0, vec![1, 2, 3]));
    // The test looks at the first answer. The store would repeat the call if the list did not match it.
    let shown = ShownLetters { count: 1, want: 3, ..ShownLetters::default() };
    let call = take::call(bench.store.keys(), reader.identity(), &shown);
    let reply = bench.store.run(&take::SCRIPT, &call).await.unwrap();
    assert_eq!(take::read(reply).unwrap(), Some((1, 2)));
    assert_eq!(take(0, 1, 3).await, (1, vec![2, 3]));
    assert_eq!(take(1, 2, 3).await, (3, vec![]));
    assert_eq!(bench.ledger("taken"), 3);
    assert_eq!(bench.ask::<u64>(&["EXISTS", &bench.store.keys().inflight(reader.incarnation)]), 0);
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
    assert_eq!(bench.claim(leaver, 9).await, sent);

    bench.store.leave(leaver.incarnation).await.unwrap();
    let counted = |sent: &Message, delivery, failures| {
        let mut message = sent.clone();
        (message.delivery, message.failures) = (delivery, failures);
        message
    };
    let again: Vec<_> = sent.iter().map(|sent| counted(sent, 2, 0)).collect();
    assert_eq!(bench.claim(handler, 9).await, again);

    bench.settle(handler, 3, &[(1, "no")], 0).await;
    let errors = bench.store.errors(0, 9).await.unwrap();
    assert_eq!(errors[0].message, counted(&sent[1], 2, 1));
    assert_eq!(bench.store.resolve("retry", &[(0, errors[0].element())]).await.unwrap(), 1);
    let next = bench.join(MemberKind::Node, 1).await;
    let held = bench.claim(next, 9).await;
    assert_eq!(held, [counted(&sent[1], 3, 0)]);
    assert_eq!(held[0].key(), sent[1].key());
    bench.assert_balanced().await;
}
