//! `estafeta chaos`: attacks a ring of real copies and judges whether it kept its promises.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::is_closed_pipe;
use crate::chaos::{self, Kind, Order, Outcome, Spectator, Wanted};
use crate::cli::ChaosArgs;
use crate::failure::{FAILED, usage};
use crate::output::{Paint, colour_for, counted, grouped, json_line};
use crate::settings::{Reach, Where};
use crate::signals;
use crate::workplace::Workplace;

const MOST_COPIES: usize = 200;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How often somebody who has no bar is told how far it is.
const LINE: Duration = Duration::from_secs(5);

/// `redis_was_asked_for`: a Redis is only attacked if it was named in this very call. One that the environment names is
/// likely to be used for something else.
pub fn run(reach: &Reach, redis_was_asked_for: bool, args: &ChaosArgs) -> Result<ExitCode> {
    let order = order(reach, redis_was_asked_for, args)?;
    if let Some(path) = &args.report {
        // One that cannot be written should not be found out about after a minute.
        let opened = std::fs::File::options().append(true).create(true).open(path);
        opened.with_context(|| format!("cannot write the report {}", path.display()))?;
    }
    let directory = Workplace::new("chaos")?;
    let show = Show::new(&order)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut stopped = None;
    let outcome = runtime.block_on(async {
        let stop = async { stopped = Some(signals::told_to_stop().await) };
        chaos::run(&order, directory.path(), show.clone(), stop).await
    });
    show.bar.finish_and_clear();
    // With its tasks go the copies and Redis, which must not write any more when their directory goes.
    runtime.shutdown_timeout(Duration::from_secs(5));
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) if directory.path().join("copy-1.log").exists() => {
            let left = directory.keep();
            return Err(error.context(format!("chaos broke off; what was left is in {}", left.display())));
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
        let _ = writeln!(io::stderr(), "estafeta: what the copies and Redis left is in {}", kept.display());
        FAILED.into()
    };
    match print(&outcome, args.output.json) {
        Err(error) if !is_closed_pipe(&error) => Err(error).context("cannot print the verdict"),
        _ => Ok(code),
    }
}

fn order(reach: &Reach, redis_was_asked_for: bool, args: &ChaosArgs) -> Result<Order> {
    if !(2..=MOST_COPIES).contains(&args.copies) {
        return Err(usage(format!("--copies: expected 2 to {MOST_COPIES}, got {}", args.copies)));
    }
    let length = args.length.0;
    if !(SHORTEST..=LONGEST).contains(&length) {
        return Err(usage("--for: expected 1s to 24h"));
    }
    let redis = match &reach.redis {
        Where::Given(endpoint) if redis_was_asked_for => Some(estafeta::Endpoint::clone(endpoint)),
        _ => None,
    };
    let possible = |kind: &Kind| redis.is_none() || !kind.needs_own_redis();
    let kinds = match &args.faults {
        Wanted::All => Kind::ALL.into_iter().filter(possible).collect(),
        Wanted::These(kinds) => kinds.clone(),
    };
    if let Some(kind) = kinds.iter().find(|kind| !possible(kind)) {
        return Err(usage(format!(
            "--faults {kind}: expected no --redis with it, as it would hit everybody who uses that Redis"
        )));
    }
    let seed = args.seed.unwrap_or_else(|| rand::random::<u32>().into());
    Ok(Order { copies: args.copies, length, kinds, seed, ring: reach.ring.clone(), redis })
}

fn print(outcome: &Outcome, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json_line(&outcome.verdict.json()))?;
    } else {
        outcome.verdict.write(&mut out, Paint(colour_for(&io::stdout())))?;
    }
    out.flush()
}

/// Shows what is going on: a bar on a terminal, a line now and then elsewhere.
#[derive(Clone)]
struct Show {
    bar: ProgressBar,
    told: Arc<Mutex<Told>>,
    length: Duration,
}

struct Told {
    /// When the attack began.
    attack: Option<Instant>,
    last_line: Instant,
    faults: u64,
}

impl Show {
    fn new(order: &Order) -> Result<Self> {
        let bar = if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:30} {prefix}\n{msg}")?;
            ProgressBar::new(order.length.as_millis() as u64).with_style(style)
        } else {
            ProgressBar::hidden()
        };
        let told = Told { attack: None, last_line: Instant::now(), faults: 0 };
        Ok(Self { bar, told: Arc::new(Mutex::new(told)), length: order.length })
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().expect("no panic while held")
    }
}

impl Spectator for Show {
    fn struck(&self, what: &str) {
        let mut told = self.told();
        told.faults += 1;
        let at = told.attack.get_or_insert_with(Instant::now).elapsed();
        self.bar.set_message(format!("{:5.1} s  {what}", at.as_secs_f64()));
    }

    fn stage(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if self.bar.is_hidden() {
            let _ = writeln!(io::stderr(), "estafeta: {what}");
        }
    }

    fn progress(&self, published: u64) {
        let mut told = self.told();
        let elapsed = told.attack.get_or_insert_with(Instant::now).elapsed().min(self.length);
        let line = format!(
            "{:.0} of {:.0} s, {}, {} messages",
            elapsed.as_secs_f64(),
            self.length.as_secs_f64(),
            counted(told.faults, "fault"),
            grouped(published)
        );
        self.bar.set_position(elapsed.as_millis() as u64);
        if self.bar.is_hidden() && told.last_line.elapsed() >= LINE {
            told.last_line = Instant::now();
            let _ = writeln!(io::stderr(), "estafeta: {line}");
        }
        self.bar.set_prefix(line);
    }
}
