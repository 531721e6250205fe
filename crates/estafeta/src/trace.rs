//! The spans of nodes and publishers, and how the trace of a message goes on with what its handler publishes.
//!
//! All spans have one target, so that a filter can choose them. Where OpenTelemetry has a name for a field, the field
//! has that name. If no subscriber wants a span, none of its fields is computed.
//!
//! A message belongs to a trace if it has the header `traceparent`. Its handler then runs with a copy of the header in a
//! local value of its task, and a publisher in that task adds the header to its messages. Other handlers pay nothing.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tracing::field::{Empty, display};
use tracing::{Level, Span, debug_span, info_span, level_enabled};

use crate::failure::Failure;
use crate::keys::RingName;
use crate::message::Message;
use crate::outcome::Outcome;

/// The header that names the trace of a message, and the span that published it. W3C Trace Context defines its form.
pub(crate) const TRACEPARENT: &str = "traceparent";

const TARGET: &str = "estafeta::spans";
const SYSTEM: &str = "estafeta";

tokio::task_local! {
    static HANDLED: Option<Arc<str>>;
}

/// The `traceparent` of the message that this task handles.
pub(crate) fn current() -> Option<Arc<str>> {
    HANDLED.try_with(Clone::clone).ok().flatten()
}

/// The same future, but it does not see the `traceparent` of the message that this task handles.
pub(crate) fn outside<F: Future>(future: F) -> impl Future<Output = F::Output> {
    HANDLED.scope(None, future)
}

/// The same function for another thread, where it still belongs to the message that this task handles.
pub(crate) fn on_other_thread<T>(function: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let (traceparent, span) = (current(), Span::current());
    move || span.in_scope(|| HANDLED.sync_scope(traceparent, function))
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

/// The handling of a message, in its span, and with its `traceparent` for publishers to find.
pub(crate) struct Traced<'a, F> {
    handling: Pin<&'a mut F>,
    /// None if no subscriber wants the span and the message belongs to no trace. That must cost nothing.
    trace: Option<Box<HandlerTrace>>,
}

struct HandlerTrace {
    span: Span,
    traceparent: Option<Arc<str>>,
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
        let (span, traceparent) = (handling(message), message.traceparent().map(Into::into));
        (!span.is_disabled() || traceparent.is_some()).then(|| Self { span, traceparent }.into())
    }

    fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.span.in_scope(|| HANDLED.sync_scope(self.traceparent.clone(), poll))
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
