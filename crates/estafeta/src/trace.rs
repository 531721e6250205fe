//! The spans of nodes and publishers, and how the trace of a message goes on with what its handler publishes.
//!
//! All spans have one target, so that a filter can choose them. Where OpenTelemetry has a name for a field, the field
//! has that name. If no subscriber wants a span, none of its fields is computed.
//!
//! A message belongs to a trace if it has the header `traceparent`. Its handler then runs with a [`TraceContext`] in a
//! local value of its task, and a publisher in that task adds it to its messages. Other handlers pay nothing.
//!
//! A [`TracePropagator`] connects both: it gives messages the trace of the span that publishes them, and spans the traces
//! of their messages. So this crate needs to know no tracing system.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tracing::field::{Empty, display};
use tracing::{Level, Span, debug_span, info_span, level_enabled};

use crate::failure::Failure;
use crate::headers::Headers;
use crate::keys::RingName;
use crate::message::Message;
use crate::outcome::Outcome;

/// The header that names the trace of a message, and the span that published it. W3C Trace Context defines its form.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The header with what the tracing systems on the way have added. It means something only beside a `traceparent`.
pub(crate) const TRACESTATE: &str = "tracestate";
/// The longest `tracestate` that goes on, in bytes. W3C Trace Context asks for no more. So the effects of a message keep
/// most of their room, even if it forwards a hundred others.
const MOST_STATE: usize = 512;

const TARGET: &str = "estafeta::spans";
const SYSTEM: &str = "estafeta";
/// The most messages whose traces a span that settles them is connected with. OpenTelemetry keeps no more links.
const MOST_TRACES: usize = 128;

static PROPAGATOR: OnceLock<Box<dyn TracePropagator>> = OnceLock::new();

tokio::task_local! {
    static HANDLED: Option<Arc<TraceContext>>;
}

/// Connects the spans of nodes and publishers with the traces of messages, on behalf of a tracing system such as
/// OpenTelemetry. [`set_trace_propagator`] installs one.
pub trait TracePropagator: Send + Sync + 'static {
    /// The headers that name this span, for the messages that it publishes. None if no tracing system records the span.
    fn inject(&self, span: &Span) -> Option<TraceContext>;

    /// Connects a span that was just opened with the traces of its messages. There is at least one, and exactly one if
    /// the span is about a single message.
    fn extract(&self, span: &Span, traces: &[TraceContext]);
}

/// Installs the propagator of this process. Returns false if there is one already, which then stays.
pub fn set_trace_propagator(propagator: impl TracePropagator) -> bool {
    PROPAGATOR.set(Box::new(propagator)).is_ok()
}

/// The trace to which a message belongs: its headers `traceparent` and `tracestate`, as W3C Trace Context defines them. It
/// goes on with the messages that the handler publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceContext {
    /// The trace with these headers.
    pub fn new(traceparent: impl Into<String>, tracestate: Option<String>) -> Self {
        Self { traceparent: traceparent.into(), tracestate }
    }

    /// The header `traceparent`.
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// The header `tracestate`.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// Returns None for a message that belongs to no trace.
    pub(crate) fn of(message: &Message) -> Option<Self> {
        let traceparent = message.traceparent()?.to_owned();
        let state = message.headers().get(TRACESTATE).filter(|state| state.len() <= MOST_STATE);
        Some(Self { traceparent, tracestate: state.map(ToOwned::to_owned) })
    }

    /// Adds this trace to the headers of another message, as far as they have room. Headers that name a trace stay as they
    /// are.
    pub(crate) fn carry_on(&self, headers: &mut Headers) {
        if headers.get(TRACEPARENT).is_some() || headers.insert(TRACEPARENT, &self.traceparent).is_err() {
            return;
        }
        if let Some(state) = &self.tracestate
            && state.len() <= MOST_STATE
            && headers.get(TRACESTATE).is_none()
        {
            let _ = headers.insert(TRACESTATE, state);
        }
    }
}

/// The trace of the message that this task handles.
pub(crate) fn current() -> Option<Arc<TraceContext>> {
    HANDLED.try_with(Clone::clone).ok().flatten()
}

/// The trace that goes on with a message before its span is opened. If there is a propagator, the span knows better.
pub(crate) fn carried() -> Option<Arc<TraceContext>> {
    if PROPAGATOR.get().is_some() { None } else { current() }
}

/// Connects the span of a publish with the traces of its messages, and gives the messages that belong to none the trace of
/// the span. If no tracing system records the span, they get the trace of the message that this task handles.
pub(crate) fn connect<'a>(span: &Span, messages: impl Iterator<Item = &'a mut Message>) {
    let Some(propagator) = PROPAGATOR.get() else { return };
    let (traced, others): (Vec<_>, Vec<_>) = messages.partition(|message| message.traceparent().is_some());
    let traces: Vec<_> = traced.into_iter().filter_map(|message| TraceContext::of(message)).collect();
    extract(span, &traces);
    if others.is_empty() {
        return;
    }
    let injected = if span.is_disabled() { None } else { propagator.inject(span) };
    if let Some(trace) = injected.map(Arc::new).or_else(current) {
        others.into_iter().for_each(|message| trace.carry_on(message.headers_mut()));
    }
}

fn extract(span: &Span, traces: &[TraceContext]) {
    if let Some(propagator) = PROPAGATOR.get()
        && !traces.is_empty()
        && !span.is_disabled()
    {
        propagator.extract(span, &traces[..traces.len().min(MOST_TRACES)]);
    }
}

/// Hides the trace of the message that this task handles.
pub(crate) fn outside<F: Future>(future: F) -> impl Future<Output = F::Output> {
    HANDLED.scope(None, future)
}

/// The same function for another thread, where it still belongs to the message that this task handles.
pub(crate) fn on_other_thread<T>(function: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let (trace, span) = (current(), Span::current());
    move || span.in_scope(|| HANDLED.sync_scope(trace, function))
}

/// The span around the publish of these messages.
pub(crate) fn publishing<'a>(
    ring: &RingName,
    mut messages: impl ExactSizeIterator<Item = &'a Message>,
) -> Span {
    let count = messages.len();
    let only = messages.next().filter(|_| count == 1);
    info_span!(
        target: TARGET,
        "publish",
        otel.name = %format_args!("send {ring}"),
        otel.kind = "producer",
        messaging.system = SYSTEM,
        messaging.operation.name = "send",
        "messaging.operation.type" = "send",
        messaging.destination.name = %ring,
        messaging.batch.message_count = count,
        messaging.message.id = Empty,
        traceparent = only.and_then(Message::traceparent),
        id = Empty,
        error.type = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

/// Notes the name of a message that was published alone.
pub(crate) fn named(span: &Span, messages: &[Message]) {
    if let [message] = messages
        && !span.is_disabled()
    {
        span.record("messaging.message.id", message.key());
    }
}

/// Notes the id of a message that was published alone.
pub(crate) fn published(span: &Span, mut ids: impl ExactSizeIterator<Item = u64>) {
    if ids.len() == 1 {
        span.record("id", ids.next());
    }
}

/// The handling of a message, in its span, and with its trace for publishers to find.
pub(crate) struct Traced<'a, F> {
    handling: Pin<&'a mut F>,
    /// None if no subscriber wants the span and the message belongs to no trace. That must cost nothing.
    trace: Option<Box<HandlerTrace>>,
}

struct HandlerTrace {
    span: Span,
    context: Option<Arc<TraceContext>>,
}

impl<'a, F: Future<Output = Result<Outcome, Failure>>> Traced<'a, F> {
    pub fn new(message: &Message, handling: Pin<&'a mut F>) -> Self {
        let is_wanted = level_enabled!(Level::INFO) || !message.headers().is_empty();
        Self { handling, trace: if is_wanted { HandlerTrace::of(message) } else { None } }
    }

    /// Notes the answer with which the handling ended.
    pub fn end_with(&self, answer: F::Output) -> F::Output {
        if let Some(trace) = &self.trace {
            trace.note(&answer);
        }
        answer
    }
}

impl<F: Future<Output = Result<Outcome, Failure>>> Future for Traced<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { handling, trace } = &mut *self;
        match trace {
            None => handling.as_mut().poll(context),
            Some(trace) => {
                let polled = trace.enter(|| handling.as_mut().poll(context));
                polled.map(|answer| self.end_with(answer))
            }
        }
    }
}

impl HandlerTrace {
    fn of(message: &Message) -> Option<Box<Self>> {
        let (span, context) = (handling(message), TraceContext::of(message));
        extract(&span, context.as_slice());
        let context = context.map(Arc::new);
        (!span.is_disabled() || context.is_some()).then(|| Self { span, context }.into())
    }

    fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.span.in_scope(|| HANDLED.sync_scope(self.context.clone(), poll))
    }

    fn note(&self, answer: &Result<Outcome, Failure>) {
        let outcome = match answer {
            Ok(Outcome { snooze: None, .. }) => "done",
            Ok(_) => "snoozed",
            Err(_) => "failed",
        };
        self.span.record("outcome", outcome);
        if let Err(failure) = answer {
            failed(&self.span, failure);
        }
    }
}

/// The span around the handler of a message.
fn handling(message: &Message) -> Span {
    info_span!(
        target: TARGET,
        "handle",
        otel.name = %format_args!("process {}", message.ring()),
        otel.kind = "consumer",
        messaging.system = SYSTEM,
        messaging.operation.name = "process",
        "messaging.operation.type" = "process",
        messaging.destination.name = %message.ring(),
        messaging.message.id = message.key(),
        traceparent = message.traceparent(),
        id = message.id,
        attempt = message.attempt(),
        delivery = message.delivery,
        outcome = Empty,
        error.type = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

/// The span around the call that handles these messages together. Each of them has its own span, and the call follows
/// from all of those.
pub(crate) fn handling_batch(ring: &RingName, spans: &[Span]) -> Span {
    let batch = info_span!(
        target: TARGET,
        parent: None,
        "handle_batch",
        otel.name = %format_args!("process {ring}"),
        otel.kind = "consumer",
        messaging.system = SYSTEM,
        messaging.operation.name = "process",
        "messaging.operation.type" = "process",
        messaging.destination.name = %ring,
        messaging.batch.message_count = spans.len(),
    );
    for span in spans {
        batch.follows_from(span);
    }
    batch
}

/// The span around a turn that settles these messages. A turn that settles none has no span.
pub(crate) fn settling<'a>(
    ring: &RingName,
    count: usize,
    messages: impl Iterator<Item = &'a Message>,
) -> Span {
    if count == 0 {
        return Span::none();
    }
    let span = debug_span!(
        target: TARGET,
        "settle",
        otel.name = %format_args!("settle {ring}"),
        otel.kind = "client",
        messaging.system = SYSTEM,
        messaging.operation.name = "settle",
        "messaging.operation.type" = "settle",
        messaging.destination.name = %ring,
        messaging.batch.message_count = count,
        done = Empty,
        dead_letters = Empty,
        postponed = Empty,
    );
    if PROPAGATOR.get().is_some() && !span.is_disabled() {
        let traces: Vec<_> = messages.filter_map(TraceContext::of).take(MOST_TRACES).collect();
        extract(&span, &traces);
    }
    span
}

/// Notes what became of the messages of a turn.
pub(crate) fn settled(span: &Span, done: usize, dead_letters: usize, postponed: usize) {
    span.record("done", done).record("dead_letters", dead_letters).record("postponed", postponed);
}

/// Notes that what the span is about has failed.
pub(crate) fn failed(span: &Span, reason: impl Display) {
    // What went wrong has no name of few values, and OpenTelemetry wants this word then.
    span.record("error.type", "_OTHER");
    span.record("otel.status_code", "ERROR").record("otel.status_description", display(reason));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(headers: &[(&str, &str)]) -> Message {
        headers
            .iter()
            .fold(Message::sample("r", 1, ""), |message, (name, value)| message.with_header(name, *value))
    }

    /// The headers of a message after it has got the trace of another one.
    fn carried(from: &[(&str, &str)], own: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut headers = message(own).headers().clone();
        if let Some(trace) = TraceContext::of(&message(from)) {
            trace.carry_on(&mut headers);
        }
        headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn list(headers: &[(&str, &str)]) -> Vec<(String, String)> {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_trace_goes_on_with_its_state_unless_the_message_names_another_one() {
        let both = [("traceparent", "t"), ("tracestate", "s")];
        assert_eq!(carried(&both, &[]), list(&both));
        assert_eq!(carried(&both[..1], &[]), list(&both[..1]));
        assert_eq!(carried(&both[1..], &[]), list(&[]), "a state alone is no trace");
        let other = [("traceparent", "other")];
        assert_eq!(carried(&both, &other), list(&other), "the state belongs to the other trace");
        let state = [("tracestate", "other")];
        assert_eq!(carried(&both, &state), list(&[state[0], both[0]]));
    }

    #[test]
    fn a_state_goes_on_up_to_its_limit_and_if_there_is_room() {
        let (longest, longer) = ("s".repeat(512), "s".repeat(513));
        let count = |state: &str, own| carried(&[("traceparent", "t"), ("tracestate", state)], own).len();
        assert_eq!((count(&longest, &[]), count(&longer, &[])), (2, 1));
        let names: Vec<String> = (0..64).map(|name| name.to_string()).collect();
        let own: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert_eq!([62, 63, 64].map(|most| count("s", &own[..most])), [64, 64, 64]);
    }
}
