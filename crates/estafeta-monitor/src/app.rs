//! The loop of the monitor. It receives every input, passes it to the model, performs the effects that the model
//! returns, and draws.
//!
//! The inputs are the reports of the nodes, the updates of the feed, signals, keys and the mouse, and a tick every
//! 100 ms. The model decides what an input means. The app decides only how the monitor ends:
//!
//! - *Running*: until the user quits, a stop signal arrives, the time of `--for` is over, or the terminal closes. In
//!   plain lines the monitor also quits when its stdout closes, or when all its nodes have ended and none will be
//!   respawned.
//! - *Quitting*: the app thaws all its nodes and asks them to stop. It kills them after a second request to
//!   quit, or when [`STOP_TIMEOUT`] is over.
//! - *Over*: all nodes of the fleet have ended.
//!
//! If the terminal fails or closes, the app stops drawing and quits as above, because the nodes must still be stopped.
//! If a task of the feed ends or panics, the app returns an error. It does the same if any thread panics while the
//! screen is in use. The dropped fleet then kills the nodes.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{Event, KeyEventKind, MouseButton, MouseEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::feed::{self, FeedUpdate, RingFeed};
use crate::model::actions::{MonitorCommand, Movement};
use crate::model::{Effect, ErrorsRequest, Model, MonitorInfo, RESPAWN_MS, View};
use crate::plain;
use crate::tui::draw::{self, HitAreas, Theme};
use crate::tui::keys;
use crate::tui::screen::{self, Screen};
use estafeta::{Endpoint, Ring, RingName};
use estafeta_lab::child_process::this_program;
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::fleet::{Fleet, FromNode};
use estafeta_lab::printer::Printer;

/// How long nodes may take to stop before the app kills them: a little longer than they give their handlers.
const STOP_TIMEOUT: Duration = Duration::from_secs(27);
/// Requests to quit that arrive closer together than this count as one.
const SAME_REQUEST: Duration = Duration::from_millis(100);
/// The time between two ticks of the model. Changes that no key caused are drawn at the next tick.
const TICK: Duration = Duration::from_millis(100);
/// The time between two plain lines, and between two fetches for the open errors view.
const SECOND: Duration = Duration::from_secs(1);
/// How many events from before the start a monitor with `--attach` shows.
const PAST_EVENTS: usize = 20;

/// The settings of the monitor.
pub struct MonitorOptions {
    pub nodes: usize,
    pub ring: RingName,
    pub endpoint: Endpoint,
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
    /// The file for the record of a node. The key of each node is appended to the name.
    pub record: Option<PathBuf>,
    /// Receives the stderr of all nodes.
    pub log: File,
}

/// Runs the monitor until it is over, and returns the exit code.
pub async fn run(options: MonitorOptions) -> Result<u8> {
    let (fleet, reports) = Fleet::new();
    let connect = || Ring::connect_with(options.endpoint.clone(), options.ring.clone(), feed::CALL_TIMEOUT);
    let (updates_in, updates) = unbounded_channel();
    let (requests, requested) = unbounded_channel();
    let past = if options.info.attach { PAST_EVENTS } else { 0 };
    let clock = MonotonicClock { wall_ms: options.info.started_ms, since: Instant::now() };
    // This comes before the first node starts, so the log shows its join. An unreachable Redis fails here, at once.
    let watch = RingFeed::begin(connect().await?, past).await?;
    let mut parts = JoinSet::new();
    parts.spawn(watch.run(updates_in.clone()));
    parts.spawn(feed::serve(connect().await?, requested, updates_in));
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
    let inputs = Inputs { reports, updates, parts, signals: Signals::new()? };
    match options.theme {
        Some(theme) => {
            let mut screen = Screen::take().context("cannot use this terminal")?;
            app.run_on_screen(&mut screen, theme, inputs).await?;
            drop(screen);
            // The screen is gone, so this line is all that is left of the session.
            let _ = writeln!(io::stdout(), "{}", plain::summary(&app.model));
            Ok(0)
        }
        None => {
            app.run_in_lines(options.nodes > 0, inputs).await?;
            app.exit_code()
        }
    }
}

/// A clock that runs evenly, even if the clock of this machine is set meanwhile.
struct MonotonicClock {
    wall_ms: u64,
    since: Instant,
}

impl MonotonicClock {
    fn now_ms(&self) -> u64 {
        self.wall_ms + u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0)
    }
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

/// All inputs of the app except keys, the mouse and the ticks.
struct Inputs {
    reports: UnboundedReceiver<FromNode>,
    updates: UnboundedReceiver<FeedUpdate>,
    /// The tasks of the feed. None of them may end before the app does.
    parts: JoinSet<()>,
    signals: Signals,
}

enum Input {
    Node(FromNode),
    Feed(FeedUpdate),
    Signal(SignalInput),
}

impl Inputs {
    async fn next(&mut self) -> Result<Input> {
        tokio::select! {
            Some(from) = self.reports.recv() => Ok(Input::Node(from)),
            Some(update) = self.updates.recv() => Ok(Input::Feed(update)),
            signal = self.signals.next() => Ok(Input::Signal(signal)),
            Some(ended) = self.parts.join_next() => {
                ended.context("a part of the monitor failed")?;
                bail!("a part of the monitor ended");
            }
        }
    }
}

impl App {
    /// Starts a node, unless the monitor only watches.
    fn start(&mut self, pause_ms: u64) -> Result<()> {
        let Some(launch) = &self.launch else {
            return Ok(());
        };
        let mut command = this_program(&self.ring, &self.endpoint.secret_url())?;
        command.arg("run").args(&launch.flags);
        if let Some(record) = &launch.record {
            let mut path = record.clone().into_os_string();
            path.push(format!(".{}", self.fleet.next_key().0));
            command.arg("--record").arg(path);
        }
        command.stderr(launch.log.try_clone()?);
        let node = self.fleet.start(command)?;
        let pid = self.fleet.pid(node).unwrap_or_default();
        self.model.started(self.clock.now_ms(), node, pid, pause_ms);
        Ok(())
    }

    async fn run_on_screen(&mut self, screen: &mut Screen, theme: Theme, mut inputs: Inputs) -> Result<()> {
        let mut terminal = Some(screen::events());
        let mut ticks = ticks(TICK);
        let mut hit_areas = HitAreas::default();
        while !self.is_over() {
            let mut redraw = !self.model.paused && self.stale;
            let effects = tokio::select! {
                input = inputs.next() => {
                    redraw = false;
                    match input? {
                        Input::Signal(SignalInput::Continue) => {
                            // Even a paused screen is redrawn, because another program used the terminal.
                            redraw = terminal.is_some() && screen.enter().is_ok();
                            Vec::new()
                        }
                        input => self.receive(input),
                    }
                },
                event = next_event(&mut terminal) => match event {
                    Some(event) => match self.command_for(&event, &hit_areas) {
                        Some(command) => {
                            // The user expects to see the effect of a key at once.
                            redraw = self.model.changes_screen(command);
                            self.issue(command)
                        }
                        None => {
                            redraw = matches!(event, Event::Resize(..));
                            Vec::new()
                        }
                    },
                    None => {
                        terminal = None;
                        self.quit()
                    }
                },
                _ = ticks.tick() => {
                    terminal = terminal.filter(|_| !screen::is_hung_up());
                    self.tick()
                }
            };
            for effect in effects {
                let done = match effect {
                    Effect::Suspend => {
                        redraw = true;
                        screen.suspend()
                    }
                    Effect::Mouse(captured) => screen.set_mouse(captured),
                    effect => {
                        self.perform(effect);
                        Ok(())
                    }
                };
                if done.is_err() {
                    terminal = None;
                }
            }
            if redraw && terminal.is_some() {
                match self.draw(screen, theme) {
                    Ok(drawn) => hit_areas = drawn,
                    Err(error) if error.kind() == io::ErrorKind::Other => return Err(error.into()),
                    // The terminal is gone. The loop goes on without it and stops the nodes.
                    Err(_) => terminal = None,
                }
            }
            if terminal.is_none() && !self.model.quitting {
                self.quit().into_iter().for_each(|effect| self.perform(effect));
            }
        }
        Ok(())
    }

    async fn run_in_lines(&mut self, ends_with_nodes: bool, mut inputs: Inputs) -> Result<()> {
        let closed = CancellationToken::new();
        let printer = Printer::start(io::stdout(), closed.clone());
        let mut ticks = ticks(TICK);
        let mut seconds = ticks_from(tokio::time::Instant::now() + SECOND, SECOND);
        let mut printed = 0;
        while !self.is_over() {
            let effects = tokio::select! {
                input = inputs.next() => self.receive(input?),
                _ = ticks.tick() => self.tick(),
                // The reader of the lines has closed the pipe, or the disk is full.
                () = closed.cancelled(), if !self.model.quitting => self.quit(),
                _ = seconds.tick(), if !self.model.quitting => {
                    self.print(&printer);
                    printed += 1;
                    Vec::new()
                }
            };
            effects.into_iter().for_each(|effect| self.perform(effect));
            if ends_with_nodes && self.no_nodes_left() && !self.model.quitting {
                self.quit().into_iter().for_each(|effect| self.perform(effect));
            }
        }
        if printed == 0 {
            self.print(&printer);
        }
        match printer.finish() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
            _ => Ok(()),
        }
    }

    fn print(&self, printer: &Printer) {
        if printer.has_room() {
            printer.print(format!("{}\n", plain::line(&self.model, self.clock.now_ms())).into_bytes());
        }
    }

    fn receive(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Node(FromNode { node, report: Some(report), .. }) => {
                self.model.reported(self.clock.now_ms(), node, &report);
            }
            Input::Node(FromNode { report: None, .. }) => self.reap(),
            Input::Feed(update) => return self.feed(update),
            Input::Signal(SignalInput::Stop) => return self.issue(MonitorCommand::Quit),
            // A lost terminal causes several inputs. They are not separate requests to quit.
            Input::Signal(SignalInput::HangUp) => return self.quit(),
            Input::Signal(SignalInput::Continue) => {}
        }
        Vec::new()
    }

    fn draw(&mut self, screen: &mut Screen, theme: Theme) -> io::Result<HitAreas> {
        let mut hit_areas = HitAreas::default();
        let now = self.clock.now_ms();
        screen.draw(|frame| hit_areas = draw::draw(frame, &self.model, theme, now))?;
        self.stale = false;
        Ok(hit_areas)
    }

    fn feed(&mut self, update: FeedUpdate) -> Vec<Effect> {
        let now = self.clock.now_ms();
        self.stale = true;
        match update {
            FeedUpdate::Ring(update) => self.model.updated(now, *update),
            FeedUpdate::Lost(reason) => self.model.lost(now, &reason),
            FeedUpdate::Errors(page) => {
                if let Some(view) = self.model.errors_view() {
                    view.show(page);
                }
            }
            FeedUpdate::Answer(text) => {
                if let Some(view) = self.model.errors_view() {
                    view.answer = Some(text);
                    return vec![Effect::Errors(view.list())];
                }
            }
            FeedUpdate::Failed(why) => {
                if let Some(view) = self.model.errors_view() {
                    view.answer = Some(why);
                }
            }
        }
        Vec::new()
    }

    fn command_for(&self, event: &Event, hit_areas: &HitAreas) -> Option<MonitorCommand> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => keys::command(&self.model, *key),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => hit_areas.at(mouse.column, mouse.row),
                MouseEventKind::ScrollUp => Some(MonitorCommand::Move(Movement::Up)),
                MouseEventKind::ScrollDown => Some(MonitorCommand::Move(Movement::Down)),
                _ => None,
            },
            _ => None,
        }
    }

    fn tick(&mut self) -> Vec<Effect> {
        self.reap();
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.deadline = None;
            return self.quit();
        }
        if self.kill_at.is_some_and(|kill_at| Instant::now() >= kill_at) {
            return vec![Effect::QuitNow];
        }
        let mut effects = self.model.tick(self.clock.now_ms());
        if let View::Errors(view) = &self.model.view
            && self.errors_requested.elapsed() >= SECOND
            && self.model.lost.is_none()
        {
            effects.push(Effect::Errors(view.list()));
        }
        effects
    }

    fn reap(&mut self) {
        for (node, status) in self.fleet.reap() {
            self.model.ended(self.clock.now_ms(), node, status);
            self.stale = true;
        }
    }

    /// Quits, unless the monitor quits already. Unlike a second [`MonitorCommand::Quit`], this never kills the nodes.
    fn quit(&mut self) -> Vec<Effect> {
        self.stale = true;
        if self.model.quitting {
            Vec::new()
        } else {
            self.model.command(self.clock.now_ms(), MonitorCommand::Quit)
        }
    }

    /// Passes on a command of the user or of a signal. A second request to quit kills the nodes. Some senders signal
    /// both the process and its group, so requests that arrive together count as one.
    fn issue(&mut self, command: MonitorCommand) -> Vec<Effect> {
        if command == MonitorCommand::Quit {
            let before = self.quit_requested.replace(Instant::now());
            let is_same = before.is_some_and(|before| before.elapsed() < SAME_REQUEST);
            // The first request never kills, even if the monitor already quits for another reason.
            if is_same || before.is_none() && self.model.quitting {
                return Vec::new();
            }
        }
        self.stale = true;
        self.model.command(self.clock.now_ms(), command)
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Errors(request) => {
                self.errors_requested = Instant::now();
                let _ = self.requests.send(request);
                return;
            }
            Effect::Start { pause_ms } => {
                if let Err(error) = self.start(pause_ms) {
                    self.model.not_started(self.clock.now_ms(), &format!("{error:#}"));
                }
                return;
            }
            Effect::Quit => self.kill_at = Some(Instant::now() + STOP_TIMEOUT),
            _ => {}
        }
        self.stale = true;
        let fleet = &mut self.fleet;
        match effect {
            Effect::Stop(node) => fleet.stop(node),
            Effect::Kill(node) => fleet.signal(node, Signal::SIGKILL),
            Effect::Freeze(node) => fleet.signal(node, Signal::SIGSTOP),
            Effect::Thaw(node) => fleet.signal(node, Signal::SIGCONT),
            Effect::Quit => {
                for node in fleet.keys().collect::<Vec<_>>() {
                    fleet.signal(node, Signal::SIGCONT);
                    fleet.stop(node);
                }
            }
            Effect::QuitNow => {
                for node in fleet.keys().collect::<Vec<_>>() {
                    fleet.signal(node, Signal::SIGKILL);
                }
            }
            Effect::Start { .. } | Effect::Errors(_) | Effect::Suspend | Effect::Mouse(_) => {}
        }
    }

    /// Whether all own nodes have ended and none will be respawned.
    fn no_nodes_left(&self) -> bool {
        self.fleet.keys().next().is_none() && !self.model.respawns()
    }

    fn is_over(&self) -> bool {
        self.model.quitting && self.fleet.keys().next().is_none()
    }

    /// The exit code in plain lines. It must report what went wrong, because a script may be the only reader.
    fn exit_code(&self) -> Result<u8> {
        if let Some(status) = self.model.failure {
            let log = self.model.info.log_file.iter().map(|log| format!(", see {}", log.display()));
            bail!("a node ended by itself ({status}){}", log.collect::<String>());
        }
        Ok(if self.model.was_unbalanced { FAILED } else { 0 })
    }
}

fn ticks(period: Duration) -> Interval {
    ticks_from(tokio::time::Instant::now(), period)
}

/// An interval that ticks once after a standstill and not once per missed tick.
fn ticks_from(first: tokio::time::Instant, period: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(first, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The next event. None if the terminal is gone. Waits forever if the caller already knows that.
async fn next_event(terminal: &mut Option<UnboundedReceiver<Event>>) -> Option<Event> {
    match terminal {
        Some(terminal) => terminal.recv().await,
        None => std::future::pending().await,
    }
}

/// What a signal requests.
enum SignalInput {
    Stop,
    HangUp,
    /// The shell continued the monitor after it was suspended.
    Continue,
}

struct Signals {
    stop: [tokio::signal::unix::Signal; 2],
    hang_up: tokio::signal::unix::Signal,
    resume: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            stop: [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?],
            hang_up: signal(SignalKind::hangup())?,
            resume: signal(SignalKind::from_raw(Signal::SIGCONT as i32))?,
        })
    }

    async fn next(&mut self) -> SignalInput {
        let [terminate, interrupt] = &mut self.stop;
        tokio::select! {
            _ = terminate.recv() => SignalInput::Stop,
            _ = interrupt.recv() => SignalInput::Stop,
            _ = self.hang_up.recv() => SignalInput::HangUp,
            _ = self.resume.recv() => SignalInput::Continue,
        }
    }
}
