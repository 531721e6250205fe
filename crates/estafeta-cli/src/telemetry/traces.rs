//! Exports the spans of a node by OTLP, if the program was built with the feature `otel`.
//!
//! The environment decides, as OpenTelemetry defines it: without an endpoint, nothing is exported. The span that handles a
//! message is linked with the span that published it, or becomes its child. Messages carry the name of the latter in their
//! header `traceparent`.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use estafeta::{TraceContext, TracePropagator, set_trace_propagator};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_otlp::{OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::failure::usage;

const RELATION: &str = "ESTAFETA_TRACES";
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// How long the last spans may take when the node ends. A collector that does not answer must not hold up a stop.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// The export of spans. The last ones are sent when it is dropped.
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts the export, if the environment names an endpoint.
    pub fn start() -> Result<Option<Self>> {
        let Some((name, endpoint)) = endpoint() else { return Ok(None) };
        let relation = Relation::from_environment()?;
        if !endpoint.starts_with("http://") {
            return Err(usage(format!(
                "variable {name}: expected an address that begins with http://, such as that of a collector on this \
                 machine, got '{endpoint}'"
            )));
        }
        let exporter = SpanExporter::builder().with_http().build();
        let exporter = exporter.map_err(|error| usage(format!("variable {name}: {error}")))?;
        let provider = SdkTracerProvider::builder().with_resource(resource()).with_batch_exporter(exporter);
        set_trace_propagator(OtelPropagator { relation, headers: TraceContextPropagator::new() });
        Ok(Some(Self(provider.build())))
    }

    /// Sends the spans of the library, and nothing else, to the exporter.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync>(&self) -> impl Layer<S> + use<S> {
        let layer = tracing_opentelemetry::layer().with_tracer(self.0.tracer("estafeta"));
        let layer = layer.with_location(false).with_threads(false).with_level(false);
        let layer = layer.with_target(false).with_tracked_inactivity(false);
        layer.with_filter(Targets::new().with_target("estafeta::spans", LevelFilter::DEBUG))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST_SPANS) {
            tracing::warn!("the last spans could not be sent: {error}");
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The variable that names where the spans go, and its value. None if they go nowhere.
fn endpoint() -> Option<(&'static str, String)> {
    let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let names = [OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT];
    names.into_iter().find_map(|name| Some((name, variable(name)?))).filter(|_| !is_off)
}

/// What the spans say about this process. The environment may name the service.
fn resource() -> Resource {
    let has_name = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.contains("service.name="));
    let resource = Resource::builder();
    if has_name { resource.build() } else { resource.with_service_name("estafeta").build() }
}

/// How the span that handles a message is connected with the span that published it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Link,
    Parent,
}

impl Relation {
    fn from_environment() -> Result<Self> {
        match variable(RELATION).as_deref() {
            None | Some("link") => Ok(Self::Link),
            Some("parent") => Ok(Self::Parent),
            Some(other) => Err(usage(format!("variable {RELATION}: expected link or parent, got '{other}'"))),
        }
    }
}

struct OtelPropagator {
    relation: Relation,
    headers: TraceContextPropagator,
}

impl TracePropagator for OtelPropagator {
    fn inject(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        if !context.span().span_context().is_sampled() {
            return None;
        }
        let mut headers = HashMap::new();
        self.headers.inject_context(&context, &mut headers);
        let tracestate = headers.remove(TRACESTATE).filter(|state| !state.is_empty());
        Some(TraceContext::new(headers.remove(TRACEPARENT)?, tracestate))
    }

    fn extract(&self, span: &Span, traces: &[TraceContext]) {
        let context = |trace: &TraceContext| {
            let mut headers = HashMap::from([(TRACEPARENT.to_owned(), trace.traceparent().to_owned())]);
            headers.extend(trace.tracestate().map(|state| (TRACESTATE.to_owned(), state.to_owned())));
            self.headers.extract_with_context(&Context::new(), &headers)
        };
        match (self.relation, traces) {
            (Relation::Parent, [only]) => drop(span.set_parent(context(only))),
            _ => traces.iter().for_each(|trace| span.add_link(context(trace).span().span_context().clone())),
        }
    }
}
