//! The spans that a test has seen.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::Dispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// One span of estafeta.
#[derive(Clone, Debug, Default)]
pub struct SeenSpan {
    id: u64,
    pub name: String,
    /// The name of the span in which it was opened.
    pub parent: Option<String>,
    /// The names of the spans from which it follows.
    pub follows: Vec<String>,
    fields: BTreeMap<String, String>,
}

impl SeenSpan {
    /// The value of a field as text. A field without a value is empty.
    pub fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }
}

impl Visit for SeenSpan {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

/// While only one subscriber exists, `tracing` asks the thread that first reaches a span whether anyone wants it. That
/// thread may belong to another test, and its answer then counts for all. With two more subscribers, all are asked.
static OTHER_SUBSCRIBERS: OnceLock<[Dispatch; 2]> = OnceLock::new();

/// All spans of estafeta that were opened on this thread since the test began, in their order.
#[derive(Clone, Default)]
pub struct Spans(Arc<Mutex<Vec<SeenSpan>>>);

impl Spans {
    /// Watches this thread until the guard is dropped.
    pub fn watch() -> (Self, DefaultGuard) {
        OTHER_SUBSCRIBERS.get_or_init(|| [(); 2].map(|()| Dispatch::new(Registry::default())));
        let spans = Self::default();
        let guard = tracing::subscriber::set_default(Registry::default().with(spans.clone()));
        (spans, guard)
    }

    /// All spans with this name.
    pub fn named(&self, name: &str) -> Vec<SeenSpan> {
        self.0.lock().unwrap().iter().filter(|span| span.name == name).cloned().collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut SeenSpan)) {
        // Ids are given out again, so the last one is meant.
        if let Some(span) = self.0.lock().unwrap().iter_mut().rfind(|span| span.id == id.into_u64()) {
            change(span);
        }
    }

    fn name_of(&self, id: &Id) -> Option<String> {
        let spans = self.0.lock().unwrap();
        spans.iter().rfind(|span| span.id == id.into_u64()).map(|span| span.name.clone())
    }
}

impl<S: tracing::Subscriber> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != "estafeta::spans" {
            return;
        }
        let current = context.current_span();
        let parent = attributes.parent().or_else(|| current.id().filter(|_| attributes.is_contextual()));
        let mut span = SeenSpan {
            id: id.into_u64(),
            name: attributes.metadata().name().to_owned(),
            parent: parent.and_then(|id| self.name_of(id)),
            ..SeenSpan::default()
        };
        attributes.record(&mut span);
        self.0.lock().unwrap().push(span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |span| values.record(span));
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, _: Context<'_, S>) {
        let name = self.name_of(follows);
        self.change(id, |span| span.follows.extend(name));
    }
}
