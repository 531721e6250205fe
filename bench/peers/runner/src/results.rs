//! All that was measured, and its medians.

use anyhow::Result;
use contract::Mode;
use serde::Serialize;
use serde_json::json;

use crate::install::Reason;
use crate::machine::Machine;
use crate::measure::Sample;

pub struct Results {
    pub machine: Machine,
    pub rounds: usize,
    pub body: usize,
    /// Who did not take part, and why.
    pub skipped: Vec<(String, Reason)>,
    queues: Vec<Queue>,
}

/// What one queue gave in all rounds.
pub struct Queue {
    pub name: String,
    pub version: String,
    pub settings: &'static str,
    end_to_end: Vec<Sample>,
    consume: Vec<Sample>,
}

/// The medians of one mode.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub messages_per_second: f64,
    pub lowest: f64,
    pub highest: f64,
    pub server_us_per_message: Option<f64>,
    pub commands_per_message: Option<f64>,
    pub bytes_per_waiting_message: Option<f64>,
}

impl Results {
    pub fn new(machine: Machine, rounds: usize, body: usize) -> Results {
        Results { machine, rounds, body, skipped: Vec::new(), queues: Vec::new() }
    }

    pub fn add(&mut self, name: &str, settings: &'static str, mode: Mode, sample: Sample) {
        let index = self.queues.iter().position(|queue| queue.name == name).unwrap_or_else(|| {
            let (name, version) = (name.to_owned(), sample.version.clone());
            self.queues.push(Queue { name, version, settings, end_to_end: Vec::new(), consume: Vec::new() });
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

    /// The fastest first.
    pub fn ranking(&self) -> Vec<&Queue> {
        let rate = |queue: &Queue| queue.figures(Mode::EndToEnd).map_or(0.0, |f| f.messages_per_second);
        let mut queues: Vec<&Queue> = self.queues.iter().collect();
        queues.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
        queues
    }

    pub fn to_json(&self) -> Result<String> {
        let queues: Vec<_> = self.ranking().into_iter().map(Queue::to_json).collect();
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

impl Queue {
    pub fn figures(&self, mode: Mode) -> Option<Figures> {
        let samples = self.samples(mode);
        let rates: Vec<f64> = samples.iter().map(Sample::rate).collect();
        let of = |part: fn(&Sample) -> Option<f64>| median(samples.iter().filter_map(part).collect());
        Some(Figures {
            lowest: rates.iter().copied().min_by(f64::total_cmp)?,
            highest: rates.iter().copied().max_by(f64::total_cmp)?,
            messages_per_second: median(rates)?,
            server_us_per_message: of(|sample| sample.server_us),
            commands_per_message: of(|sample| sample.commands),
            bytes_per_waiting_message: of(|sample| sample.bytes_waiting),
        })
    }

    fn samples(&self, mode: Mode) -> &[Sample] {
        match mode {
            Mode::EndToEnd => &self.end_to_end,
            Mode::Consume => &self.consume,
        }
    }

    fn to_json(&self) -> serde_json::Value {
        let told = |mode| json!({"median": self.figures(mode), "runs": self.samples(mode)});
        json!({
            "peer": self.name,
            "version": self.version,
            "settings": self.settings,
            "end-to-end": told(Mode::EndToEnd),
            "consume": told(Mode::Consume),
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
