//! Measures estafeta beside other queues, and writes the table and the plot of `docs/benchmarks.md`. In each round, the
//! queues take turns. `bench/peers/README.md` explains what is measured and how.

#![allow(clippy::print_stderr, clippy::print_stdout)]

mod catalogue;
mod children;
mod install;
mod machine;
mod measure;
mod plot;
mod results;
mod table;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use contract::Mode;

use crate::catalogue::{PEERS, Peer};
use crate::children::{Children, Interrupted};
use crate::install::Installation;
use crate::machine::Machine;
use crate::measure::{PeerRunner, Sample};
use crate::results::PeerResults;

#[derive(Parser)]
#[command(about = "Measures estafeta beside other queues, and writes docs/benchmarks.md")]
struct PeersOptions {
    /// Number of rounds. Every figure is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many seconds one run should take, roughly
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Size of the body of a message, in bytes
    #[arg(long, default_value_t = 64)]
    body: usize,
    /// Measure only the queues with one of these words in their names
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Print the table instead of writing to docs/
    #[arg(long)]
    no_docs: bool,
}

impl PeersOptions {
    fn wants(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.only.is_empty() || self.only.iter().any(|word| name.contains(&word.to_lowercase()))
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
    let peers = prepare(options, &mut installation, &mut results)?;

    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for peer in &peers {
            let name = peer.name();
            for mode in [Mode::EndToEnd, Mode::Consume] {
                let run = |count| runner.run(&installation, peer, mode, count, options.body);
                let runs: Result<Vec<Sample>> =
                    peer.counts(mode, options.seconds).into_iter().map(run).collect();
                // A queue that fails now and then has no figure. Whether it gets one would be luck.
                let sample = Sample::together(&runs.with_context(|| name.clone())?).context("no run")?;
                eprintln!("  {name:<29} {:<10} {:>9.0} messages/s", mode.name(), sample.rate());
                results.add(&name, peer.settings, mode, sample);
            }
        }
    }

    children.check()?;
    let root = install::bench_directory();
    let json = root.join("result.json");
    std::fs::write(&json, results.to_json()? + "\n").with_context(|| format!("cannot write {json:?}"))?;
    eprintln!("wrote bench/peers/result.json");
    if options.no_docs {
        print!("{}", table::markdown(&results));
    } else {
        table::write(&root.join("../../docs"), &results)?;
        eprintln!("wrote docs/benchmarks.md and docs/benchmarks-peers.svg");
    }
    Ok(())
}

/// Returns the peers that can run here. The page names the others.
fn prepare(
    options: &PeersOptions,
    installation: &mut Installation<'_>,
    results: &mut PeerResults,
) -> Result<Vec<&'static Peer>> {
    let mut ready = Vec::new();
    for peer in PEERS.iter().filter(|peer| options.wants(peer.queue)) {
        match installation.prepare(peer.program)? {
            None => ready.push(peer),
            Some(reason) => {
                eprintln!("skipped {}: {reason}", peer.name());
                results.skip(&peer.name(), reason);
            }
        }
    }
    Ok(ready)
}
