//! Draws the help: every key, the meaning of every state, and the path of the nodes' log.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Wrap;

use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use crate::model::Model;
use crate::model::rows::Condition;

/// The keys, and whether they also work in a monitor that only watches.
const KEYS: [(&str, &str, bool); 12] = [
    ("q ^C", "quit: stop the nodes and the private Redis that were started here", true),
    ("k", "kill -9 of the generator", false),
    ("K", "kill -9 of the selected node", false),
    ("f", "freeze the selected node (SIGSTOP), or thaw it", false),
    ("+", "start one more node", false),
    ("-", "stop the selected node gently, or else the youngest handler", false),
    ("r", "start a dead node again", false),
    ("e", "errors: scroll, search, and unless it only watches, retry and drop", true),
    ("p", "pause the picture (the mouse selects text meanwhile), go on", true),
    ("arrows", "select a row; so do the mouse, PgUp, PgDn, Home, End", true),
    ("Esc", "the selection follows the generator again", true),
    ("^Z", "to the background; the nodes go on", true),
];

const STATES: [(Condition, &str); 6] = [
    (Condition::Starting, "ours, not in the ring yet"),
    (Condition::Alive, "its lease runs"),
    (Condition::Frozen, "stopped, or silent for half its lease"),
    (Condition::Dying, "asked to stop, or its connection is gone"),
    (Condition::Dead, "killed or buried; what it held went back to the queue"),
    (Condition::Left, "gone in good order"),
];

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let mut lines = vec![theme.title("keys", area.width)];
    let explain = |word: &'static str, style, meaning: &'static str| {
        SafeLine::default().add(format!("{word:>8}"), style).raw(format!("  {meaning}"))
    };
    let works = |(_, _, watching): &&(&str, &str, bool)| *watching || !model.info.attach;
    lines.extend(KEYS.iter().filter(works).map(|(key, action, _)| explain(key, theme.strong(), action)));
    lines.push(theme.title("states", area.width));
    lines.extend(STATES.map(|(state, meaning)| explain(state.name(), theme.condition(state), meaning)));
    lines.push(format!("       {}  the generator; rank 0 is first in line", theme.mark()).into());
    if let Some(log) = &model.info.log_file {
        lines.push(SafeLine::from("log of the nodes: ").raw(log.as_os_str().as_encoded_bytes()));
    }
    lines.push(SafeLine::styled("any key goes back", theme.faint()));
    frame.render_widget(paragraph(lines).wrap(Wrap { trim: false }), area);
}
