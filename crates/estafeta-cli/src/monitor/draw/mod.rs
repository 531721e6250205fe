//! A picture of the state, for a window of any size.
//!
//! Whatever has a colour says the same without it: words, marks, reversed text.

mod charts;
mod errors;
mod footer;
mod header;
mod help;
mod ink;
mod log;
mod number;
mod table;
mod text;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};

use super::act::Command;
use super::state::{State, View};

pub use ink::Ink;

/// What lies where on the screen, for the mouse.
#[derive(Default)]
pub struct Spots {
    /// A list of rows, and the index of its first one.
    list: Option<(Rect, usize)>,
    /// How many rows it has in all.
    count: usize,
}

impl Spots {
    pub fn at(&self, column: u16, row: u16) -> Option<Command> {
        let (area, first) = self.list?;
        let inside = area.contains(Position::new(column, row));
        let index = first + usize::from(row.saturating_sub(area.y));
        (inside && index < self.count).then_some(Command::Choose(index))
    }
}

pub fn draw(frame: &mut Frame<'_>, state: &State, ink: Ink, now_ms: u64) -> Spots {
    let area = frame.area();
    match &state.view {
        _ if state.help => {
            help::draw(frame, area, state, ink);
            Spots::default()
        }
        View::Errors(view) => errors::draw(frame, area, view, state.paused, ink),
        View::Ring if area.width < 40 || area.height < 10 => {
            header::draw_tiny(frame, area, state, ink);
            Spots::default()
        }
        View::Ring => ring(frame, area, state, ink, now_ms),
    }
}

fn ring(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink, now_ms: u64) -> Spots {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)]).areas(area);
    header::draw(frame, head, state, ink, now_ms);
    footer::draw(frame, foot, state, ink);
    let wanted = u16::try_from(state.rows.len().max(1) + 1).unwrap_or(u16::MAX);
    let is_large = area.width >= 110 && area.height >= 28;
    if is_large {
        let members = wanted.min(body.height * 6 / 10);
        let [members, _, rest] =
            Layout::vertical([Constraint::Length(members), Constraint::Length(1), Constraint::Min(0)])
                .areas(body);
        let [left, _, right] =
            Layout::horizontal([Constraint::Ratio(9, 20), Constraint::Length(2), Constraint::Min(0)])
                .areas(rest);
        let errors = errors_wanted(state, rest.height / 3);
        let [events, errors] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(errors)]).areas(right);
        charts::draw(frame, left, state, ink);
        log::draw_events(frame, events, state, ink);
        log::draw_errors(frame, errors, state, ink);
        return table::draw(frame, members, state, ink, now_ms);
    }
    // What is there for everybody first; what is left over goes to the events.
    let charts = if body.height >= 12 { 4 } else { 0 };
    let errors = errors_wanted(state, if body.height >= 16 { 4 } else { 0 });
    let events = 3.min(body.height / 3);
    let members = wanted.min(body.height.saturating_sub(charts + errors + events));
    let [members, charts, events, errors] = Layout::vertical([
        Constraint::Length(members),
        Constraint::Length(charts),
        Constraint::Min(0),
        Constraint::Length(errors),
    ])
    .areas(body);
    charts::draw(frame, charts, state, ink);
    log::draw_events(frame, events, state, ink);
    log::draw_errors(frame, errors, state, ink);
    table::draw(frame, members, state, ink, now_ms)
}

/// Rows for the last errors, their title included.
fn errors_wanted(state: &State, most: u16) -> u16 {
    u16::try_from(state.last_errors.len().max(1) + 1).unwrap_or(u16::MAX).min(most)
}

/// The first of `count` rows to show in `height`, so that the one `at` is in the middle if possible.
fn first_visible(at: usize, count: usize, height: usize) -> usize {
    at.saturating_sub(height / 2).min(count.saturating_sub(height))
}
