//! Draws the table: one row per member of the ring and per own node.

use estafeta::Role;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Cell, Row as TableRow, Table};

use super::number::{rate, short, tiny};
use super::text::{SafeLine, paragraph};
use super::theme::Theme;
use super::{HitAreas, first_visible};
use crate::model::Model;
use crate::model::rows::{Key, MemberRow};
use estafeta_lab::text::grouped;

/// A column of the table.
struct MemberColumn {
    title: &'static str,
    width: u16,
    /// Whether the text is aligned to the right.
    right: bool,
    text: fn(&MemberRow) -> SafeLine,
}

const fn left(title: &'static str, width: u16, text: fn(&MemberRow) -> SafeLine) -> MemberColumn {
    MemberColumn { title, width, right: false, text }
}

const fn right(title: &'static str, width: u16, text: fn(&MemberRow) -> SafeLine) -> MemberColumn {
    MemberColumn { title, width, right: true, text }
}

const STATE: &str = "state";
const ROLE: &str = "role";

const WIDE: &[MemberColumn] = &[
    right("id", 6, id),
    left("whose", 7, whose),
    left(ROLE, 9, role),
    right("rank", 4, rank),
    right("pid", 8, |row| row.pid.to_string().into()),
    left("host", 14, |row| (&row.host).into()),
    right("generated", 11, |row| grouped(row.generated).into()),
    right("processed", 11, |row| grouped(row.processed).into()),
    right("errors", 8, |row| grouped(row.failed).into()),
    right("rate/s", 6, |row| rate(row.rate).into()),
    right("in flight", 9, |row| grouped(row.in_flight).into()),
    left(STATE, 8, |row| row.condition.name().into()),
];

const MIDDLE: &[MemberColumn] = &[
    right("id", 5, id),
    left(ROLE, 9, role),
    right("rank", 4, rank),
    left("process", 14, process),
    right("made", 6, |row| short(row.generated).into()),
    right("handled", 7, |row| short(row.processed).into()),
    right("errors", 6, |row| short(row.failed).into()),
    right("rate/s", 6, |row| rate(row.rate).into()),
    right("held", 4, |row| tiny(row.in_flight).into()),
    left(STATE, 7, |row| row.condition.name().into()),
];

const NARROW: &[MemberColumn] = &[
    right("id", 5, id),
    left(ROLE, 9, role),
    right("handled", 7, |row| short(row.processed).into()),
    left(STATE, 7, |row| row.condition.name().into()),
];

/// The width of the marks before the first column.
const MARKS: u16 = 2;

pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, now_ms: u64) -> HitAreas {
    let width = |columns: &[MemberColumn]| MARKS + columns.iter().map(|column| column.width + 1).sum::<u16>();
    let columns = [WIDE, MIDDLE].into_iter().find(|columns| width(columns) <= area.width).unwrap_or(NARROW);
    // If not all rows fit, the last line shows which of them are visible.
    let is_cut = model.rows.len() + 1 > usize::from(area.height);
    let height = usize::from(area.height.saturating_sub(1 + u16::from(is_cut)));
    let selected = model.selected();
    let first = first_visible(selected.unwrap_or(0), model.rows.len(), height);
    let shown = model.rows.iter().enumerate().skip(first).take(height);

    let header = columns.iter().map(|column| aligned(column.title.into(), column.right, Style::new()));
    let header = TableRow::new(std::iter::once(Cell::default()).chain(header)).style(theme.faint());
    let rows = shown.map(|(index, row)| {
        let is_selected = selected == Some(index);
        let mark = if row.role == Some(Role::Generator) { theme.mark() } else { " " };
        let pointer = if is_selected { ">" } else { " " };
        let cells = columns.iter().map(|column| {
            let style = match column.title {
                // While Redis does not answer, all figures are old.
                _ if model.lost.is_some() => theme.faint(),
                STATE => theme.condition(row.condition),
                ROLE if row.role == Some(Role::Generator) => theme.office(),
                _ if row.condition.is_gone() => theme.faint(),
                _ => Style::new(),
            };
            let text = match row.back_at_ms {
                Some(at) if column.title == STATE => {
                    format!("dead {}s", at.saturating_sub(now_ms).div_ceil(1000)).into()
                }
                _ => (column.text)(row),
            };
            aligned(text, column.right, style)
        });
        let style = if model.lost.is_some() { theme.faint() } else { theme.office() };
        let marks = Cell::new(SafeLine::styled(format!("{pointer}{mark}"), style));
        let row = TableRow::new(std::iter::once(marks).chain(cells));
        if is_selected { row.style(theme.selected()) } else { row }
    });
    let widths = std::iter::once(MARKS).chain(columns.iter().map(|column| column.width));
    let table = Table::new(rows, widths.map(Constraint::Length)).header(header).column_spacing(1);
    frame.render_widget(table, area);
    if model.rows.is_empty() && area.height > 1 {
        let place = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(paragraph([SafeLine::styled("  no members yet", theme.faint())]), place);
    }
    let list = Rect { y: area.y + 1, height: u16::try_from(height).unwrap_or(0), ..area };
    let (count, end) = (model.rows.len(), first + height);
    if is_cut && area.height > 0 {
        let place = Rect { y: area.bottom() - 1, height: 1, ..area };
        let [from, to, all] = [first + 1, end.min(count), count].map(|number| grouped(number as u64));
        let text = format!("  {from} to {to} of {all}; arrows and PgUp, PgDn scroll");
        frame.render_widget(paragraph([SafeLine::styled(text, theme.notable())]), place);
    }
    HitAreas { list: Some((list, first)), count, help: None }
}

fn aligned(text: SafeLine, right: bool, style: Style) -> Cell<'static> {
    let line = text.style(style);
    Cell::new(if right { line.right_aligned() } else { line })
}

fn id(row: &MemberRow) -> SafeLine {
    match row.key {
        Key::Member(member) => member.to_string().into(),
        Key::Node(_) => "-".into(),
    }
}

fn whose(row: &MemberRow) -> SafeLine {
    if row.mine { "mine" } else { "foreign" }.into()
}

fn role(row: &MemberRow) -> SafeLine {
    row.role.map_or_else(|| "-".to_owned(), |role| role.to_string()).into()
}

fn rank(row: &MemberRow) -> SafeLine {
    row.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string()).into()
}

/// The host and the process id in one column. The host of an own node is always this one, so `mine` replaces it.
fn process(row: &MemberRow) -> SafeLine {
    let pid = row.pid.to_string();
    if row.mine {
        return format!("mine {pid}").into();
    }
    let room = 13_usize.saturating_sub(pid.len());
    SafeLine::from(&row.host).truncated(room).raw(format!(" {pid}"))
}
