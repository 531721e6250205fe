//! Tests of the history: who samples, what a sample holds, and that nothing is counted twice.

use super::*;
use crate::inspect::Sample;
use crate::latency::Latencies;

const LISTS: [&str; 3] = ["{estafeta}:history:1s", "{estafeta}:history:10s", "{estafeta}:history:1m"];

impl TestBench {
    async fn sample(&self, actor: Actor, epoch: Option<Epoch>) -> Sampling {
        self.store.sample(actor.identity(), epoch, Duration::ZERO).await.unwrap()
    }

    /// Samples, which must be accepted. Returns the last sample of each list.
    async fn sampled(&self, actor: Actor, term: &Term) -> [Sample; 3] {
        let answer = self.sample(actor, Some(term.epoch)).await;
        assert!(matches!(answer, Sampling::Sampled { .. }), "{answer:?}");
        LISTS.map(|list| self.samples(list).pop().expect("just sampled"))
    }

    fn samples(&self, list: &str) -> Vec<Sample> {
        let elements: Vec<String> = self.ask(&["LRANGE", list, "0", "-1"]);
        elements.iter().filter_map(|element| Sample::parse(element)).collect()
    }

    /// Replaces numbers of the last sample of each list, by their places.
    fn rewrite(&self, numbers: &[(usize, u64)]) {
        LISTS.iter().for_each(|list| self.rewrite_in(list, numbers));
    }

    fn rewrite_in(&self, list: &str, numbers: &[(usize, u64)]) {
        let last: Vec<String> = self.ask(&["LRANGE", list, "-1", "-1"]);
        let mut words: Vec<String> = last[0].split(' ').map(ToOwned::to_owned).collect();
        for (at, number) in numbers {
            words[*at] = number.to_string();
        }
        self.ask::<()>(&["LSET", list, "-1", &words.join(" ")]);
    }

    /// The samples that each list has.
    fn lengths(&self) -> [u64; 3] {
        LISTS.map(|list| self.ask(&["LLEN", list]))
    }

    fn now_ms(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.ask(&["TIME"]);
        seconds * 1000 + micros / 1000
    }

    /// A member that never generates.
    async fn join_to_handle(&self) -> Actor {
        let incarnation = Incarnation::random();
        let introduction =
            Introduction { duties: Duties::Handle, ..introduction(incarnation, MemberKind::Node, 1, false) };
        let number = self.store.join(&introduction).await.unwrap();
        Actor { incarnation, number }
    }
}

fn group(n: u64, wait_ms: &[u64], handling_ms: &[u64]) -> LatencyGroup {
    let of = |times: &[u64]| {
        let mut latencies = Latencies::default();
        times.iter().for_each(|ms| latencies.record(Duration::from_millis(*ms)));
        latencies
    };
    LatencyGroup { n, wait: of(wait_ms), handling: of(handling_ms) }
}

#[tokio::test]
async fn a_sample_shows_the_counts_and_what_waits() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c"]).await;
    bench.publish(generator, &term, 1, &["d", "e", "f"]).await;
    bench.claim(handler, 3).await;
    bench.settle(handler, 2, &[(1, "no")], 0).await;
    bench.store.submit(&submission(1, &[delayed("later", None, 9_999_999)])).await.unwrap();
    let before = bench.everything();
    for sample in bench.sampled(generator, &term).await {
        assert_eq!((sample.epoch, sample.member, sample.members), (term.epoch, generator.number, 2));
        assert_eq!((sample.published, sample.done, sample.failed), (7, 1, 1));
        assert_eq!((sample.waiting, sample.later, sample.in_flight), (3, 1, 1));
        assert_eq!(sample.from_ms, sample.time_ms);
    }
    assert_eq!(bench.lengths(), [1, 1, 1]);
    let others = || -> Vec<_> {
        bench.everything().into_iter().filter(|(key, _)| !LISTS.contains(&key.as_str())).collect()
    };
    assert_eq!(others(), before, "it changes nothing else");
    assert!(bench.snapshot().await.balanced);
}

#[tokio::test]
async fn each_count_of_a_sample_is_that_of_the_ledger_and_none_is_negative() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    let counts = [
        ("published", "100"),
        ("done", "20"),
        ("failed", "10"),
        ("retries", "3"),
        ("returned", "4"),
        ("buried", "5"),
        ("takeovers", "6"),
        ("retried", "7"),
        ("lost", "8"),
        ("cancelled", "9"),
    ];
    for (field, count) in counts {
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", field, count]);
    }
    for sample in bench.sampled(generator, &term).await {
        assert_eq!((sample.published, sample.done, sample.failed, sample.retries), (100, 20, 10, 3));
        assert_eq!((sample.returned, sample.buried, sample.takeovers), (4, 5, 6));
        assert_eq!(sample.in_flight, 100 - 20 - 10 + 7 - 8 - 9);
    }
    for list in LISTS {
        bench.ask::<()>(&["DEL", list]);
    }
    for (field, count) in [("done", "200"), ("retries", "-5")] {
        bench.ask::<()>(&["HSET", "{estafeta}:ledger", field, count]);
    }
    for sample in bench.sampled(generator, &term).await {
        assert_eq!((sample.done, sample.retries, sample.in_flight), (200, 0, 0));
    }
}

#[tokio::test]
async fn a_slot_begins_with_a_full_second_ten_seconds_or_minute() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    let slots = LISTS.into_iter().zip([1_000, 10_000, 60_000]);
    bench.sampled(generator, &term).await;
    loop {
        let now = bench.now_ms();
        let before = bench.lengths();
        for (list, width) in slots.clone() {
            bench.rewrite_in(list, &[(0, now / width * width - 1)]);
        }
        bench.sampled(generator, &term).await;
        let after = before.map(|length| length + 1);
        assert_eq!(bench.lengths(), after, "the last ones belong to earlier slots");
        for (list, width) in slots.clone() {
            bench.rewrite_in(list, &[(0, now / width * width)]);
        }
        let Sampling::Sampled { now_ms } = bench.sample(generator, Some(term.epoch)).await else {
            panic!("it is the generator")
        };
        // The loop ends unless a second was over in between.
        if now_ms / 1_000 == now / 1_000 {
            assert_eq!(bench.lengths(), after, "the last ones belong to the same slots");
            break;
        }
    }
}

#[tokio::test]
async fn only_the_generator_samples_and_only_in_its_epoch() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let vacant = bench.everything();
    assert_eq!(bench.sample(handler, None).await, Sampling::Fenced, "a member may still take the office");
    assert_eq!(bench.everything(), vacant);
    let term = bench.lead(generator).await;
    let before = bench.everything();
    for (actor, epoch) in [
        (handler, Some(term.epoch)),
        (handler, None),
        (generator, Some(Epoch(term.epoch.0 - 1))),
        (generator, None),
    ] {
        assert_eq!(bench.sample(actor, epoch).await, Sampling::Fenced);
    }
    assert_eq!(bench.everything(), before);
    bench.sampled(generator, &term).await;
}

#[tokio::test]
async fn samples_of_one_slot_become_one_with_the_highest_values() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    bench.publish(generator, &term, 0, &["a", "b", "c", "d", "e"]).await;
    bench.sampled(generator, &term).await;
    bench.claim(handler, 5).await;
    // One second ago, and ten seconds ago, lie in other slots, unless a longer slot covers both.
    bench.settle(handler, 5, &[], 0).await;
    let [_, _, minute] = bench.sampled(generator, &term).await;
    let lengths = bench.lengths();
    if lengths[2] == 1 {
        assert_eq!((minute.waiting, minute.done), (5, 5), "the highest number that waited, the last count");
        assert!(minute.time_ms >= minute.from_ms && minute.oldest_waiting_ms > 0, "{minute:?}");
    }
    for (list, length) in LISTS.iter().zip(lengths) {
        let waiting: Vec<u64> = bench.samples(list).iter().map(|sample| sample.waiting).collect();
        assert_eq!(waiting, if length == 1 { vec![5] } else { vec![5, 0] }, "{list}");
    }
}

#[tokio::test]
async fn the_lists_are_capped_at_their_lengths() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    for (list, length) in LISTS.iter().zip([300, 360, 1440]) {
        let old: Vec<String> =
            (0..length).map(|at| format!("{at} 0 1 1 3 0 0 0 0 0 0 0 4 0 2 70 -1 0 3:1 -")).collect();
        let mut push = vec!["RPUSH", list];
        push.extend(old.iter().map(String::as_str));
        bench.ask::<()>(&push);
    }
    let newest = bench.sampled(generator, &term).await;
    assert_eq!(bench.lengths(), [300, 360, 1440]);
    for (list, newest) in LISTS.iter().zip(newest) {
        let samples = bench.samples(list);
        assert_eq!((samples[0].time_ms, samples.last()), (1, Some(&newest)), "the oldest one is gone");
    }
}

#[tokio::test]
async fn what_was_sampled_at_later_times_goes_when_the_clock_was_set_back() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    let now = bench.now_ms();
    for list in LISTS {
        for time in [now - 300_000, now + 100_000, now + 200_000] {
            let text = format!("{time} 0 1 1 3 0 0 0 0 0 0 0 4 0 2 70 0 0 3:1 -");
            bench.ask::<()>(&["RPUSH", list, &text]);
        }
    }
    bench.sampled(generator, &term).await;
    for list in LISTS {
        let times: Vec<u64> = bench.samples(list).iter().map(|sample| sample.time_ms).collect();
        assert!(
            times.len() == 2 && times[0] == now - 300_000 && times[1] < now + 60_000,
            "{list}: {times:?}"
        );
    }
}

#[tokio::test]
async fn a_group_of_latencies_counts_once_however_often_its_beat_arrives() {
    let bench = TestBench::new().await;
    let (generator, handler) = (bench.join(MemberKind::Node, 1).await, bench.join(MemberKind::Node, 1).await);
    let term = bench.lead(generator).await;
    let beat = async |actor: Actor, group: &LatencyGroup| {
        bench.store.beat_with(actor.incarnation, LEASE, Known::default(), group).await.map(drop).unwrap();
    };
    for (actor, group) in [
        (handler, group(1, &[3, 3, 80], &[7])),
        (handler, group(1, &[3, 3, 80], &[7])),
        (generator, group(1, &[0, 3], &[])),
        (handler, group(2, &[], &[9_000_000])),
        (handler, group(1, &[3, 3, 80], &[7])),
        (handler, group(0, &[], &[])),
    ] {
        beat(actor, &group).await;
    }
    for sample in bench.sampled(generator, &term).await {
        assert_eq!(
            (sample.wait.text(), sample.handling.text()),
            ("0:1,0,0,0,0,3,0,0,0,1".into(), {
                let mut text = "6:1".to_owned();
                text.push_str(&",0".repeat(15));
                text + ",1"
            })
        );
    }
    assert!(!bench.ask::<bool>(&["EXISTS", "{estafeta}:latencies"]), "they have moved to the lists");
    // A sample that is repeated adds them to no list again.
    bench.sampled(generator, &term).await;
    for list in LISTS {
        let total: u64 = bench.samples(list).iter().map(|sample| sample.wait.total()).sum();
        assert_eq!(total, 5, "{list}");
    }
}

#[tokio::test]
async fn damaged_latencies_stop_no_beat_and_other_types_are_left_alone() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.ask::<()>(&["HSET", "{estafeta}:latencies", "w5", "many", "w99", "7", "x", "y"]);
    let beat = async |n| {
        let group = group(n, &[3, 80], &[]);
        let beat = bench.store.beat_with(generator.incarnation, LEASE, Known::default(), &group).await;
        assert!(matches!(beat.unwrap(), Beat::Stands(_)));
    };
    beat(1).await;
    let fields: HashMap<String, String> = bench.ask(&["HGETALL", "{estafeta}:latencies"]);
    assert_eq!((fields["w5"].as_str(), fields["w9"].as_str()), ("many", "1"));
    bench.ask::<()>(&["HSET", "{estafeta}:latencies", "w5", "1", "w6", "-3", "w8", "0"]);
    let [second, ..] = bench.sampled(generator, &term).await;
    assert_eq!(second.wait.text(), "5:1,0,0,0,1", "foreign fields and negative counts do not count");
    bench.ask::<()>(&["SET", "{estafeta}:latencies", "foreign"]);
    beat(2).await;
    assert_eq!(bench.ask::<String>(&["GET", "{estafeta}:latencies"]), "foreign");
    let refused = bench.store.sample(generator.identity(), Some(term.epoch), Duration::ZERO).await;
    assert!(matches!(refused, Err(Error::ForeignKey { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_foreign_element_at_the_end_of_a_list_stays_and_is_not_read() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    let foreign = ["x", "1 2 3 - -", "1 0 1 1 3 0 0 0 0 0 0 0 4 0 2 70 -1 0 9 3:1 -", "1 - 1"];
    for element in foreign {
        for list in LISTS {
            bench.ask::<()>(&["DEL", list]);
            bench.ask::<()>(&["RPUSH", list, element]);
        }
        bench.sampled(generator, &term).await;
        assert_eq!(bench.lengths(), [2, 2, 2], "{element}");
        assert_eq!(bench.samples(LISTS[0]).len(), 1);
    }
}

#[tokio::test]
async fn one_member_samples_a_ring_in_which_none_may_generate() {
    let bench = TestBench::new().await;
    let (one, other) = (bench.join_to_handle().await, bench.join_to_handle().await);
    assert!(matches!(bench.sample(one, None).await, Sampling::Sampled { .. }));
    let before = bench.everything();
    assert_eq!(bench.sample(other, None).await, Sampling::Other);
    assert_eq!(bench.everything(), before);
    assert!(matches!(bench.sample(one, None).await, Sampling::Sampled { .. }), "it goes on");
    // It has been silent for a while.
    bench.rewrite(&[(0, bench.now_ms() - 2_600)]);
    assert!(matches!(bench.sample(other, None).await, Sampling::Sampled { .. }));
    assert_eq!(bench.sample(one, None).await, Sampling::Other);
    assert_eq!(bench.samples(LISTS[0]).last().unwrap().member, other.number);
    let stranger = Actor { incarnation: Incarnation::random(), number: other.number };
    assert_eq!(bench.sample(stranger, None).await, Sampling::Fenced, "it is no member");
    assert_eq!(bench.sample(other, Some(Epoch(1))).await, Sampling::Fenced, "it is not in office");
    // As soon as a member may generate, only that one samples.
    let generator = bench.join(MemberKind::Node, 1).await;
    assert_eq!(bench.sample(other, None).await, Sampling::Fenced);
    let term = bench.lead(generator).await;
    bench.sampled(generator, &term).await;
}

/// Messages of these tests were published in the year 1970.
#[tokio::test]
async fn a_message_has_waited_no_longer_than_since_the_queue_was_seen_empty() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    let age = async || bench.snapshot().await.oldest_waiting_ms;
    assert_eq!(age().await, 0, "nothing waits");
    bench.publish(generator, &term, 0, &["a"]).await;
    assert!(age().await > 50 * 365 * 86_400_000, "the queue was never seen empty");
    let [never, ..] = bench.sampled(generator, &term).await;
    assert!(never.oldest_waiting_ms > 50 * 365 * 86_400_000);
    bench.ask::<()>(&["DEL", "{estafeta}:ready", LISTS[0], LISTS[1], LISTS[2]]);
    let [empty, ..] = bench.sampled(generator, &term).await;
    assert_eq!(empty.oldest_waiting_ms, 0);
    // The queue was empty 20 s ago.
    bench.rewrite(&[(0, bench.now_ms() - 20_000)]);
    bench.publish(generator, &term, 1, &["b", "c"]).await;
    assert!((20_000..60_000).contains(&age().await), "{}", age().await);
    let [busy, ..] = bench.sampled(generator, &term).await;
    assert!((20_000..60_000).contains(&busy.oldest_waiting_ms), "{busy:?}");
    // It is known even after further samples.
    bench.rewrite(&[(0, bench.now_ms() - 10_000)]);
    let [later, ..] = bench.sampled(generator, &term).await;
    assert!((30_000..70_000).contains(&later.oldest_waiting_ms), "{later:?}");
}

#[tokio::test]
async fn a_delayed_message_that_is_due_waits_since_then() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    let term = bench.lead(generator).await;
    bench.store.submit(&submission(1, &[delayed("a", None, 9_999_999)])).await.unwrap();
    let [sample, ..] = bench.sampled(generator, &term).await;
    assert_eq!((sample.later, sample.oldest_waiting_ms), (1, 0), "it is not due");
    bench.ask::<()>(&["HSET", "{estafeta}:ledger", "soonest", &(bench.now_ms() - 5_000).to_string()]);
    let [sample, ..] = bench.sampled(generator, &term).await;
    assert!((5_000..60_000).contains(&sample.oldest_waiting_ms), "{sample:?}");
    assert!((5_000..60_000).contains(&bench.snapshot().await.oldest_waiting_ms));
}

#[tokio::test]
async fn the_age_of_a_pack_is_that_of_its_messages() {
    let bench = TestBench::new().await;
    let generator = bench.join(MemberKind::Node, 1).await;
    bench.lead(generator).await;
    let published = bench.now_ms() - 7_000;
    for element in [format!("*1 1 {published} 2 1:a1:b"), format!("1 1 {published} 0 0 0 0 0 a")] {
        bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
        bench.ask::<()>(&["RPUSH", "{estafeta}:ready", &element]);
        assert!((7_000..60_000).contains(&bench.snapshot().await.oldest_waiting_ms), "{element}");
    }
    bench.ask::<()>(&["DEL", "{estafeta}:ready"]);
    bench.ask::<()>(&["RPUSH", "{estafeta}:ready", "foreign"]);
    assert_eq!(bench.snapshot().await.oldest_waiting_ms, 0);
}
