//! One run of one peer, as fast as it can: the time that the peer reports, and the cost that the server reports.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use contract::Mode;
use estafeta_lab::ephemeral_redis::{Disk, EphemeralRedis};
use estafeta_lab::server::ServerReading;
use redis::Connection;
use serde::{Deserialize, Serialize};

use crate::catalogue::{Peer, Queue};
use crate::children::{Children, end_group};
use crate::install::Installation;

/// Much longer than any run should take, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The result of one run. Costs are per message.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    #[serde(skip)]
    pub version: String,
    /// How many runs this sample combines. The other fields are about all of them together.
    pub runs: usize,
    pub count: u64,
    pub seconds: f64,
    pub server_us: Option<f64>,
    pub commands: Option<f64>,
    pub bytes_waiting: Option<f64>,
    /// How long messages waited. Only of messages that take a while.
    pub wait_p50_ms: Option<f64>,
    pub wait_p99_ms: Option<f64>,
    /// The smallest number of messages that were in the queue or in work. Only of messages that take a while.
    pub least_waiting: Option<u64>,
}

impl Sample {
    /// Combines several runs into one sample.
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
            wait_p50_ms: None,
            wait_p99_ms: None,
            least_waiting: None,
        })
    }

    /// A sample without costs, for tests.
    #[cfg(test)]
    pub fn of(count: u64, seconds: f64) -> Sample {
        Sample {
            version: "1".to_owned(),
            runs: 1,
            count,
            seconds,
            server_us: None,
            commands: None,
            bytes_waiting: None,
            wait_p50_ms: None,
            wait_p99_ms: None,
            least_waiting: None,
        }
    }

    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }
}

/// The line that a peer prints at its end.
#[derive(Deserialize)]
struct PeerReport {
    peer: String,
    batch: Option<u64>,
    version: String,
    mode: String,
    count: u64,
    seconds: f64,
}

/// The server and the processes of all runs.
pub struct PeerRunner<'a> {
    redis: EphemeralRedis,
    /// Over TCP, because not every peer can use a unix socket.
    url: String,
    children: &'a Children,
}

impl<'a> PeerRunner<'a> {
    pub fn start(children: &'a Children) -> Result<PeerRunner<'a>> {
        let redis = EphemeralRedis::start(children.scratch(), Disk::Nothing)?;
        let url = redis.open_port()?;
        Ok(PeerRunner { redis, url, children })
    }

    pub fn connect(&self) -> Result<Connection> {
        self.redis.connect().context("cannot connect to Redis")
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn children(&self) -> &'a Children {
        self.children
    }

    /// Empties the server.
    pub fn flush(&self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").arg("SYNC").query(&mut self.connect()?)?)
    }

    pub fn run(
        &self,
        installation: &Installation<'_>,
        queue: &Queue,
        peer: &Peer,
        mode: Mode,
        count: u64,
        body: usize,
    ) -> Result<Sample> {
        self.flush()?;
        // A new connection sends commands too, so both are opened before the first reading.
        let (mut connection, connection_of_watch) = (self.connect()?, self.connect()?);
        let empty = ServerReading::take(&mut connection)?;
        let mut command = installation.command(queue.program)?;
        command.arg(mode.name()).arg(count.to_string()).arg(body.to_string()).env("REDIS_URL", &self.url);
        command.args(peer.batch.map(|batch| batch.to_string()));
        let PeerOutput { stdout, filled, .. } = self.watch(command, connection_of_watch)?;
        let end = ServerReading::take(&mut connection)?;

        let report: PeerReport = serde_json::from_str(stdout.trim())
            .with_context(|| format!("expected one line of JSON, got {stdout:?}"))?;
        ensure!(
            (report.peer.as_str(), report.batch) == (queue.name, peer.batch)
                && (report.mode.as_str(), report.count) == (mode.name(), count),
            "expected the result of {} {} {count}, got {stdout}",
            peer.name(queue),
            mode.name()
        );
        let filled = match mode {
            Mode::EndToEnd => None,
            Mode::Consume => Some(filled.context("it never reported that the queue was filled")?),
        };
        let usage = end.since(filled.as_ref().unwrap_or(&empty));
        let waiting = filled.and_then(|filled| Some(filled.memory? as f64 - empty.memory? as f64));
        Ok(Sample {
            version: report.version,
            runs: 1,
            count,
            seconds: report.seconds,
            server_us: Some(usage.cpu_us(count)),
            commands: Some(usage.commands / count as f64),
            bytes_waiting: waiting.map(|bytes| bytes / count as f64),
            wait_p50_ms: None,
            wait_p99_ms: None,
            least_waiting: None,
        })
    }

    /// Runs a peer to its end.
    fn watch(&self, mut command: Command, connection: Connection) -> Result<PeerOutput> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (status, output) = self.children.run(command, |child| read_output(child, connection))?;
        if !status.success() {
            bail!("it failed ({status}), and printed:\n{}", output.stderr);
        }
        Ok(output)
    }
}

/// What a peer printed.
struct PeerOutput {
    stdout: String,
    stderr: String,
    /// The reading of the server when the peer reported that the queue was filled.
    filled: Option<ServerReading>,
}

fn read_output(child: &mut Child, mut connection: Connection) -> Result<PeerOutput> {
    let mut stdout = child.stdout.take().context("no stdout")?;
    let stderr = BufReader::new(child.stderr.take().context("no stderr")?);
    let mut stdin = child.stdin.take();
    let reads_stderr = std::thread::spawn(move || read_stderr(stderr, &mut stdin, &mut connection));

    let (done, end) = mpsc::channel();
    let reads_stdout = std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        let _ = done.send(());
        read.map(|_| text)
    });
    if end.recv_timeout(PATIENCE).is_err() {
        bail!("it did not finish within {} s", PATIENCE.as_secs());
    }
    // A process that the peer left behind would keep stderr open, and disturb the next run.
    end_group(child)?;
    let stdout = reads_stdout.join().expect("the thread does not panic")?;
    let (stderr, filled) = reads_stderr.join().expect("the thread does not panic")?;
    Ok(PeerOutput { stdout, stderr, filled })
}

/// Reads the stderr of a peer. When the peer reports that the queue is filled, takes a reading of the server, and then
/// lets the peer continue.
fn read_stderr(
    stderr: impl BufRead,
    stdin: &mut Option<ChildStdin>,
    connection: &mut Connection,
) -> Result<(String, Option<ServerReading>)> {
    let (mut text, mut filled) = (String::new(), None);
    for line in stderr.lines() {
        let line = line?;
        if line == "filled" {
            filled = Some(ServerReading::take(connection)?);
            stdin.take().context("it reported twice that the queue was filled")?.write_all(b"go\n")?;
        } else {
            text += &line;
            text.push('\n');
        }
    }
    Ok((text, filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_together_have_the_sum_of_their_times_and_the_mean_of_their_costs() {
        let sample = |count, seconds, bytes_waiting| Sample {
            server_us: Some(2.0),
            bytes_waiting: Some(bytes_waiting),
            ..Sample::of(count, seconds)
        };
        let both = Sample::together(&[sample(300, 1.0, 80.0), sample(100, 3.0, 120.0)]).unwrap();
        assert_eq!((both.runs, both.count, both.rate()), (2, 400, 100.0));
        assert_eq!((both.server_us, both.commands, both.bytes_waiting), (Some(2.0), None, Some(90.0)));
    }
}
