//! The command line, as clap reads it. What the options mean together is decided in `settings`.

use std::path::PathBuf;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::bench;
use crate::chaos::Wanted;
use crate::duration::HumanDuration;

/// One elected producer, many workers, every message handled once; the copies meet only in Redis.
///
/// Without a command a copy is started, as with `run`.
#[derive(Debug, Parser)]
#[command(name = "estafeta", version, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub reach: ReachArgs,

    #[command(flatten)]
    pub run: RunArgs,

    /// Same as the command getErrors
    #[arg(long = "getErrors", conflicts_with = "clean_temp")]
    pub get_errors: bool,

    /// Same as the command cleanTemp
    #[arg(long = "cleanTemp")]
    pub clean_temp: bool,

    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Join the ring: generate or handle messages, as elected
    Run(Box<RunArgs>),
    /// Start copies and watch the whole ring in this terminal: kill, freeze and add copies, see it heal
    Monitor(Box<MonitorArgs>),
    /// Take all error messages out of Redis, print and remove them
    #[command(name = "getErrors", visible_alias = "get-errors")]
    GetErrors(JsonArg),
    /// Look at error messages without taking them, retry or drop them
    Errors {
        #[command(subcommand)]
        action: ErrorsCommand,
    },
    /// Show the ring at one moment; exit code 1 if its balance does not add up
    Status(StatusArgs),
    /// Return what dead members held to the queue, now
    #[command(name = "cleanTemp", visible_alias = "clean-temp")]
    CleanTemp(JsonArg),
    /// Delete everything of the ring from Redis
    Reset(ResetArgs),
    /// Attack a ring of real copies by a plan, and judge whether every message was handled exactly once
    Chaos(ChaosArgs),
    /// Measure a ring on this machine: speed, cost, and how soon it heals
    Bench(BenchArgs),
    /// The private Redis that is started where no other is found
    Redis {
        #[command(subcommand)]
        action: RedisCommand,
    },
}

#[derive(Debug, Subcommand)]
pub enum ErrorsCommand {
    /// Print the errors, oldest first, and leave them where they are
    List(JsonArg),
    /// Print how many errors are kept
    Count(JsonArg),
    /// Put errors back into the queue with a fresh count of attempts
    Retry(SelectArgs),
    /// Delete errors
    Drop(SelectArgs),
}

#[derive(Debug, Subcommand)]
pub enum RedisCommand {
    /// Tell whether it runs, and where
    Status(JsonArg),
    /// Stop it; its data stay
    Stop,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct JsonArg {
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, args = ["ids", "all"])]
pub struct SelectArgs {
    /// Ids of the messages
    pub ids: Vec<u64>,

    /// All errors
    #[arg(long)]
    pub all: bool,

    #[command(flatten)]
    pub output: JsonArg,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub output: JsonArg,

    /// Show it again every second until stopped
    #[arg(long)]
    pub watch: bool,
}

/// Keys: q quits and ends the copies, k kills the generator, ? shows all others. Where stdout is no terminal, one plain
/// line a second is printed instead.
#[derive(Debug, Args)]
pub struct MonitorArgs {
    /// Copies to start, up to 200
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    pub copies: usize,

    /// Only watch a ring that runs elsewhere
    #[arg(long, conflicts_with_all = ["copies", "respawn"])]
    pub attach: bool,

    /// Start a copy again after it was killed or failed
    #[arg(long)]
    pub respawn: bool,

    /// End by itself after this time
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<HumanDuration>,

    /// Where the copies' logs go [default: monitor.log in ESTAFETA_DATA, or else in ~/.local/share/estafeta]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, Args)]
pub struct ResetArgs {
    /// Do not ask
    #[arg(long)]
    pub yes: bool,

    /// Even while members are alive
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct ChaosArgs {
    /// Copies to start, 2 to 200
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub copies: usize,

    /// How long to attack
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    pub length: HumanDuration,

    /// Kinds of faults: all, or some of kill, freeze, cut, lag, half-open, lost-reply, redis-kill, redis-stall,
    /// script-flush, client-kill, flood, separated by commas; with --redis only the first six. A Redis is only attacked
    /// if it is named by --redis or --host, otherwise one is started
    #[arg(long, value_name = "KINDS", default_value = "all")]
    pub faults: Wanted,

    /// Decides what is done to whom and when [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub output: JsonArg,

    /// Write a page with a picture of the run
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// A Redis is only loaded if it is named by --redis or --host, otherwise one is started. On one that is named, nobody else
/// should be busy meanwhile: what Redis spends is measured for the server as a whole.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure: throughput, latency, failover, redelivery, idle, scale, or all [default: all]
    #[arg(value_name = "WHAT")]
    pub what: Vec<bench::Choice>,

    /// How long each measurement lasts [default: 3s]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<HumanDuration>,

    /// How often a copy is killed, stopped and frozen, for failover and redelivery [default: 50]
    #[arg(long, value_name = "N")]
    pub tries: Option<u64>,

    /// Messages that wait before they are worked off; fewer if --for does not suffice [default: 1000000]
    #[arg(long, value_name = "N")]
    pub messages: Option<u64>,

    /// Size of a message's body
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub body: u64,

    /// Handlers, for throughput
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub handlers: u64,

    /// Messages that each handler has in hand side by side, for throughput
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub concurrency: u64,

    /// Numbers of copies for idle and scale, separated by commas [default: 1,10,100 and 1,2,5,10,20,50,100,200]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub copies: Vec<usize>,

    /// Everything for a moment only: shows that it works, not how well
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub output: JsonArg,

    /// Print the tables as Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Draw what was measured
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Where the ring is; for every command.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Ring and Redis")]
pub struct ReachArgs {
    /// Name of the ring [default: estafeta]
    #[arg(long, global = true, value_name = "NAME", env = "ESTAFETA_RING")]
    pub ring: Option<String>,

    /// Redis URL: redis://, rediss:// or redis+unix:///path [env: REDIS_URL]
    #[arg(long, global = true, value_name = "URL", env = "ESTAFETA_REDIS", hide_env_values = true)]
    pub redis: Option<String>,

    /// Host of Redis [default: 127.0.0.1]
    #[arg(long, global = true, env = "ESTAFETA_HOST", value_parser = NonEmptyStringValueParser::new())]
    pub host: Option<String>,

    /// Port of Redis [default: 6379]
    #[arg(long, global = true, env = "ESTAFETA_PORT")]
    pub port: Option<u16>,

    /// Database number [default: 0]
    #[arg(long, global = true, value_name = "N", env = "ESTAFETA_DB", value_parser = clap::value_parser!(u16).range(..16384))]
    pub db: Option<u16>,

    /// Password for Redis; better given by the environment or a file
    #[arg(long, global = true, env = "ESTAFETA_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// File that holds the password for Redis
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,

    /// TOML file with any of these options
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Tell more on stderr; -vv for every step
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    #[serde(skip)]
    pub verbose: u8,

    /// How logs on stderr look
    #[arg(long, global = true, value_enum, env = "ESTAFETA_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    Text,
    /// One object a line
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissedTicks {
    /// Pass over them; the beat keeps its phase
    Skip,
    /// Make up for them
    CatchUp,
}

/// Options of `run`. Each may also stand in the environment and in the file; a flag beats the environment beats the
/// file.
#[derive(Clone, Debug, Default, Args, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Options of run")]
pub struct RunArgs {
    /// Time between two messages, 0 for as fast as possible [default: 500ms]
    #[arg(long, value_name = "TIME", env = "ESTAFETA_INTERVAL", allow_hyphen_values = true)]
    pub interval: Option<HumanDuration>,

    /// Share of messages that a handler finds faulty, 0 to 1 [default: 0.05]
    #[arg(long, value_name = "SHARE", env = "ESTAFETA_ERROR_RATE", allow_hyphen_values = true)]
    pub error_rate: Option<f64>,

    /// Messages that this copy handles side by side [default: 1]
    #[arg(long, value_name = "N", env = "ESTAFETA_CONCURRENCY", allow_hyphen_values = true)]
    pub concurrency: Option<usize>,

    /// Messages that the ring as a whole generates, over all take-overs [default: no limit]
    #[arg(long, value_name = "K", env = "ESTAFETA_LIMIT", allow_hyphen_values = true)]
    pub limit: Option<u64>,

    /// Exit once the limit is reached and nothing waits or is in flight
    #[arg(long, env = "ESTAFETA_UNTIL_DONE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub until_done: Option<bool>,

    /// Simulated work for each character of a message [default: 0ms]
    #[arg(long, value_name = "TIME", env = "ESTAFETA_WORK_PER_CHAR", allow_hyphen_values = true)]
    pub work_per_char: Option<HumanDuration>,

    /// The generator pauses while this many messages wait [default: 100000]
    #[arg(long, value_name = "N", env = "ESTAFETA_MAX_WAITING", allow_hyphen_values = true)]
    pub max_waiting: Option<u64>,

    /// A message whose handlers died this often becomes an error [default: 5]
    #[arg(long, value_name = "N", env = "ESTAFETA_MAX_ATTEMPTS", allow_hyphen_values = true)]
    pub max_attempts: Option<u32>,

    /// Largest message body in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES", env = "ESTAFETA_MAX_BODY", allow_hyphen_values = true)]
    pub max_body: Option<usize>,

    /// How long a copy that cannot be heard is still believed to live [default: 2s]
    #[arg(long, value_name = "TIME", env = "ESTAFETA_LEASE", allow_hyphen_values = true)]
    pub lease: Option<HumanDuration>,

    /// What to do about ticks that nobody could publish [default: skip]
    #[arg(long, value_enum, env = "ESTAFETA_MISSED")]
    pub missed: Option<MissedTicks>,

    /// Write every outcome to the stream {RING}:journal
    #[arg(long, env = "ESTAFETA_JOURNAL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub journal: Option<bool>,

    /// Append every step of this copy to a file, one line each, so that it survives a kill
    #[arg(long, value_name = "FILE", env = "ESTAFETA_RECORD")]
    pub record: Option<PathBuf>,

    /// Tell what happens as JSON objects on stdout
    #[arg(long, env = "ESTAFETA_JSON", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub json: Option<bool>,

    /// With --json: nothing about single messages, and totals at most ten times a second
    #[arg(long, env = "ESTAFETA_BRIEF", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub brief: Option<bool>,

    /// Obey JSON objects on stdin, one a line: {"msg":"stop"} stops the copy, and so does the end of stdin
    #[arg(long, env = "ESTAFETA_CONTROL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub control: Option<bool>,

    /// Makes random texts and errors repeatable
    #[arg(long, value_name = "N", env = "ESTAFETA_SEED")]
    pub seed: Option<u64>,
}
