//! `estafeta chaos`: attacks a ring of real nodes and judges whether it kept its promises.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use estafeta::Durability;
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::{is_closed_pipe, named_redis};
use crate::cli::{ChaosArgs, ChaosWorkerArgs, PipelineArgs};
use crate::failure::usage;
use crate::find_redis;
use crate::settings::Reach;
use crate::signals;
use estafeta_lab::chaos::real_work::{PipelineOptions, WorkerOptions};
use estafeta_lab::chaos::{
    self, ChaosObserver, ChaosOptions, ChaosOutcome, FaultKind, OtherBuild, Topology, Wanted, Workload,
};
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::paint::{Paint, colour_for};
use estafeta_lab::report::json_line;
use estafeta_lab::scratch_dir::ScratchDir;
use estafeta_lab::text::counted;

const MAX_NODES: usize = 200;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a line about the progress is printed if there is no bar.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Runs chaos. `redis_was_named` is true if the command line of this call names a Redis. Chaos uses a Redis only then.
/// One that the environment names is probably used for something else.
pub fn run(reach: &Reach, redis_was_named: bool, args: &ChaosArgs) -> Result<ExitCode> {
    let options = options(reach, redis_was_named, args)?;
    if let Some(path) = &args.report {
        // If the report cannot be written, the user should learn that now and not after the attack.
        let opened = std::fs::File::options().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write the report {}", path.display()))?;
    }
    let directory = ScratchDir::new("chaos")?;
    let progress = ChaosProgress::new(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut stopped = None;
    let outcome = runtime.block_on(async {
        let stop = async { stopped = Some(signals::stop_signal().await) };
        chaos::run(&options, directory.path(), progress.clone(), stop).await
    });
    progress.bar.finish_and_clear();
    // This ends the tasks of the runtime, and with them the nodes and Redis. None of them may write any more when the
    // directory is removed.
    runtime.shutdown_timeout(Duration::from_secs(5));
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) if directory.path().join("node-1.log").exists() => {
            let left = directory.keep();
            return Err(error.context(format!("chaos broke off; its files are in {}", left.display())));
        }
        Err(error) => return Err(error),
    };
    let Some(outcome) = outcome else {
        let _ = writeln!(io::stderr(), "estafeta: chaos was stopped; there is no verdict");
        return Ok(stopped.map_or(FAILED, signals::exit_code).into());
    };
    if let Some(path) = &args.report {
        std::fs::write(path, chaos::page(&outcome))
            .with_context(|| format!("cannot write the report {}", path.display()))?;
    }
    let code = if outcome.verdict.is_good() {
        ExitCode::SUCCESS
    } else {
        let kept = directory.keep();
        let _ =
            writeln!(io::stderr(), "estafeta: the files of the nodes and of Redis are in {}", kept.display());
        FAILED.into()
    };
    match print(&outcome, args.output.json) {
        Err(error) if !is_closed_pipe(&error) => Err(error).context("cannot print the verdict"),
        _ => Ok(code),
    }
}

/// Runs a node or a publisher, which gets its Redis and its ring from the environment.
pub fn run_worker(reach: &Reach, args: ChaosWorkerArgs) -> Result<ExitCode> {
    let ChaosWorkerArgs { role, record, lanes, limit, number, seed, durability, pipeline } = args;
    let (endpoint, ring) = (find_redis::existing(&reach.redis)?, reach.ring.clone());
    let pipeline = pipeline.map(|PipelineArgs { feed, next_ring, next_record }| PipelineOptions {
        feed,
        ring: next_ring,
        record: next_record,
    });
    let options =
        WorkerOptions { role, endpoint, durability, ring, record, lanes, limit, number, seed, pipeline };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let stop = CancellationToken::new();
    runtime.block_on(async {
        let stopped = stop.clone();
        tokio::spawn(async move {
            signals::stop_signal().await;
            stopped.cancel();
        });
        chaos::real_work::run(options, stop).await
    })?;
    Ok(ExitCode::SUCCESS)
}

fn options(reach: &Reach, redis_was_named: bool, args: &ChaosArgs) -> Result<ChaosOptions> {
    if !(2..=MAX_NODES).contains(&args.nodes) {
        return Err(usage(format!("--nodes: expected 2 to {MAX_NODES}, got {}", args.nodes)));
    }
    let length = args.length.0;
    if !(SHORTEST..=LONGEST).contains(&length) {
        return Err(usage("--for: expected 1s to 24h"));
    }
    let redis = named_redis(reach, redis_was_named);
    let topology = match (&redis, args.topology) {
        (None, topology) => Some(topology.unwrap_or_default()),
        (Some(_), None) => None,
        (Some(_), Some(topology)) => {
            let name = topology.name();
            return Err(usage(format!(
                "--topology {name}: expected no --redis with it, because chaos starts these servers itself"
            )));
        }
    };
    let kinds: Vec<FaultKind> = match &args.faults {
        Wanted::All => ChaosOptions::possible_kinds(topology).collect(),
        Wanted::These(kinds) => kinds.clone(),
    };
    for kind in &kinds {
        check_kind(*kind, topology)?;
    }
    let durability = args.durability;
    check_durability(durability, topology)?;
    let seed = args.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let mixed = args.mixed.as_deref().map(OtherBuild::find).transpose();
    let mixed = mixed.map_err(|error| usage(format!("--mixed: {error}")))?;
    if let Some(other) = &mixed {
        check_other_build(other, durability, topology)?;
    }
    let workload = match (args.workload, &mixed) {
        (Some(workload), Some(_)) if workload != Workload::Demo => {
            let name = workload.name();
            return Err(usage(format!(
                "--workload {name}: expected no --mixed with it, because other builds may not know it"
            )));
        }
        (Some(workload), _) => workload,
        (None, Some(_)) => Workload::Demo,
        (None, None) => Workload::Work,
    };
    let rings = workload.rings(&reach.ring).map_err(|_| {
        usage(format!(
            "--ring: expected a short name without '/' with --workload {}, got {}",
            workload.name(),
            reach.ring
        ))
    })?;
    let nodes = args.nodes;
    Ok(ChaosOptions { workload, mixed, nodes, length, kinds, seed, topology, durability, rings, redis })
}

/// Whether a kind of fault is possible with these servers. Without a topology, the user has named a Redis.
fn check_kind(kind: FaultKind, topology: Option<Topology>) -> Result<()> {
    if ChaosOptions::possible_kinds(topology).any(|possible| possible == kind) {
        return Ok(());
    }
    let Some(topology) = topology else {
        return Err(usage(format!(
            "--faults {kind}: expected no --redis with it, because it would hit all clients of that Redis"
        )));
    };
    let needed: Vec<&str> = kind.topologies().iter().map(|topology| topology.name()).collect();
    let (needed, name) = (needed.join(" or "), topology.name());
    Err(usage(format!("--faults {kind}: expected --topology {needed} with it, got {name}")))
}

/// Whether the nodes of another build can do what the run asks of them. Otherwise nobody could judge them by it.
fn check_other_build(other: &OtherBuild, durability: Durability, topology: Option<Topology>) -> Result<()> {
    let mut needed = Vec::new();
    if durability != Durability::Memory {
        needed.push((format!("--durability {durability}"), "--durability"));
    }
    match topology {
        Some(Topology::Sentinel) => needed.push(("--topology sentinel".to_owned(), "redis+sentinel://")),
        Some(Topology::Cluster) => needed.push(("--topology cluster".to_owned(), "redis+cluster://")),
        None | Some(Topology::Single) => {}
    }
    for (option, word) in needed {
        if !other.knows(word).map_err(|error| usage(format!("--mixed: {error}")))? {
            let OtherBuild { version, .. } = other;
            return Err(usage(format!(
                "{option}: expected a build that knows {word} with --mixed, got {version}"
            )));
        }
    }
    Ok(())
}

/// Whether the servers that chaos starts have so many replicas.
fn check_durability(durability: Durability, topology: Option<Topology>) -> Result<()> {
    let replicas = match topology {
        None => return Ok(()),
        Some(Topology::Single | Topology::Cluster) => 1,
        Some(Topology::Sentinel) => 2,
    };
    match durability {
        Durability::Replicas(count) if count > replicas => {
            let name = topology.unwrap_or_default().name();
            Err(usage(format!(
                "--durability {durability}: expected at most replicas={replicas} with --topology {name}"
            )))
        }
        _ => Ok(()),
    }
}

fn print(outcome: &ChaosOutcome, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json_line(&outcome.verdict.json()))?;
    } else {
        outcome.verdict.write(&mut out, Paint(colour_for(&io::stdout())))?;
    }
    out.flush()
}

/// Shows the progress: a bar on a terminal, and otherwise a line every few seconds.
#[derive(Clone)]
struct ChaosProgress {
    bar: ProgressBar,
    state: Arc<Mutex<ProgressState>>,
    length: Duration,
}

struct ProgressState {
    /// When the attack began. None until the first fault or the first report of progress.
    attack: Option<Instant>,
    last_line: Instant,
    faults: u64,
}

impl ChaosProgress {
    fn new(options: &ChaosOptions) -> Result<Self> {
        let bar = if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {prefix}\n{msg}")?;
            ProgressBar::new(options.length.as_millis() as u64).with_style(style)
        } else {
            ProgressBar::hidden()
        };
        let state = ProgressState { attack: None, last_line: Instant::now(), faults: 0 };
        Ok(Self { bar, state: Arc::new(Mutex::new(state)), length: options.length })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ProgressState> {
        self.state.lock().expect("no panic while held")
    }
}

impl ChaosObserver for ChaosProgress {
    fn injected(&self, what: &str) {
        let mut state = self.state();
        state.faults += 1;
        let at = state.attack.get_or_insert_with(Instant::now).elapsed();
        self.bar.set_message(format!("{:5.1} s  {what}", at.as_secs_f64()));
    }

    fn phase(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            let _ = writeln!(io::stderr(), "estafeta: {what}");
        }
    }

    fn progress(&self, published: u64) {
        let mut state = self.state();
        let elapsed = state.attack.get_or_insert_with(Instant::now).elapsed().min(self.length);
        let line = format!(
            "{:.0} of {:.0} s, {}, {}",
            elapsed.as_secs_f64(),
            self.length.as_secs_f64(),
            counted(state.faults, "fault"),
            counted(published, "message")
        );
        self.bar.set_position(elapsed.as_millis() as u64);
        if self.bar.is_hidden() && state.last_line.elapsed() >= LINE_INTERVAL {
            state.last_line = Instant::now();
            let _ = writeln!(io::stderr(), "estafeta: {line}");
        }
        self.bar.set_prefix(line);
    }
}
