//! estafeta itself takes part by its own benchmark: this is the only place that knows how that is called and what it
//! prints.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::catalogue::Mode;
use crate::measure::{Sample, Stage};
use crate::table::thousands;

pub const NAME: &str = "estafeta";
pub const SETTINGS: &str = "Rust, one generator and one handler; `estafeta bench throughput --handlers 1`";

/// Messages a second, roughly: only to choose a number of messages.
const EXPECTED_RATE: f64 = 500_000.0;

/// One line of `estafeta bench throughput --json`.
#[derive(Deserialize)]
struct Line {
    bench: String,
    what: String,
    batch: u64,
    messages_per_s: f64,
    server_us_per_message: Option<f64>,
    commands_per_message: Option<f64>,
    bytes_per_waiting_message: Option<f64>,
}

/// What one run of estafeta gave for one mode and size of batch.
pub struct Measured {
    pub name: String,
    pub mode: Mode,
    pub sample: Sample,
}

pub fn measure(binary: &Path, stage: &Stage<'_>, seconds: f64, body: usize) -> Result<Vec<Measured>> {
    stage.flush()?;
    let count = (EXPECTED_RATE * seconds) as u64;
    let output = Command::new(binary)
        .args(["bench", "throughput", "--json", "--handlers", "1"])
        .args(["--redis", stage.url()])
        .args(["--messages", &count.to_string(), "--body", &body.to_string()])
        .args(["--for", &format!("{seconds}s")])
        .output()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    let talk = String::from_utf8_lossy(&output.stderr);
    let reason = talk.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    ensure!(output.status.success(), "`estafeta bench throughput` failed: {reason}");
    let measured = parse(&String::from_utf8(output.stdout)?, &version_of(binary)?)?;
    ensure!(!measured.is_empty(), "`estafeta bench throughput` printed no result");
    Ok(measured)
}

fn parse(stdout: &str, version: &str) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for text in stdout.lines().filter(|line| !line.trim().is_empty()) {
        let line: Line = serde_json::from_str(text).with_context(|| format!("not understood: {text}"))?;
        let mode = match (line.bench.as_str(), line.what.as_str()) {
            ("throughput", "end to end") => Mode::EndToEnd,
            ("throughput", "consume") => Mode::Consume,
            // The floor, and other circumstances.
            _ => continue,
        };
        measured.push(Measured {
            name: format!("{NAME}, batches of {}", thousands(line.batch as f64)),
            mode,
            sample: Sample {
                version: version.to_owned(),
                count: line.messages_per_s as u64,
                seconds: 1.0,
                server_us: line.server_us_per_message,
                commands: line.commands_per_message,
                bytes_waiting: line.bytes_per_waiting_message,
            },
        });
    }
    Ok(measured)
}

fn version_of(binary: &Path) -> Result<String> {
    let output = Command::new(binary).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().nth(1).unwrap_or("unknown").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_modes_are_understood_and_others_are_left_alone() {
        let stdout = r#"{"bench":"throughput","what":"end to end","batch":100,"messages_per_s":2000,"new":1}
{"bench":"throughput","what":"consume","batch":100,"messages_per_s":4000,"server_us_per_message":1.2}
{"bench":"throughput","what":"floor, pop","batch":100,"messages_per_s":9000}
"#;
        let measured = parse(stdout, "1.0.0").unwrap();
        let found: Vec<_> =
            measured.iter().map(|m| (m.name.as_str(), m.mode, m.sample.rate(), m.sample.server_us)).collect();
        let name = "estafeta, batches of 100";
        let expected = [(name, Mode::EndToEnd, 2000.0, None), (name, Mode::Consume, 4000.0, Some(1.2))];
        assert_eq!(found, expected);
    }
}
