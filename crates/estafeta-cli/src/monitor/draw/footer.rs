//! The last line: what was just done or could not be, or else the keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::ink::Ink;
use crate::monitor::state::State;

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink) {
    let line = if state.quitting {
        let told = match state.running().count() {
            1 => "stopping 1 copy; q again kills it".to_owned(),
            count => format!("stopping {count} copies; q again kills them"),
        };
        Line::styled(told, ink.notable())
    } else if let Some((_, notice)) = &state.notice {
        Line::styled(notice.clone(), ink.notable())
    } else {
        let watching = [("q", "quit"), ("?", "help"), ("e", "errors"), ("p", "pause")];
        let all = [
            ("q", "quit"),
            ("?", "help"),
            ("k", "kill generator"),
            ("f", "freeze"),
            ("e", "errors"),
            ("+ -", "copies"),
            ("K", "kill"),
            ("r", "restart"),
            ("p", "pause"),
        ];
        keys(if state.setting.attach { &watching } else { &all }, area.width, ink)
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// Keys and what they do, as many as fit.
pub fn keys(keys: &[(&'static str, &'static str)], width: u16, ink: Ink) -> Line<'static> {
    let mut line = Line::default();
    for (key, does) in keys {
        let before = if line.spans.is_empty() { "" } else { "  " };
        let (key, does) = (format!("{before}{key}"), format!(" {does}"));
        if line.width() + key.len() + does.len() > width.into() {
            break;
        }
        line.push_span(Span::styled(key, ink.strong()));
        line.push_span(Span::styled(does, ink.faint()));
    }
    line
}
