//! Measures estafeta beside other queues, and writes the tables and the plot of `docs/benchmarks.md`. In each round, the
//! queues take turns. `bench/peers/README.md` explains what is measured and how.

#![allow(clippy::print_stderr, clippy::print_stdout)]

mod catalogue;
mod children;
mod install;
mod machine;
mod measure;
mod page;
mod plot;
mod results;
mod table;
mod work;
mod work_table;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use contract::Mode;

use crate::catalogue::{QUEUES, Queue};
use crate::children::{Children, Interrupted};
use crate::install::Installation;
use crate::machine::Machine;
use crate::measure::{PeerRunner, Sample};
use crate::results::{Measurement, PeerResults};
use crate::work::{PeerLoad, WorkRunner};

/// A table of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerTable {
    /// How many messages per second each queue handles at most
    Speed,
    /// What messages that take 17 ms cost the server, and how long they wait
    Work,
}

impl PeerTable {
    const ALL: [PeerTable; 2] = [PeerTable::Speed, PeerTable::Work];

    /// How long one run should take.
    fn seconds(self) -> f64 {
        match self {
            PeerTable::Speed => 3.0,
            PeerTable::Work => 5.0,
        }
    }

    /// The markers of the table.
    fn marker(self) -> &'static str {
        match self {
            PeerTable::Speed => "peers",
            PeerTable::Work => "peers work",
        }
    }

    fn markdown(self, results: &PeerResults) -> String {
        match self {
            PeerTable::Speed => table::markdown(results),
            PeerTable::Work => work_table::markdown(results),
        }
    }
}

#[derive(Parser)]
#[command(about = "Measures estafeta beside other queues, and writes docs/benchmarks.md")]
struct PeersOptions {
    /// Number of rounds. Every figure is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many seconds one run should take, roughly [default: 3 for speed, 5 for work]
    #[arg(long)]
    seconds: Option<f64>,
    /// Size of the body of a message, in bytes
    #[arg(long, default_value_t = 64)]
    body: usize,
    /// Measure only the queues with one of these words in their names
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Measure only this table [default: all tables]
    #[arg(long)]
    table: Option<PeerTable>,
    /// Print the tables instead of writing to docs/
    #[arg(long)]
    no_docs: bool,
}

impl PeersOptions {
    fn wants(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.only.is_empty() || self.only.iter().any(|word| name.contains(&word.to_lowercase()))
    }

    fn tables(&self) -> impl Iterator<Item = PeerTable> {
        PeerTable::ALL.into_iter().filter(|&table| self.table.is_none_or(|only| only == table))
    }

    fn seconds(&self, table: PeerTable) -> f64 {
        self.seconds.unwrap_or(table.seconds())
    }
}

fn main() -> Result<ExitCode> {
    let options = PeersOptions::parse();
    let outcome = run(&options);
    if let Some(interrupted) = outcome.as_ref().err().and_then(|error| error.downcast_ref::<Interrupted>()) {
        eprintln!("peers: interrupted, nothing was written");
        return Ok(interrupted.exit_code().into());
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

fn run(options: &PeersOptions) -> Result<()> {
    ensure!(options.rounds > 0, "expected at least one round, got 0");
    let children = Children::new()?;
    let runner = PeerRunner::start(&children)?;
    let mut results = PeerResults::new(Machine::of(&runner)?, options.rounds, options.body);
    let mut installation = Installation::new(&children);
    let queues = prepare(options, &mut installation, &mut results)?;

    for round in 1..=options.rounds {
        for table in options.tables() {
            eprintln!("round {round} of {}", options.rounds);
            let seconds = options.seconds(table);
            match table {
                PeerTable::Speed => {
                    speed_round(&runner, &installation, &queues, seconds, options.body, &mut results)?;
                }
                PeerTable::Work => {
                    let length = Duration::from_secs_f64(seconds);
                    let runner = WorkRunner::new(&runner, &installation, length, options.body)?;
                    work_round(&runner, &queues, &mut results)?;
                }
            }
        }
    }

    children.check()?;
    let root = install::bench_directory();
    let json = root.join("result.json");
    std::fs::write(&json, results.to_json()? + "\n").with_context(|| format!("cannot write {json:?}"))?;
    eprintln!("wrote bench/peers/result.json");
    if options.no_docs {
        options.tables().for_each(|table| println!("{}", table.markdown(&results)));
        return Ok(());
    }
    write_docs(&root.join("../../docs"), options.tables(), &results)
}

/// Measures how fast each queue is.
fn speed_round(
    runner: &PeerRunner<'_>,
    installation: &Installation<'_>,
    queues: &[&Queue],
    seconds: f64,
    body: usize,
    results: &mut PeerResults,
) -> Result<()> {
    for (queue, peer) in queues.iter().flat_map(|queue| queue.speed.iter().map(move |peer| (queue, peer))) {
        let name = peer.name(queue);
        for mode in [Mode::EndToEnd, Mode::Consume] {
            let run = |count| runner.run(installation, queue, peer, mode, count, body);
            let runs: Result<Vec<Sample>> = peer.counts(mode, seconds).into_iter().map(run).collect();
            // A queue that fails now and then has no figure. Whether it gets one would be luck.
            let sample = Sample::together(&runs.with_context(|| name.clone())?).context("no run")?;
            eprintln!("  {name:<29} {:<10} {:>9.0} messages/s", mode.name(), sample.rate());
            results.add(Measurement::Speed(mode), &name, peer.settings, sample);
        }
    }
    Ok(())
}

/// Measures what messages that take a while cost.
fn work_round(runner: &WorkRunner<'_>, queues: &[&Queue], results: &mut PeerResults) -> Result<()> {
    for load in PeerLoad::ALL {
        for queue in queues {
            let name = queue.name;
            let sample = runner.run(queue, load).with_context(|| format!("{name}, load {}", load.name()))?;
            let (cost, load_name) = (sample.server_us.unwrap_or_default(), load.name());
            eprintln!("  {name:<29} {load_name:<10} {:>9.0} messages/s {cost:>7.1} us", sample.rate());
            results.add(Measurement::Work(load), name, queue.work, sample);
        }
    }
    Ok(())
}

/// Writes the measured tables, and the plot of speed, into the directory `docs`.
fn write_docs(docs: &Path, tables: impl Iterator<Item = PeerTable>, results: &PeerResults) -> Result<()> {
    let path = docs.join("benchmarks.md");
    let mut text = std::fs::read_to_string(&path).context("cannot read docs/benchmarks.md")?;
    for table in tables {
        text = page::replace(&text, table.marker(), &table.markdown(results))?;
        if table == PeerTable::Speed {
            std::fs::write(docs.join("benchmarks-peers.svg"), plot::svg(results))?;
            eprintln!("wrote docs/benchmarks-peers.svg");
        }
    }
    std::fs::write(path, text)?;
    eprintln!("wrote docs/benchmarks.md");
    Ok(())
}

/// Returns the queues that can run here. The page names the others.
fn prepare(
    options: &PeersOptions,
    installation: &mut Installation<'_>,
    results: &mut PeerResults,
) -> Result<Vec<&'static Queue>> {
    let mut ready = Vec::new();
    for queue in QUEUES.iter().filter(|queue| options.wants(queue.name)) {
        match installation.prepare(queue.program)? {
            None => ready.push(queue),
            Some(reason) => {
                eprintln!("skipped {}: {reason}", queue.name);
                results.skip(queue.name, reason);
            }
        }
    }
    Ok(ready)
}
