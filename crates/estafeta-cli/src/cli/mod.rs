//! The command line, as clap parses it, with one module per command that has many options. `settings` decides what the
//! options mean together.

mod bench;
mod cancel;
mod chaos;
mod check;
mod checkpoint;
mod errors;
mod health;
mod limit;
mod monitor;
mod pause;
mod publish;
mod reach;
mod redis;
mod results;
mod run;
mod schedule;
mod web;

use std::fmt::Display;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use estafeta::Durability;

pub use bench::{BenchArgs, BenchWorkerArgs};
pub use cancel::CancelArgs;
pub use chaos::{ChaosArgs, ChaosWorkerArgs, PipelineArgs};
pub use check::CheckArgs;
pub use checkpoint::CheckpointCommand;
pub use errors::{DropArgs, ErrorsCommand, SelectArgs};
pub use health::HealthArgs;
pub use limit::LimitArgs;
pub use monitor::MonitorArgs;
pub use pause::{PauseArgs, ResumeArgs};
pub use publish::PublishArgs;
pub use reach::{DATABASES, DEFAULT_HOST, DEFAULT_PORT, DEFAULT_RING, LogFormat, ReachArgs};
pub use redis::RedisCommand;
pub use results::ResultsArgs;
pub use run::{
    DEFAULT_ERROR_RATE, DEFAULT_WORK_PER_CHAR, DEFAULT_ZONE, MissedTicks, OverlapRule, PrintedLines, RunArgs,
};
pub use schedule::ScheduleArgs;
pub use web::WebArgs;

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
    /// Start a node: of the demo, or with commands of yours that handle messages or make them
    ///
    /// Without a command, the node generates or handles random messages, as elected. docs/any-language.md describes how a
    /// node talks to commands.
    #[command(after_help = "\
Examples:
  estafeta run                           one node of the demo; start more in other terminals
  estafeta run --ring mails --handle-lines 'python3 worker.py'
  estafeta run --ring reports --generate ./nightly --cron '30 2 * * *' --tz Europe/Berlin --handle ./render
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
  estafeta monitor --web                 and the same in the browser
  estafeta monitor --attach --redis redis://host/0 --ring orders")]
    Monitor(Box<MonitorArgs>),
    /// Start a handler command once with a sample message and show what it answered
    ///
    /// The command gets the same input and the same environment as in `run`, with the options of `run`. It needs no Redis
    /// and no ring. Effects are shown and not applied. The exit code is 0 if the message would be done or snoozed, and 1
    /// otherwise.
    #[command(after_help = "\
Examples:
  estafeta check --handle 'python3 resize.py'
  estafeta check --handle-lines 'node worker.js' '{\"user\": 17}'
  estafeta check --config estafeta.toml - < order.json")]
    Check(Box<CheckArgs>),
    /// Publish messages in a ring and print their receipts
    ///
    /// A receipt is one JSON object per line, such as {"id":4711,"duplicate":false}. With --key, a message that was
    /// published before gets its first id and `"duplicate":true`. With --single, a message is a duplicate as long as
    /// another one with that name waits and no node has claimed it. The ring need not exist yet.
    ///
    /// Exit codes: 0 published, or a duplicate; 64 wrong call; 65 another message has the key, or the body is too large;
    /// 75 the ring is full or paused, or Redis cannot be reached or refuses to serve; 1 any other failure.
    #[command(after_help = "\
Examples:
  estafeta publish --ring orders 'two pizzas'
  estafeta publish --ring orders --key order-17 --header shop=berlin - < order.json
  estafeta publish --ring orders --lines --patient 1m < orders.txt
  estafeta publish --ring pages --single rebuild 'rebuild the pages'")]
    Publish(PublishArgs),
    /// Take back messages that were published with a delay and are not due yet
    ///
    /// No handler has seen a message that is cancelled, and none will. The command names each message that is not delayed
    /// any more, or was never there, and then exits with code 1. Messages that wait for another attempt are not cancelled.
    ///
    /// Exit codes: 0 all are cancelled; 1 one of them was not delayed any more, or any other failure; 64 wrong call; 75
    /// Redis cannot be reached or refuses to serve.
    #[command(after_help = "\
Examples:
  estafeta cancel --ring mails 4711 4712
  estafeta cancel --ring mails --key reminder-17
  estafeta cancel --ring mails --json 4711")]
    Cancel(CancelArgs),
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
    GetErrors(GetErrorsArgs),
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
    /// Print the results that handlers returned for their messages
    ///
    /// A result is kept for the time that its handler chose. The exit code is 1 if Redis keeps no result of a given id.
    #[command(after_help = "\
Examples:
  estafeta results --ring orders
  estafeta results --ring orders 17 --json | jq -r .value")]
    Results(ResultsArgs),
    /// Show the ring at one moment
    ///
    /// The exit code is 1 if there is no such ring, or if the balance does not add up: published = waiting +
    /// later + in flight + done + cancelled + errors kept + errors taken + lost.
    #[command(after_help = "\
Examples:
  estafeta status --watch
  estafeta status --json | jq .waiting")]
    Status(StatusArgs),
    /// Show rings in the browser, as JSON and as metrics
    ///
    /// Prints the address of the page. With --ring A,B the page shows these rings, and otherwise all rings of the Redis.
    /// Logins come from files, or from the variables ESTAFETA_WEB_ADMIN and ESTAFETA_WEB_VIEWER. docs/web.md describes the
    /// page, its API and its security.
    #[command(after_help = "\
Examples:
  estafeta web
  estafeta web --ring orders,invoices --read-only
  estafeta web --listen 0.0.0.0:7070 --admin-file admins --allow-host rings.example.com")]
    Web(WebArgs),
    /// Examine a Redis: whether a ring can keep its promises there
    ///
    /// Explains each finding, and how to mend it. Checks version, topology, persistence, eviction, memory,
    /// replicas, rights, presence, clock and round trips. Takes about a second. Rights and presence are tried, on
    /// keys and channels that no ring has. Nothing stays in Redis, and the data of rings is not touched. --ring
    /// matters only for the rights of the user.
    ///
    /// The exit code is 1 if a promise is broken. Warnings alone leave it at 0.
    #[command(after_help = "\
Examples:
  estafeta doctor --redis redis://host/0
  estafeta doctor --ring orders --user orders --password-file secret
  estafeta doctor --json | jq -r '.findings[] | select(.severity != \"good\") | .subject'")]
    Doctor(JsonArg),
    /// Ask whether the node on this machine is well, for images without a shell
    ///
    /// With --metrics, the command asks the node itself: whether it is a member of its ring and Redis has answered it within
    /// two leases. Without, it looks in Redis for a living node of the ring on this machine. It prints one sentence. The
    /// exit code is 0 if the node is well, and 1 otherwise.
    #[command(after_help = "\
Examples:
  estafeta health --metrics 127.0.0.1:9464
  estafeta health --metrics 127.0.0.1:9464 --live
  estafeta health --ring orders")]
    Health(HealthArgs),
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
    /// Pause producing, handling or both
    ///
    /// While handling is paused, nodes finish the messages that they have begun, and begin no others. While producing is
    /// paused, the generator publishes nothing, and `publish` is refused. Nothing is lost. A new pause replaces the end of
    /// an earlier one. Without --producing and --handling, both are paused.
    #[command(after_help = "\
Examples:
  estafeta pause --ring orders --handling --for 10m
  estafeta pause --ring orders --json")]
    Pause(PauseArgs),
    /// End a pause now
    ///
    /// Without --producing and --handling, both are resumed.
    #[command(after_help = "\
Examples:
  estafeta resume --ring orders
  estafeta resume --ring orders --handling --json")]
    Resume(ResumeArgs),
    /// Show, set or remove the checkpoint of a ring
    ///
    /// The checkpoint is where the feed of the next generator continues. It moves together with the messages of a feed.
    #[command(
        subcommand,
        after_help = "\
Examples:
  estafeta checkpoint show --ring orders
  estafeta checkpoint set --ring orders 4711
  estafeta checkpoint clear --ring orders"
    )]
    Checkpoint(CheckpointCommand),
    /// Print the schedule of a ring, and when each entry comes next
    ///
    /// The schedule is that of the last generator. Times are in the zone of their entry, after the time of Redis. Fails if
    /// the last generator had no schedule.
    #[command(after_help = "\
Examples:
  estafeta schedule --ring reports
  estafeta schedule --ring reports --count 1 --json | jq -r .upcoming[0].time")]
    Schedule(ScheduleArgs),
    /// Limit how many messages a ring handles at once, and how fast
    ///
    /// The limits hold for all nodes together. Nodes that hold more messages than the new limit finish them first.
    /// Without --in-flight and --rate, the command shows the limits.
    #[command(after_help = "\
Examples:
  estafeta limit --ring orders
  estafeta limit --ring orders --in-flight 100 --rate 50/s
  estafeta limit --ring orders --rate none --json")]
    Limit(LimitArgs),
    /// Raise a ring to the newest layout that this program knows
    ///
    /// First replace every node by one of this release, one after another. Then raise the layout, once. The command
    /// fails and changes nothing if a member does not know the new layout. The nodes join again by themselves. What they
    /// are handling at that moment is handled again.
    #[command(after_help = "\
Examples:
  estafeta upgrade --ring demo
  estafeta upgrade --ring demo --json")]
    Upgrade(JsonArg),
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
    /// A node or a publisher of `chaos`, which starts it
    #[command(hide = true)]
    ChaosWorker(ChaosWorkerArgs),
    /// Measure a ring on this machine: speed, cost, and how soon it heals
    ///
    /// The benchmarks start their own Redis, unless --redis or --host names one. A named Redis should be idle otherwise,
    /// because its cost is measured for the whole server.
    #[command(after_help = "\
Examples:
  estafeta bench throughput latency
  estafeta bench work --for 10s
  estafeta bench failover --tries 100 --plot failover.svg")]
    Bench(BenchArgs),
    /// A worker of `bench work`, which starts it
    #[command(hide = true)]
    BenchWorker(BenchWorkerArgs),
    /// Kills the commands of a node that was killed. The node starts it
    #[command(hide = true, name = crate::work::GUARD)]
    Guard {
        /// What the commands have in their environment
        token: String,
    },
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

#[derive(Clone, Copy, Debug, Args)]
pub struct JsonArg {
    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct GetErrorsArgs {
    #[command(flatten)]
    pub output: JsonArg,

    #[command(flatten)]
    pub stored: DurabilityArg,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct DurabilityArg {
    /// Where Redis must have stored a change before it is reported: memory, replicas=N, replicas=all or disk
    #[arg(long, value_name = "LEVEL", env = "ESTAFETA_DURABILITY", default_value_t)]
    pub durability: Durability,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct YesArg {
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
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
pub struct ResetArgs {
    /// Do not ask
    #[arg(long)]
    pub yes: bool,

    /// Delete it even if members are alive or its data cannot be read, and succeed if there is no such ring
    #[arg(long)]
    pub force: bool,

    /// Also delete the keys that effects of handlers wrote ({ring}:u:NAME)
    #[arg(long)]
    pub user_keys: bool,
}

/// Shows a default in the help of an option. Clap does not apply this default: it would override the settings file.
trait ShowDefault {
    fn show_default(self, value: impl Display) -> Self;
}

impl ShowDefault for clap::Arg {
    fn show_default(self, value: impl Display) -> Self {
        let help = self.get_help().map(ToString::to_string).unwrap_or_default();
        self.help(format!("{help} [default: {value}]"))
    }
}
