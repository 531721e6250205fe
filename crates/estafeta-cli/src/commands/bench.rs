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

use super::is_closed_pipe;
use crate::bench::{self, Audience, Bench, Choice, Order, Table};
use crate::cli::BenchArgs;
use crate::failure::{FAILED, usage};
use crate::output::{Paint, colour_for};
use crate::settings::{Reach, Where};
use crate::signals;
use crate::workplace::Workplace;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(60 * 60);
const MOST_COPIES: usize = 200;
/// How long it may take to take back what was put into Redis.
const CLEARING: Duration = Duration::from_secs(10);
/// How often the bar shows that it lives.
const TICK: Duration = Duration::from_millis(200);

/// `redis_was_asked_for`: a Redis is only loaded if it was named in this very call. One that the environment names is
/// likely to be used for something else.
pub fn run(reach: &Reach, redis_was_asked_for: bool, args: &BenchArgs) -> Result<ExitCode> {
    let order = order(reach, redis_was_asked_for, args)?;
    if let Some(path) = &args.plot {
        if path.extension().is_none_or(|extension| extension != "svg") {
            return Err(usage(format!("--plot: expected a name that ends in .svg, got {}", path.display())));
        }
        // One that cannot be written should not be found out about after minutes.
        let made = tempfile::tempfile_in(directory_of(path));
        made.with_context(|| format!("cannot write the plot {}", path.display()))?;
    }
    if cfg!(debug_assertions) && !args.quick {
        let _ = writeln!(io::stderr(), "estafeta: this is a debug build, its figures are of little use");
    }
    let directory = Workplace::new("bench")?;
    let show = Show::new(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut stopped = None;
    let outcome = runtime.block_on(async {
        let stop = async {
            let signal = signals::told_to_stop().await;
            stopped = Some(signal);
            tokio::spawn(end_anyway(signal));
        };
        bench::run(&order, directory.path(), &show, stop).await
    });
    show.bar.finish_and_clear();
    runtime.shutdown_timeout(Duration::from_secs(5));
    let tables = show.tables.into_inner();
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
        // Whoever reads has had enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(is_closed_pipe) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// A Redis that does not answer must not keep it from ending, and neither must a second signal be in vain.
async fn end_anyway(signal: SignalKind) {
    let signal = tokio::select! {
        again = signals::told_to_stop() => again,
        () = tokio::time::sleep(CLEARING) => signal,
    };
    let _ = writeln!(io::stderr(), "estafeta: bench was stopped at once; the next one removes what it left");
    std::process::exit(signals::exit_code(signal).into());
}

/// So that a plot which cannot be written to its end does not take the place of an older one.
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

fn order(reach: &Reach, redis_was_asked_for: bool, args: &BenchArgs) -> Result<Order> {
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
    for &copies in &args.copies {
        within("copies", copies as u64, 1, MOST_COPIES as u64)?;
    }
    let copies = |usual: &[usize], quick_ones: &[usize]| match &args.copies[..] {
        [] if quick => quick_ones.to_vec(),
        [] => usual.to_vec(),
        given => given.to_vec(),
    };
    Ok(Order {
        benches: benches(&args.what),
        redis: match &reach.redis {
            Where::Given(endpoint) if redis_was_asked_for => Some(estafeta::Endpoint::clone(endpoint)),
            _ => None,
        },
        length,
        tries: usize::try_from(tries)?,
        messages,
        body: usize::try_from(body)?,
        handlers: usize::try_from(handlers)?,
        concurrency: usize::try_from(concurrency)?,
        idle_copies: copies(&[1, 10, 100], &[1, 3]),
        scale_copies: copies(&[1, 2, 5, 10, 20, 50, 100, 200], &[1, 3]),
        lease: Duration::from_millis(if quick { 500 } else { 2000 }),
    })
}

/// Each once, in the order of the program.
fn benches(wanted: &[Choice]) -> Vec<Bench> {
    let all = wanted.is_empty() || wanted.contains(&Choice::All);
    let is_wanted = |bench: &Bench| all || wanted.contains(&Choice::One(*bench));
    Bench::ALL.into_iter().filter(is_wanted).collect()
}

#[derive(Clone, Copy)]
enum Form {
    Text,
    Json,
    Markdown,
}

/// Prints tables as they come, with a bar on the terminal meanwhile.
struct Show {
    bar: ProgressBar,
    form: Form,
    tables: RefCell<Vec<Table>>,
}

impl Show {
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
            (true, _) => Form::Json,
            (_, true) => Form::Markdown,
            _ => Form::Text,
        };
        Ok(Self { bar, form, tables: RefCell::default() })
    }

    /// Prints without tearing the bar.
    fn print(&self, write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> Result<()> {
        Ok(self.bar.suspend(|| {
            let mut out = io::stdout().lock();
            write(&mut out)?;
            out.flush()
        })?)
    }
}

impl Audience for Show {
    fn expect(&self, steps: usize) {
        self.bar.set_length(steps as u64);
    }

    fn place(&self, place: &str) -> Result<()> {
        match self.form {
            Form::Json => Ok(()),
            Form::Text | Form::Markdown => self.print(|out| writeln!(out, "{place}")),
        }
    }

    fn step(&self, what: &str) {
        // The first step has begun and not ended.
        if !self.bar.message().is_empty() {
            self.bar.inc(1);
        }
        self.bar.set_message(what.to_owned());
    }

    fn table(&self, table: Table) -> Result<()> {
        let printed = self.print(|out| match self.form {
            Form::Json => table.write_json(out),
            Form::Markdown => table.write_markdown(out),
            Form::Text => table.write(out, Paint(colour_for(&io::stdout()))),
        });
        self.tables.borrow_mut().push(table);
        printed
    }
}
