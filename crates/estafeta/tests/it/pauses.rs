//! Pauses of producing and of handling, on rings of real nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use estafeta::{Activity, Config, Error, EventKind, Failure, Message, Publisher, Ring};
use estafeta_testbed::RedisServer;
use tokio::sync::{Semaphore, mpsc};

use crate::support::{Counter, Keep, RunningNode, SOON, TestHandler, config, eventually, ring};

/// Works a little on each message, so that several wait in the node.
#[derive(Clone, Default)]
struct BusyHandler(Keep);

impl TestHandler for BusyHandler {
    async fn handle(&self, message: &Message) -> Result<(), Failure> {
        tokio::time::sleep(Duration::from_millis(3)).await;
        self.0.handle(message).await
    }
}

/// Handles as many messages as the test allows.
#[derive(Clone)]
struct HoldingHandler(Arc<Semaphore>);

impl TestHandler for HoldingHandler {
    async fn handle(&self, _: &Message) -> Result<(), Failure> {
        self.0.acquire().await.unwrap().forget();
        Ok(())
    }
}

/// The calls that Redis gets from now on, as `MONITOR` shows them.
struct MonitoredCalls(mpsc::UnboundedReceiver<String>);

impl MonitoredCalls {
    fn of(redis: &RedisServer) -> Self {
        let (send, receive) = mpsc::unbounded_channel();
        let mut connection = redis.connect();
        redis::cmd("MONITOR").exec(&mut connection).unwrap();
        // The thread ends with the server, or with its reader.
        std::thread::spawn(move || {
            while let Ok(line) = connection.recv_response() {
                let line = redis::from_redis_value::<String>(line).unwrap_or_default();
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receive)
    }

    /// Waits for such a call. Returns the calls before it.
    async fn wait_for(&mut self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let mut before = Vec::new();
        let waits = async {
            while let Some(call) = self.0.recv().await.filter(|call| !is_meant(call)) {
                before.push(call);
            }
        };
        tokio::time::timeout(SOON, waits).await.expect("Redis gets such a call");
        before
    }
}

/// A script is known by the order of its keys.
fn is_publish(call: &str) -> bool {
    call.contains(r#""{estafeta}:members" "{estafeta}:member:"#)
        && call.contains(r#""{estafeta}:ledger" "{estafeta}:ready""#)
}

fn is_turn(call: &str) -> bool {
    call.contains(r#""{estafeta}:ready" "{estafeta}:ledger" "{estafeta}:errors" "{estafeta}:later""#)
}

/// A ring with one generator and handlers that have all joined.
async fn nodes<H>(settings: &Config, handlers: &[H], ring: &Ring) -> Vec<RunningNode>
where
    H: TestHandler<()> + Clone,
{
    let mut nodes = vec![RunningNode::start(settings.clone(), Counter(0), handlers[0].clone())];
    nodes[0].notices.wait_for("BecameGenerator").await;
    nodes.extend(
        handlers.iter().map(|handler| RunningNode::start(settings.clone(), Counter(0), handler.clone())),
    );
    eventually(ring, "all join", |snapshot| snapshot.members.len() == nodes.len()).await;
    nodes
}

async fn stop(nodes: Vec<RunningNode>) {
    for node in nodes {
        node.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_ring_handles_nothing_new_and_a_resumed_one_handles_everything() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.concurrency, settings.limit) = (Duration::from_millis(1), 2, Some(600));
    let (ring, handlers) = (ring(&redis).await, [BusyHandler::default(), BusyHandler::default()]);
    let nodes = nodes(&settings, &handlers, &ring).await;
    eventually(&ring, "they work", |snapshot| snapshot.done > 20).await;
    ring.pause(Activity::Handling, None).await.unwrap();
    let paused = eventually(&ring, "nothing is in flight", |snapshot| snapshot.in_flight == 0).await;
    let more = eventually(&ring, "producing goes on", |snapshot| {
        snapshot.published >= paused.published + 50 || snapshot.published == 600
    })
    .await;
    assert_eq!((more.done, more.in_flight), (paused.done, 0), "{more:?}");
    ring.resume(Activity::Handling).await.unwrap();
    let all = eventually(&ring, "all are handled", |snapshot| snapshot.done == 600).await;
    let bodies = handlers.iter().map(|handler| handler.0.0.lock().unwrap().len());
    assert_eq!(bodies.sum::<usize>(), 600, "each once, although a pause came in between");
    let kinds: Vec<_> = all.events.iter().map(|event| event.kind.clone()).collect();
    let what = Activity::Handling;
    assert!(kinds.contains(&EventKind::Paused { what, for_ms: None, by: None }), "{kinds:?}");
    assert!(kinds.contains(&EventKind::Resumed { what, by: None }), "{kinds:?}");
    stop(nodes).await;
}

/// The handler of a single lane is held, and other messages were claimed with its one.
#[tokio::test(flavor = "multi_thread")]
async fn what_no_lane_has_started_goes_back_and_what_was_started_is_settled() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit) = (Duration::ZERO, Some(50));
    let ring = ring(&redis).await;
    let held = HoldingHandler(Arc::new(Semaphore::new(0)));
    let nodes = nodes(&settings, std::slice::from_ref(&held), &ring).await;
    eventually(&ring, "a lane is busy", |snapshot| snapshot.in_flight > 0).await;
    ring.pause(Activity::Handling, None).await.unwrap();
    eventually(&ring, "one is in flight", |snapshot| (snapshot.in_flight, snapshot.waiting) == (1, 49)).await;
    held.0.add_permits(1);
    let settled = eventually(&ring, "it is settled", |snapshot| snapshot.in_flight == 0).await;
    assert_eq!((settled.waiting, settled.done), (49, 1), "{settled:?}");
    held.0.add_permits(49);
    ring.resume(Activity::Both).await.unwrap();
    eventually(&ring, "all are handled", |snapshot| snapshot.done == 50).await;
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_generator_keeps_its_office_and_loses_no_message() {
    let redis = RedisServer::start();
    let settings = config(&redis);
    let (ring, keep) = (ring(&redis).await, Keep::default());
    let nodes = nodes(&settings, std::slice::from_ref(&keep), &ring).await;
    eventually(&ring, "it produces", |snapshot| snapshot.published > 3).await;
    ring.pause(Activity::Producing, None).await.unwrap();
    let paused = eventually(&ring, "all are handled", |snapshot| snapshot.done == snapshot.published).await;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let refused = publisher.publish("x").await;
    assert!(matches!(&refused, Err(Error::Paused { left: None, .. })), "{refused:?}");
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "producing is paused in ring estafeta until it is resumed");
    // The generator tries again and again.
    let mut calls = MonitoredCalls::of(&redis);
    for _ in 0..2 {
        calls.wait_for(is_publish).await;
    }
    let later = ring.snapshot(0).await.unwrap();
    assert_eq!((later.published, later.done), (paused.published, paused.done));
    let term = |snapshot: &estafeta::Snapshot| snapshot.generator.as_ref().map(|generator| generator.epoch);
    assert_eq!(term(&later), term(&paused), "it keeps the office");
    let patient = tokio::spawn(async move { publisher.publish("last").patient(SOON).await });
    ring.resume(Activity::Producing).await.unwrap();
    patient.await.unwrap().unwrap();
    let resumed = eventually(&ring, "it goes on", |snapshot| snapshot.published > paused.published + 3).await;
    eventually(&ring, "all are handled", |snapshot| snapshot.done >= resumed.published).await;
    stop(nodes).await;
    let mut bodies = keep.0.lock().unwrap().clone();
    bodies.retain(|body| *body != b"last");
    let expected: Vec<_> = (1..=bodies.len()).map(|n| n.to_string().into_bytes()).collect();
    assert_eq!(bodies, expected, "the source made no message in vain");
}

/// Every tick of the pause was missed, as after an outage.
#[tokio::test(flavor = "multi_thread")]
async fn ticks_that_pass_in_a_pause_are_skipped_or_made_up_for() {
    for catch_up in [false, true] {
        let redis = RedisServer::start();
        let mut settings = config(&redis);
        (settings.interval, settings.catch_up) = (Duration::from_millis(10), catch_up);
        let (ring, keep) = (ring(&redis).await, Keep::default());
        let nodes = nodes(&settings, std::slice::from_ref(&keep), &ring).await;
        ring.pause(Activity::Producing, Some(Duration::from_millis(1500))).await.unwrap();
        let start = Instant::now();
        let before = ring.snapshot(0).await.unwrap().published;
        eventually(&ring, "it goes on", |snapshot| snapshot.published > before + 20).await;
        // 20 further ticks take 200 ms, unless those of the pause are made up for.
        let published = ring.snapshot(0).await.unwrap().published - before;
        let ticks = start.elapsed().as_millis() as u64 / 10;
        match catch_up {
            false => assert!(published < ticks.saturating_sub(100), "{published} in {ticks} ticks"),
            _ => {
                eventually(&ring, "it catches up", |snapshot| snapshot.published - before > 140).await;
                let ticks = start.elapsed().as_millis() as u64 / 10;
                assert!(ticks < 1000, "it made up for the pause only after {ticks} ticks");
            }
        }
        stop(nodes).await;
    }
}

/// No message and no call comes: the first in line notices the end by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_ends_by_its_time_on_an_idle_ring() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    (settings.interval, settings.limit) = (Duration::from_millis(1), Some(5));
    let (ring, handlers) = (ring(&redis).await, [Keep::default(), Keep::default(), Keep::default()]);
    let nodes = nodes(&settings, &handlers, &ring).await;
    eventually(&ring, "all are handled", |snapshot| snapshot.done == 5).await;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    // The bound on the lateness tells a node that knows the end of the pause from one that looks every five seconds. It
    // says nothing about how fast a node is: on a busy machine, any thread may have to wait for its turn.
    for round in 0..3 {
        let time = Duration::from_millis(800);
        ring.pause(Activity::Handling, Some(time)).await.unwrap();
        let start = Instant::now();
        publisher.publish_all(["a", "b", "c"]).await.unwrap();
        eventually(&ring, "all are handled", |snapshot| snapshot.done == 8 + 3 * round).await;
        let took = start.elapsed();
        assert!(took >= time - Duration::from_millis(100), "{took:?}");
        assert!(
            took < time + Duration::from_millis(1000),
            "a look every five seconds would be later: {took:?}"
        );
    }
    stop(nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_take_over_keeps_a_pause_and_a_paused_ring_is_idle() {
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.interval = Duration::from_millis(5);
    let (ring, keep) = (ring(&redis).await, Keep::default());
    let mut nodes = nodes(&settings, &[keep.clone(), keep.clone()], &ring).await;
    eventually(&ring, "they work", |snapshot| snapshot.done > 5).await;
    ring.pause(Activity::Both, None).await.unwrap();
    eventually(&ring, "nothing is in flight", |snapshot| snapshot.in_flight == 0).await;
    nodes.remove(0).stop().await.unwrap();
    let taken = eventually(&ring, "another one leads", |snapshot| {
        snapshot.takeovers == 1 && snapshot.generator.is_some()
    })
    .await;
    assert!(taken.producing_pause.is_some() && taken.handling_pause.is_some(), "{taken:?}");
    // The generator tries every half second. Meanwhile a node makes one turn at most, unless it is called.
    let mut calls = MonitoredCalls::of(&redis);
    let mut turns = 0;
    for _ in 0..4 {
        turns += calls.wait_for(is_publish).await.iter().filter(|call| is_turn(call)).count();
    }
    assert!(turns <= nodes.len(), "{turns} turns of {} nodes that have nothing to do", nodes.len());
    let still = ring.snapshot(0).await.unwrap();
    assert_eq!((still.published, still.done), (taken.published, taken.done));
    ring.resume(Activity::Both).await.unwrap();
    eventually(&ring, "they go on", |snapshot| snapshot.done > taken.published + 5).await;
    stop(nodes).await;
}
