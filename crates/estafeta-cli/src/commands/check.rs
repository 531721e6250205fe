//! `estafeta check`: starts a handler command once, and shows what it answered.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use estafeta::{Bytes, Failure, FailureKind, Job, Message, Outcome};
use estafeta_exec::{LineCommand, MessageCommand};
use estafeta_lab::escape::escape_for_people;
use serde_json::json;

use super::print_result;
use crate::cli::RunArgs;
use crate::duration::HumanDuration;
use crate::failure::usage;
use crate::settings::Reach;
use crate::work::{HandlerCommand, command_context};

pub fn run(reach: &Reach, body: &std::ffi::OsStr, args: &RunArgs) -> Result<ExitCode> {
    let config = args.config("redis://127.0.0.1".parse()?, reach.ring.clone())?;
    let work = args.work()?.filter(|work| work.handler.is_some());
    let work = work.ok_or_else(|| usage("check: expected --handle or --handle-lines, got neither"))?;
    work.check()?;
    let body = match body.to_str() {
        Some("-") => {
            let mut body = Vec::new();
            std::io::stdin().lock().read_to_end(&mut body).context("cannot read the body from stdin")?;
            body
        }
        _ => std::os::unix::ffi::OsStrExt::as_bytes(body).to_vec(),
    };
    let message = Message::sample(reach.ring.as_str(), 1, body.clone());
    let attempts = args.retry.unwrap_or_default().attempts();
    let job = Job::sample(Bytes::from(body)).with_message(message).with_attempt(1, attempts);
    let context = command_context(reach.ring.clone())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let started = Instant::now();
    let (limit, results) = (config.time_limit, work.results);
    let (command, answer) = runtime.block_on(async {
        match work.handler.expect("checked above") {
            HandlerCommand::PerMessage(command) => {
                let name = command.to_string();
                let handler = MessageCommand::new(command, &context, limit, results);
                (name, handler.handle(job).await)
            }
            HandlerCommand::Lines { command, in_hand } => {
                let name = command.to_string();
                let lines = LineCommand::start(command, &context, 1, in_hand, limit, results);
                let answer = lines.clone().handle(job).await;
                lines.stop(LineCommand::PATIENCE).await;
                (name, answer)
            }
        }
    });
    let took = started.elapsed();
    context.finish();
    let is_good = answer.is_ok();
    let outcome = words(&answer);
    if args.json == Some(true) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        print_result(json!({ "command": command, "outcome": outcome, "tookMs": took_ms, "good": is_good }))?;
    } else {
        let took = HumanDuration(std::time::Duration::from_millis(took.as_millis() as u64));
        let lines = [("command", command), ("outcome", outcome), ("took", took.to_string())];
        let lines = lines.map(|(name, value)| format!("{name:<8} {}", escape_for_people(value.as_bytes())));
        print_result(lines.join("\n"))?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What an answer means.
fn words(answer: &Result<Outcome, Failure>) -> String {
    let failure = match answer {
        Ok(outcome) => return outcome.to_string(),
        Err(failure) => failure,
    };
    let reason = failure.reason();
    match failure.kind() {
        FailureKind::Retry => format!("retry: {reason}"),
        FailureKind::RetryAfter(after) => format!("retry after {}: {reason}", HumanDuration(after)),
        FailureKind::Fatal => format!("fail: {reason}"),
        FailureKind::Died => format!("death: {reason}"),
        FailureKind::Broken(_) => format!("put back: {reason}"),
        _ => reason.to_owned(),
    }
}
