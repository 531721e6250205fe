//! The command line, as clap parses it. `settings` decides what the options mean together.

use std::path::PathBuf;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use estafeta_lab::bench;
use estafeta_lab::chaos::Wanted;

use crate::duration::HumanDuration;

/// One elected producer and any number of workers on the Redis you already run.
///
/// Every message gets exactly one recorded outcome. If the producer dies, another node takes over. Without a command,
/// `estafeta` starts a node, like `estafeta run`, and accepts its options.
#[derive(Debug, Parser)]
#[command(
    name = "estafeta",
    version,
    max_term_width = 110,
    after_help = "\
Examples:
  estafeta monitor                       start five nodes, then press k to kill the generator
  estafeta run --redis redis://host/0    start one node on your Redis
  estafeta status                        show the ring once
  estafeta getErrors                     print and remove the failed messages

Run `estafeta COMMAND --help` for the options of a command."
)]
pub struct Cli {
    #[command(flatten)]
    pub reach: ReachArgs,

    #[command(flatten)]
    pub run: RunArgs,

    /// Same as the command getErrors
    #[arg(long = "getErrors", conflicts_with = "clean_temp", hide = true)]
    pub get_errors: bool,

    /// Same as the command cleanTemp
    #[arg(long = "cleanTemp", hide = true)]
    pub clean_temp: bool,

    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a node of the demo: it generates or handles random messages, as elected
    #[command(after_help = "\
Examples:
  estafeta run                           one node; start more in other terminals
  estafeta run --interval 0              generate as fast as Redis accepts messages
  estafeta run --limit 1000 --until-done --json")]
    Run(Box<RunArgs>),
    /// Start nodes and watch the ring in this terminal: kill, freeze and add nodes, and see it heal
    ///
    /// Keys: k kills the generator, q quits and stops the nodes, ? shows all other keys. If stdout is not a terminal, the
    /// monitor prints one line per second instead. With --attach, or if other members are already in the ring and -n is
    /// not given, the monitor starts no nodes.
    #[command(after_help = "\
Examples:
  estafeta monitor                       five nodes on a private Redis
  estafeta monitor -n 20 --interval 50ms --respawn
  estafeta monitor --attach --redis redis://host/0 --ring orders")]
    Monitor(Box<MonitorArgs>),
    /// Print all errors and remove them from Redis
    ///
    /// An error is a message that failed. Two getErrors at once never print the same error, and one that dies or whose
    /// pipe closes loses none: the next one prints what it had not finished.
    #[command(
        name = "getErrors",
        visible_alias = "get-errors",
        after_help = "\
Examples:
  estafeta getErrors > errors.txt
  estafeta getErrors --json | jq .reason"
    )]
    GetErrors(JsonArg),
    /// List, count, retry or drop errors without taking them out
    #[command(after_help = "\
Examples:
  estafeta errors list
  estafeta errors retry 17 23
  estafeta errors drop --all --yes")]
    Errors {
        #[command(subcommand)]
        action: ErrorsCommand,
    },
    /// Show the ring at one moment
    ///
    /// The exit code is 1 if there is no such ring, or if the balance does not add up: published = waiting +
    /// in flight + done + errors kept + errors taken.
    #[command(after_help = "\
Examples:
  estafeta status --watch
  estafeta status --json | jq .waiting")]
    Status(StatusArgs),
    /// List the rings in a Redis
    #[command(after_help = "\
Examples:
  estafeta rings
  estafeta rings --redis redis://host/0 --json")]
    Rings(JsonArg),
    /// Return the messages of dead members to the queue now
    #[command(
        name = "cleanTemp",
        visible_alias = "clean-temp",
        after_help = "\
Examples:
  estafeta cleanTemp
  estafeta cleanTemp --json"
    )]
    CleanTemp(JsonArg),
    /// Delete a ring from Redis
    #[command(after_help = "\
Examples:
  estafeta reset --ring demo
  estafeta reset --ring demo --yes --force")]
    Reset(ResetArgs),
    /// Attack a ring of real nodes and judge whether it kept its promises
    #[command(after_help = "\
Examples:
  estafeta chaos --for 30s
  estafeta chaos --seed 5 --report chaos.html
  estafeta chaos --faults kill,freeze -n 20")]
    Chaos(ChaosArgs),
    /// Measure a ring on this machine: speed, cost, and how soon it heals
    ///
    /// The benchmarks start their own Redis, unless --redis or --host names one. A named Redis should be idle otherwise,
    /// because its cost is measured for the whole server.
    #[command(after_help = "\
Examples:
  estafeta bench throughput latency
  estafeta bench failover --tries 100 --plot failover.svg")]
    Bench(BenchArgs),
    /// Show or stop the private Redis, which runs where no other Redis was found
    #[command(after_help = "\
Examples:
  estafeta redis status
  estafeta redis stop")]
    Redis {
        #[command(subcommand)]
        action: RedisCommand,
    },
    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  estafeta completions bash > ~/.local/share/bash-completion/completions/estafeta
  estafeta completions zsh > ~/.zfunc/_estafeta
  estafeta completions fish > ~/.config/fish/completions/estafeta.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands into a directory
    #[command(after_help = "\
Example:
  estafeta man ~/.local/share/man/man1")]
    Man {
        /// The directory
        directory: PathBuf,
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
    Drop(DropArgs),
}

#[derive(Debug, Subcommand)]
pub enum RedisCommand {
    /// Show whether it runs, and where
    Status(JsonArg),
    /// Stop it and keep its data
    Stop(YesArg),
}

#[derive(Clone, Copy, Debug, Args)]
pub struct JsonArg {
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct YesArg {
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
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
pub struct DropArgs {
    #[command(flatten)]
    pub which: SelectArgs,

    #[command(flatten)]
    pub confirm: YesArg,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub output: JsonArg,

    /// Show the ring every second until stopped
    #[arg(long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct MonitorArgs {
    /// Nodes to start, up to 200 [default: 5, or 0 if the ring has members already]
    #[arg(short = 'n', long, alias = "copies", value_name = "N")]
    pub nodes: Option<usize>,

    /// Only watch, and start no nodes
    #[arg(long, conflicts_with_all = ["nodes", "respawn"])]
    pub attach: bool,

    /// Delete the ring first, if no node uses it and it belongs to the demo
    #[arg(long, conflicts_with = "attach")]
    pub fresh: bool,

    /// Start a node again after it was killed or failed
    #[arg(long)]
    pub respawn: bool,

    /// Quit after this time
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<HumanDuration>,

    /// File for the logs of the nodes [default: monitor.log in ESTAFETA_DATA, or in ~/.local/share/estafeta]
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

    /// Delete it even while members are alive
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct ChaosArgs {
    /// Nodes to start, 2 to 200
    #[arg(short = 'n', long, alias = "copies", value_name = "N", default_value_t = 8)]
    pub nodes: usize,

    /// How long to attack
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    pub length: HumanDuration,

    /// Faults to inject, separated by commas: all, or some of kill, freeze, cut, lag, half-open, lost-reply,
    /// redis-kill, redis-stall, script-flush, client-kill, flood
    ///
    /// Chaos starts its own Redis, unless --redis or --host names one. It never attacks a named Redis itself, so only
    /// the first six faults are possible there.
    #[arg(long, value_name = "KINDS", default_value = "all")]
    pub faults: Wanted,

    /// Seed of the plan of faults [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    #[command(flatten)]
    pub output: JsonArg,

    /// Write an HTML page with a timeline of the run
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure: throughput, latency, failover, redelivery, idle, scale, or all [default: all]
    #[arg(value_name = "WHAT")]
    pub what: Vec<bench::Choice>,

    /// How long each measurement lasts [default: 3s]
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<HumanDuration>,

    /// How often a node is killed, stopped and frozen, for failover and redelivery [default: 50]
    #[arg(long, value_name = "N")]
    pub tries: Option<u64>,

    /// Messages in the queue before they are handled; fewer if --for is too short [default: 1000000]
    #[arg(long, value_name = "N")]
    pub messages: Option<u64>,

    /// Size of a message's body
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub body: u64,

    /// Handlers, for throughput
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub handlers: u64,

    /// Messages that each handler handles concurrently, for throughput
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub concurrency: u64,

    /// Numbers of nodes for idle and scale, separated by commas [default: 1,10,100 and 1,2,5,10,20,50,100,200]
    #[arg(short = 'n', long, alias = "copies", value_name = "LIST", value_delimiter = ',')]
    pub nodes: Vec<usize>,

    /// Run everything for a moment: this shows that it works, not how fast
    #[arg(long)]
    pub quick: bool,

    #[command(flatten)]
    pub output: JsonArg,

    /// Print the tables as Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,

    /// Draw the results
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Where the ring is. Most commands accept these options.
#[derive(Debug, Default, Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Ring and Redis")]
pub struct ReachArgs {
    /// Name of the ring [default: estafeta]
    #[arg(long, global = true, value_name = "NAME", env = "ESTAFETA_RING")]
    pub ring: Option<String>,

    /// URL of Redis: redis://, rediss:// or redis+unix:///path [env: REDIS_URL]
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

    /// User name for Redis
    #[arg(long, global = true, env = "ESTAFETA_USER")]
    pub user: Option<String>,

    /// Password for Redis. The environment or a file is a safer place for it
    #[arg(long, global = true, env = "ESTAFETA_PASSWORD", hide_env_values = true)]
    pub password: Option<String>,

    /// File that holds the password for Redis
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,

    /// Never use a private Redis
    #[arg(long, global = true, env = "ESTAFETA_NO_PRIVATE_REDIS", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub no_private_redis: Option<bool>,

    /// TOML file with any of these options and those of run
    #[arg(long, global = true, value_name = "FILE", env = "ESTAFETA_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Log more on stderr; -vv logs every step
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    #[serde(skip)]
    pub verbose: u8,

    /// Format of the log on stderr
    #[arg(long, global = true, value_enum, env = "ESTAFETA_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissedTicks {
    /// Skip them; the rhythm of the ticks keeps its phase
    Skip,
    /// Make up for them, one message per tick
    CatchUp,
}

/// Options of `run`. Each may also come from the environment or the settings file. A flag overrides the environment,
/// which overrides the file.
#[derive(Clone, Debug, Default, Args, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", default)]
#[command(next_help_heading = "Options of run")]
pub struct RunArgs {
    /// Time between two messages, 0 for as fast as possible [default: 500ms]
    #[arg(long, value_name = "TIME", env = "ESTAFETA_INTERVAL", allow_hyphen_values = true)]
    pub interval: Option<HumanDuration>,

    /// Share of messages that the demo's handler finds faulty, 0 to 1 [default: 0.05]
    #[arg(long, value_name = "SHARE", env = "ESTAFETA_ERROR_RATE", allow_hyphen_values = true)]
    pub error_rate: Option<f64>,

    /// Messages that this node handles concurrently [default: 1]
    #[arg(long, value_name = "N", env = "ESTAFETA_CONCURRENCY", allow_hyphen_values = true)]
    pub concurrency: Option<usize>,

    /// Messages that the whole ring generates, across all take-overs [default: no limit]
    #[arg(long, value_name = "K", env = "ESTAFETA_LIMIT", allow_hyphen_values = true)]
    pub limit: Option<u64>,

    /// Exit once the limit is reached and every message has its outcome
    #[arg(long, env = "ESTAFETA_UNTIL_DONE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub until_done: Option<bool>,

    /// Simulated work for each character of a message [default: 0ms]
    #[arg(long, value_name = "TIME", env = "ESTAFETA_WORK_PER_CHAR", allow_hyphen_values = true)]
    pub work_per_char: Option<HumanDuration>,

    /// The generator pauses while this many messages wait [default: 100000]
    #[arg(long, value_name = "N", env = "ESTAFETA_MAX_WAITING", allow_hyphen_values = true)]
    pub max_waiting: Option<u64>,

    /// A message becomes an error after its handlers died this often [default: 5]
    #[arg(long, value_name = "N", env = "ESTAFETA_MAX_ATTEMPTS", allow_hyphen_values = true)]
    pub max_attempts: Option<u32>,

    /// Largest message body in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES", env = "ESTAFETA_MAX_BODY", allow_hyphen_values = true)]
    pub max_body: Option<usize>,

    /// How long a node that cannot be heard still counts as alive [default: 2s]
    #[arg(long, value_name = "TIME", env = "ESTAFETA_LEASE", allow_hyphen_values = true)]
    pub lease: Option<HumanDuration>,

    /// What to do about ticks that no node could publish [default: skip]
    #[arg(long, value_enum, env = "ESTAFETA_MISSED")]
    pub missed: Option<MissedTicks>,

    /// Write every outcome to the stream {RING}:journal
    #[arg(long, env = "ESTAFETA_JOURNAL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = BoolishValueParser::new(), value_name = "BOOL")]
    pub journal: Option<bool>,

    /// Append every step of this node to a file, one line per step
    #[arg(long, value_name = "FILE", env = "ESTAFETA_RECORD")]
    pub record: Option<PathBuf>,

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
