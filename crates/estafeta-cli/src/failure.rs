//! The failures of the program, and their exit codes.

use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};

use estafeta_lab::exit_code::{FAILED, REDIS, USAGE};

use crate::call;
use crate::demo;
use crate::find_redis::NoRedis;
use crate::private_redis::PrivateRedisError;

/// Exit codes of `publish` and `cancel`, from sysexits.h: a wrong call, data that no try will publish, and a state that
/// may pass.
const BAD_CALL: u8 = 64;
const BAD_DATA: u8 = 65;
const TRY_LATER: u8 = 75;

/// A call with wrong options or arguments.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Creates a failure that means that the program was called in a wrong way.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Turns clap's report of a wrong call into one line. Clap repeats the text that it did not understand. That may be a
/// URL with a password, so passwords are removed.
pub fn wrong_call(error: &clap::Error) -> anyhow::Error {
    let command = call::called_command();
    let help = [&["estafeta".to_owned()], &command[..], &["--help".to_owned()]].concat().join(" ");
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return usage(format!("expected a subcommand: {} (see {help})", subcommands(&command)));
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // The last paragraphs are the usage and a pointer to the help. Those before them may hold a suggestion.
    let paragraphs =
        text.split("\n\n").take_while(|part| !part.starts_with("Usage:") && !part.starts_with("For more"));
    let line = paragraphs.flat_map(str::split_whitespace).map(without_secrets).collect::<Vec<_>>().join(" ");
    let context = |kind| error.get(kind).map(ToString::to_string);
    let help = match context(ContextKind::InvalidArg) {
        // Without a command, the options of run are accepted but not listed.
        Some(option) if command.is_empty() && call::is_run_option(&option) => {
            "estafeta run --help".to_owned()
        }
        _ => help,
    };
    let variable = context(ContextKind::InvalidArg)
        .zip(context(ContextKind::InvalidValue))
        .and_then(|(option, value)| call::variable_of(&option, &value));
    match variable {
        Some(variable) => usage(format!("variable {variable}: {line} (see {help})")),
        None => usage(format!("{line} (see {help})")),
    }
}

/// The subcommands of a command.
fn subcommands(command: &[String]) -> String {
    let root = call::command();
    let command = command.iter().try_fold(&root, |command, name| command.find_subcommand(name));
    let names = command.into_iter().flat_map(clap::Command::get_subcommands).map(clap::Command::get_name);
    names.filter(|name| *name != "help").collect::<Vec<_>>().join(", ")
}

fn without_secrets(word: &str) -> String {
    match (word.find("://"), word.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://***{}", &word[..scheme], &word[at..]),
        _ => word.to_owned(),
    }
}

/// A failure and its causes, in one line. Some errors repeat themselves as their own cause, so repetitions are removed.
pub fn text(failure: &anyhow::Error) -> String {
    let cause = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
        Some(error) => library_text(error),
        None => cause.to_string(),
    };
    let mut text: Vec<String> = failure.chain().map(cause).collect();
    text.dedup();
    text.join(": ")
}

/// An error of the library, with the names that this program uses.
fn library_text(error: &estafeta::Error) -> String {
    let estafeta::Error::Application { ring, found, expected } = error else { return error.to_string() };
    let mine = format!("ring {ring} belongs to the application '{found}', and this node is of '{expected}'");
    match (expected == demo::APPLICATION, found == demo::APPLICATION) {
        (true, _) => format!("{mine}: choose another ring for the demo (--ring)"),
        (_, true) => format!("{mine}: choose another ring (--ring)"),
        _ => format!("{mine}: set --app '{found}', or choose another ring (--ring)"),
    }
}

/// The exit code for a failure of this command.
pub fn exit_code(failure: &anyhow::Error, command: &[String]) -> ExitCode {
    let code = general_exit_code(failure);
    match command.first().map(String::as_str) {
        Some("publish" | "cancel") => publish_exit_code(failure, code),
        _ => code,
    }
    .into()
}

/// The exit codes of `publish` and `cancel` are those of sysexits.h, so that a script sees whether another try makes sense.
fn publish_exit_code(failure: &anyhow::Error, code: u8) -> u8 {
    use estafeta::Error;
    let cause = failure.chain().find_map(|cause| cause.downcast_ref::<Error>());
    match (cause, code) {
        (Some(Error::KeyReused { .. } | Error::BodyTooLarge { .. }), _) => BAD_DATA,
        (Some(Error::Full { .. } | Error::Paused { .. }), _) | (_, REDIS) => TRY_LATER,
        (_, USAGE) => BAD_CALL,
        _ => code,
    }
}

/// The first cause that has an exit code decides.
fn general_exit_code(failure: &anyhow::Error) -> u8 {
    use estafeta::Error;
    let code = failure.chain().find_map(|cause| {
        if cause.is::<Usage>() {
            return Some(USAGE);
        }
        if cause.is::<PrivateRedisError>() || cause.is::<NoRedis>() || cause.is::<redis::RedisError>() {
            return Some(REDIS);
        }
        match cause.downcast_ref::<Error>()? {
            Error::Expected { .. } => Some(USAGE),
            Error::Unreachable { .. } | Error::Unconfirmed { .. } | Error::Refused { .. } => Some(REDIS),
            _ => Some(FAILED),
        }
    });
    code.unwrap_or(FAILED)
}
