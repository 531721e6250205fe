//! The spans of nodes and publishers, and the trace that goes on from message to message.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use estafeta::{
    Config, Failure, Job, Node, Outcome, Outcomes, Publisher, Ring, RingName, TraceContext, TracePropagator,
    every, set_trace_propagator,
};
use estafeta_testbed::RedisServer;
use tracing::Span;

use crate::support::{SOON, SeenSpan, Spans, config, endpoint, eventually, start};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER_TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The settings of a ring of the group `shop`.
fn shop(redis: &RedisServer, ring: &str) -> Config {
    Config::new(endpoint(redis), format!("shop/{ring}").parse().unwrap())
}

async fn done(config: &Config, count: u64) {
    let ring = Ring::connect(config.redis.clone(), config.ring.clone()).await.unwrap();
    eventually(&ring, "all are done", |snapshot| snapshot.done == count).await;
}

/// The body of a message, and its `traceparent`, with its `tracestate` behind a space.
type BodyAndTrace = (String, Option<String>);

/// The messages that a ring has handled.
#[derive(Clone, Default)]
struct SeenMessages(Arc<Mutex<Vec<BodyAndTrace>>>);

impl SeenMessages {
    /// A node that only looks.
    fn node(&self, config: &Config) -> Node {
        Node::with(config.clone()).handle_with(self.clone(), async |seen, job: Job<Bytes>| {
            seen.add(&job);
            Ok(())
        })
    }

    fn add(&self, job: &Job<Bytes>) {
        let body = String::from_utf8(job.body.to_vec()).unwrap();
        let state = job.headers().get("tracestate").map(|state| format!(" {state}")).unwrap_or_default();
        let trace = job.traceparent().map(|traceparent| format!("{traceparent}{state}"));
        self.0.lock().unwrap().push((body, trace));
    }

    fn sorted(&self) -> Vec<BodyAndTrace> {
        let mut seen = self.0.lock().unwrap().clone();
        seen.sort();
        seen
    }
}

fn seen(list: &[(&str, Option<&str>)]) -> Vec<BodyAndTrace> {
    list.iter().map(|(body, trace)| ((*body).to_owned(), trace.map(ToOwned::to_owned))).collect()
}

fn values<const N: usize>(span: &SeenSpan, fields: [&str; N]) -> [String; N] {
    fields.map(|field| span.get(field).to_owned())
}

/// On a runtime with one thread, so that the subscriber of the test sees all spans of the node.
#[tokio::test]
async fn publish_handle_and_settle_are_spans_with_the_facts_of_their_messages() {
    let (spans, _guard) = Spans::watch();
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    publisher.publish("1").header("traceparent", TRACE).await.unwrap();
    publisher.publish_all(["2", "3"]).await.unwrap();
    let node = Node::with(settings.clone()).handle(async |job: Job<u64>| match (job.body, job.delivery()) {
        (1, 1) => Err(Failure::retry_after(Duration::ZERO, "not yet")),
        (2, 1) => Ok(Outcome::snooze(Duration::ZERO)),
        (3, _) => Err(Failure::fatal("never")),
        _ => Ok(Outcome::done()),
    });
    let one = start(node);
    done(&settings, 2).await;
    one.stop().await.unwrap();

    let facts = ["messaging.batch.message_count", "id", "traceparent", "otel.status_code"];
    let published: Vec<_> = spans.named("publish").iter().map(|span| values(span, facts)).collect();
    assert_eq!(published, [["1", "1", TRACE, ""], ["2", "", "", ""]]);
    let facts = ["id", "attempt", "delivery", "traceparent", "outcome", "otel.status_code"];
    let mut handled: Vec<_> = spans.named("handle").iter().map(|span| values(span, facts)).collect();
    handled.sort();
    let expected = [
        ["1", "1", "1", TRACE, "failed", "ERROR"],
        ["1", "2", "2", TRACE, "done", ""],
        ["2", "1", "1", "", "snoozed", ""],
        ["2", "1", "2", "", "done", ""],
        ["3", "1", "1", "", "failed", "ERROR"],
    ];
    assert_eq!(handled, expected);
    let failed = spans.named("handle").into_iter().find(|span| span.get("id") == "3").unwrap();
    assert_eq!(failed.get("otel.status_description"), "never");
    assert!(failed.get("messaging.message.id").starts_with("estafeta/"), "{failed:?}");
    let settles = spans.named("settle");
    let sum = |field| settles.iter().map(|span| span.get(field).parse::<u64>().unwrap()).sum::<u64>();
    let counts = ["done", "dead_letters", "postponed", "messaging.batch.message_count"].map(sum);
    assert_eq!(counts, [2, 1, 2, 5], "{settles:?}");
    for (name, kind, operation) in
        [("publish", "producer", "send"), ("handle", "consumer", "process"), ("settle", "client", "settle")]
    {
        for span in spans.named(name) {
            let facts = ["messaging.system", "messaging.destination.name", "messaging.operation.name"];
            assert_eq!(values(&span, facts), ["estafeta", "estafeta", operation]);
            assert_eq!(span.get("otel.name"), format!("{operation} estafeta"));
            assert_eq!(values(&span, ["otel.kind", "messaging.operation.type"]), [kind, operation]);
            assert_eq!((span.parent, span.follows.len()), (None, 0));
        }
    }
}

#[tokio::test]
async fn a_handler_that_is_dropped_after_its_time_limit_has_failed_in_its_span() {
    let (spans, _guard) = Spans::watch();
    let redis = RedisServer::start();
    let settings = config(&redis);
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    publisher.publish("x").await.unwrap();
    let node = Node::with(settings).time_limit(Duration::from_millis(50));
    let one = start(node.handle(async |_: Job<Bytes>| {
        std::future::pending::<()>().await;
        Ok(())
    }));
    one.notices.wait_for("again #1.1").await;
    one.stop().await.unwrap();
    let facts = values(&spans.named("handle")[0], ["outcome", "otel.status_code", "otel.status_description"]);
    assert_eq!(facts, ["failed", "ERROR", "the handler took longer than its time limit of 50ms"]);
}

#[tokio::test]
async fn a_publish_that_fails_is_a_span_with_the_reason() {
    let (spans, _guard) = Spans::watch();
    let redis = RedisServer::start();
    let mut settings = config(&redis);
    settings.max_waiting = 1;
    let publisher: Publisher = Publisher::of(&settings).await.unwrap();
    let error = publisher.publish_all(["1", "2"]).await.unwrap_err();
    let publish = &spans.named("publish")[0];
    let facts = values(publish, ["otel.status_code", "otel.status_description"]);
    assert_eq!(facts, ["ERROR".to_owned(), error.to_string()]);
}

#[tokio::test]
async fn what_a_generator_publishes_is_a_span_and_belongs_to_no_trace() {
    let (spans, _guard) = Spans::watch();
    let redis = RedisServer::start();
    let mut settings = shop(&redis, "ticks");
    (settings.limit, settings.until_done, settings.max_batch) = (Some(3), true, 1);
    let looks = SeenMessages::default();
    let ticks = every(Duration::from_millis(1), || async { Ok("tick") });
    start(looks.node(&settings).generate(ticks)).ended().await.unwrap();
    let facts = ["messaging.batch.message_count", "messaging.destination.name", "id"];
    let published: Vec<_> = spans.named("publish").iter().map(|span| values(span, facts)).collect();
    assert_eq!(published, ["1", "2", "3"].map(|id| ["1", "shop/ticks", id]));
    assert_eq!(looks.sorted(), seen(&[("\"tick\"", None); 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_on_through_retries_publishers_and_forwards() {
    let redis = RedisServer::start();
    let (orders, mails, bills) = (shop(&redis, "orders"), shop(&redis, "mails"), shop(&redis, "bills"));
    let publisher: Publisher = Publisher::of(&orders).await.unwrap();
    let biller: Publisher = Publisher::of(&bills).await.unwrap();
    let traced = publisher.publish("traced").header("traceparent", TRACE).header("tracestate", "vendor=17");
    traced.header("shop", "berlin").await.unwrap();
    publisher.publish("plain").await.unwrap();
    let state = (mails.ring.clone(), biller);
    let accept = async |(mails, biller): (RingName, Publisher), job: Job<Bytes>| {
        if job.attempt() == 1 {
            return Err(Failure::retry_after(Duration::ZERO, "not yet"));
        }
        let body = String::from_utf8(job.body.to_vec()).unwrap();
        biller.publish(format!("{body} bill")).await?;
        biller.publish_all([format!("{body} copy")]).await?;
        biller.publish(format!("{body} other")).header("traceparent", OTHER_TRACE).await?;
        Ok(Outcome::done().forward(&mails, format!("{body} mail")))
    };
    let (mailed, billed) = <(SeenMessages, SeenMessages)>::default();
    let nodes = [
        start(Node::with(orders).handle_with(state, accept).concurrency(2)),
        start(mailed.node(&mails)),
        start(billed.node(&bills)),
    ];
    done(&mails, 2).await;
    done(&bills, 6).await;
    for node in nodes {
        node.stop().await.unwrap();
    }
    let trace = &*format!("{TRACE} vendor=17");
    assert_eq!(mailed.sorted(), seen(&[("plain mail", None), ("traced mail", Some(trace))]));
    let expected = [
        ("plain bill", None),
        ("plain copy", None),
        ("plain other", Some(OTHER_TRACE)),
        ("traced bill", Some(trace)),
        ("traced copy", Some(trace)),
        ("traced other", Some(OTHER_TRACE)),
    ];
    assert_eq!(billed.sorted(), seen(&expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_on_from_the_thread_of_a_blocking_handler() {
    let redis = RedisServer::start();
    let (orders, bills) = (shop(&redis, "orders"), shop(&redis, "bills"));
    let publisher: Publisher = Publisher::of(&orders).await.unwrap();
    let biller: Publisher = Publisher::of(&bills).await.unwrap();
    publisher.publish("x").header("traceparent", TRACE).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    let accept = move |_: Job<Bytes>| {
        runtime.block_on(async { biller.publish("bill").await })?;
        Ok(())
    };
    let billed = SeenMessages::default();
    let nodes = [start(Node::with(orders).handle_blocking(accept)), start(billed.node(&bills))];
    done(&bills, 1).await;
    for node in nodes {
        node.stop().await.unwrap();
    }
    assert_eq!(billed.sorted(), seen(&[("bill", Some(TRACE))]));
}

/// On a runtime with one thread, so that the subscriber of the test sees the spans of the lanes.
#[tokio::test]
async fn a_batch_belongs_to_no_trace_and_each_of_its_messages_to_its_own() {
    let (spans, _guard) = Spans::watch();
    let redis = RedisServer::start();
    let (orders, mails, bills) = (shop(&redis, "orders"), shop(&redis, "mails"), shop(&redis, "bills"));
    let publisher: Publisher = Publisher::of(&orders).await.unwrap();
    let biller: Publisher = Publisher::of(&bills).await.unwrap();
    publisher.publish("one").header("traceparent", TRACE).await.unwrap();
    publisher.publish("two").header("traceparent", OTHER_TRACE).await.unwrap();
    let to = mails.ring.clone();
    let accept = move |jobs: Vec<Job<Bytes>>| {
        let (to, biller) = (to.clone(), biller.clone());
        async move {
            biller.publish("bill").await?;
            let forward = |job: Job<Bytes>| Ok(Outcome::done().forward(&to, job.body));
            Ok(Outcomes::each(jobs.into_iter().map(forward)))
        }
    };
    let (mailed, billed) = <(SeenMessages, SeenMessages)>::default();
    let nodes = [
        start(Node::with(orders).handle_batch(2, SOON, accept)),
        start(mailed.node(&mails)),
        start(billed.node(&bills)),
    ];
    done(&mails, 2).await;
    done(&bills, 1).await;
    for node in nodes {
        node.stop().await.unwrap();
    }
    assert_eq!(mailed.sorted(), seen(&[("one", Some(TRACE)), ("two", Some(OTHER_TRACE))]));
    assert_eq!(billed.sorted(), seen(&[("bill", None)]));
    let batches = spans.named("handle_batch");
    let [batch] = &batches[..] else { panic!("{batches:?}") };
    assert_eq!((&batch.parent, &batch.follows[..]), (&None, &["handle".to_owned(), "handle".to_owned()][..]));
    assert_eq!(
        values(batch, ["messaging.batch.message_count", "messaging.destination.name"]),
        ["2", "shop/orders"]
    );
    let bill = spans
        .named("publish")
        .into_iter()
        .find(|span| span.get("messaging.destination.name") == "shop/bills");
    assert_eq!(bill.unwrap().parent.as_deref(), Some("handle_batch"));
}

#[tokio::test]
async fn a_handler_and_what_it_publishes_run_in_the_span_of_its_message() {
    let (spans, _guard) = Spans::watch();
    let redis = RedisServer::start();
    let (orders, bills) = (shop(&redis, "orders"), shop(&redis, "bills"));
    let publisher: Publisher = Publisher::of(&orders).await.unwrap();
    publisher.publish("x").await.unwrap();
    let biller: Publisher = Publisher::of(&bills).await.unwrap();
    let node = Node::with(orders.clone()).handle_with(biller, async |biller, job: Job<Bytes>| {
        tokio::task::yield_now().await;
        biller.publish(job.body).await?;
        Ok(())
    });
    let one = start(node.wrap(async |job, next| next.run(job).await));
    done(&orders, 1).await;
    one.stop().await.unwrap();
    let parents: Vec<_> = spans.named("publish").into_iter().map(|span| span.parent).collect();
    assert_eq!(parents, [None, Some("handle".to_owned())]);
}

/// The name of a span, and the traces that it was connected with.
type Connected = (&'static str, Vec<String>);

thread_local! {
    /// The spans that were connected with traces on this thread. None for the threads of other tests.
    static CONNECTED: RefCell<Option<Vec<Connected>>> = const { RefCell::new(None) };
}

/// Gives each span on the thread of one test the same trace.
struct ThreadPropagator;

impl TracePropagator for ThreadPropagator {
    fn inject(&self, _: &Span) -> Option<TraceContext> {
        let is_mine = CONNECTED.with_borrow(Option::is_some);
        is_mine.then(|| TraceContext::new(OTHER_TRACE, Some("vendor=17".to_owned())))
    }

    fn extract(&self, span: &Span, traces: &[TraceContext]) {
        let traces = traces.iter().map(|trace| {
            let state = trace.tracestate().map(|state| format!(" {state}")).unwrap_or_default();
            format!("{}{state}", trace.traceparent())
        });
        CONNECTED.with_borrow_mut(|connected| {
            connected.iter_mut().for_each(|all| {
                all.push((span.metadata().expect("enabled").name(), traces.clone().collect()));
            });
        });
    }
}

/// On a runtime with one thread, so that the node runs on the thread of the test.
#[tokio::test]
async fn a_propagator_gives_messages_the_trace_of_their_publish_and_spans_the_traces_of_their_messages() {
    let (_spans, _guard) = Spans::watch();
    set_trace_propagator(ThreadPropagator);
    let redis = RedisServer::start();
    let (orders, ticks) = (shop(&redis, "orders"), shop(&redis, "ticks"));
    let publisher: Publisher = Publisher::of(&orders).await.unwrap();
    CONNECTED.set(Some(Vec::new()));
    publisher.publish("own").header("traceparent", TRACE).await.unwrap();
    publisher.publish_all(["plain"]).await.unwrap();
    let looks = SeenMessages::default();
    let one = start(looks.node(&orders));
    done(&orders, 2).await;
    one.stop().await.unwrap();
    let injected = &*format!("{OTHER_TRACE} vendor=17");
    assert_eq!(looks.sorted(), seen(&[("own", Some(TRACE)), ("plain", Some(injected))]));
    let connected = CONNECTED.take().unwrap();
    let of = |name| {
        let all = connected.iter().filter(|(span, _)| *span == name);
        let mut traces: Vec<_> = all.flat_map(|(_, traces)| traces.clone()).collect();
        traces.sort();
        traces
    };
    assert_eq!(of("publish"), [TRACE]);
    assert_eq!((of("handle"), of("settle")), (vec![TRACE.to_owned(), injected.to_owned()], of("handle")));
    // What a generator publishes.
    let mut settings = ticks;
    (settings.limit, settings.until_done) = (Some(2), true);
    CONNECTED.set(Some(Vec::new()));
    let looks = SeenMessages::default();
    let source = every(Duration::from_millis(1), || async { Ok("tick") });
    start(looks.node(&settings).generate(source)).ended().await.unwrap();
    CONNECTED.set(None);
    assert_eq!(looks.sorted(), seen(&[("\"tick\"", Some(injected)); 2]));
}
