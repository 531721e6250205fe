//! Draws the last line: the progress of quitting, a notice, or else the keys.

use ratatui::Frame;
use ratatui::layout::Rect;

use super::sentence;
use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use crate::model::Model;

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let line = if model.quitting {
        let text = match model.running().count() {
            1 => "stopping 1 node; q again kills it".to_owned(),
            count => format!("stopping {count} nodes; q again kills them"),
        };
        SafeLine::styled(text, theme.notable())
    } else if let Some((_, notice)) = &model.notice {
        SafeLine::styled(sentence::notice(notice), theme.notable())
    } else {
        let watching = [("q", "quit"), ("?", "help"), ("e", "errors"), ("p", "pause")];
        let all = [
            ("q", "quit"),
            ("?", "help"),
            ("k", "kill generator"),
            ("f", "freeze"),
            ("e", "errors"),
            ("+ -", "nodes"),
            ("K", "kill"),
            ("r", "restart"),
            ("p", "pause"),
        ];
        keys(if model.info.attach { &watching } else { &all }, area.width, theme)
    };
    frame.render_widget(paragraph([line]), area);
}

/// The keys and their actions, as many as fit into the width.
pub fn keys(keys: &[(&'static str, &'static str)], width: u16, theme: Theme) -> SafeLine {
    let mut line = SafeLine::default();
    for (key, action) in keys {
        let before = if line.width() == 0 { "" } else { "  " };
        let (key, action) = (format!("{before}{key}"), format!(" {action}"));
        if line.width() + key.len() + action.len() > width.into() {
            break;
        }
        line = line.add(key, theme.strong()).add(action, theme.faint());
    }
    line
}
