//! Where the rows are on the screen, for the mouse, and which part of the help is visible.

use ratatui::layout::{Position, Rect};

use crate::model::command::MonitorCommand;

/// Where the rows of the list are.
#[derive(Default)]
pub struct HitAreas {
    /// The area of the list, and the index of the first row in it.
    pub list: Option<(Rect, usize)>,
    /// How many rows the list has in all.
    pub count: usize,
    /// The first line of the help that is visible, while the help is open.
    pub help: Option<usize>,
}

impl HitAreas {
    /// The command for a click at this position, if there is a row.
    pub fn at(&self, column: u16, row: u16) -> Option<MonitorCommand> {
        let (area, first) = self.list?;
        let inside = area.contains(Position::new(column, row));
        let index = first + usize::from(row.saturating_sub(area.y));
        (inside && index < self.count).then_some(MonitorCommand::Choose(index))
    }
}
