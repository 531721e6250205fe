//! Where the parts of the monitor meet: one loop that hears everybody, asks the state what to do, does it and draws.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, raise};
use ratatui::crossterm::event::{Event, KeyEventKind, MouseButton, MouseEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::act::{Command, Step};
use super::brood::{Brood, Family, Heard};
use super::draw::{self, Ink, Spots};
use super::feed::{self, Fed, Place, Watch};
use super::own::Slot;
use super::screen::{self, Screen};
use super::state::{Deed, Errand, Setting, State, View};
use super::{keys, plain};
use crate::duration::now_ms;
use crate::failure::FAILED;

/// How long copies may take to stop before they are killed.
const STOPPING: Duration = Duration::from_secs(10);
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
    // Before the first copy, so that the log tells of its joining, and a Redis that is not there is told at once.
    let watch = Watch::begin(order.place.clone(), past).await?;
    tokio::spawn(watch.run(fed_in.clone()));
    tokio::spawn(feed::run_errands(order.place, errands_out, fed_in));
    let mut stage = Stage {
        state: State::new(order.setting),
        brood: order.family.map(|family| Brood::new(family, heard_in)),
        errands,
        deadline: order.length.map(|length| Instant::now() + length),
        killing: None,
        listed: Instant::now(),
        stale: true,
    };
    for _ in 0..order.copies {
        stage.start()?;
    }
    match order.ink {
        Some(ink) => {
            // Dropped at the end of this block, so that the last words are not drawn over.
            let mut screen = Screen::take().context("cannot use this terminal")?;
            stage.perform_on_screen(&mut screen, ink, heard, fed).await?;
            Ok(0)
        }
        None => {
            stage.perform_in_lines(heard, fed).await?;
            stage.verdict()
        }
    }
}

struct Stage {
    state: State,
    brood: Option<Brood>,
    errands: UnboundedSender<Errand>,
    deadline: Option<Instant>,
    /// When those that have not stopped by then are killed.
    killing: Option<Instant>,
    listed: Instant,
    /// Something changed since the last picture.
    stale: bool,
}

impl Stage {
    fn start(&mut self) -> Result<()> {
        if let Some(brood) = &mut self.brood {
            let (slot, pid) = brood.start()?;
            self.state.started(now_ms(), slot, pid);
        }
        Ok(())
    }

    async fn perform_on_screen(
        &mut self,
        screen: &mut Screen,
        ink: Ink,
        mut heard: UnboundedReceiver<(Slot, Heard)>,
        mut fed: UnboundedReceiver<Fed>,
    ) -> Result<()> {
        let mut terminal = screen::events();
        let mut signals = Signals::new()?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut spots = Spots::default();
        while !self.is_over() {
            let deeds = tokio::select! {
                Some((slot, heard)) = heard.recv() => self.hear(slot, heard),
                Some(fed) = fed.recv() => self.feed(fed),
                event = terminal.recv() => match event {
                    Some(event) => match self.meaning(&event, &spots) {
                        Some(command) => {
                            let deeds = self.state.command(now_ms(), command);
                            // At once: whoever pressed a key looks for what it does.
                            spots = self.draw(screen, ink)?;
                            deeds
                        }
                        None => Vec::new(),
                    },
                    // The terminal is gone.
                    None => self.quit(),
                },
                word = signals.next() => match word {
                    Word::Stop => self.quit(),
                    Word::Suspend => {
                        screen.suspend()?;
                        self.stale = true;
                        Vec::new()
                    }
                    Word::Continue => {
                        screen.enter()?;
                        self.stale = true;
                        Vec::new()
                    }
                },
                _ = ticks.tick() => {
                    let deeds = self.tick();
                    if self.stale && !self.state.paused {
                        spots = self.draw(screen, ink)?;
                    }
                    deeds
                }
            };
            for deed in deeds {
                match deed {
                    Deed::Suspend => screen::suspend_group(),
                    Deed::Mouse(ours) => screen.set_mouse(ours)?,
                    deed => self.perform(deed)?,
                }
            }
        }
        Ok(())
    }

    async fn perform_in_lines(
        &mut self,
        mut heard: UnboundedReceiver<(Slot, Heard)>,
        mut fed: UnboundedReceiver<Fed>,
    ) -> Result<()> {
        let mut signals = Signals::new()?;
        let mut ticks = tokio::time::interval(TICK);
        let mut seconds = tokio::time::interval_at(tokio::time::Instant::now() + SECOND, SECOND);
        while !self.is_over() {
            let deeds = tokio::select! {
                Some((slot, heard)) = heard.recv() => self.hear(slot, heard),
                Some(fed) = fed.recv() => self.feed(fed),
                word = signals.next() => match word {
                    Word::Stop => self.quit(),
                    Word::Suspend => {
                        raise(Signal::SIGSTOP)?;
                        Vec::new()
                    }
                    Word::Continue => Vec::new(),
                },
                _ = ticks.tick() => self.tick(),
                _ = seconds.tick() => match plain::print(&self.state, now_ms()) {
                    Ok(()) => Vec::new(),
                    // Whoever read our lines has had enough.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.quit(),
                    Err(error) => return Err(error).context("cannot print"),
                },
            };
            for deed in deeds {
                self.perform(deed)?;
            }
            // There is nothing left to be shown.
            if self.nobody_is_left() && !self.state.quitting {
                self.quit().into_iter().try_for_each(|deed| self.perform(deed))?;
            }
        }
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, ink: Ink) -> Result<Spots> {
        let mut spots = Spots::default();
        let now = now_ms();
        screen.draw(|frame| spots = draw::draw(frame, &self.state, ink, now)).context("cannot draw")?;
        self.stale = false;
        Ok(spots)
    }

    fn hear(&mut self, slot: Slot, heard: Heard) -> Vec<Deed> {
        match heard {
            Heard::Said(said) => self.state.heard(now_ms(), slot, &said),
            Heard::Silent => self.reap(),
        }
        Vec::new()
    }

    fn feed(&mut self, fed: Fed) -> Vec<Deed> {
        let now = now_ms();
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
        }
        Vec::new()
    }

    fn meaning(&mut self, event: &Event, spots: &Spots) -> Option<Command> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => keys::command(&self.state, *key),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::Down(MouseButton::Left) => spots.at(mouse.column, mouse.row),
                MouseEventKind::ScrollUp => Some(Command::Move(Step::Up)),
                MouseEventKind::ScrollDown => Some(Command::Move(Step::Down)),
                _ => None,
            },
            Event::Resize(..) => {
                self.stale = true;
                None
            }
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
        let mut deeds = self.state.tick(now_ms());
        if let View::Errors(view) = &self.state.view
            && self.listed.elapsed() >= SECOND
        {
            deeds.push(Deed::Errors(view.list()));
        }
        deeds
    }

    fn reap(&mut self) {
        for (slot, status) in self.brood.iter_mut().flat_map(Brood::reap) {
            self.state.ended(now_ms(), slot, status);
            self.stale = true;
        }
    }

    fn quit(&mut self) -> Vec<Deed> {
        self.stale = true;
        self.state.command(now_ms(), Command::Quit)
    }

    fn perform(&mut self, deed: Deed) -> Result<()> {
        if let Deed::Errors(errand) = deed {
            self.listed = Instant::now();
            let _ = self.errands.send(errand);
            return Ok(());
        }
        if deed == Deed::Start {
            return self.start();
        }
        self.stale = true;
        if matches!(deed, Deed::Quit) {
            self.killing = Some(Instant::now() + STOPPING);
        }
        let Some(brood) = &mut self.brood else {
            return Ok(());
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
            Deed::Start | Deed::Errors(_) | Deed::Suspend | Deed::Mouse(_) => {}
        }
        Ok(())
    }

    /// All copies of ours have ended by themselves.
    fn nobody_is_left(&self) -> bool {
        let Some(brood) = &self.brood else {
            return false;
        };
        brood.slots().is_empty() && !self.state.setting.respawn
    }

    fn is_over(&self) -> bool {
        self.state.quitting && self.brood.as_ref().is_none_or(|brood| brood.slots().is_empty())
    }

    /// In plain lines nobody sits there to see what went wrong, so the exit code tells.
    fn verdict(&self) -> Result<u8> {
        if let Some(status) = self.state.last_failure().filter(|status| status.code().is_some()) {
            let log = self.state.setting.log_file.iter().map(|log| format!(", see {}", log.display()));
            bail!("a copy ended by itself ({status}){}", log.collect::<String>());
        }
        Ok(if self.state.was_unbalanced { FAILED } else { 0 })
    }
}

/// What signals mean to the monitor.
enum Word {
    Stop,
    Suspend,
    Continue,
}

struct Signals {
    stop: [tokio::signal::unix::Signal; 3],
    suspend: tokio::signal::unix::Signal,
    resume: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let [terminate, interrupt, hangup] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        Ok(Self {
            stop: [signal(terminate)?, signal(interrupt)?, signal(hangup)?],
            suspend: signal(SignalKind::from_raw(Signal::SIGTSTP as i32))?,
            resume: signal(SignalKind::from_raw(Signal::SIGCONT as i32))?,
        })
    }

    async fn next(&mut self) -> Word {
        let [terminate, interrupt, hangup] = &mut self.stop;
        tokio::select! {
            _ = terminate.recv() => Word::Stop,
            _ = interrupt.recv() => Word::Stop,
            _ = hangup.recv() => Word::Stop,
            _ = self.suspend.recv() => Word::Suspend,
            _ = self.resume.recv() => Word::Continue,
        }
    }
}
