//! Parses the command line. Each command reads only the variables that it uses, and lists only the options that it
//! accepts.
//!
//! Clap reads a variable for every option that it knows, even if the command ignores the option. A bad
//! `ESTAFETA_INTERVAL` would then fail `estafeta status`. So the command line is parsed twice: first without variables,
//! to find the command, and then with the variables of that command.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, Resettable};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, CommandFactory as _};

use crate::cli::{Cli, ReachArgs, RunArgs};

/// Commands that never look for a ring.
const WITHOUT_RING: [&str; 4] = ["redis", "completions", "man", crate::work::GUARD];

/// Commands that start their own Redis, unless the command line names one.
const WITH_OWN_REDIS: [&str; 2] = ["chaos", "bench"];

/// The ids of the options that describe a Redis.
const REDIS_OPTIONS: [&str; 8] =
    ["redis", "host", "port", "db", "user", "password", "password_file", "no_private_redis"];

/// Parses the arguments and the environment of this process.
pub fn parse() -> Result<ArgMatches, clap::Error> {
    parse_from(std::env::args_os().collect())
}

fn parse_from(args: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    let without_variable = |arg: Arg| arg.env(Resettable::Reset);
    let first = match change_all(command(), &without_variable).try_get_matches_from(&args) {
        // A help page shows the variables.
        Err(help) if !help.use_stderr() => return command().try_get_matches_from(&args),
        parsed => parsed?,
    };
    let unused = unused_options(&first);
    let keep =
        |arg: Arg| if unused.contains(&arg.get_id().to_string()) { without_variable(arg) } else { arg };
    change_all(command(), &keep).try_get_matches_from(&args)
}

/// The command that a wrong call names, with its subcommand. Empty if it names none. All values are accepted here, so
/// that a bad one does not hide the command behind it.
pub fn called_command() -> Vec<String> {
    let accept_all = |arg: Arg| match arg.get_action().takes_values() {
        true => arg.env(Resettable::Reset).value_parser(OsStringValueParser::new()),
        false => arg.env(Resettable::Reset),
    };
    let lenient = change_all(command(), &accept_all).ignore_errors(true);
    let Ok(matches) = lenient.try_get_matches_from(std::env::args_os()) else {
        return Vec::new();
    };
    let called = std::iter::successors(matches.subcommand(), |(_, matches)| matches.subcommand());
    called.map(|(name, _)| name.to_owned()).collect()
}

/// The ids of the options that a command does not use, and whose variables it must not read.
fn unused_options(matches: &ArgMatches) -> Vec<String> {
    let command = matches.subcommand_name();
    let starts_node = matches!(command, Some("run" | "monitor" | "check"))
        || command.is_none() && !matches.get_flag("get_errors") && !matches.get_flag("clean_temp");
    let mut unused = if starts_node { Vec::new() } else { ids_of::<RunArgs>() };
    // It asks the node at the address that `run` listens at.
    if command == Some("health") {
        unused.retain(|id| id != "metrics");
    }
    match command {
        Some(name) if WITHOUT_RING.contains(&name) => unused.extend(ids_of::<ReachArgs>()),
        Some(name) if WITH_OWN_REDIS.contains(&name) => {
            if !names_redis(matches) {
                unused.extend(REDIS_OPTIONS.map(ToOwned::to_owned));
            }
            if name == "bench" {
                unused.push("ring".to_owned());
            }
        }
        _ => {}
    }
    unused
}

/// Whether the command line names a Redis.
pub fn names_redis(matches: &ArgMatches) -> bool {
    ["redis", "host", "port"].into_iter().any(|id| is_given(id, matches))
}

/// Whether an option is on the command line.
pub fn is_given(id: &str, matches: &ArgMatches) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// The whole command line. The options of `run` are accepted without a command, but not listed there.
pub fn command() -> Command {
    let run = ids_of::<RunArgs>();
    let mut command = Cli::command()
        .mut_args(|arg| if run.contains(&arg.get_id().to_string()) { arg.hide(true) } else { arg });
    // These commands read no variables, and they use few of the options.
    for name in WITHOUT_RING {
        command = change_globals(command, name, &|arg| {
            let is_used = ["config", "verbose", "log_format"].contains(&arg.get_id().as_str());
            Some(arg.hide(!is_used).env(Resettable::Reset))
        });
    }
    change_globals(command, "bench", &|arg| (arg.get_id() == "ring").then(|| arg.hide(true)))
}

/// Changes global options of a command and its subcommands. A global option reaches every command, unless the command
/// has an option of the same name. So the command gets its own option wherever `change` returns one.
fn change_globals(command: Command, name: &str, change: &impl Fn(Arg) -> Option<Arg>) -> Command {
    let globals = command.get_arguments().filter(|arg| arg.is_global_set()).cloned();
    let changed: Vec<Arg> = globals.filter_map(change).collect();
    command.mut_subcommand(name, |command| command.args(changed))
}

/// Changes the options of a command and all its subcommands.
fn change_all(command: Command, change: &impl Fn(Arg) -> Arg) -> Command {
    command.mut_args(change).mut_subcommands(|subcommand| change_all(subcommand, change))
}

fn ids_of<A: clap::Args>() -> Vec<String> {
    A::augment_args(Command::new("options")).get_arguments().map(|arg| arg.get_id().to_string()).collect()
}

/// The options that may come from the command line, the environment or the settings file.
pub fn layered_options() -> Command {
    ReachArgs::augment_args(RunArgs::augment_args(Command::new("options")))
}

/// The environment variable of an option.
pub fn variable(option: &str) -> Option<String> {
    let options = layered_options();
    let option = options.get_arguments().find(|arg| arg.get_long() == Some(option))?;
    option.get_env().map(|name| name.to_string_lossy().into_owned())
}

/// The environment variable that a value came from, if this option was not on the command line.
pub fn variable_of(option: &str, value: &str) -> Option<String> {
    let long = option.split([' ', '=', '[']).next()?.trim_start_matches("--").to_owned();
    let is_flag = |arg: OsString| {
        let arg = arg.to_string_lossy().into_owned();
        arg == format!("--{long}") || arg.starts_with(&format!("--{long}="))
    };
    if std::env::args_os().any(is_flag) {
        return None;
    }
    let variable = variable(&long)?;
    (std::env::var(&variable).ok()? == value).then_some(variable)
}

/// Whether this is an option of `run`, as clap shows it: `--interval <TIME>`.
pub fn is_run_option(option: &str) -> bool {
    let long = option.split([' ', '=', '[']).next().unwrap_or_default().trim_start_matches("--");
    RunArgs::augment_args(Command::new("options")).get_arguments().any(|arg| arg.get_long() == Some(long))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference page: the help of every command, as the program prints it.
    fn page() -> String {
        fn add(page: &mut String, command: &mut Command, name: &str, level: usize) {
            // The page lists options that every command has only once.
            let is_repeated = |arg: &Arg| level > 2 && arg.get_help_heading() == Some("Ring and Redis");
            let shown = command.clone().mut_args(|arg| if is_repeated(&arg) { arg.hide(true) } else { arg });
            let help = shown.color(clap::ColorChoice::Never).render_long_help().to_string();
            let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
            *page +=
                &format!("{} `{name}`\n\n```text\n{}\n```\n\n", "#".repeat(level), lines.join("\n").trim());
            let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
            let subcommands: Vec<String> = shown.map(|command| command.get_name().to_owned()).collect();
            for subcommand in subcommands.iter().filter(|name| *name != "help") {
                let child = command.find_subcommand_mut(subcommand).unwrap();
                add(page, child, &format!("{name} {subcommand}"), level + 1);
            }
        }
        let mut command = change_all(command(), &|arg| arg.hide_env_values(true)).term_width(100);
        command.build();
        let mut page = String::from(
            "# Commands\n\nThis page is generated from the program: `ESTAFETA_UPDATE=1 cargo test -p estafeta-cli cli_md`. \
             A test fails if it is\nout of date. The options under *Ring and Redis* work with every command that finds a \
             ring.\n\nExit codes: 0 success, 1 failure, 2 wrong call, 3 Redis cannot be reached or refuses to serve, \
             128 + n if signal n cut the command short.\n`publish` and `cancel` have other exit codes, which their \
             sections list.\n\n",
        );
        add(&mut page, &mut command, "estafeta", 2);
        page.trim_end().to_owned() + "\n"
    }

    #[test]
    fn cli_md_is_up_to_date() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
        if std::env::var_os("ESTAFETA_UPDATE").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/cli.md is out of date: run ESTAFETA_UPDATE=1 cargo test -p estafeta-cli cli_md"
        );
    }

    #[test]
    fn the_command_line_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_command_lists_only_the_options_it_accepts() {
        let mut command = command();
        command.build();
        let mut help = |path: &[&str]| {
            let start = &mut command;
            let found = path.iter().fold(start, |command, name| command.find_subcommand_mut(name).unwrap());
            found.render_long_help().to_string()
        };
        assert!(!help(&[]).contains("--interval") && help(&["run"]).contains("--interval"));
        assert!(help(&["status"]).contains("--ring"));
        assert!(!help(&["bench"]).contains("--ring") && help(&["bench"]).contains("--redis"));
        assert!(!help(&["redis", "status"]).contains("--redis <URL>"), "{}", help(&["redis", "status"]));
        assert!(!help(&["completions"]).contains("--ring"));
    }

    #[test]
    fn a_command_without_a_ring_lists_no_variables_because_it_reads_none() {
        let mut command = command();
        command.build();
        let mut help = |path: &[&str]| {
            let start = &mut command;
            let found = path.iter().fold(start, |command, name| command.find_subcommand_mut(name).unwrap());
            found.render_long_help().to_string()
        };
        for path in [&["redis"][..], &["redis", "status"], &["redis", "stop"], &["completions"], &["man"]] {
            let help = help(path);
            assert!(help.contains("--log-format") && !help.contains("[env:"), "{path:?}: {help}");
        }
        assert!(help(&["status"]).contains("[env: ESTAFETA_LOG_FORMAT"));
    }
}
