//! Draws the event log and the last errors.

use estafeta::DeadLetter;
use estafeta_lab::message_id::MessageId;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::number::clock;
use super::sentence;
use super::text::{SafeLine, paragraph};
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
        let time = format!("{} ", clock(entry.at_ms));
        SafeLine::default()
            .add(time, theme.faint())
            .add(sentence::occurrence(&entry.what), theme.occurrence(&entry.what))
    }));
    frame.render_widget(paragraph(lines), area);
}

pub fn draw_errors(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let kept = model.snapshot.as_ref().map_or(0, |snapshot| snapshot.errors_kept);
    let mut lines = vec![theme.title(format!("last errors, {} kept", grouped(kept)), area.width)];
    let room = usize::from(area.height.saturating_sub(1));
    let from = model.last_errors.len().saturating_sub(room);
    lines.extend(model.last_errors[from..].iter().map(|error| add_error(SafeLine::default(), error, theme)));
    frame.render_widget(paragraph(lines), area);
}

/// Adds one error to a line.
pub fn add_error(line: SafeLine, error: &DeadLetter, theme: Theme) -> SafeLine {
    line.add(format!("{} ", clock(error.failed_ms)), theme.faint())
        .add(format!("#{}", MessageId::from(&error.message)), theme.bad())
        .raw(format!(" at {}: ", error.member))
        .add_cut(&error.reason, MAX_REASON, Style::new())
        .add(" \"", theme.faint())
        .add_cut(error.message.body(), MAX_BODY, theme.faint())
        .add("\"", theme.faint())
}
