//! Messages that a test has handled one by one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use estafeta::testing::{HandledJob, JobOutcome, TestRing};
use estafeta::{Activity, Duties, Failure, Health, Job, Outcome, Publisher, Rate, Retry, RingName};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{HOUR, SECOND};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    pizzas: u32,
}

fn retried(after: Duration, reason: &str) -> JobOutcome {
    JobOutcome::Retried { after, reason: reason.to_owned() }
}

fn dead_letter(reason: &str) -> JobOutcome {
    JobOutcome::DeadLetter { reason: reason.to_owned() }
}

fn outcomes(handled: &[HandledJob]) -> Vec<(u64, JobOutcome)> {
    handled.iter().map(|handled| (handled.message.id, handled.outcome.clone())).collect()
}

async fn done(_: Job<Bytes>) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn a_handler_that_fails_twice_succeeds_when_its_waits_are_over() {
    async fn third_time_lucky(job: Job<Order>) -> Result<(), Failure> {
        match job.attempt() {
            3 => Ok(()),
            attempt => Err(format!("attempt {attempt} of order {}", job.body.id).into()),
        }
    }
    let ring = TestRing::start().await.unwrap();
    ring.publish(&Order { id: 17, pizzas: 2 }).await.unwrap();
    for (attempt, wait) in [(1, SECOND), (2, 4 * SECOND)] {
        let handled = ring.work_one(third_time_lucky).await.unwrap().unwrap();
        assert_eq!(handled.message.failures, attempt - 1);
        assert_eq!(handled.outcome, retried(wait, &format!("attempt {attempt} of order 17")));
        ring.advance(wait).await.unwrap();
    }
    let handled = ring.work_one(third_time_lucky).await.unwrap().unwrap();
    assert_eq!((handled.message.id, handled.message.delivery), (1, 3));
    assert_eq!(handled.outcome, JobOutcome::Done);
    let snapshot = ring.ring().snapshot(0).await.unwrap();
    assert_eq!((snapshot.done, snapshot.retries, snapshot.members.len()), (1, 2, 0));
    assert!(snapshot.balanced);
}

#[tokio::test]
async fn a_message_comes_again_only_when_its_wait_is_over() {
    let ring = TestRing::start().await.unwrap();
    ring.publish(&1).await.unwrap();
    let fail = async |_: Job<u32>| Err::<(), _>(Failure::retry_after(HOUR, "busy"));
    assert_eq!(ring.work_one(fail).await.unwrap().unwrap().outcome, retried(HOUR, "busy"));
    assert_eq!(ring.work_one(fail).await.unwrap(), None);
    ring.advance(HOUR / 2).await.unwrap();
    assert_eq!(ring.work_one(fail).await.unwrap(), None);
    ring.advance(HOUR / 2).await.unwrap();
    assert!(ring.work_one(fail).await.unwrap().is_some());
}

#[tokio::test]
async fn a_snooze_carries_its_state_and_uses_up_no_attempt() {
    async fn page(job: Job<String>) -> Result<Outcome, Failure> {
        assert_eq!(job.attempt(), 1);
        match job.carry().map_or(0, |page| page.parse().unwrap()) {
            2 => Ok(Outcome::done()),
            page => Ok(Outcome::snooze(HOUR).carry((page + 1).to_string())),
        }
    }
    let ring = TestRing::start().await.unwrap();
    ring.publish(&"book").await.unwrap();
    for _ in 0..2 {
        let handled = ring.work_one(page).await.unwrap().unwrap();
        assert_eq!(handled.outcome, JobOutcome::Snoozed { after: HOUR });
        ring.advance(HOUR).await.unwrap();
    }
    let handled = ring.work_one(page).await.unwrap().unwrap();
    assert_eq!((handled.message.snoozes, handled.message.carry()), (2, Some("2")));
    assert_eq!(handled.outcome, JobOutcome::Done);
}

#[tokio::test]
async fn a_message_that_fails_for_good_is_a_dead_letter_of_the_ring() {
    let ring =
        TestRing::start().await.unwrap().configure(|config| config.retry = Retry::default().attempts(2));
    for body in [1, 2, 3] {
        ring.publish(&body).await.unwrap();
    }
    ring.publish(&"not a number").await.unwrap();
    let fail = async |job: Job<u64>| match job.body {
        1 => Err::<(), _>(Failure::fatal("no such order")),
        2 => Err(Failure::retry_after(Duration::ZERO, "busy")),
        _ => panic!("out of dough"),
    };
    let panicked = "the handler panicked: out of dough";
    let unreadable =
        "the body does not parse: invalid type: string \"not a number\", expected u64 at line 1 column 14";
    let expected = [
        (1, dead_letter("no such order")),
        (2, retried(Duration::ZERO, "busy")),
        (3, retried(SECOND, panicked)),
        (4, dead_letter(unreadable)),
        (2, dead_letter("busy")),
    ];
    assert_eq!(outcomes(&ring.drain(fail).await.unwrap()), expected);
    ring.advance(SECOND).await.unwrap();
    assert_eq!(outcomes(&ring.drain(fail).await.unwrap()), [(3, dead_letter(panicked))]);
    let letters = ring.ring().errors(0, 10).await.unwrap();
    let letters: Vec<_> = letters.iter().map(|letter| (letter.message.id, letter.reason.as_str())).collect();
    assert_eq!(letters, [(1, "no such order"), (4, unreadable), (2, "busy"), (3, panicked)]);
}

#[tokio::test]
async fn a_handler_that_exceeds_its_time_limit_is_dropped() {
    let limit = Duration::from_millis(20);
    let ring = TestRing::start().await.unwrap().configure(|config| config.time_limit = limit);
    ring.publish(&()).await.unwrap();
    let handled = ring.work_one(async |_: Job<()>| std::future::pending::<Result<(), Failure>>().await).await;
    let reason = "the handler took longer than its time limit of 20ms";
    assert_eq!(handled.unwrap().unwrap().outcome, retried(SECOND, reason));
}

#[tokio::test]
async fn nothing_is_handled_while_handling_is_paused_or_a_limit_is_reached() {
    let ring = TestRing::start().await.unwrap();
    assert_eq!(ring.work_one(done).await.unwrap(), None, "nothing waits");
    ring.publish(&1).await.unwrap();
    ring.publish(&2).await.unwrap();
    ring.ring().pause(Activity::Handling, None).await.unwrap();
    assert_eq!(ring.work_one(done).await.unwrap(), None);
    assert_eq!(ring.drain(done).await.unwrap(), []);
    ring.ring().resume(Activity::Handling).await.unwrap();
    assert!(ring.work_one(done).await.unwrap().is_some());
    let none_for_now = Rate { messages: 1, per_ms: 3_600_000 };
    ring.ring().limit_rate(Some(none_for_now)).await.unwrap();
    assert_eq!(ring.work_one(done).await.unwrap(), None);
    ring.ring().limit_rate(None).await.unwrap();
    assert!(ring.work_one(done).await.unwrap().is_some());
}

#[tokio::test]
async fn effects_are_applied_with_the_outcome_and_a_bad_one_makes_a_dead_letter() {
    let ring = TestRing::start().await.unwrap();
    for body in [1, 2, 3] {
        ring.publish(&body).await.unwrap();
    }
    let sell = async |job: Job<u32>| match job.body {
        1 => Ok::<_, Failure>(Outcome::done().set("name", "pizza", None).result("sold", HOUR)),
        2 => Ok(Outcome::done().add("name", 1).result("sold", HOUR)),
        _ => Ok(Outcome::done().add("", 1)),
    };
    let handled = ring.drain(sell).await.unwrap();
    assert_eq!(handled[0].outcome, JobOutcome::Done);
    for bad in &handled[1..] {
        assert!(matches!(bad.outcome, JobOutcome::DeadLetter { .. }), "{bad:?}");
    }
    assert_eq!(ring.ring().result(1).await.unwrap().unwrap().value, b"sold");
    assert_eq!(ring.ring().result_ids().await.unwrap(), [1]);
    assert_eq!(ring.ring().errors(0, 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn forwarded_messages_are_drained_in_their_own_ring() {
    let orders = TestRing::start().await.unwrap().beside("shop/orders").await.unwrap();
    let mails = orders.beside("shop/mails").await.unwrap();
    let (again, mail): (RingName, RingName) = ("shop/orders".parse().unwrap(), "shop/mails".parse().unwrap());
    let split = |job: Job<u32>| {
        let outcome = match job.body {
            0 => Ok(Outcome::done()),
            rest => Outcome::done()
                .forward_json(&again, &(rest - 1))
                .and_then(|outcome| outcome.forward_json(&mail, &format!("{rest} left"))),
        };
        std::future::ready(outcome)
    };
    orders.publish(&2).await.unwrap();
    let handled = outcomes(&orders.drain(split).await.unwrap());
    assert_eq!(handled, [1, 2, 3].map(|id| (id, JobOutcome::Done)));
    assert_eq!(mails.published::<String>().await.unwrap(), ["2 left", "1 left"]);
    assert_eq!(mails.drain(done).await.unwrap().len(), 2);
    assert_eq!(mails.published::<String>().await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_drain_without_an_end_fails() {
    let ring = TestRing::start().await.unwrap();
    ring.publish(&()).await.unwrap();
    let again = async |_: Job<()>| Ok(Outcome::snooze(Duration::ZERO));
    let error = ring.drain(again).await.unwrap_err();
    assert_eq!(error.to_string(), "test ring: drain: expected an end, got 10000 messages");
    assert!(ring.work_one(done).await.unwrap().is_some(), "the message is not lost");
}

#[tokio::test]
async fn a_call_that_is_dropped_is_the_death_of_a_node() {
    let ring = TestRing::start().await.unwrap();
    for body in [1, 2] {
        ring.publish(&body).await.unwrap();
    }
    let (started, cancelled) = (Notify::new(), Mutex::new(None));
    let hang = |job: Job<u32>| {
        *cancelled.lock().unwrap() = Some(job.clone());
        started.notify_one();
        std::future::pending::<Result<(), Failure>>()
    };
    tokio::select! {
        handled = ring.work_one(hang) => panic!("{handled:?}"),
        () = started.notified() => {}
    }
    let job = cancelled.lock().unwrap().take().unwrap();
    assert!(job.is_cancelled());
    assert_eq!(ring.published::<u32>().await.unwrap(), [1, 2], "it is back at the head");
    let handled = ring.work_one(done).await.unwrap().unwrap();
    assert_eq!((handled.message.id, handled.message.delivery, handled.message.deaths), (1, 2, 1));
    let snapshot = ring.ring().snapshot(0).await.unwrap();
    assert_eq!((snapshot.buried, snapshot.members.len(), snapshot.balanced), (1, 0, true));
}

#[tokio::test]
async fn a_handler_runs_as_a_member_that_never_generates_and_is_not_taken_for_dead() {
    let ring = TestRing::start().await.unwrap();
    ring.publish(&()).await.unwrap();
    let look = |_: Job<()>| async {
        let members = ring.ring().snapshot(0).await?.members;
        let (member, alone) = (&members[0], members.len() == 1);
        let lives_on = member.lease_ms > 60_000 && member.state == Health::Alive;
        let fine = alone && lives_on && member.duties == Some(Duties::Handle) && member.in_flight == 1;
        if fine { Ok(()) } else { Err(Failure::fatal(format_args!("{members:?}"))) }
    };
    assert_eq!(ring.work_one(look).await.unwrap().unwrap().outcome, JobOutcome::Done);
    assert_eq!(ring.ring().snapshot(0).await.unwrap().members.len(), 0);
}

#[tokio::test]
async fn two_calls_at_the_same_time_get_two_messages() {
    let ring = TestRing::start().await.unwrap();
    for body in [1, 2] {
        ring.publish(&body).await.unwrap();
    }
    let (calls, both) = (AtomicU32::new(0), Notify::new());
    let meet = |_: Job<u32>| {
        let (calls, both) = (&calls, &both);
        async move {
            if calls.fetch_add(1, Ordering::Relaxed) == 1 {
                both.notify_one();
            } else {
                both.notified().await;
            }
            Ok::<(), Failure>(())
        }
    };
    let (one, other) = tokio::try_join!(ring.work_one(meet), ring.work_one(meet)).unwrap();
    assert_ne!(one.unwrap().message.id, other.unwrap().message.id);
}

#[tokio::test]
async fn a_message_is_published_as_by_a_publisher() {
    let ring = TestRing::start().await.unwrap().configure(|config| config.max_waiting = 3);
    let order = Order { id: 17, pizzas: 2 };
    let first = ring.publish(&order).key("17").header("shop", "berlin").await.unwrap();
    let again = ring.publish(&order).key("17").header("shop", "berlin").await.unwrap();
    assert_eq!((first.id, again.id, again.duplicate), (1, 1, true));
    assert!(!ring.publish(&order).single("menu").await.unwrap().duplicate);
    assert!(ring.publish(&order).single("menu").await.unwrap().duplicate);
    ring.publish(&Bytes::from_static(b"\xff")).await.unwrap();
    let full = ring.publish(&order).await.unwrap_err().to_string();
    assert_eq!(full, "ring test is full: more than 3 messages would wait");
    let shop = async |job: Job<Order>| match job.headers().get("shop") {
        Some("berlin") => Ok(()),
        other => Err(Failure::fatal(format_args!("{other:?}"))),
    };
    assert_eq!(ring.work_one(shop).await.unwrap().unwrap().outcome, JobOutcome::Done);
}

#[tokio::test]
async fn what_waits_is_returned_as_values_in_the_order_in_which_it_comes() {
    let ring = TestRing::start().await.unwrap();
    let order = |id| Order { id, pizzas: 1 };
    ring.publish(&order(1)).delay(2 * HOUR).await.unwrap();
    ring.publish(&order(2)).delay(HOUR).await.unwrap();
    for id in [3, 4, 5] {
        ring.publish(&order(id)).await.unwrap();
    }
    ring.work_one(done).await.unwrap().unwrap();
    assert_eq!(ring.published::<Order>().await.unwrap(), [4, 5, 2, 1].map(order));
    assert_eq!(ring.published::<Bytes>().await.unwrap()[0], r#"{"id":4,"pizzas":1}"#);
    let error = ring.published::<u64>().await.unwrap_err().to_string();
    let expected =
        "body: expected JSON of a u64, got '{\"id\":4,\"pizzas\":1} (invalid type: map, expected u64";
    assert!(error.starts_with(expected), "{error}");
    ring.advance(2 * HOUR).await.unwrap();
    assert_eq!(ring.drain(done).await.unwrap().len(), 4);
    assert_eq!(ring.published::<Order>().await.unwrap(), []);
}

#[tokio::test]
async fn messages_that_travel_together_are_handled_one_by_one() {
    let ring = TestRing::start().await.unwrap();
    let publisher = Publisher::<u32>::on(ring.url(), "test").await.unwrap();
    publisher.publish_all(&[1, 2, 3]).await.unwrap();
    for rest in [&[1, 2, 3][..], &[2, 3], &[3]] {
        assert_eq!(ring.published::<u32>().await.unwrap(), rest);
        let message = ring.work_one(done).await.unwrap().unwrap().message;
        assert_eq!((message.text().parse(), message.delivery), (Ok(rest[0]), 1));
    }
}

#[tokio::test]
async fn settings_change_and_the_redis_and_the_ring_stay() {
    let ring = TestRing::start().await.unwrap().configure(|config| {
        config.redis = "redis://127.0.0.1:1".parse().unwrap();
        config.ring = "elsewhere".parse().unwrap();
        config.application = "pizzeria".to_owned();
    });
    ring.publish(&1).await.unwrap();
    assert_eq!(ring.ring().application().await.unwrap().as_deref(), Some("pizzeria"));
    assert_eq!(ring.ring().name().as_str(), "test");
    // A ring of this application accepts its own forwards.
    let forward = async |job: Job<u32>| match job.body {
        1 => Outcome::done().forward_json(job.ring(), &2),
        _ => Ok(Outcome::done()),
    };
    assert_eq!(outcomes(&ring.drain(forward).await.unwrap()), [1, 2].map(|id| (id, JobOutcome::Done)));
    let bad = ring.configure(|config| config.retry = Retry::default().attempts(0));
    let error = bad.work_one(done).await.unwrap_err().to_string();
    assert_eq!(error, "attempts: expected at least 1, got '0'");
}
