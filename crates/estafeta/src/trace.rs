//! The spans of nodes and publishers, and how the trace of a message goes on with what its handler publishes.
//!
//! All spans have one target, so that a filter can choose them. Where OpenTelemetry has a name for a field, the field
//! has that name. If no subscriber wants a span, none of its fields is computed.
//!
//! A message belongs to a trace if it has the header `traceparent`. Its handler then runs with a [`TraceContext`] in a
//! local value of its task, and a publisher in that task adds it to its messages. Other handlers pay nothing.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
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

tokio::task_local! {
    static HANDLED: Option<Arc<TraceContext>>;
}

/// The trace to which a message belongs. It goes on with the messages that the handler publishes.
pub(crate) struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceContext {
    /// Returns None for a message that belongs to no trace.
    pub fn of(message: &Message) -> Option<Self> {
        let traceparent = message.traceparent()?.to_owned();
        let state = message.headers().get(TRACESTATE).filter(|state| state.len() <= MOST_STATE);
        Some(Self { traceparent, tracestate: state.map(ToOwned::to_owned) })
    }

    /// Adds this trace to the headers of another message, as far as they have room. Headers that name a trace stay as they
    /// are.
    pub fn carry_on(&self, headers: &mut Headers) {
        if headers.get(TRACEPARENT).is_some() || headers.insert(TRACEPARENT, &self.traceparent).is_err() {
            return;
        }
        if let Some(state) = &self.tracestate
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
        otel.kind = "producer",
        messaging.system = SYSTEM,
        messaging.operation.name = "publish",
        "messaging.operation.type" = "send",
        messaging.destination.name = %ring,
        messaging.batch.message_count = count,
        traceparent = only.and_then(Message::traceparent),
        id = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
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
        let (span, context) = (handling(message), TraceContext::of(message).map(Into::into));
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
        otel.kind = "consumer",
        messaging.system = SYSTEM,
        messaging.operation.name = "handle",
        "messaging.operation.type" = "process",
        messaging.destination.name = %message.ring(),
        messaging.message.id = message.key(),
        traceparent = message.traceparent(),
        id = message.id,
        attempt = message.attempt(),
        delivery = message.delivery,
        outcome = Empty,
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
        otel.kind = "consumer",
        messaging.system = SYSTEM,
        messaging.operation.name = "handle_batch",
        "messaging.operation.type" = "process",
        messaging.destination.name = %ring,
        messaging.batch.message_count = spans.len(),
    );
    for span in spans {
        batch.follows_from(span);
    }
    batch
}

/// The span around a turn that settles so many messages. A turn that settles none has no span.
pub(crate) fn settling(ring: &RingName, count: usize) -> Span {
    if count == 0 {
        return Span::none();
    }
    debug_span!(
        target: TARGET,
        "settle",
        otel.kind = "client",
        messaging.system = SYSTEM,
        messaging.operation.name = "settle",
        "messaging.operation.type" = "settle",
        messaging.destination.name = %ring,
        messaging.batch.message_count = count,
        done = Empty,
        dead_letters = Empty,
        postponed = Empty,
    )
}

/// Notes what became of the messages of a turn.
pub(crate) fn settled(span: &Span, done: usize, dead_letters: usize, postponed: usize) {
    span.record("done", done).record("dead_letters", dead_letters).record("postponed", postponed);
}

/// Notes that what the span is about has failed.
pub(crate) fn failed(span: &Span, reason: impl Display) {
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
