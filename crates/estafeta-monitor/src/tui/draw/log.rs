//! Draws the event log and the last errors.

use estafeta::DeadLetter;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::number::clock;
use super::text::printable;
use super::theme::Theme;
use crate::model::Model;
use estafeta_lab::text::grouped;

/// The most bytes of a body and of a reason in one line.
const MAX_BODY: usize = 300;
const MAX_REASON: usize = 100;

pub fn draw_events(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let mut lines = vec![theme.title("events", area.width)];
    let room = usize::from(area.height.saturating_sub(1));
    lines.extend(model.log.last(room).map(|entry| {
        Line::from(vec![
            Span::styled(format!("{} ", clock(entry.at_ms)), theme.faint()),
            Span::styled(entry.text.clone(), theme.tone(entry.tone)),
        ])
    }));
    frame.render_widget(Paragraph::new(lines), area);
}

pub fn draw_errors(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let kept = model.snapshot.as_ref().map_or(0, |snapshot| snapshot.errors_kept);
    let mut lines = vec![theme.title(&format!("last errors, {} kept", grouped(kept)), area.width)];
    let room = usize::from(area.height.saturating_sub(1));
    let from = model.last_errors.len().saturating_sub(room);
    lines.extend(model.last_errors[from..].iter().map(|error| line(error, theme)));
    frame.render_widget(Paragraph::new(lines), area);
}

/// One error, in one line.
pub fn line(error: &DeadLetter, theme: Theme) -> Line<'static> {
    Line::from(vec![
        Span::styled(format!("{} ", clock(error.failed_ms)), theme.faint()),
        Span::styled(format!("#{}", error.id), theme.bad()),
        Span::raw(format!(" at {}: {}", error.member, printable(error.reason.as_bytes(), MAX_REASON))),
        Span::styled(format!(" \"{}\"", printable(error.body(), MAX_BODY)), theme.faint()),
    ])
}
