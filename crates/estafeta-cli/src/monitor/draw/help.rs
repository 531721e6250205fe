//! Every key, what the words in the table mean, and where the copies' logs go.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::ink::Ink;
use crate::escape::escape;
use crate::monitor::rows::Condition;
use crate::monitor::state::State;

const KEYS: [(&str, &str); 12] = [
    ("q ^C", "quit: stop the copies and the private Redis that were started here"),
    ("k", "kill -9 of the generator"),
    ("K", "kill -9 of the selected copy"),
    ("f", "freeze the selected copy (SIGSTOP), or thaw it"),
    ("+", "start one more copy"),
    ("-", "stop the selected copy gently, or else the youngest handler"),
    ("r", "start a dead copy again"),
    ("e", "errors: scroll, search, retry, drop"),
    ("p", "pause the picture (the mouse selects text meanwhile), go on"),
    ("arrows j", "select a row; so do the mouse, PgUp, PgDn, Home, End"),
    ("Esc", "the selection follows the generator again"),
    ("^Z", "to the background; the copies go on"),
];

const STATES: [(Condition, &str); 6] = [
    (Condition::Starting, "ours, not in the ring yet"),
    (Condition::Alive, "its lease runs"),
    (Condition::Frozen, "stopped, or silent for half its lease"),
    (Condition::Dying, "told to stop, or its connection is gone"),
    (Condition::Dead, "killed or buried; what it held went back to the queue"),
    (Condition::Left, "gone in good order"),
];

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink) {
    let mut lines = vec![ink.title("keys", area.width)];
    let explain = |word: &'static str, style, meaning: &'static str| {
        Line::from(vec![Span::styled(format!("{word:>8}"), style), Span::raw(format!("  {meaning}"))])
    };
    lines.extend(KEYS.map(|(key, does)| explain(key, ink.strong(), does)));
    lines.push(ink.title("states", area.width));
    lines.extend(STATES.map(|(state, meaning)| explain(state.name(), ink.condition(state), meaning)));
    lines.push(Line::raw(format!("       {}  the generator; rank 0 is first in line", ink.mark())));
    if let Some(log) = &state.setting.log_file {
        let log = escape(log.display().to_string().as_bytes());
        lines.push(Line::raw(format!("the copies' logs: {log}")));
    }
    lines.push(Line::styled("any key goes back", ink.faint()));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}
