//! The last line: what was just done or could not be, or else the keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::ink::Ink;
use crate::monitor::state::State;

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink) {
    let line = if state.quitting {
        let left = state.running().count();
        Line::styled(format!("stopping {left} copies; q again kills them"), ink.notable())
    } else if let Some((_, notice)) = &state.notice {
        Line::styled(notice.clone(), ink.notable())
    } else if state.setting.attach {
        keys(&[("q", "quit"), ("e", "errors"), ("p", "pause"), ("?", "help")], ink)
    } else {
        let all = [
            ("q", "quit"),
            ("k", "kill generator"),
            ("K", "kill"),
            ("f", "freeze"),
            ("+ -", "copies"),
            ("r", "restart"),
            ("e", "errors"),
            ("p", "pause"),
            ("?", "help"),
        ];
        keys(&all, ink)
    };
    frame.render_widget(Paragraph::new(line), area);
}

/// Keys and what they do.
pub fn keys(keys: &[(&'static str, &'static str)], ink: Ink) -> Line<'static> {
    let mut spans = Vec::new();
    for (key, does) in keys {
        spans.push(Span::styled(*key, ink.strong()));
        spans.push(Span::styled(format!(" {does}  "), ink.faint()));
    }
    Line::from(spans)
}
