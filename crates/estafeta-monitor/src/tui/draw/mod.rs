//! Draws the model in a window of any size.
//!
//! Colour never carries a meaning alone. A word, a mark or reversed text always shows the same.

mod charts;
mod errors;
mod footer;
mod header;
mod help;
mod hit_areas;
mod log;
mod number;
pub mod sentence;
mod table;
mod text;
mod theme;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use crate::model::{Model, View};

pub use hit_areas::HitAreas;
pub use theme::Theme;

/// Draws the current view and returns where its rows are.
pub fn draw(frame: &mut Frame<'_>, model: &Model, theme: Theme, now_ms: u64) -> HitAreas {
    let area = frame.area();
    if let Some(first) = model.help {
        let help = help::draw(frame, area, model, first, theme);
        return HitAreas { help: Some(help), ..HitAreas::default() };
    }
    match &model.view {
        View::Errors(view) => errors::draw(frame, area, model, view, theme),
        View::Ring if area.width < 40 || area.height < 10 => {
            header::draw_tiny(frame, area, model, theme, now_ms);
            HitAreas::default()
        }
        View::Ring => ring(frame, area, model, theme, now_ms),
    }
}

fn ring(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, now_ms: u64) -> HitAreas {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)]).areas(area);
    header::draw(frame, head, model, theme, now_ms);
    footer::draw(frame, foot, model, theme);
    let wanted = u16::try_from(model.rows.len().max(1) + 1).unwrap_or(u16::MAX);
    let is_large = area.width >= 110 && area.height >= 28;
    if is_large {
        let members = wanted.min(body.height * 6 / 10);
        let [members, _, rest] =
            Layout::vertical([Constraint::Length(members), Constraint::Length(1), Constraint::Min(0)])
                .areas(body);
        let [left, _, right] =
            Layout::horizontal([Constraint::Ratio(9, 20), Constraint::Length(2), Constraint::Min(0)])
                .areas(rest);
        let errors = errors_wanted(model, rest.height / 3);
        let [events, errors] =
            Layout::vertical([Constraint::Min(0), Constraint::Length(errors)]).areas(right);
        charts::draw(frame, left, model, theme);
        log::draw_events(frame, events, model, theme);
        log::draw_errors(frame, errors, model, theme);
        return table::draw(frame, members, model, theme, now_ms);
    }
    // The events get at least a few rows, and all rows that the other parts leave over.
    let charts = if body.height >= 12 { 4 } else { 0 };
    let errors = errors_wanted(model, if body.height >= 16 { 4 } else { 0 });
    let events = 3.min(body.height / 3);
    let members = wanted.min(body.height.saturating_sub(charts + errors + events));
    let [members, charts, events, errors] = Layout::vertical([
        Constraint::Length(members),
        Constraint::Length(charts),
        Constraint::Min(0),
        Constraint::Length(errors),
    ])
    .areas(body);
    charts::draw(frame, charts, model, theme);
    log::draw_events(frame, events, model, theme);
    log::draw_errors(frame, errors, model, theme);
    table::draw(frame, members, model, theme, now_ms)
}

/// How many rows the last errors need, including their title. At most `max`.
fn errors_wanted(model: &Model, max: u16) -> u16 {
    u16::try_from(model.last_errors.len().max(1) + 1).unwrap_or(u16::MAX).min(max)
}

/// The first of `count` rows to show in `height`. Keeps the row `at` in the middle if possible.
fn first_visible(at: usize, count: usize, height: usize) -> usize {
    at.saturating_sub(height / 2).min(count.saturating_sub(height))
}
