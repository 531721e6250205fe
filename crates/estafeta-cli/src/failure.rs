//! Failures of the program and the exit codes they end in.

use std::process::ExitCode;

use crate::private_redis::PrivateRedisError;

/// Something went wrong.
pub const FAILED: u8 = 1;
/// The program was called the wrong way.
pub const USAGE: u8 = 2;
/// Redis can't be reached or refuses us.
pub const REDIS: u8 = 3;

/// A call with wrong options or arguments.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// A failure that means: the program was called the wrong way.
pub fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// What clap has to say about a wrong call, in one line. It repeats what it did not understand, and that may be a URL
/// with a password in it.
pub fn wrong_call(error: &clap::Error) -> anyhow::Error {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return usage("expected a subcommand after it (see --help)");
    }
    let told = error.to_string();
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    let paragraph = told.split("\n\n").next().unwrap_or_default();
    let line = paragraph.split_whitespace().map(without_secrets).collect::<Vec<_>>().join(" ");
    usage(format!("{line} (see estafeta --help)"))
}

fn without_secrets(word: &str) -> String {
    match (word.find("://"), word.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}://***{}", &word[..scheme], &word[at..]),
        _ => word.to_owned(),
    }
}

/// A failure and its causes, in one line. Some errors have themselves for a cause.
pub fn told(failure: &anyhow::Error) -> String {
    let mut told: Vec<String> = failure.chain().map(ToString::to_string).collect();
    told.dedup();
    told.join(": ")
}

/// The exit code for a failure, decided by the first cause that has one.
pub fn exit_code(failure: &anyhow::Error) -> ExitCode {
    use estafeta::Error;
    let code = failure.chain().find_map(|cause| {
        if cause.is::<Usage>() {
            return Some(USAGE);
        }
        if cause.is::<PrivateRedisError>() || cause.is::<redis::RedisError>() {
            return Some(REDIS);
        }
        match cause.downcast_ref::<Error>()? {
            Error::Expected { .. } => Some(USAGE),
            Error::Unreachable { .. } | Error::Refused { .. } => Some(REDIS),
            _ => Some(FAILED),
        }
    });
    code.unwrap_or(FAILED).into()
}
