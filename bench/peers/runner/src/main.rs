//! Measures estafeta beside other queues, in rounds that take turns, and writes the table and the plot of
//! `docs/benchmarks.md`. `bench/peers/README.md` says what is measured and how.

#![allow(clippy::print_stderr, clippy::print_stdout)]

mod catalogue;
mod children;
mod install;
mod machine;
mod measure;
mod plot;
mod results;
mod server;
mod table;

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use contract::Mode;

use crate::catalogue::{PEERS, Peer};
use crate::children::{Children, Interrupted};
use crate::install::Installation;
use crate::machine::Machine;
use crate::measure::{Sample, Stage};
use crate::results::Results;

#[derive(Parser)]
#[command(about = "Measures estafeta beside other queues, and writes docs/benchmarks.md")]
struct Options {
    /// How many rounds; every figure is the median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long one run should take, roughly
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// The size of a message's body
    #[arg(long, default_value_t = 64)]
    body: usize,
    /// Only peers with one of these words in their names
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leaves docs/ alone
    #[arg(long)]
    no_docs: bool,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.only.is_empty() || self.only.iter().any(|word| name.contains(&word.to_lowercase()))
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let outcome = run(&options);
    if let Some(interrupted) = outcome.as_ref().err().and_then(|error| error.downcast_ref::<Interrupted>()) {
        eprintln!("peers: interrupted, nothing was written");
        return Ok(interrupted.exit_code().into());
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

fn run(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "expected at least one round, got 0");
    let children = Children::new()?;
    let stage = Stage::set(&children)?;
    let mut results = Results::new(Machine::look(&stage)?, options.rounds, options.body);
    let mut installation = Installation::new(&children);
    let peers = prepare(options, &mut installation, &mut results)?;

    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        for peer in &peers {
            let name = peer.name();
            for mode in [Mode::EndToEnd, Mode::Consume] {
                let run = |count| stage.run(&installation, peer, mode, count, options.body);
                let runs: Result<Vec<Sample>> =
                    peer.counts(mode, options.seconds).into_iter().map(run).collect();
                // A figure of a peer that fails now and then would be luck: no result is better than that.
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

/// The peers that can run here; the others are told to the reader.
fn prepare(
    options: &Options,
    installation: &mut Installation<'_>,
    results: &mut Results,
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
