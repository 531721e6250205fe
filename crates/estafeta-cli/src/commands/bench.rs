//! `estafeta bench`: measures a ring on this machine and this Redis.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::SignalKind;

use super::{is_closed_pipe, named_redis};
use crate::cli::{BenchArgs, BenchWorkerArgs};
use crate::failure::usage;
use crate::find_redis;
use crate::settings::Reach;
use crate::signals;
use estafeta_lab::bench::{self, Bench, BenchObserver, BenchOptions, Choice, Table};
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::paint::{Paint, colour_for};
use estafeta_lab::scratch_dir::ScratchDir;
use estafeta_lab::text::wrapped;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60 * 60);
const MAX_NODES: usize = 200;
/// How long bench may take after a signal to remove its data from Redis.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the progress bar is drawn again while a step lasts.
const TICK: Duration = Duration::from_millis(200);

/// Runs the benchmarks. `redis_was_named` is true if the command line of this call names a Redis. Bench loads a Redis
/// only then. One that the environment names is probably used for something else.
pub fn run(reach: &Reach, redis_was_named: bool, args: &BenchArgs) -> Result<ExitCode> {
    let options = options(reach, redis_was_named, args)?;
    if let Some(path) = &args.plot {
        if path.extension().is_none_or(|extension| extension != "svg") {
            return Err(usage(format!("--plot: expected a name that ends in .svg, got {}", path.display())));
        }
        // If the plot cannot be written, the user should learn that now and not after minutes.
        let made = tempfile::tempfile_in(directory_of(path));
        made.with_context(|| format!("cannot write the plot {}", path.display()))?;
    }
    if cfg!(debug_assertions) && !args.quick {
        let _ = writeln!(io::stderr(), "estafeta: this is a debug build, so the figures mean little");
    }
    let directory = ScratchDir::new("bench")?;
    let progress = BenchProgress::new(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut stopped = None;
    let outcome = runtime.block_on(async {
        let stop = async {
            let signal = signals::stop_signal().await;
            stopped = Some(signal);
            tokio::spawn(force_exit(signal));
        };
        bench::run(&options, directory.path(), &progress, stop).await
    });
    progress.bar.finish_and_clear();
    runtime.shutdown_timeout(Duration::from_secs(5));
    let tables = progress.tables.into_inner();
    if let Some(path) = args.plot.as_ref().filter(|_| !tables.is_empty()) {
        let written = write_plot(path, &bench::picture(&tables));
        written.with_context(|| format!("cannot write the plot {}", path.display()))?;
    }
    match outcome {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => {
            let _ = writeln!(io::stderr(), "estafeta: bench was stopped before its end");
            Ok(stopped.map_or(FAILED, signals::exit_code).into())
        }
        // The reader of the output has closed the pipe.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(is_closed_pipe) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// Runs a worker, which gets its Redis and its ring from the environment.
pub fn run_worker(reach: &Reach, args: &BenchWorkerArgs) -> Result<ExitCode> {
    bench::run_worker(args.kind, find_redis::existing(&reach.redis)?, reach.ring.clone())?;
    Ok(ExitCode::SUCCESS)
}

/// Exits at a second signal, or if Redis does not answer and bench cannot stop in time.
async fn force_exit(signal: SignalKind) {
    let signal = tokio::select! {
        again = signals::stop_signal() => again,
        () = tokio::time::sleep(CLEANUP_TIMEOUT) => signal,
    };
    let _ =
        writeln!(io::stderr(), "estafeta: bench was stopped at once; the next bench removes what it left");
    std::process::exit(signals::exit_code(signal).into());
}

/// Writes a temporary file and renames it. A plot that is cut short therefore never replaces an older one.
fn write_plot(path: &Path, picture: &str) -> io::Result<()> {
    let readable = std::fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(directory_of(path))?;
    file.write_all(picture.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn options(reach: &Reach, redis_was_named: bool, args: &BenchArgs) -> Result<BenchOptions> {
    let quick = args.quick;
    let length = args.length.map_or(Duration::from_millis(if quick { 150 } else { 3000 }), |length| length.0);
    if !(SHORTEST..=LONGEST).contains(&length) {
        return Err(usage(format!(
            "--for: expected 100ms to 1h, got {}",
            humantime::format_duration(length)
        )));
    }
    let within = |name: &str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(usage(format!("--{name}: expected {least} to {most}, got {value}")))
        }
    };
    let tries = within("tries", args.tries.unwrap_or(if quick { 1 } else { 50 }), 1, 100_000)?;
    let usual = if quick { 5_000 } else { 1_000_000 };
    let messages = within("messages", args.messages.unwrap_or(usual), 100, 100_000_000)?;
    let body = within("body", args.body, 0, 1024 * 1024)?;
    let handlers = within("handlers", args.handlers, 1, 100)?;
    let concurrency = within("concurrency", args.concurrency, 1, 1024)?;
    for &nodes in &args.nodes {
        within("nodes", nodes as u64, 1, MAX_NODES as u64)?;
    }
    let nodes = |usual: &[usize], quick_ones: &[usize]| match &args.nodes[..] {
        [] if quick => quick_ones.to_vec(),
        [] => usual.to_vec(),
        given => given.to_vec(),
    };
    Ok(BenchOptions {
        benches: benches(&args.what),
        redis: named_redis(reach, redis_was_named),
        length,
        tries: usize::try_from(tries)?,
        messages,
        body: usize::try_from(body)?,
        handlers: usize::try_from(handlers)?,
        concurrency: usize::try_from(concurrency)?,
        idle_nodes: nodes(&[1, 10, 100], &[1, 3]),
        scale_nodes: nodes(&[1, 2, 5, 10, 20, 50, 100, 200], &[1, 3]),
        lease: Duration::from_millis(if quick { 500 } else { 2000 }),
    })
}

/// Returns each wanted benchmark once, in the order of `Bench::ALL`.
fn benches(wanted: &[Choice]) -> Vec<Bench> {
    let all = wanted.is_empty() || wanted.contains(&Choice::All);
    let is_wanted = |bench: &Bench| all || wanted.contains(&Choice::One(*bench));
    Bench::ALL.into_iter().filter(is_wanted).collect()
}

#[derive(Clone, Copy)]
enum TableForm {
    Text,
    Json,
    Markdown,
}

/// Prints each table as soon as it is ready. Meanwhile it shows a progress bar on a terminal.
struct BenchProgress {
    bar: ProgressBar,
    form: TableForm,
    tables: RefCell<Vec<Table>>,
}

impl BenchProgress {
    fn new(args: &BenchArgs) -> Result<Self> {
        let bar = if io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("{bar:12} {pos} of {len}, {elapsed}  {wide_msg}")?;
            let bar = ProgressBar::new(1).with_style(style);
            bar.enable_steady_tick(TICK);
            bar
        } else {
            ProgressBar::hidden()
        };
        let form = match (args.output.json, args.markdown) {
            (true, _) => TableForm::Json,
            (_, true) => TableForm::Markdown,
            _ => TableForm::Text,
        };
        Ok(Self { bar, form, tables: RefCell::default() })
    }

    /// Hides the bar while it prints, so that the two do not mix.
    fn print(&self, write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> Result<()> {
        Ok(self.bar.suspend(|| {
            let mut out = io::stdout().lock();
            write(&mut out)?;
            out.flush()
        })?)
    }
}

/// The width of the terminal on stdout. None if stdout is no terminal.
fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into())
}

impl BenchObserver for BenchProgress {
    fn expect(&self, steps: usize) {
        self.bar.set_length(steps as u64);
    }

    fn place(&self, place: &str) -> Result<()> {
        match self.form {
            TableForm::Json => Ok(()),
            TableForm::Markdown => self.print(|out| writeln!(out, "{place}")),
            TableForm::Text => self.print(|out| {
                wrapped(place, terminal_width().unwrap_or(usize::MAX))
                    .iter()
                    .try_for_each(|line| writeln!(out, "{line}"))
            }),
        }
    }

    fn step(&self, what: &str) {
        // When the first step begins, no step has ended.
        if !self.bar.message().is_empty() {
            self.bar.inc(1);
        }
        self.bar.set_message(what.to_owned());
    }

    fn table(&self, table: Table) -> Result<()> {
        let printed = self.print(|out| match self.form {
            TableForm::Json => table.write_json(out),
            TableForm::Markdown => table.write_markdown(out),
            TableForm::Text => table.write(out, Paint(colour_for(&io::stdout())), terminal_width()),
        });
        self.tables.borrow_mut().push(table);
        printed
    }
}
