//! One run of one peer: what it says it took, and what the server says it cost.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use contract::Mode;
use redis::Connection;
use serde::{Deserialize, Serialize};

use crate::catalogue::Peer;
use crate::children::{Children, end_group};
use crate::install::Installation;
use crate::server::Server;

/// Longer than any run should take by far, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// What one run gave. The cost is a message's share.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    #[serde(skip)]
    pub version: String,
    /// How many runs there were, one after the other; all that follows is about them together.
    pub runs: usize,
    pub count: u64,
    pub seconds: f64,
    pub server_us: Option<f64>,
    pub commands: Option<f64>,
    pub bytes_waiting: Option<f64>,
}

impl Sample {
    /// Several runs as one.
    pub fn together(samples: &[Sample]) -> Option<Sample> {
        let count = samples.iter().map(|sample| sample.count).sum();
        let mean = |part: fn(&Sample) -> Option<f64>| {
            let weighted = |sample: &Sample| Some(part(sample)? * sample.count as f64 / count as f64);
            samples.iter().map(weighted).sum::<Option<f64>>()
        };
        Some(Sample {
            version: samples.first()?.version.clone(),
            runs: samples.iter().map(|sample| sample.runs).sum(),
            count,
            seconds: samples.iter().map(|sample| sample.seconds).sum(),
            server_us: mean(|sample| sample.server_us),
            commands: mean(|sample| sample.commands),
            bytes_waiting: mean(|sample| sample.bytes_waiting),
        })
    }

    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }
}

/// The line that a peer prints.
#[derive(Deserialize)]
struct Report {
    peer: String,
    batch: Option<u64>,
    version: String,
    mode: String,
    count: u64,
    seconds: f64,
}

/// Where the peers appear one after the other.
pub struct Stage<'a> {
    server: Server,
    children: &'a Children,
}

impl<'a> Stage<'a> {
    pub fn set(children: &'a Children) -> Result<Stage<'a>> {
        Ok(Stage { server: Server::start(children.scratch())?, children })
    }

    pub fn url(&self) -> &str {
        self.server.url()
    }

    pub fn connect(&self) -> Result<Connection> {
        self.server.connect()
    }

    /// Empties the server.
    pub fn flush(&self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").arg("SYNC").query(&mut self.connect()?)?)
    }

    pub fn run(
        &self,
        installation: &Installation<'_>,
        peer: &Peer,
        mode: Mode,
        count: u64,
        body: usize,
    ) -> Result<Sample> {
        self.flush()?;
        let mut connection = self.connect()?;
        let empty = Usage::of(&mut connection)?;
        let mut command = installation.command(peer.program)?;
        command.arg(mode.name()).arg(count.to_string()).arg(body.to_string()).env("REDIS_URL", self.url());
        command.args(peer.batch.map(|batch| batch.to_string()));
        let (stdout, filled) = self.watch(&mut command)?;
        let end = Usage::of(&mut connection)?;

        let report: Report = serde_json::from_str(stdout.trim())
            .with_context(|| format!("expected one line of JSON, got {stdout:?}"))?;
        ensure!(
            (report.peer.as_str(), report.batch) == (peer.queue, peer.batch)
                && (report.mode.as_str(), report.count) == (mode.name(), count),
            "expected the result of {} {} {count}, got {stdout}",
            peer.name(),
            mode.name()
        );
        let filled = match mode {
            Mode::EndToEnd => None,
            Mode::Consume => Some(filled.context("it never said that the queue was filled")?),
        };
        let start = filled.as_ref().unwrap_or(&empty);
        let share = |amount: f64| Some(amount / count as f64);
        Ok(Sample {
            version: report.version,
            runs: 1,
            count,
            seconds: report.seconds,
            server_us: share(end.cpu_us - start.cpu_us),
            commands: share(end.commands - start.commands),
            bytes_waiting: filled.and_then(|filled| share(filled.memory - empty.memory)),
        })
    }

    /// Runs a peer to its end; answers what it printed, and what the server had used when the queue was filled.
    fn watch(&self, command: &mut Command) -> Result<(String, Option<Usage>)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (status, (stdout, talk, usage)) = self.children.run(command, |child| self.listen(child))?;
        if !status.success() {
            bail!("it failed ({status}), and said:\n{talk}");
        }
        Ok((stdout, usage))
    }

    fn listen(&self, child: &mut Child) -> Result<(String, String, Option<Usage>)> {
        let mut stdout = child.stdout.take().context("no stdout")?;
        let stderr = BufReader::new(child.stderr.take().context("no stderr")?);
        let mut stdin = child.stdin.take();
        let mut connection = self.connect()?;
        let talking = std::thread::spawn(move || listen_to_talk(stderr, &mut stdin, &mut connection));

        let (done, end) = mpsc::channel();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            let read = stdout.read_to_string(&mut text);
            let _ = done.send(());
            read.map(|_| text)
        });
        if end.recv_timeout(PATIENCE).is_err() {
            bail!("it did not finish within {} s", PATIENCE.as_secs());
        }
        // A process that it left behind would hold stderr open, and disturb the next run.
        end_group(child)?;
        let stdout = reading.join().expect("reading does not panic")?;
        let (talk, usage) = talking.join().expect("listening does not panic")?;
        Ok((stdout, talk, usage))
    }
}

/// Keeps what a peer says on stderr, and answers its "filled" once the server was looked at.
fn listen_to_talk(
    stderr: impl BufRead,
    stdin: &mut Option<ChildStdin>,
    connection: &mut Connection,
) -> Result<(String, Option<Usage>)> {
    let (mut talk, mut usage) = (String::new(), None);
    for line in stderr.lines() {
        let line = line?;
        if line == "filled" {
            usage = Some(Usage::of(connection)?);
            stdin.take().context("it said twice that the queue is filled")?.write_all(b"go\n")?;
        } else {
            talk += &line;
            talk.push('\n');
        }
    }
    Ok((talk, usage))
}

/// What the server has used so far.
struct Usage {
    cpu_us: f64,
    /// Commands inside scripts count as well: they are what a script costs.
    commands: f64,
    /// Without the buffers of connections, which say nothing about messages.
    memory: f64,
}

impl Usage {
    fn of(connection: &mut Connection) -> Result<Usage> {
        let info: String = redis::cmd("INFO").arg(&["cpu", "memory", "commandstats"]).query(connection)?;
        let fields: HashMap<&str, &str> =
            info.lines().filter_map(|line| line.trim().split_once(':')).collect();
        let number = |name: &str| -> Result<f64> {
            let text = fields.get(name).with_context(|| format!("INFO has no {name}"))?;
            text.parse().with_context(|| format!("INFO has {name}:{text}"))
        };
        let ours = ["cmdstat_info", "cmdstat_flushall"];
        let calls = fields
            .iter()
            .filter(|(name, _)| name.starts_with("cmdstat_") && !ours.contains(name))
            .filter_map(|(_, text)| text.strip_prefix("calls=")?.split(',').next()?.parse::<f64>().ok());
        Ok(Usage {
            cpu_us: (number("used_cpu_user")? + number("used_cpu_sys")?) * 1e6,
            commands: calls.sum(),
            memory: number("used_memory")? - number("mem_clients_normal")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_together_have_the_sum_of_their_times_and_the_mean_of_their_costs() {
        let sample = |count, seconds, bytes_waiting| Sample {
            version: "1".to_owned(),
            runs: 1,
            count,
            seconds,
            server_us: Some(2.0),
            commands: None,
            bytes_waiting: Some(bytes_waiting),
        };
        let both = Sample::together(&[sample(300, 1.0, 80.0), sample(100, 3.0, 120.0)]).unwrap();
        assert_eq!((both.runs, both.count, both.rate()), (2, 400, 100.0));
        assert_eq!((both.server_us, both.commands, both.bytes_waiting), (Some(2.0), None, Some(90.0)));
    }
}
