//! The results of all rounds, and their medians.

use anyhow::Result;
use contract::Mode;
use estafeta_lab::quantile::quantile;
use serde::Serialize;
use serde_json::json;

use crate::install::Reason;
use crate::machine::Machine;
use crate::measure::Sample;

pub struct PeerResults {
    pub machine: Machine,
    pub rounds: usize,
    pub body: usize,
    /// The peers that could not run here, and why.
    pub skipped: Vec<(String, Reason)>,
    queues: Vec<MeasuredQueue>,
}

/// The samples of one queue, from all rounds.
pub struct MeasuredQueue {
    pub name: String,
    pub version: String,
    pub settings: &'static str,
    end_to_end: Vec<Sample>,
    consume: Vec<Sample>,
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
}

impl PeerResults {
    pub fn new(machine: Machine, rounds: usize, body: usize) -> PeerResults {
        PeerResults { machine, rounds, body, skipped: Vec::new(), queues: Vec::new() }
    }

    pub fn add(&mut self, name: &str, settings: &'static str, mode: Mode, sample: Sample) {
        let index = self.queues.iter().position(|queue| queue.name == name).unwrap_or_else(|| {
            let (name, version) = (name.to_owned(), sample.version.clone());
            self.queues.push(MeasuredQueue {
                name,
                version,
                settings,
                end_to_end: Vec::new(),
                consume: Vec::new(),
            });
            self.queues.len() - 1
        });
        let queue = &mut self.queues[index];
        match mode {
            Mode::EndToEnd => queue.end_to_end.push(sample),
            Mode::Consume => queue.consume.push(sample),
        }
    }

    pub fn skip(&mut self, name: &str, reason: Reason) {
        self.skipped.push((name.to_owned(), reason));
    }

    /// Returns the queues, the fastest first.
    pub fn ranking(&self) -> Vec<&MeasuredQueue> {
        let rate =
            |queue: &MeasuredQueue| queue.figures(Mode::EndToEnd).map_or(0.0, |f| f.messages_per_second);
        let mut queues: Vec<&MeasuredQueue> = self.queues.iter().collect();
        queues.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        queues
    }

    pub fn to_json(&self) -> Result<String> {
        let queues: Vec<_> = self.ranking().into_iter().map(MeasuredQueue::to_json).collect();
        let skipped: Vec<_> =
            self.skipped.iter().map(|(name, reason)| json!({"peer": name, "reason": reason})).collect();
        Ok(serde_json::to_string_pretty(&json!({
            "machine": self.machine,
            "rounds": self.rounds,
            "body_bytes": self.body,
            "queues": queues,
            "skipped": skipped,
        }))?)
    }
}

impl MeasuredQueue {
    pub fn figures(&self, mode: Mode) -> Option<Figures> {
        let samples = self.samples(mode);
        let at = |share: f64, part: fn(&Sample) -> Option<f64>| {
            let mut values: Vec<f64> = samples.iter().filter_map(part).collect();
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
        })
    }

    fn samples(&self, mode: Mode) -> &[Sample] {
        match mode {
            Mode::EndToEnd => &self.end_to_end,
            Mode::Consume => &self.consume,
        }
    }

    fn to_json(&self) -> serde_json::Value {
        let of = |mode| json!({"median": self.figures(mode), "runs": self.samples(mode)});
        json!({
            "peer": self.name,
            "version": self.version,
            "settings": self.settings,
            "end-to-end": of(Mode::EndToEnd),
            "consume": of(Mode::Consume),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_median_and_the_ends_of_all_rounds() {
        let sample = |seconds, server_us| Sample {
            version: "1".to_owned(),
            runs: 1,
            count: 100,
            seconds,
            server_us: Some(server_us),
            commands: Some(1.0),
            bytes_waiting: None,
        };
        let machine = Machine { date: String::new(), cores: 1, cpu: String::new(), redis: String::new() };
        let mut results = PeerResults::new(machine, 3, 64);
        for (seconds, server_us) in [(1.0, 5.0), (4.0, 1.0), (2.0, 9.0)] {
            results.add("queue", "", Mode::EndToEnd, sample(seconds, server_us));
        }
        let queue = results.ranking()[0];
        let figures = queue.figures(Mode::EndToEnd).unwrap();
        assert_eq!((figures.lowest, figures.messages_per_second, figures.highest), (25.0, 50.0, 100.0));
        assert_eq!((figures.server_us_per_message, figures.bytes_per_waiting_message), (Some(5.0), None));
        assert!(queue.figures(Mode::Consume).is_none(), "no run, no figures");
    }
}
