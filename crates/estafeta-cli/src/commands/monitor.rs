//! `estafeta monitor`: starts copies and shows the whole ring.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::cli::{MonitorArgs, RunArgs};
use crate::duration::now_ms;
use crate::escape::escape;
use crate::failure::usage;
use crate::find_redis;
use crate::monitor::{self, Family, Ink, MOST_COPIES, Order, Place, Setting};
use crate::output::colour_for;
use crate::private_redis::{self, PrivateRedis};
use crate::settings::Reach;

/// A log that has grown beyond this is put aside when the next monitor starts.
const LONG_LOG: u64 = 10 * 1024 * 1024;

/// Where the copies' logs go, and the monitor's own while it draws.
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// None if nothing is going to be written there.
    pub fn open(args: &MonitorArgs) -> Result<Option<Self>> {
        match Self::open_always(args) {
            Err(_) if args.attach && args.log.is_none() => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open_always(args: &MonitorArgs) -> Result<Self> {
        let path = match &args.log {
            Some(path) => std::path::absolute(path)?,
            None => private_redis::data_directory()?.join("monitor.log"),
        };
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
    log: Option<Log>,
) -> Result<ExitCode> {
    if args.copies > MOST_COPIES {
        return Err(usage(format!("--copies: expected at most {MOST_COPIES}, got {}", args.copies)));
    }
    // As the copies would, but before any of them is started.
    run.work()?;
    run.config("redis://127.0.0.1".parse()?, reach.ring.clone())?;
    let found = find_redis::find(&reach.redis)?;
    let setting = Setting {
        ring: reach.ring.to_string(),
        redis: escape(found.endpoint.to_string().as_bytes()),
        host: nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned(),
        attach: args.attach,
        respawn: args.respawn,
        log_file: log.as_ref().map(|log| log.path.clone()),
        started_ms: now_ms(),
    };
    let place = Place { endpoint: found.endpoint.clone(), ring: reach.ring.clone() };
    let family = log.filter(|_| !args.attach).map(|log| {
        let (ring, endpoint) = (reach.ring.clone(), found.endpoint);
        Family { ring, endpoint, run, logging, log: log.file }
    });
    let order = Order {
        copies: if args.attach { 0 } else { args.copies },
        family,
        place,
        setting,
        length: args.length.map(|length| length.0),
        ink: draws().then(ink),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(monitor::run(order));
    runtime.shutdown_background();
    if let Some(private) = found.started {
        stop(&private);
    }
    Ok(outcome?.into())
}

fn ink() -> Ink {
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let locale = said.map(|value| value.to_string_lossy().to_lowercase()).find(|value| !value.is_empty());
    let ascii = locale.is_some_and(|locale| !locale.contains("utf"));
    Ink { colour: colour_for(&io::stdout()), ascii }
}

/// Stops the private Redis that was started for this monitor, unless others have come to use it.
fn stop(private: &PrivateRedis) {
    let is_ours_alone =
        private.status().is_ok_and(|status| status.is_none_or(|status| status.connected_clients <= 1));
    let told = match is_ours_alone.then(|| private.stop()) {
        None => "others use the private Redis, so it stays; stop it with `estafeta redis stop`".to_owned(),
        Some(Ok(_)) => {
            format!("stopped the private Redis; its data stay in {}", private.directory().display())
        }
        Some(Err(error)) => format!("cannot stop the private Redis: {error}"),
    };
    let _ = writeln!(io::stderr(), "estafeta: {told}");
}
