//! The results of all rounds, and their medians.

use anyhow::Result;
use contract::Mode;
use estafeta_lab::quantile::quantile;
use serde::Serialize;
use serde_json::json;

use crate::install::Reason;
use crate::machine::Machine;
use crate::measure::Sample;
use crate::work::PeerLoad;

/// What is measured of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// How fast it is.
    Speed(Mode),
    /// What messages that take a while cost.
    Work(PeerLoad),
}

impl Measurement {
    /// Its name in `result.json`.
    pub fn name(self) -> String {
        match self {
            Measurement::Speed(mode) => mode.name().to_owned(),
            Measurement::Work(load) => load.name(),
        }
    }
}

pub struct PeerResults {
    pub machine: Machine,
    pub rounds: usize,
    pub body: usize,
    /// The queues that could not run here, and why.
    pub skipped: Vec<(&'static str, Reason)>,
    /// The rows of the table of speed, and those of the table of work.
    speed: Vec<MeasuredQueue>,
    work: Vec<MeasuredQueue>,
}

/// The samples of one queue, from all rounds.
pub struct MeasuredQueue {
    pub name: String,
    pub version: String,
    pub settings: &'static str,
    samples: Vec<(Measurement, Sample)>,
}

/// The medians of one queue in one mode.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub messages_per_second: f64,
    pub lowest: f64,
    pub highest: f64,
    pub server_us_per_message: Option<f64>,
    pub commands_per_message: Option<f64>,
    pub bytes_per_waiting_message: Option<f64>,
    pub wait_p50_ms: Option<f64>,
    pub wait_p99_ms: Option<f64>,
    pub least_waiting: Option<f64>,
}

impl PeerResults {
    pub fn new(machine: Machine, rounds: usize, body: usize) -> PeerResults {
        let (skipped, speed, work) = (Vec::new(), Vec::new(), Vec::new());
        PeerResults { machine, rounds, body, skipped, speed, work }
    }

    pub fn add(&mut self, measurement: Measurement, name: &str, settings: &'static str, sample: Sample) {
        let queues = match measurement {
            Measurement::Speed(_) => &mut self.speed,
            Measurement::Work(_) => &mut self.work,
        };
        let index = queues.iter().position(|queue| queue.name == name).unwrap_or_else(|| {
            let (name, version) = (name.to_owned(), sample.version.clone());
            queues.push(MeasuredQueue { name, version, settings, samples: Vec::new() });
            queues.len() - 1
        });
        queues[index].samples.push((measurement, sample));
    }

    pub fn skip(&mut self, name: &'static str, reason: Reason) {
        self.skipped.push((name, reason));
    }

    /// Returns the rows of the table of speed, the fastest first.
    pub fn fastest_first(&self) -> Vec<&MeasuredQueue> {
        let measurement = Measurement::Speed(Mode::EndToEnd);
        let rate = |queue: &MeasuredQueue| queue.figures(measurement).map_or(0.0, |f| f.messages_per_second);
        let mut queues: Vec<&MeasuredQueue> = self.speed.iter().collect();
        queues.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        queues
    }

    /// Returns the rows of the table of work for one load, the one that costs the server least first.
    pub fn cheapest_first(&self, load: PeerLoad) -> Vec<(&MeasuredQueue, Figures)> {
        let figures = |queue| Some((queue, MeasuredQueue::figures(queue, Measurement::Work(load))?));
        let mut queues: Vec<_> = self.work.iter().filter_map(figures).collect();
        let cost = |figures: &Figures| figures.server_us_per_message.unwrap_or(f64::INFINITY);
        queues.sort_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b)));
        queues
    }

    pub fn to_json(&self) -> Result<String> {
        let speed = [Mode::EndToEnd, Mode::Consume].map(Measurement::Speed);
        let work = PeerLoad::ALL.map(Measurement::Work);
        let skipped: Vec<_> =
            self.skipped.iter().map(|(name, reason)| json!({"peer": name, "reason": reason})).collect();
        Ok(serde_json::to_string_pretty(&json!({
            "machine": self.machine,
            "rounds": self.rounds,
            "body_bytes": self.body,
            "queues": self.fastest_first().iter().map(|queue| queue.to_json(&speed)).collect::<Vec<_>>(),
            "work": self.work.iter().map(|queue| queue.to_json(&work)).collect::<Vec<_>>(),
            "skipped": skipped,
        }))?)
    }
}

impl MeasuredQueue {
    /// Returns None if this was never measured.
    pub fn figures(&self, measurement: Measurement) -> Option<Figures> {
        let samples = self.samples(measurement);
        let at = |share: f64, part: fn(&Sample) -> Option<f64>| {
            let mut values: Vec<f64> = samples.iter().copied().filter_map(part).collect();
            values.sort_by(f64::total_cmp);
            quantile(&values, share)
        };
        let rate = |sample: &Sample| Some(sample.rate());
        Some(Figures {
            messages_per_second: at(0.5, rate)?,
            lowest: at(0.0, rate)?,
            highest: at(1.0, rate)?,
            server_us_per_message: at(0.5, |sample| sample.server_us),
            commands_per_message: at(0.5, |sample| sample.commands),
            bytes_per_waiting_message: at(0.5, |sample| sample.bytes_waiting),
            wait_p50_ms: at(0.5, |sample| sample.wait_p50_ms),
            wait_p99_ms: at(0.5, |sample| sample.wait_p99_ms),
            least_waiting: at(0.5, |sample| Some(sample.least_waiting? as f64)),
        })
    }

    fn samples(&self, measurement: Measurement) -> Vec<&Sample> {
        self.samples.iter().filter(|(of, _)| *of == measurement).map(|(_, sample)| sample).collect()
    }

    fn to_json(&self, measurements: &[Measurement]) -> serde_json::Value {
        let mut object = json!({"peer": self.name, "version": self.version, "settings": self.settings});
        for &measurement in measurements {
            object[measurement.name()] =
                json!({"median": self.figures(measurement), "runs": self.samples(measurement)});
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_median_and_the_ends_of_all_rounds() {
        let machine = Machine { date: String::new(), cores: 1, cpu: String::new(), redis: String::new() };
        let mut results = PeerResults::new(machine, 3, 64);
        let (both, consume) = (Measurement::Speed(Mode::EndToEnd), Measurement::Speed(Mode::Consume));
        for (seconds, server_us) in [(1.0, 5.0), (4.0, 1.0), (2.0, 9.0)] {
            let sample = Sample { server_us: Some(server_us), ..Sample::of(100, seconds) };
            results.add(both, "queue", "", sample);
        }
        let queue = results.fastest_first()[0];
        let figures = queue.figures(both).unwrap();
        assert_eq!((figures.lowest, figures.messages_per_second, figures.highest), (25.0, 50.0, 100.0));
        assert_eq!((figures.server_us_per_message, figures.bytes_per_waiting_message), (Some(5.0), None));
        assert!(queue.figures(consume).is_none(), "no run, no figures");
        assert!(
            results.cheapest_first(PeerLoad::Full).is_empty(),
            "a table has only what was measured for it"
        );
    }
}
