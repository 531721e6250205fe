//! The metrics of one node. docs/metrics.md lists them, and a test compares the two.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};

use estafeta::{Config, HandlingResult, HandlingTimes, LATENCY_BOUNDS, Notice};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// Everything that becomes of a message.
const RESULTS: [HandlingResult; 4] =
    [HandlingResult::Done, HandlingResult::Failed, HandlingResult::Retried, HandlingResult::Snoozed];

/// A label that has few values. No message and no incarnation is ever one.
type FewValues = [(&'static str, String); 1];
type HistogramFamily = Family<FewValues, Histogram, fn() -> Histogram>;

/// The metrics of one node, made of its notices.
pub struct NodeMetrics {
    registry: Registry,
    generating: Gauge,
    /// The partitions in which this node is the generator.
    offices: Mutex<BTreeSet<u32>>,
    generated: Counter,
    handled: Family<FewValues, Counter>,
    wait: Histogram,
    handling: HistogramFamily,
    takeover: Histogram,
    redis_step: HistogramFamily,
    redis_lost: Counter,
    lanes_busy: Gauge<i64, AtomicI64>,
}

/// A lane that is busy, for as long as this value lives.
pub struct BusyLaneMark(Gauge<i64, AtomicI64>);

impl Drop for BusyLaneMark {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A histogram with the bounds that the history of a ring has.
fn histogram() -> Histogram {
    Histogram::new(LATENCY_BOUNDS.iter().map(std::time::Duration::as_secs_f64))
}

impl NodeMetrics {
    pub fn new(config: &Config) -> Self {
        let ring = ("ring".into(), config.ring.to_string().into());
        let mut registry = Registry::with_prefix_and_labels("estafeta", [ring].into_iter());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of the program", build);
        let lanes: Gauge = Gauge::default();
        lanes.set(match config.never_handle {
            true => 0,
            // Each partition has at least one.
            false => i64::try_from(config.concurrency.max(config.partitions as usize)).unwrap_or(i64::MAX),
        });
        registry.register("lanes", "Messages that this node can handle at once", lanes);
        let max_waiting: Gauge = Gauge::default();
        // The largest share of a partition, because each partition has its own queue.
        let share = config.max_waiting.div_ceil(config.partitions.max(1).into());
        max_waiting.set(i64::try_from(share).unwrap_or(i64::MAX));
        let help =
            "Messages that may wait in the queue while this node is the generator; with partitions, in each";
        registry.register("max_waiting", help, max_waiting);
        let metrics = Self {
            generating: Gauge::default(),
            offices: Mutex::default(),
            generated: Counter::default(),
            handled: Family::default(),
            wait: histogram(),
            handling: HistogramFamily::new_with_constructor(histogram),
            takeover: histogram(),
            redis_step: HistogramFamily::new_with_constructor(histogram),
            redis_lost: Counter::default(),
            lanes_busy: Gauge::default(),
            registry: Registry::default(),
        };
        let help = "1 while this node is the generator, 0 otherwise; with partitions, in how many it is";
        registry.register("generating", help, metrics.generating.clone());
        registry.register("generated", "Messages that this node published", metrics.generated.clone());
        let help = "Messages whose handler ended, by what became of them: done, failed, retried or snoozed";
        registry.register("handled", help, metrics.handled.clone());
        let seconds = || Unit::Seconds;
        let help = "From the publish of a message to the start of its first handler";
        registry.register_with_unit("wait", help, seconds(), metrics.wait.clone());
        let help = "How long handlers took, by what became of their messages";
        registry.register_with_unit("handling", help, seconds(), metrics.handling.clone());
        let help = "How long the office was without a generator when this node took over";
        registry.register_with_unit("takeover", help, seconds(), metrics.takeover.clone());
        let help = "How long Redis took to answer a step, with the way there and back";
        registry.register_with_unit("redis_step", help, seconds(), metrics.redis_step.clone());
        let help = "How often Redis stopped serving this node";
        registry.register("redis_lost", help, metrics.redis_lost.clone());
        let help = "Lanes of this node whose handler runs";
        registry.register("lanes_busy", help, metrics.lanes_busy.clone());
        // A rate needs a first value. These labels exist before anything happened.
        for result in RESULTS {
            let result = [("result", result.to_string())];
            drop((metrics.handled.get_or_create(&result), metrics.handling.get_or_create(&result)));
        }
        drop(metrics.redis_step.get_or_create(&[("step", "beat".to_owned())]));
        Self { registry, ..metrics }
    }

    pub fn lane_begins(self: &Arc<Self>) -> BusyLaneMark {
        self.lanes_busy.inc();
        BusyLaneMark(self.lanes_busy.clone())
    }

    pub fn notice(&self, partition: u32, notice: &Notice<'_>) {
        match *notice {
            Notice::BecameGenerator { from, silence, .. } => {
                self.note_office(partition, true);
                if from.is_some() {
                    self.takeover.observe(silence.as_secs_f64());
                }
            }
            Notice::BecameHandler | Notice::DeclaredDead | Notice::Stopping => {
                self.note_office(partition, false);
            }
            Notice::Generated { messages } => {
                self.generated.inc_by(messages.len() as u64);
            }
            Notice::Timed { times } => times.iter().for_each(|one| self.note_times(one)),
            Notice::StepAnswered { step, took } => {
                let step = [("step", step.to_owned())];
                self.redis_step.get_or_create(&step).observe(took.as_secs_f64());
            }
            Notice::RedisLost { .. } => {
                self.redis_lost.inc();
            }
            _ => {}
        }
    }

    fn note_office(&self, partition: u32, holds_it: bool) {
        let mut offices = self.offices.lock().expect("no panic while held");
        if holds_it {
            offices.insert(partition);
        } else {
            offices.remove(&partition);
        }
        self.generating.set(offices.len() as i64);
    }

    fn note_times(&self, times: &HandlingTimes) {
        let result = [("result", times.result.to_string())];
        self.handled.get_or_create(&result).inc();
        self.handling.get_or_create(&result).observe(times.took.as_secs_f64());
        if let Some(waited) = times.waited {
            self.wait.observe(waited.as_secs_f64());
        }
    }

    /// All metrics, in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a String takes any text");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/metrics.md");

    /// The metrics in the table of the page: name and type.
    fn documented() -> Vec<(String, String)> {
        let rows = PAGE.lines().filter(|line| line.starts_with("| `estafeta_"));
        rows.map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let name = cells[1].trim_matches('`').split('{').next().unwrap_or_default();
            (name.to_owned(), cells[2].to_owned())
        })
        .collect()
    }

    #[test]
    fn the_page_lists_exactly_the_metrics_that_a_node_exposes() {
        let config = Config::new("redis://127.0.0.1".parse().unwrap(), "orders".parse().unwrap());
        let text = NodeMetrics::new(&config).text();
        let exposed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut exposed: Vec<(String, String)> = exposed
            .map(|line| {
                let (name, kind) = line.split_once(' ').unwrap();
                // Prometheus names counters and infos by their samples.
                let suffix = match kind {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                (format!("{name}{suffix}"), kind.to_owned())
            })
            .collect();
        let mut documented = documented();
        documented.retain(|(name, _)| !name.starts_with("estafeta_ring_"));
        exposed.sort();
        documented.sort();
        assert_eq!(documented, exposed);
        assert_eq!(exposed.len(), 12);
    }

    #[test]
    fn the_bound_of_a_queue_is_the_share_of_one_partition() {
        let mut config = Config::new("redis://127.0.0.1".parse().unwrap(), "orders".parse().unwrap());
        for (partitions, max_waiting, expected) in [(1, 1000, 1000), (3, 1000, 334), (3, 2, 1)] {
            (config.partitions, config.max_waiting) = (partitions, max_waiting);
            let text = NodeMetrics::new(&config).text();
            let line = format!("estafeta_max_waiting{{ring=\"orders\"}} {expected}");
            assert!(text.lines().any(|shown| shown == line), "{text}");
        }
    }
}
