//! The commands of the user, as keys, the mouse and signals issue them.

/// A command from a key, the mouse or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorCommand {
    Quit,
    KillGenerator,
    KillSelected,
    Freeze,
    Add,
    Stop,
    Restart,
    Errors,
    Pause,
    Help,
    /// Returns to the previous view. In the table, lets the selection follow the generator again.
    Back,
    Move(Movement),
    /// Selects the row with this index, by mouse.
    Choose(usize),
    Suspend,
    Search,
    /// Appends a character to the search text.
    Type(char),
    /// Deletes its last character.
    Erase,
    Enter,
    Retry {
        all: bool,
    },
    Drop {
        all: bool,
    },
    /// Answers a question: true is yes.
    Confirm(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

impl Movement {
    /// The index that this movement leads to, from the index `at` in a list of `count`.
    pub fn from(self, at: usize, count: usize) -> usize {
        const PAGE: usize = 10;
        let last = count.saturating_sub(1);
        match self {
            Self::Up => at.saturating_sub(1),
            Self::Down => at.saturating_add(1),
            Self::PageUp => at.saturating_sub(PAGE),
            Self::PageDown => at.saturating_add(PAGE),
            Self::First => 0,
            Self::Last => last,
        }
        .min(last)
    }
}
