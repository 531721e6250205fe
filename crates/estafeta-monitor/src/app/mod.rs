//! The loop of the monitor. It receives every input, passes it to the model, performs the requests that the model
//! returns, and draws.
//!
//! The inputs are the reports of the nodes, the updates of the feed, signals, keys and the mouse, and a tick every
//! 100 ms. The model decides what an input means. The app decides only how the monitor ends:
//!
//! - *Running*: until the user quits, a stop signal arrives, the time of `--for` is over, or the terminal closes.
//!   Without a terminal the monitor also quits when its stdout closes, or when all its nodes have ended and none will
//!   be respawned.
//! - *Quitting*: the app thaws all its nodes and asks them to stop. It kills them after a second request to
//!   quit, or after 27 seconds.
//! - *Over*: all nodes of the fleet have ended. On a terminal, the app looks at the ring once more and prints a summary.
//!
//! If the terminal fails or closes, the app stops drawing and quits as above, because the nodes must still be stopped.
//! If a task of the feed ends or panics, the app returns an error. It does the same if any thread panics while the
//! screen is in use. The dropped fleet then kills the nodes.

mod clock;
mod in_lines;
mod input;
mod on_screen;
mod perform;
mod receive;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::feed::{self, RingFeed};
use crate::model::lifecycle::RESPAWN_MS;
use crate::model::request::ErrorsRequest;
use crate::model::{Model, MonitorInfo};
use crate::plain;
use crate::tui::draw::Theme;
use crate::tui::screen::Screen;
use clock::MonotonicClock;
use estafeta::{Durability, Endpoint, Ring, RingName};
use estafeta_lab::fleet::Fleet;
use input::{Inputs, Signals};

/// How many events from before the start a monitor that only watches shows.
const PAST_EVENTS: usize = 20;

/// The settings of the monitor.
pub struct MonitorOptions {
    pub nodes: usize,
    pub ring: RingName,
    pub endpoint: Endpoint,
    /// Where Redis must have stored a retry or a drop before it is reported.
    pub durability: Durability,
    /// How to start nodes. None if the monitor only watches.
    pub launch: Option<Launch>,
    pub info: MonitorInfo,
    /// After this time the monitor quits.
    pub length: Option<Duration>,
    /// The theme of the screen. None: the monitor prints plain lines.
    pub theme: Option<Theme>,
}

/// How to start a node. The ring and the Redis come from [`MonitorOptions`].
pub struct Launch {
    /// The options of `run`, with `--json`, `--brief` and `--control` among them.
    pub flags: Vec<String>,
    /// How many partitions the ring of these nodes has.
    pub partitions: u32,
    /// The file for the record of a node. The key of each node is appended to the name.
    pub record: Option<PathBuf>,
    /// Receives the stderr of all nodes.
    pub log: File,
}

/// Runs the monitor until it is over, and returns the exit code.
pub async fn run(options: MonitorOptions) -> Result<u8> {
    let (fleet, reports) = Fleet::new();
    let connect = async || {
        let (endpoint, name) = (options.endpoint.clone(), options.ring.clone());
        let ring = Ring::connect_with(endpoint.clone(), name.clone(), feed::CALL_TIMEOUT).await?;
        let ring = ring.with_durability(options.durability);
        let found = ring.partitions().await?;
        match &options.launch {
            // The nodes that this monitor starts will divide a new ring.
            Some(launch) if found.len() == 1 && launch.partitions > 1 => {
                ring_partitions(&endpoint, &name, launch.partitions, options.durability).await
            }
            _ => Ok(found),
        }
    };
    let (updates_in, updates) = unbounded_channel();
    let (requests, requested) = unbounded_channel();
    let past = if options.info.attach { PAST_EVENTS } else { 0 };
    let clock = MonotonicClock { wall_ms: options.info.started_ms, since: Instant::now() };
    // This comes before the first node starts, so the log shows its join. An unreachable Redis fails here, at once.
    let watch = RingFeed::begin(options.ring.clone(), connect().await?, past).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(watch.run(updates_in.clone()));
    let rings = connect().await?;
    tasks.spawn(feed::serve(rings.clone(), requested, updates_in));
    let mut app = App {
        model: Model::new(options.info),
        fleet,
        launch: options.launch,
        ring: options.ring,
        endpoint: options.endpoint,
        requests,
        clock,
        deadline: options.length.map(|length| Instant::now() + length),
        quit_requested: None,
        kill_at: None,
        errors_requested: Instant::now(),
        stale: true,
    };
    for _ in 0..options.nodes {
        app.start(RESPAWN_MS)?;
    }
    let inputs = Inputs { reports, updates, tasks, signals: Signals::new()? };
    match options.theme {
        Some(theme) => {
            let mut screen = Screen::take().context("cannot use this terminal")?;
            app.run_on_screen(&mut screen, theme, inputs).await?;
            drop(screen);
            let last = feed::last_look(&app.ring, &rings).await;
            let now = app.clock.now_ms();
            app.model.looked_last(now, last);
            // The screen is gone, so only this line stays in the terminal.
            let _ = writeln!(io::stdout(), "{}", plain::summary(&app.model, now));
            Ok(0)
        }
        None => {
            app.run_in_lines(options.nodes > 0, inputs).await?;
            app.exit_code()
        }
    }
}

/// Connects to partitions that need not exist yet.
async fn ring_partitions(
    endpoint: &Endpoint,
    whole: &RingName,
    count: u32,
    durability: Durability,
) -> estafeta::Result<Vec<Ring>> {
    let mut rings = Vec::new();
    for index in 0..count {
        let name = format!("{whole}:{index}").parse()?;
        let ring = Ring::connect_with(endpoint.clone(), name, feed::CALL_TIMEOUT).await?;
        rings.push(ring.with_durability(durability));
    }
    Ok(rings)
}

struct App {
    model: Model,
    fleet: Fleet,
    launch: Option<Launch>,
    ring: RingName,
    endpoint: Endpoint,
    requests: UnboundedSender<ErrorsRequest>,
    clock: MonotonicClock,
    deadline: Option<Instant>,
    /// When the user or a signal last requested to quit.
    quit_requested: Option<Instant>,
    /// When the app kills the nodes that have not stopped by then.
    kill_at: Option<Instant>,
    /// When the app last sent a request about errors.
    errors_requested: Instant,
    /// Whether something changed since the last redraw.
    stale: bool,
}

impl App {
    fn is_over(&self) -> bool {
        self.model.quitting && self.fleet.keys().next().is_none()
    }
}
