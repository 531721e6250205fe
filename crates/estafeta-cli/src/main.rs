//! The `estafeta` program. `cli` defines its command line, and `commands` has one module per command.

mod call;
mod cli;
mod commands;
mod demo;
mod duration;
mod failure;
mod find_redis;
mod output;
mod private_redis;
mod retry_rule;
mod settings;
mod signals;
mod telemetry;
mod work;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args as _, FromArgMatches as _};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use call::{is_given, names_redis};
use cli::{
    Cli, Command, DurabilityArg, GetErrorsArgs, JsonArg, LogFormat, MonitorArgs, RedisCommand, RunArgs,
};
use settings::{File, Origins, Place, Reach};

fn main() -> ExitCode {
    let outcome = match call::parse() {
        Ok(matches) => run(&matches),
        Err(error) if error.use_stderr() => Err(failure::wrong_call(&error)),
        Err(help_or_version) => help_or_version.exit(),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            let text = estafeta_lab::escape::escape(failure::text(&failure).as_bytes());
            // In one write, so that the lines of several programs do not mix.
            let _ = std::io::stderr().write_all(format!("estafeta: {text}\n").as_bytes());
            failure::exit_code(&failure, &call::called_command())
        }
    }
}

fn run(matches: &ArgMatches) -> Result<ExitCode> {
    let cli = Cli::from_arg_matches(matches)?;
    let command = match cli.command {
        Some(command) => {
            refuse_run_options(matches)?;
            command
        }
        None if cli.get_errors || cli.clean_temp => {
            let allowed = if cli.get_errors { &["json", "durability"][..] } else { &["json"] };
            refuse_run_options_but(allowed, matches)?;
            let output = JsonArg { json: cli.run.json == Some(true) };
            let stored = DurabilityArg { durability: cli.run.durability.unwrap_or_default() };
            match cli.get_errors {
                true => Command::GetErrors(GetErrorsArgs { output, stored }),
                false => Command::CleanTemp(output),
            }
        }
        None => Command::Run(Box::new(cli.run)),
    };
    let file = match &cli.reach.config {
        Some(path) if is_given("config", matches) => File::read(path, Place::CommandLine)?,
        Some(path) => File::read(path, Place::Environment)?,
        None => File::default(),
    };
    let monitor_log = match &command {
        Command::Monitor(args) => {
            refuse_what_a_monitor_ignores(args, matches)?;
            commands::monitor::LogFile::open(args)?
        }
        _ => None,
    };
    // Log lines must not appear on the screen that a monitor draws.
    let own_log = match (&command, &monitor_log) {
        (Command::Monitor(_), Some(log)) if commands::monitor::draws() => Some(log.file()?),
        (Command::Monitor(_), None) if commands::monitor::draws() => {
            Some(std::fs::File::options().write(true).open("/dev/null")?)
        }
        _ => None,
    };
    let log_format = cli.reach.log_format.or(file.reach.log_format);
    #[cfg(feature = "otel")]
    let traces = match &command {
        Command::Run(_) => telemetry::traces::Traces::start()?,
        _ => None,
    };
    match &command {
        // These log nothing.
        Command::Completions { shell } => return commands::pages::completions(*shell),
        Command::Man { directory } => return commands::pages::man(directory),
        Command::Guard { token } => {
            estafeta_exec::guard::watch_over(token)?;
            return Ok(ExitCode::SUCCESS);
        }
        #[cfg(feature = "otel")]
        _ => start_logging(cli.reach.verbose, log_format, own_log, traces.as_ref())?,
        #[cfg(not(feature = "otel"))]
        _ => start_logging(cli.reach.verbose, log_format, own_log)?,
    }
    match &command {
        Command::Redis { action: RedisCommand::Status(output) } => {
            return commands::redis::status(output.json);
        }
        Command::Redis { action: RedisCommand::Stop(confirm) } => return commands::redis::stop(confirm.yes),
        _ => {}
    }
    // The options of `run` are at the top, or after the command that starts nodes.
    let starting = ["run", "monitor", "check"].into_iter().find_map(|name| matches.subcommand_matches(name));
    let origins = Origins { matches: starting.unwrap_or(matches), file: &file };
    let needs_no_redis = match command {
        Command::Chaos(_) | Command::Bench(_) => !names_redis(matches),
        Command::Check(_) => true,
        Command::Health(ref args) => args.address(&file).is_some(),
        _ => false,
    };
    if let Command::Web(args) = &command {
        let rings = Reach::rings(&cli.reach, &origins)?;
        let outcome = commands::web::run(&Reach::redis(&cli.reach, &origins)?, rings, args);
        return outcome.map_err(|failure| origins.name_place(failure));
    }
    let reach = match needs_no_redis {
        true => Reach::without_redis(&cli.reach, &origins)?,
        false => Reach::resolve(&cli.reach, &origins)?,
    };
    let outcome = match command {
        Command::Run(_) => commands::run::run(&reach, origins.run_options()?),
        Command::Monitor(args) => {
            let logging = logging_flags(cli.reach.verbose, log_format);
            commands::monitor::run(&reach, &args, origins.run_options()?, logging, monitor_log)
        }
        Command::Check(args) => commands::check::run(&reach, &args.body, &origins.run_options()?),
        Command::Publish(args) => commands::publish::run(&reach, &args),
        Command::Cancel(args) => commands::cancel::run(&reach, &args),
        Command::GetErrors(args) => commands::get_errors::run(&reach, args),
        Command::Errors { action } => commands::errors::run(&reach, &action),
        Command::Results(args) => commands::results::run(&reach, &args),
        Command::Status(args) => commands::status::run(&reach, &args),
        Command::Doctor(output) => commands::doctor::run(&reach, output.json),
        Command::Health(args) => match args.address(&file) {
            Some(address) => commands::health::ask_node(&args, &address),
            None => commands::health::ask_redis(&reach),
        },
        Command::Rings(output) => commands::rings::run(&reach, output.json),
        Command::CleanTemp(output) => commands::clean_temp::run(&reach, output.json),
        Command::Checkpoint(command) => commands::checkpoint::run(&reach, command),
        Command::Schedule(args) => commands::schedule::run(&reach, &args),
        Command::Pause(args) => commands::pause::pause(&reach, &args),
        Command::Resume(args) => commands::pause::resume(&reach, &args),
        Command::Limit(args) => commands::limit::run(&reach, &args),
        Command::Upgrade(output) => commands::upgrade::run(&reach, output.json),
        Command::Reset(args) => commands::reset::run(&reach, &args),
        Command::Chaos(_) | Command::Bench(_) if !names_redis(matches) && names_part_of_redis(matches) => {
            Err(failure::usage("--db, --user and --password: expected --redis, --host or --port with them"))
        }
        Command::Chaos(args) => commands::chaos::run(&reach, names_redis(matches), &args),
        Command::ChaosWorker(args) => commands::chaos::run_worker(&reach, args),
        Command::Bench(_) if is_given("ring", matches) => {
            Err(failure::usage("--ring: expected no ring, because a benchmark makes its own rings"))
        }
        Command::BenchWorker(args) => commands::bench::run_worker(&reach, &args),
        Command::Bench(args) => commands::bench::run(&reach, names_redis(matches), &args),
        Command::Web(_)
        | Command::Redis { .. }
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Guard { .. } => {
            unreachable!("handled above")
        }
    };
    outcome.map_err(|failure| origins.name_place(failure))
}

fn names_part_of_redis(matches: &ArgMatches) -> bool {
    ["db", "user", "password", "password_file"].into_iter().any(|name| is_given(name, matches))
}

/// Refuses options of `run` in front of another command, which would ignore them.
fn refuse_run_options(matches: &ArgMatches) -> Result<()> {
    for (name, id) in [("getErrors", "get_errors"), ("cleanTemp", "clean_temp")] {
        if matches.get_flag(id) {
            return Err(failure::usage(format!("--{name}: expected it alone, or the command {name}")));
        }
    }
    refuse_run_options_but(&[], matches)
}

fn refuse_run_options_but(allowed: &[&str], matches: &ArgMatches) -> Result<()> {
    match given_run_options(matches).find(|name| !allowed.contains(&name.as_str())) {
        Some(name) => Err(failure::usage(format!(
            "--{} is an option of run: expected it alone or after run",
            name.replace('_', "-")
        ))),
        None => Ok(()),
    }
}

/// The options of `run` on the command line, before or after the command.
fn given_run_options(matches: &ArgMatches) -> impl Iterator<Item = String> {
    let options = RunArgs::augment_args(clap::Command::new("run"));
    let names: Vec<String> = options.get_arguments().map(|arg| arg.get_id().to_string()).collect();
    names.into_iter().filter(|name| is_given(name, matches))
}

/// Refuses options of `run` that a monitor sets itself, and all of them if it starts no nodes.
fn refuse_what_a_monitor_ignores(args: &MonitorArgs, matches: &ArgMatches) -> Result<()> {
    let matches = matches.subcommand_matches("monitor").unwrap_or(matches);
    let reserved = |name: &String| ["json", "brief", "control", "metrics"].contains(&name.as_str());
    match given_run_options(matches).find(|name| args.attach || reserved(name)) {
        Some(name) => {
            let why = if args.attach {
                "monitor --attach starts no nodes"
            } else {
                "a monitor draws, and its nodes report to it"
            };
            Err(failure::usage(format!("--{} makes no sense here: {why}", name.replace('_', "-"))))
        }
        None => Ok(()),
    }
}

/// The flags that make a child log as this process does.
fn logging_flags(verbose: u8, format: Option<LogFormat>) -> Vec<String> {
    let mut flags = vec!["--verbose".to_owned(); verbose.into()];
    flags.extend(format.map(|format| match format {
        LogFormat::Text => "--log-format=text".to_owned(),
        LogFormat::Json => "--log-format=json".to_owned(),
    }));
    flags
}

/// The filter in `ESTAFETA_LOG`, if it has one.
fn log_filter() -> Result<Option<EnvFilter>> {
    let Some(text) = std::env::var_os("ESTAFETA_LOG").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let text = text.to_string_lossy();
    // A word without a level enables a target, so a mistyped level would be taken for one.
    let is_target = |word: &str| word.contains(['=', ':', '[']) || word.starts_with("estafeta");
    let is_known = |word: &str| word.is_empty() || is_target(word) || word.parse::<LevelFilter>().is_ok();
    match EnvFilter::try_new(&*text) {
        Ok(filter) if text.split(',').map(str::trim).all(is_known) => Ok(Some(filter)),
        _ => Err(failure::usage(format!(
            "variable ESTAFETA_LOG: expected a filter such as debug or estafeta=trace, got '{text}'"
        ))),
    }
}

fn start_logging(
    verbose: u8,
    format: Option<LogFormat>,
    file: Option<std::fs::File>,
    #[cfg(feature = "otel")] traces: Option<&telemetry::traces::Traces>,
) -> Result<()> {
    use tracing_subscriber::fmt::writer::BoxMakeWriter;
    let colour = file.is_none() && estafeta_lab::paint::colour_for(&std::io::stderr());
    // Commands that run nodes print what happens to them. Spans would only make their lines longer.
    let quiet = "estafeta::notices=off,estafeta::spans=off";
    let levels = [format!("warn,{quiet}"), format!("info,estafeta=debug,{quiet}"), "trace".to_owned()];
    let level = &levels[usize::from(verbose.min(2))];
    let filter = log_filter()?.unwrap_or_else(|| EnvFilter::new(level));
    let writer = match file {
        Some(file) => BoxMakeWriter::new(file),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    #[cfg(feature = "otel")]
    if let Some(traces) = traces {
        use tracing_subscriber::prelude::*;
        let logging = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
        let logging = match format {
            Some(LogFormat::Json) => logging.json().boxed(),
            Some(LogFormat::Text) | None => logging.with_ansi(colour).boxed(),
        };
        tracing_subscriber::registry().with(logging.with_filter(filter)).with(traces.layer()).init();
        return Ok(());
    }
    // A log line that cannot be written is lost. By default, `tracing-subscriber` would report that loss to stderr,
    // which may be on the same full disk. It would panic if that fails too.
    let logging =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    match format {
        Some(LogFormat::Json) => logging.json().init(),
        Some(LogFormat::Text) | None => logging.with_ansi(colour).init(),
    }
    Ok(())
}
