//! Where the parts of the monitor meet: one loop that hears everybody, asks the state what to do, does it and draws.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{Event, KeyEventKind, MouseButton, MouseEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::act::{Command, Step};
use super::brood::{Brood, Family, Heard};
use super::draw::{self, Ink, Spots};
use super::feed::{self, Fed, Place, Watch};
use super::own::Slot;
use super::screen::{self, Screen};
use super::state::{Deed, Errand, RESPAWN_MS, Setting, State, View};
use super::{keys, plain};
use crate::failure::FAILED;
use crate::printer::Printer;

/// How long copies may take to stop before they are killed: a little more than they give their handlers.
const STOPPING: Duration = Duration::from_secs(27);
/// Signals that come as close together as this are one.
const SAME_SIGNAL: Duration = Duration::from_millis(100);
/// Between two ticks of the state, and the shortest time between two pictures.
const TICK: Duration = Duration::from_millis(100);
/// Between two lines where there is no terminal, and between two fetches of the errors that are being looked at.
const SECOND: Duration = Duration::from_secs(1);
/// Events from before the start that are shown to somebody who only watches.
const PAST: usize = 20;

/// What was asked for.
pub struct Order {
    pub copies: usize,
    /// None: only watch.
    pub family: Option<Family>,
    pub place: Place,
    pub setting: Setting,
    pub length: Option<Duration>,
    /// What to draw with; None: plain lines.
    pub ink: Option<Ink>,
}

/// Runs until its user or a signal ends it, and answers with the exit code.
pub async fn run(order: Order) -> Result<u8> {
    let (heard_in, heard) = unbounded_channel();
    let (fed_in, fed) = unbounded_channel();
    let (errands, errands_out) = unbounded_channel();
    let past = if order.setting.attach { PAST } else { 0 };
    let clock = Clock { wall_ms: order.setting.started_ms, since: Instant::now() };
    // Before the first copy, so that the log tells of its joining, and a Redis that is not there is told at once.
    let watch = Watch::begin(order.place.clone(), past).await?;
    let mut parts = JoinSet::new();
    parts.spawn(watch.run(fed_in.clone()));
    parts.spawn(feed::run_errands(order.place, errands_out, fed_in));
    let mut stage = Stage {
        state: State::new(order.setting),
        brood: order.family.map(|family| Brood::new(family, heard_in)),
        errands,
        clock,
        deadline: order.length.map(|length| Instant::now() + length),
        told_to_stop: None,
        killing: None,
        listed: Instant::now(),
        stale: true,
    };
    for _ in 0..order.copies {
        stage.start(RESPAWN_MS)?;
    }
    let ears = Ears { heard, fed, parts, signals: Signals::new()? };
    match order.ink {
        Some(ink) => {
            // Dropped at the end of this block, so that the last words are not drawn over.
            let mut screen = Screen::take().context("cannot use this terminal")?;
            stage.perform_on_screen(&mut screen, ink, ears).await?;
            Ok(0)
        }
        None => {
            stage.perform_in_lines(order.copies > 0, ears).await?;
            stage.verdict()
        }
    }
}

/// Time that only goes on, whatever is done to this machine's clock.
struct Clock {
    wall_ms: u64,
    since: Instant,
}

impl Clock {
    fn now_ms(&self) -> u64 {
        self.wall_ms + u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0)
    }
}

struct Stage {
    state: State,
    brood: Option<Brood>,
    errands: UnboundedSender<Errand>,
    clock: Clock,
    deadline: Option<Instant>,
    /// When a person or a signal asked for the end.
    told_to_stop: Option<Instant>,
    /// When those that have not stopped by then are killed.
    killing: Option<Instant>,
    listed: Instant,
    /// Something changed since the last picture.
    stale: bool,
}

/// What the stage listens to.
struct Ears {
    heard: UnboundedReceiver<(Slot, Heard)>,
    fed: UnboundedReceiver<Fed>,
    /// The tasks behind it, none of which ends before the stage does.
    parts: JoinSet<()>,
    signals: Signals,
}

enum News {
    Heard(Slot, Heard),
    Fed(Fed),
    Word(Word),
}

impl Ears {
    async fn next(&mut self) -> Result<News> {
        tokio::select! {
            Some((slot, heard)) = self.heard.recv() => Ok(News::Heard(slot, heard)),
            Some(fed) = self.fed.recv() => Ok(News::Fed(fed)),
            word = self.signals.next() => Ok(News::Word(word)),
            Some(ended) = self.parts.join_next() => {
                ended.context("a part of the monitor failed")?;
                bail!("a part of the monitor ended");
            }
        }
    }
}

impl Stage {
    fn start(&mut self, pause_ms: u64) -> Result<()> {
        if let Some(brood) = &mut self.brood {
            let (slot, pid) = brood.start()?;
            self.state.started(self.clock.now_ms(), slot, pid, pause_ms);
        }
        Ok(())
    }

    async fn perform_on_screen(&mut self, screen: &mut Screen, ink: Ink, mut ears: Ears) -> Result<()> {
        let mut terminal = Some(screen::events());
        let mut ticks = ticks(TICK);
        let mut spots = Spots::default();
        while !self.is_over() {
            let mut shows = !self.state.paused && self.stale;
            let deeds = tokio::select! {
                news = ears.next() => {
                    shows = false;
                    match news? {
                        News::Word(Word::Continue) => {
                            // Also while the picture stands still: somebody else has drawn on the terminal.
                            shows = terminal.is_some() && screen.enter().is_ok();
                            Vec::new()
                        }
                        news => self.learn(news),
                    }
                },
                event = next_event(&mut terminal) => match event {
                    Some(event) => match self.meaning(&event, &spots) {
                        Some(command) => {
                            // At once: whoever pressed a key looks for what it does.
                            shows = self.state.shows(command);
                            self.ask(command)
                        }
                        None => {
                            shows = matches!(event, Event::Resize(..));
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
            for deed in deeds {
                let done = match deed {
                    Deed::Suspend => {
                        shows = true;
                        screen.suspend()
                    }
                    Deed::Mouse(ours) => screen.set_mouse(ours),
                    deed => {
                        self.perform(deed);
                        Ok(())
                    }
                };
                if done.is_err() {
                    terminal = None;
                }
            }
            if shows && terminal.is_some() {
                match self.draw(screen, ink) {
                    Ok(drawn) => spots = drawn,
                    Err(error) if error.kind() == io::ErrorKind::Other => return Err(error.into()),
                    // The terminal is gone; the copies are stopped all the same, unseen.
                    Err(_) => terminal = None,
                }
            }
            if terminal.is_none() && !self.state.quitting {
                self.quit().into_iter().for_each(|deed| self.perform(deed));
            }
        }
        Ok(())
    }

    async fn perform_in_lines(&mut self, ends_with_copies: bool, mut ears: Ears) -> Result<()> {
        let closed = CancellationToken::new();
        let printer = Printer::start(io::stdout(), closed.clone());
        let mut ticks = ticks(TICK);
        let mut seconds = ticks_from(tokio::time::Instant::now() + SECOND, SECOND);
        let mut printed = 0;
        while !self.is_over() {
            let deeds = tokio::select! {
                news = ears.next() => self.learn(news?),
                _ = ticks.tick() => self.tick(),
                // Whoever read our lines has had enough, or the disk is full.
                () = closed.cancelled(), if !self.state.quitting => self.quit(),
                _ = seconds.tick(), if !self.state.quitting => {
                    self.print(&printer);
                    printed += 1;
                    Vec::new()
                }
            };
            deeds.into_iter().for_each(|deed| self.perform(deed));
            if ends_with_copies && self.nobody_is_left() && !self.state.quitting {
                self.quit().into_iter().for_each(|deed| self.perform(deed));
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
            printer.print(format!("{}\n", plain::line(&self.state, self.clock.now_ms())).into_bytes());
        }
    }

    fn learn(&mut self, news: News) -> Vec<Deed> {
        match news {
            News::Heard(slot, Heard::Said(said)) => self.state.heard(self.clock.now_ms(), slot, &said),
            News::Heard(_, Heard::Silent) => self.reap(),
            News::Fed(fed) => return self.feed(fed),
            News::Word(Word::Stop) => return self.ask(Command::Quit),
            // Of a lost terminal one hears in several ways.
            News::Word(Word::HangUp) => return self.quit(),
            News::Word(Word::Continue) => {}
        }
        Vec::new()
    }

    fn draw(&mut self, screen: &mut Screen, ink: Ink) -> io::Result<Spots> {
        let mut spots = Spots::default();
        let now = self.clock.now_ms();
        screen.draw(|frame| spots = draw::draw(frame, &self.state, ink, now))?;
        self.stale = false;
        Ok(spots)
    }

    fn feed(&mut self, fed: Fed) -> Vec<Deed> {
        let now = self.clock.now_ms();
        self.stale = true;
        match fed {
            Fed::Look(look) => self.state.look(now, *look),
            Fed::Lost(reason) => self.state.lost(now, &reason),
            Fed::Errors(page) => {
                if let Some(view) = self.state.errors_view() {
                    view.show(page);
                }
            }
            Fed::Answer(text) => {
                if let Some(view) = self.state.errors_view() {
                    view.answer = Some(text);
                    return vec![Deed::Errors(view.list())];
                }
            }
            Fed::Failed(why) => {
                if let Some(view) = self.state.errors_view() {
                    view.answer = Some(why);
                }
            }
        }
        Vec::new()
    }

    fn meaning(&self, event: &Event, spots: &Spots) -> Option<Command> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => keys::command(&self.state, *key),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => spots.at(mouse.column, mouse.row),
                MouseEventKind::ScrollUp => Some(Command::Move(Step::Up)),
                MouseEventKind::ScrollDown => Some(Command::Move(Step::Down)),
                _ => None,
            },
            _ => None,
        }
    }

    fn tick(&mut self) -> Vec<Deed> {
        self.reap();
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.deadline = None;
            return self.quit();
        }
        if self.killing.is_some_and(|killing| Instant::now() >= killing) {
            return vec![Deed::QuitNow];
        }
        let mut deeds = self.state.tick(self.clock.now_ms());
        if let View::Errors(view) = &self.state.view
            && self.listed.elapsed() >= SECOND
            && self.state.lost.is_none()
        {
            deeds.push(Deed::Errors(view.list()));
        }
        deeds
    }

    fn reap(&mut self) {
        for (slot, status) in self.brood.iter_mut().flat_map(Brood::reap) {
            self.state.ended(self.clock.now_ms(), slot, status);
            self.stale = true;
        }
    }

    /// The end, for a reason that is none but the first time.
    fn quit(&mut self) -> Vec<Deed> {
        self.stale = true;
        if self.state.quitting { Vec::new() } else { self.state.command(self.clock.now_ms(), Command::Quit) }
    }

    /// What a person or a signal asks for. To ask for the end twice means not to wait for it; but some senders signal
    /// both the process and its group, and that is one request.
    fn ask(&mut self, command: Command) -> Vec<Deed> {
        if command == Command::Quit {
            let before = self.told_to_stop.replace(Instant::now());
            let is_same = before.is_some_and(|before| before.elapsed() < SAME_SIGNAL);
            // Whoever asks for the first time does not yet insist, even if there was another reason to end before.
            if is_same || before.is_none() && self.state.quitting {
                return Vec::new();
            }
        }
        self.stale = true;
        self.state.command(self.clock.now_ms(), command)
    }

    fn perform(&mut self, deed: Deed) {
        match deed {
            Deed::Errors(errand) => {
                self.listed = Instant::now();
                let _ = self.errands.send(errand);
                return;
            }
            Deed::Start { pause_ms } => {
                if let Err(error) = self.start(pause_ms) {
                    self.state.not_started(self.clock.now_ms(), &format!("{error:#}"));
                }
                return;
            }
            Deed::Quit => self.killing = Some(Instant::now() + STOPPING),
            _ => {}
        }
        self.stale = true;
        let Some(brood) = &mut self.brood else {
            return;
        };
        match deed {
            Deed::Stop(slot) => brood.stop(slot),
            Deed::Kill(slot) => brood.signal(slot, Signal::SIGKILL),
            Deed::Freeze(slot) => brood.signal(slot, Signal::SIGSTOP),
            Deed::Thaw(slot) => brood.signal(slot, Signal::SIGCONT),
            Deed::Quit => {
                for slot in brood.slots() {
                    brood.signal(slot, Signal::SIGCONT);
                    brood.stop(slot);
                }
            }
            Deed::QuitNow => {
                brood.slots().into_iter().for_each(|slot| brood.signal(slot, Signal::SIGKILL));
            }
            Deed::Start { .. } | Deed::Errors(_) | Deed::Suspend | Deed::Mouse(_) => {}
        }
    }

    /// All copies of ours have ended, and none comes back: there is nothing left to be shown.
    fn nobody_is_left(&self) -> bool {
        let is_empty = self.brood.as_ref().is_some_and(|brood| brood.slots().is_empty());
        is_empty && !self.state.respawns()
    }

    fn is_over(&self) -> bool {
        self.state.quitting && self.brood.as_ref().is_none_or(|brood| brood.slots().is_empty())
    }

    /// In plain lines nobody sits there to see what went wrong, so the exit code tells.
    fn verdict(&self) -> Result<u8> {
        if let Some(status) = self.state.failure {
            let log = self.state.setting.log_file.iter().map(|log| format!(", see {}", log.display()));
            bail!("a copy ended by itself ({status}){}", log.collect::<String>());
        }
        Ok(if self.state.was_unbalanced { FAILED } else { 0 })
    }
}

fn ticks(pace: Duration) -> Interval {
    ticks_from(tokio::time::Instant::now(), pace)
}

/// After a standstill there is one tick, not one for each that was missed.
fn ticks_from(first: tokio::time::Instant, pace: Duration) -> Interval {
    let mut ticks = tokio::time::interval_at(first, pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// None when the terminal is gone; never, once that is known.
async fn next_event(terminal: &mut Option<UnboundedReceiver<Event>>) -> Option<Event> {
    match terminal {
        Some(terminal) => terminal.recv().await,
        None => std::future::pending().await,
    }
}

/// What signals mean to the monitor.
enum Word {
    Stop,
    HangUp,
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

    async fn next(&mut self) -> Word {
        let [terminate, interrupt] = &mut self.stop;
        tokio::select! {
            _ = terminate.recv() => Word::Stop,
            _ = interrupt.recv() => Word::Stop,
            _ = self.hang_up.recv() => Word::HangUp,
            _ = self.resume.recv() => Word::Continue,
        }
    }
}
