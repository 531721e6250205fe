//! Draws the help: the keys that work, the meaning of every state, and the path of the nodes' log.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Wrap;

use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use crate::model::Model;
use crate::model::rows::Condition;

/// The keys in a monitor that can start nodes.
const KEYS: &[(&str, &str)] = &[
    ("q ^C", "quit: stop the nodes and the private Redis that were started here"),
    ("k", "kill the generator (SIGKILL)"),
    ("K", "kill the selected node (SIGKILL)"),
    ("f", "freeze the selected node (SIGSTOP), or thaw it"),
    ("+", "start one more node"),
    ("-", "stop the selected node gently, or else the youngest handler"),
    ("r", "start a new node in place of a dead one"),
    ("e", "errors: scroll, search, retry and drop"),
    PAUSE,
    SELECT,
    FOLLOW,
    SUSPEND,
];

/// The keys in a monitor that only watches.
const WATCHING_KEYS: &[(&str, &str)] =
    &[("q ^C", "quit"), ("e", "errors: scroll and search"), PAUSE, SELECT, FOLLOW, SUSPEND];

const PAUSE: (&str, &str) = ("p", "pause or continue; during a pause the mouse selects text");
const SELECT: (&str, &str) = ("arrows", "select a row; so do the mouse, PgUp, PgDn, Home, End");
const FOLLOW: (&str, &str) = ("Esc", "let the selection follow the generator again");
const SUSPEND: (&str, &str) = ("^Z", "suspend the monitor; the nodes continue");

const STATES: [(Condition, &str); 6] = [
    (Condition::Starting, "started here, not in the ring yet"),
    (Condition::Alive, "renews its lease"),
    (Condition::Frozen, "stopped by SIGSTOP, or silent for half its lease"),
    (Condition::Dying, "asked to stop, or its connection is gone"),
    (Condition::Dead, "killed, failed or buried; its messages went back to the queue"),
    (Condition::Left, "left the ring in good order"),
];

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let mut lines = vec![theme.title("keys", area.width)];
    let explain = |word: &'static str, style, meaning: &'static str| {
        SafeLine::default().add(format!("{word:>8}"), style).raw(format!("  {meaning}"))
    };
    let keys = if model.info.attach { WATCHING_KEYS } else { KEYS };
    lines.extend(keys.iter().map(|(key, action)| explain(key, theme.strong(), action)));
    lines.push(theme.title("states", area.width));
    lines.extend(STATES.map(|(state, meaning)| explain(state.name(), theme.condition(state), meaning)));
    lines.push(
        format!("       {}  the generator; the handler with rank 0 takes over first", theme.mark()).into(),
    );
    if let Some(log) = &model.info.log_file {
        lines.push(SafeLine::from("log of the nodes: ").raw(log.as_os_str().as_encoded_bytes()));
    }
    lines.push(SafeLine::styled("any key closes the help", theme.faint()));
    frame.render_widget(paragraph(lines).wrap(Wrap { trim: false }), area);
}
