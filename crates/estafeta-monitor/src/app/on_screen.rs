//! The loop of the app on a terminal: draws the model, and reads keys and the mouse.

use std::io;

use anyhow::Result;
use ratatui::crossterm::event::{Event, KeyEventKind, MouseButton, MouseEventKind};
use tokio::sync::mpsc::UnboundedReceiver;

use super::App;
use super::clock::{TICK, ticks};
use super::input::{Input, Inputs, SignalInput};
use crate::model::command::{MonitorCommand, Movement};
use crate::model::request::AppRequest;
use crate::tui::draw::{self, HitAreas, Theme};
use crate::tui::keys;
use crate::tui::screen::{self, Screen};

impl App {
    pub(super) async fn run_on_screen(
        &mut self,
        screen: &mut Screen,
        theme: Theme,
        mut inputs: Inputs,
    ) -> Result<()> {
        let mut terminal = Some(screen::events());
        let mut ticks = ticks(TICK);
        let mut hit_areas = HitAreas::default();
        while !self.is_over() {
            let mut redraw = !self.model.paused && self.stale;
            let requests = tokio::select! {
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
            for request in requests {
                let done = match request {
                    AppRequest::Suspend => {
                        redraw = true;
                        screen.suspend()
                    }
                    AppRequest::Mouse(captured) => screen.set_mouse(captured),
                    request => {
                        self.perform(request);
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
                    // The terminal is gone. The loop continues without it and stops the nodes.
                    Err(_) => terminal = None,
                }
            }
            if terminal.is_none() && !self.model.quitting {
                self.quit().into_iter().for_each(|request| self.perform(request));
            }
        }
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, theme: Theme) -> io::Result<HitAreas> {
        let mut hit_areas = HitAreas::default();
        let now = self.clock.now_ms();
        screen.draw(|frame| hit_areas = draw::draw(frame, &self.model, theme, now))?;
        // The user may have scrolled beyond the end of the help.
        self.model.help = hit_areas.help;
        self.stale = false;
        Ok(hit_areas)
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
}

/// The next event. None if the terminal is gone. Waits forever if the caller already knows that.
async fn next_event(terminal: &mut Option<UnboundedReceiver<Event>>) -> Option<Event> {
    match terminal {
        Some(terminal) => terminal.recv().await,
        None => std::future::pending().await,
    }
}
