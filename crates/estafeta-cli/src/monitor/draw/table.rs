//! Every member of the ring, one row each.

use estafeta::Role;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row as TableRow, Table};

use super::ink::Ink;
use super::number::{rate, short, tiny};
use super::{Spots, first_visible};
use crate::monitor::rows::{Key, Row};
use crate::monitor::state::State;
use crate::output::grouped;

/// A column: its title, its width, whether it is flush right, and what stands in it.
struct Column {
    title: &'static str,
    width: u16,
    right: bool,
    text: fn(&Row) -> String,
}

const fn left(title: &'static str, width: u16, text: fn(&Row) -> String) -> Column {
    Column { title, width, right: false, text }
}

const fn right(title: &'static str, width: u16, text: fn(&Row) -> String) -> Column {
    Column { title, width, right: true, text }
}

const STATE: &str = "state";
const ROLE: &str = "role";

const WIDE: &[Column] = &[
    right("id", 6, id),
    left("whose", 7, whose),
    left(ROLE, 9, role),
    right("rank", 4, rank),
    right("pid", 8, |row| row.pid.to_string()),
    left("host", 14, |row| row.host.clone()),
    right("generated", 11, |row| grouped(row.generated)),
    right("processed", 11, |row| grouped(row.processed)),
    right("errors", 8, |row| grouped(row.failed)),
    right("rate/s", 6, |row| rate(row.rate)),
    right("in flight", 9, |row| grouped(row.in_flight)),
    left(STATE, 8, |row| row.condition.name().to_owned()),
];

const MIDDLE: &[Column] = &[
    right("id", 5, id),
    left(ROLE, 9, role),
    right("rank", 4, rank),
    left("process", 14, process),
    right("made", 6, |row| short(row.generated)),
    right("handled", 7, |row| short(row.processed)),
    right("errors", 6, |row| short(row.failed)),
    right("rate/s", 6, |row| rate(row.rate)),
    right("held", 4, |row| tiny(row.in_flight)),
    left(STATE, 7, |row| row.condition.name().to_owned()),
];

const NARROW: &[Column] = &[
    right("id", 5, id),
    left(ROLE, 9, role),
    right("handled", 7, |row| short(row.processed)),
    left(STATE, 7, |row| row.condition.name().to_owned()),
];

/// The marks before the first column.
const MARKS: u16 = 2;

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, ink: Ink, now_ms: u64) -> Spots {
    let width = |columns: &[Column]| MARKS + columns.iter().map(|column| column.width + 1).sum::<u16>();
    let columns = [WIDE, MIDDLE].into_iter().find(|columns| width(columns) <= area.width).unwrap_or(NARROW);
    // Where not all fit, the last line says so.
    let is_cut = state.rows.len() + 1 > usize::from(area.height);
    let height = usize::from(area.height.saturating_sub(1 + u16::from(is_cut)));
    let selected = state.selected();
    let first = first_visible(selected.unwrap_or(0), state.rows.len(), height);
    let shown = state.rows.iter().enumerate().skip(first).take(height);

    let header = columns.iter().map(|column| aligned(column.title.to_owned(), column.right, Style::new()));
    let header = TableRow::new(std::iter::once(Cell::default()).chain(header)).style(ink.faint());
    let rows = shown.map(|(index, row)| {
        let is_selected = selected == Some(index);
        let mark = if row.role == Some(Role::Generator) { ink.mark() } else { " " };
        let pointer = if is_selected { ">" } else { " " };
        let cells = columns.iter().map(|column| {
            let style = match column.title {
                // What is shown is what was seen last.
                _ if state.lost.is_some() => ink.faint(),
                STATE => ink.condition(row.condition),
                ROLE if row.role == Some(Role::Generator) => ink.office(),
                _ if row.condition.is_gone() => ink.faint(),
                _ => Style::new(),
            };
            let text = match row.back_at_ms {
                Some(at) if column.title == STATE => {
                    format!("dead {}s", at.saturating_sub(now_ms).div_ceil(1000))
                }
                _ => (column.text)(row),
            };
            aligned(text, column.right, style)
        });
        let marks = Cell::new(Line::styled(format!("{pointer}{mark}"), ink.office()));
        let row = TableRow::new(std::iter::once(marks).chain(cells));
        if is_selected { row.style(ink.selected()) } else { row }
    });
    let widths = std::iter::once(MARKS).chain(columns.iter().map(|column| column.width));
    let table = Table::new(rows, widths.map(Constraint::Length)).header(header).column_spacing(1);
    frame.render_widget(table, area);
    if state.rows.is_empty() && area.height > 1 {
        let place = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Line::styled("  nobody is here yet", ink.faint()), place);
    }
    let list = Rect { y: area.y + 1, height: u16::try_from(height).unwrap_or(0), ..area };
    let (count, end) = (state.rows.len(), first + height);
    if is_cut && area.height > 0 {
        let place = Rect { y: area.bottom() - 1, height: 1, ..area };
        let text = format!("  {} to {} of {count}; arrows and PgUp, PgDn scroll", first + 1, end.min(count));
        frame.render_widget(Line::styled(text, ink.notable()), place);
    }
    Spots { list: Some((list, first)), count }
}

fn aligned(text: String, right: bool, style: Style) -> Cell<'static> {
    let line = Line::styled(text, style);
    Cell::new(Text::from(if right { line.right_aligned() } else { line }))
}

fn id(row: &Row) -> String {
    match row.key {
        Key::Member(member) => member.to_string(),
        Key::Slot(_) => "-".to_owned(),
    }
}

fn whose(row: &Row) -> String {
    if row.mine { "mine" } else { "foreign" }.to_owned()
}

fn role(row: &Row) -> String {
    match row.role {
        Some(Role::Generator) => "generator",
        Some(Role::Handler) => "handler",
        Some(Role::Reader) => "reader",
        None => "-",
    }
    .to_owned()
}

fn rank(row: &Row) -> String {
    row.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string())
}

/// Whose process it is, where there is no room for a column each: our own are on this host.
fn process(row: &Row) -> String {
    let pid = row.pid.to_string();
    if row.mine {
        return format!("mine {pid}");
    }
    let room = 13_usize.saturating_sub(pid.len());
    let host: String = row.host.chars().take(room).collect();
    format!("{host} {pid}")
}
