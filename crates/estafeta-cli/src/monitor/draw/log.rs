//! What happened, and the last errors.

use estafeta::DeadLetter;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::ink::Ink;
use super::number::clock;
use super::text::shown;
use crate::monitor::state::State;
use crate::output::grouped;

/// Bytes of a body and of a reason that are looked at for one line.
const SHOWN: usize = 300;
const REASON: usize = 100;

pub fn draw_events(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink) {
    let mut lines = vec![ink.title("events", area.width)];
    let room = usize::from(area.height.saturating_sub(1));
    lines.extend(state.log.last(room).map(|entry| {
        Line::from(vec![
            Span::styled(format!("{} ", clock(entry.at_ms)), ink.faint()),
            Span::styled(entry.text.clone(), ink.tone(entry.tone)),
        ])
    }));
    frame.render_widget(Paragraph::new(lines), area);
}

pub fn draw_errors(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink) {
    let kept = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.errors_kept);
    let mut lines = vec![ink.title(&format!("last errors, {} kept", grouped(kept)), area.width)];
    let room = usize::from(area.height.saturating_sub(1));
    let from = state.last_errors.len().saturating_sub(room);
    lines.extend(state.last_errors[from..].iter().map(|error| line(error, ink)));
    frame.render_widget(Paragraph::new(lines), area);
}

/// An error in one line.
pub fn line(error: &DeadLetter, ink: Ink) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{} ", clock(error.failed_ms)), ink.faint()),
        Span::styled(format!("#{}", error.id), ink.bad()),
        Span::raw(format!(" at {}: {}", error.member, shown(error.reason.as_bytes(), REASON))),
        Span::styled(format!(" \"{}\"", shown(error.body(), SHOWN)), ink.faint()),
    ])
}
