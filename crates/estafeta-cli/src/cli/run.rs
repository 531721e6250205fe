//! The options of `estafeta run`.

use std::fmt;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use estafeta::{Config, Durability, Endpoint};
use serde::{Deserialize, Serialize};

use super::ShowDefault as _;
use super::reach::{DEFAULT_HOST, DEFAULT_PORT, DEFAULT_RING};
use crate::duration::HumanDuration;
use crate::retry_rule::RetryRule;

/// The heading of the options for commands of the user.
const WORK: &str = "Your own work";

pub const DEFAULT_ZONE: &str = "UTC";
pub const DEFAULT_ERROR_RATE: f64 = 0.05;
pub const DEFAULT_WORK_PER_CHAR: HumanDuration = HumanDuration(std::time::Duration::ZERO);

/// The library's settings, for their defaults. The ring and its Redis do not matter.
pub(super) fn library() -> Config {
    let ring = DEFAULT_RING.parse().expect("the default is a valid name");
    Config::new(Endpoint::tcp(DEFAULT_HOST, DEFAULT_PORT), ring)
}

/// Options of `run`. Each may also come from the environment or the settings file. A flag overrides the environment,
/// which overrides the file. An option that is in none of them is None, and the code that uses it applies its default.
#[derive(Clone, Debug, Default, Args, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Options of run")]
pub struct RunArgs {
    /// Handle each message with this command: one process per message, the body on its stdin
    #[arg(long, value_name = "COMMAND", env = "ESTAFETA_HANDLE", help_heading = WORK)]
    pub handle: Option<String>,

    /// Handle messages with processes of this command that live on: one JSON object per line and message
    #[arg(long, value_name = "COMMAND", env = "ESTAFETA_HANDLE_LINES", help_heading = WORK)]
    pub handle_lines: Option<String>,

    /// With --handle-lines: messages that one process may have in hand
    #[arg(long, value_name = "N", env = "ESTAFETA_IN_HAND", help_heading = WORK, allow_hyphen_values = true,
          show_default = 1)]
    pub in_hand: Option<usize>,

    /// Run this command once per tick on the elected node: each line that it prints is a message
    #[arg(long, value_name = "COMMAND", env = "ESTAFETA_GENERATE", help_heading = WORK)]
    pub generate: Option<String>,

    /// With --generate: the time between two ticks
    #[arg(long, value_name = "TIME", env = "ESTAFETA_EVERY", help_heading = WORK, allow_hyphen_values = true)]
    pub every: Option<HumanDuration>,

    /// With --generate: the ticks as a cron expression, such as '30 2 * * *'
    #[arg(long, value_name = "EXPRESSION", env = "ESTAFETA_CRON", help_heading = WORK)]
    pub cron: Option<String>,

    /// With --cron: the time zone, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", env = "ESTAFETA_TZ", help_heading = WORK, show_default = DEFAULT_ZONE)]
    pub tz: Option<String>,

    /// With --generate: what a tick does while messages of an earlier one have no outcome yet
    #[arg(long, value_enum, env = "ESTAFETA_OVERLAP", help_heading = WORK, show_default = OverlapRule::Queue)]
    pub overlap: Option<OverlapRule>,

    /// With --generate: what a printed line is
    #[arg(long, value_enum, env = "ESTAFETA_LINES", help_heading = WORK, show_default = PrintedLines::Plain)]
    pub lines: Option<PrintedLines>,

    /// Publish what this command prints while the node is in office: JSON lines with bodies and checkpoints
    #[arg(long, value_name = "COMMAND", env = "ESTAFETA_FEED", help_heading = WORK)]
    pub feed: Option<String>,

    /// Publish each line that this command prints while the node is in office
    #[arg(long, value_name = "COMMAND", env = "ESTAFETA_FEED_PLAIN", help_heading = WORK)]
    pub feed_plain: Option<String>,

    /// Keep results for this long. With --handle, stdout is the result
    #[arg(long, value_name = "TIME", env = "ESTAFETA_RESULTS", help_heading = WORK, allow_hyphen_values = true)]
    pub results: Option<HumanDuration>,

    /// Attempts of each message, then the first and the longest wait between two, such as 5 or 5,10s,1h
    #[arg(long, value_name = "ATTEMPTS[,FIRST[,LONGEST]]", env = "ESTAFETA_RETRY", help_heading = WORK,
          show_default = RetryRule::default())]
    pub retry: Option<RetryRule>,

    /// The application that the ring belongs to [default: the name of the ring]
    #[arg(long, value_name = "NAME", env = "ESTAFETA_APP", help_heading = WORK)]
    pub app: Option<String>,

    /// Time between two messages, 0 for as fast as possible
    #[arg(long, value_name = "TIME", env = "ESTAFETA_INTERVAL", allow_hyphen_values = true,
          show_default = HumanDuration(library().interval))]
    pub interval: Option<HumanDuration>,

    /// Share of messages that the demo's handler finds faulty, 0 to 1
    #[arg(long, value_name = "SHARE", env = "ESTAFETA_ERROR_RATE", allow_hyphen_values = true,
          show_default = DEFAULT_ERROR_RATE)]
    pub error_rate: Option<f64>,

    /// Partitions of the ring, which a Redis Cluster can keep on different servers. Their number is fixed for life
    #[arg(long, value_name = "N", env = "ESTAFETA_PARTITIONS", allow_hyphen_values = true,
          show_default = library().partitions)]
    pub partitions: Option<u32>,

    /// Messages that this node handles concurrently
    #[arg(long, value_name = "N", env = "ESTAFETA_CONCURRENCY", allow_hyphen_values = true,
          show_default = library().concurrency)]
    pub concurrency: Option<usize>,

    /// Handle messages even while this node is the generator, so that a node alone does all the work
    #[arg(long, env = "ESTAFETA_GENERATOR_HANDLES", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub generator_handles: Option<bool>,

    /// Never become generator, only handle messages
    #[arg(long, env = "ESTAFETA_NEVER_GENERATE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub never_generate: Option<bool>,

    /// Never handle messages, only generate or wait for the office
    #[arg(long, env = "ESTAFETA_NEVER_HANDLE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub never_handle: Option<bool>,

    /// Messages that the whole ring generates, across all take-overs [default: no limit]
    #[arg(long, value_name = "K", env = "ESTAFETA_LIMIT", allow_hyphen_values = true)]
    pub limit: Option<u64>,

    /// Exit once the limit is reached and every message has its outcome
    #[arg(long, env = "ESTAFETA_UNTIL_DONE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub until_done: Option<bool>,

    /// Where Redis must have stored a change before it is reported: memory, replicas=N, replicas=all or disk
    #[arg(long, value_name = "LEVEL", env = "ESTAFETA_DURABILITY", show_default = library().durability)]
    pub durability: Option<Durability>,

    /// Simulated work for each character of a message
    #[arg(long, value_name = "TIME", env = "ESTAFETA_WORK_PER_CHAR", allow_hyphen_values = true,
          show_default = DEFAULT_WORK_PER_CHAR)]
    pub work_per_char: Option<HumanDuration>,

    /// The generator pauses while this many messages wait
    #[arg(long, value_name = "N", env = "ESTAFETA_MAX_WAITING", allow_hyphen_values = true,
          show_default = library().max_waiting)]
    pub max_waiting: Option<u64>,

    /// A message becomes an error after its handlers died this often
    #[arg(long, value_name = "N", env = "ESTAFETA_MAX_DEATHS", allow_hyphen_values = true,
          show_default = library().max_deaths)]
    pub max_deaths: Option<u32>,

    /// How long the handler may take for one message
    #[arg(long, value_name = "TIME", env = "ESTAFETA_TIME_LIMIT", allow_hyphen_values = true,
          show_default = HumanDuration(library().time_limit))]
    pub time_limit: Option<HumanDuration>,

    /// Largest message body in bytes
    #[arg(long, value_name = "BYTES", env = "ESTAFETA_MAX_BODY", allow_hyphen_values = true,
          show_default = library().max_body)]
    pub max_body: Option<usize>,

    /// How long a node that cannot be heard still counts as alive
    #[arg(long, value_name = "TIME", env = "ESTAFETA_LEASE", allow_hyphen_values = true,
          show_default = HumanDuration(library().lease))]
    pub lease: Option<HumanDuration>,

    /// What to do about ticks that no node could publish. With --cron, the last of them is published by default
    #[arg(long, value_enum, env = "ESTAFETA_MISSED",
          show_default = MissedTicks::Skip)]
    pub missed: Option<MissedTicks>,

    /// Write every outcome to the stream {RING}:journal
    #[arg(long, env = "ESTAFETA_JOURNAL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub journal: Option<bool>,

    /// Append every step of this node to a file, one line per step
    #[arg(long, value_name = "FILE", env = "ESTAFETA_RECORD")]
    pub record: Option<PathBuf>,

    /// Serve metrics and health of this node at this address: /metrics, /livez and /readyz
    #[arg(long, value_name = "ADDRESS", env = "ESTAFETA_METRICS")]
    pub metrics: Option<String>,

    /// Print one JSON object per event, as docs/json.md describes
    #[arg(long, env = "ESTAFETA_JSON", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub json: Option<bool>,

    /// With --json: print nothing about single messages, and totals at most ten times per second
    #[arg(long, env = "ESTAFETA_BRIEF", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub brief: Option<bool>,

    /// Obey JSON objects on stdin: {"msg":"stop"} stops the node, and so does the end of stdin
    #[arg(long, env = "ESTAFETA_CONTROL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub control: Option<bool>,

    /// Seed that makes the random messages and errors repeatable
    #[arg(long, value_name = "N", env = "ESTAFETA_SEED")]
    pub seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissedTicks {
    /// Skip them; the rhythm of the ticks keeps its phase
    Skip,
    /// Make up for them, one message per tick
    CatchUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapRule {
    /// Publishes its messages all the same
    Queue,
    /// Publishes nothing
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrintedLines {
    /// A body
    Plain,
    /// A JSON object with a body and headers
    Json,
}

impl MissedTicks {
    pub fn catches_up(self) -> bool {
        self == Self::CatchUp
    }
}

/// Writes a value as a user does.
fn write_value(value: &impl ValueEnum, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(value.to_possible_value().expect("no value is skipped").get_name())
}

impl fmt::Display for MissedTicks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(self, f)
    }
}

impl fmt::Display for OverlapRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(self, f)
    }
}

impl fmt::Display for PrintedLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_value(self, f)
    }
}
