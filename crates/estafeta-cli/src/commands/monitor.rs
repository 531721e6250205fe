//! `estafeta monitor`: starts nodes and shows the whole ring.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use estafeta::{Endpoint, Health, MemberView, Ring, Role};

use super::web;
use crate::cli::{DurabilityArg, MonitorArgs, RunArgs, WebArgs};
use crate::failure::usage;
use crate::find_redis::{self, Creation};
use crate::private_redis::{self, PrivateRedis};
use crate::settings::Reach;
use crate::work::WorkSettings;
use estafeta_lab::clock::now_ms;
use estafeta_lab::escape::escape;
use estafeta_lab::paint::colour_for;
use estafeta_lab::partitions::Partitions;
use tokio_util::sync::CancellationToken;

use estafeta_monitor::{Launch, MAX_NODES, MonitorInfo, MonitorOptions, Theme};

/// How many nodes a monitor starts if the user does not ask for a number.
const DEFAULT_NODES: usize = 5;
/// A log larger than this is renamed to `.log.old` when the next monitor starts.
const LONG_LOG: u64 = 10 * 1024 * 1024;

/// The log of the nodes, and of the monitor itself while it draws.
pub struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    /// Returns None if the default file cannot be written. Then the nodes log nothing.
    pub fn open(args: &MonitorArgs) -> Result<Option<Self>> {
        match Self::open_or_fail(args) {
            Err(_) if args.log.is_none() => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open_or_fail(args: &MonitorArgs) -> Result<Self> {
        let path = match &args.log {
            Some(path) => std::path::absolute(path)?,
            None => private_redis::data_directory()?.join("monitor.log"),
        };
        // Only the default directory is created. Another one may be mistyped.
        let missing = path.parent().filter(|directory| args.log.is_some() && !directory.is_dir());
        if let Some(directory) = missing {
            let (path, directory) = (path.display(), directory.display());
            return Err(usage(format!(
                "--log: expected a file in an existing directory, got {path}: there is no directory {directory}"
            )));
        }
        let open = || {
            if let Some(directory) = path.parent() {
                use std::os::unix::fs::DirBuilderExt as _;
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            }
            if std::fs::metadata(&path).is_ok_and(|log| log.len() > LONG_LOG) {
                std::fs::rename(&path, path.with_extension("log.old"))?;
            }
            use std::os::unix::fs::OpenOptionsExt as _;
            File::options().append(true).create(true).mode(0o600).open(&path)
        };
        let file = open().with_context(|| format!("cannot write the log {} (see --log)", path.display()))?;
        Ok(Self { path, file })
    }

    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Whether there is a terminal to draw on.
pub fn draws() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

pub fn run(
    reach: &Reach,
    args: &MonitorArgs,
    run: RunArgs,
    logging: Vec<String>,
    log: Option<LogFile>,
) -> Result<ExitCode> {
    if let Some(nodes) = args.nodes.filter(|nodes| *nodes > MAX_NODES) {
        return Err(usage(format!("--nodes: expected at most {MAX_NODES}, got {nodes}")));
    }
    // The nodes check these options too. Here they are checked before anything is started.
    run.demo()?;
    run.work()?.as_ref().map_or(Ok(()), WorkSettings::check)?;
    let config = run.config("redis://127.0.0.1".parse()?, reach.ring.clone())?;
    let creation = if args.attach { Creation::Forbidden } else { Creation::Allowed };
    let found = find_redis::find(&reach.redis, creation)?;
    let application = &config.application;
    let outcome = watch(reach, args, run, application, logging, log, found.endpoint);
    if let Some(private) = found.started {
        stop(&private);
    }
    outcome
}

fn watch(
    reach: &Reach,
    args: &MonitorArgs,
    mut run: RunArgs,
    application: &str,
    logging: Vec<String>,
    log: Option<LogFile>,
    endpoint: Endpoint,
) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let attach = args.attach || runtime.block_on(must_attach(reach, &endpoint, args, application))?;
    if attach && !args.attach && args.nodes.is_none() {
        let ignored = match ignored_options(args, &run)? {
            names if names.is_empty() => String::new(),
            names => format!(" and ignores {}", names.join(", ")),
        };
        print(&format!("ring {} is in use, so this monitor only watches{ignored} (see -n)", reach.ring));
    }
    // The keys and the page act at the level of the nodes.
    let stored = DurabilityArg { durability: run.durability.unwrap_or_default() };
    let page = args.web.map(|listen| ServedPage::start(reach, &endpoint, listen, stored)).transpose()?;
    let info = MonitorInfo {
        ring: reach.ring.to_string(),
        redis: endpoint.to_string(),
        host: nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned(),
        attach,
        respawn: args.respawn,
        log_file: log.as_ref().map(|log| log.path.clone()),
        page: page.as_ref().map(|page| page.url.clone()),
        started_ms: now_ms(),
    };
    let nodes_log = match log {
        Some(log) => log.file,
        None => File::options().write(true).open("/dev/null")?,
    };
    let (record, partitions) = (run.record.take(), run.partitions.unwrap_or(1));
    (run.json, run.brief, run.control) = (Some(true), Some(true), Some(true));
    // Several nodes cannot listen at one address.
    run.metrics = None;
    let flags = [run.flags()?, logging].concat();
    let options = MonitorOptions {
        nodes: if attach { 0 } else { args.nodes.unwrap_or(DEFAULT_NODES) },
        ring: reach.ring.clone(),
        endpoint,
        durability: stored.durability,
        launch: (!attach).then_some(Launch { flags, partitions, record, log: nodes_log }),
        info,
        length: args.length.map(|length| length.0),
        theme: draws().then(theme),
    };
    let outcome = runtime.block_on(estafeta_monitor::run(options));
    runtime.shutdown_background();
    drop(page);
    Ok(outcome?.into())
}

/// The web page of this ring, which a separate thread serves. When this value is dropped, the thread ends. Until then,
/// its connection counts as a user of the private Redis.
struct ServedPage {
    url: String,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl ServedPage {
    fn start(reach: &Reach, endpoint: &Endpoint, listen: SocketAddr, stored: DurabilityArg) -> Result<Self> {
        let rings = Some(vec![reach.ring.clone()]);
        let options = web::options(endpoint.clone(), rings, &WebArgs::at(listen, stored))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let server = runtime.block_on(web::bind(options))?;
        let (url, stop) = (server.url()?, CancellationToken::new());
        print(&format!("the page of this ring: {url}"));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || runtime.block_on(server.serve(stopped)));
        Ok(Self { url, stop, thread: Some(thread) })
    }
}

impl Drop for ServedPage {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The given options that have no effect in a monitor that only watches. They may come from the environment or the
/// settings file too.
fn ignored_options(args: &MonitorArgs, run: &RunArgs) -> Result<Vec<String>> {
    // A monitor that starts nodes does not use these either. Its keys use the durability.
    let set_by_monitor =
        |name: &str| ["--json", "--brief", "--control", "--metrics", "--durability"].contains(&name);
    let own = [("--fresh", args.fresh), ("--respawn", args.respawn)];
    let own = own.into_iter().filter(|(_, given)| *given).map(|(name, _)| name.to_owned());
    let flags = run.flags()?;
    let names = flags.iter().filter_map(|flag| flag.split('=').next()).filter(|name| !set_by_monitor(name));
    Ok(own.chain(names.map(ToOwned::to_owned)).collect())
}

/// Prepares the ring, and returns whether the monitor may only watch.
///
/// Without `-n`, it only watches if the ring has living nodes or belongs to another application. With `-n`, it starts
/// nodes, and fails if the ring belongs to another application. With `-n 0`, it only watches.
async fn must_attach(reach: &Reach, endpoint: &Endpoint, args: &MonitorArgs, ours: &str) -> Result<bool> {
    let ring = Ring::connect(endpoint.clone(), reach.ring.clone()).await?;
    for warning in ring.server_warnings().await? {
        tracing::warn!("{warning}");
    }
    let partitions = Partitions::of(ring).await?;
    let snapshot = partitions.snapshot().await?;
    let is_living_node = |member: &MemberView| member.role != Role::Reader && member.state == Health::Alive;
    let is_used = snapshot.members.iter().any(is_living_node);
    let application = snapshot.application;
    if args.fresh && !is_used && args.nodes != Some(0) && application.as_deref() == Some(ours) {
        partitions.erase().await?;
    }
    match (args.nodes, application.filter(|application| application != ours)) {
        (None, foreign) => Ok(is_used || foreign.is_some()),
        (Some(0), _) => Ok(true),
        (Some(_), Some(found)) => {
            let (ring, expected) = (reach.ring.to_string(), ours.to_owned());
            Err(estafeta::Error::Application { ring, found, expected }.into())
        }
        (Some(_), None) => Ok(false),
    }
}

fn theme() -> Theme {
    let values = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let locale = values.map(|value| value.to_string_lossy().to_lowercase()).find(|value| !value.is_empty());
    let ascii = locale.is_some_and(|locale| !locale.contains("utf"));
    Theme { colour: colour_for(&io::stdout()), ascii }
}

/// Stops the private Redis that this monitor started, unless other clients use it by now.
fn stop(private: &PrivateRedis) {
    let is_ours_alone =
        private.status().is_ok_and(|status| status.is_none_or(|status| status.connected_clients <= 1));
    let message = match is_ours_alone.then(|| private.stop()) {
        None => "others use the private Redis, so it stays; stop it with `estafeta redis stop`".to_owned(),
        Some(Ok(_)) => {
            format!("stopped the private Redis; its data stay in {}", private.directory().display())
        }
        Some(Err(error)) => format!("cannot stop the private Redis: {error}"),
    };
    print(&message);
}

/// Prints a message to stderr.
fn print(message: &str) {
    let _ = writeln!(io::stderr(), "estafeta: {}", escape(message.as_bytes()));
}
