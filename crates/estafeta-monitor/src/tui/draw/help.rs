//! Draws the help: the keys that work, the meaning of every state, and the path of the nodes' log.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use crate::model::Model;
use crate::model::rows::Condition;
use estafeta_lab::text::wrapped;

/// The width of the keys and states, and of the space behind them.
const INDENT: usize = 10;

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

/// Draws the help from the line `first` on, and returns the first line that is visible. If all lines fit, or if `first`
/// is beyond the end, that is another one.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, first: usize, theme: Theme) -> usize {
    let lines = lines(model, area.width, theme);
    // The last row has the keys of the help.
    let room = usize::from(area.height.saturating_sub(1));
    let first = first.min(lines.len().saturating_sub(room));
    let (count, end) = (lines.len(), (first + room).min(lines.len()));
    let foot = match count > room {
        false => "any key closes the help".to_owned(),
        true => format!("{} to {end} of {count}: arrows scroll, any other key closes", first + 1),
    };
    let shown = lines.into_iter().skip(first).take(room).chain([SafeLine::styled(foot, theme.faint())]);
    frame.render_widget(paragraph(shown), area);
    first
}

/// All lines of the help. None is wider than the window, unless a single word is.
fn lines(model: &Model, width: u16, theme: Theme) -> Vec<SafeLine> {
    let explain = |word: &'static str, style: Style, meaning: &str| {
        let parts = wrapped(meaning, usize::from(width).saturating_sub(INDENT)).into_iter().enumerate();
        let words = move |row| if row == 0 { word } else { "" };
        parts.map(move |(row, part)| SafeLine::default().add(format!("{:>8}  ", words(row)), style).raw(part))
    };
    let mut lines = vec![theme.title("keys", width)];
    let keys = if model.info.attach { WATCHING_KEYS } else { KEYS };
    lines.extend(keys.iter().flat_map(|(key, action)| explain(key, theme.strong(), action)));
    lines.push(theme.title("states", width));
    lines.extend(
        STATES.iter().flat_map(|(state, meaning)| explain(state.name(), theme.condition(*state), meaning)),
    );
    lines.extend(explain(
        theme.mark(),
        Style::new(),
        "the generator; the handler with rank 0 takes over first",
    ));
    if let Some(log) = &model.info.log_file {
        let (title, path) = ("log of the nodes: ", log.display().to_string());
        let mut rest: Vec<char> = path.chars().collect();
        if title.len() + rest.len() <= usize::from(width) {
            rest.splice(0..0, title.chars());
        } else {
            lines.push(title.into());
        }
        let rows = rest.chunks(usize::from(width).max(1));
        lines.extend(rows.map(|row| row.iter().collect::<String>().into()));
    }
    lines
}
