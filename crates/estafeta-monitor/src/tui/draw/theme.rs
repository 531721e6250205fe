//! The styles of the screen, named by their meaning.

use estafeta::EventKind;
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols;

use super::text::SafeLine;
use crate::model::log::Occurrence;
use crate::model::rows::Condition;

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Whether to use colours.
    pub colour: bool,
    /// Whether to draw only ASCII characters.
    pub ascii: bool,
}

impl Theme {
    fn coloured(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn notable(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub fn office(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub fn cold(self) -> Style {
        self.coloured(Color::Blue)
    }

    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The style of an entry of the log.
    pub fn occurrence(self, what: &Occurrence) -> Style {
        match what {
            Occurrence::Event(EventKind::TookOffice { .. } | EventKind::TookOver { .. }) => self.office(),
            Occurrence::Event(
                EventKind::Buried { .. }
                | EventKind::RolledBack { .. }
                | EventKind::SourceFailed { .. }
                | EventKind::HandlerBroken { .. }
                | EventKind::Wiped { .. },
            )
            | Occurrence::Errors { .. }
            | Occurrence::RedisLost { .. }
            | Occurrence::BalanceOff
            | Occurrence::NodeLostRedis { .. }
            | Occurrence::NodeEnded { .. }
            | Occurrence::NodeNotStarted { .. } => self.coloured(Color::Red),
            Occurrence::Event(EventKind::Joined { .. }) | Occurrence::RedisBack | Occurrence::BalanceBack => {
                self.good()
            }
            Occurrence::Event(
                EventKind::Left { .. } | EventKind::Resigned { .. } | EventKind::Paused { .. },
            )
            | Occurrence::NodeDeclaredDead(_)
            | Occurrence::LimitReached { .. } => self.notable(),
            Occurrence::Action(_) => self.strong(),
            Occurrence::Event(_) => Style::new(),
        }
    }

    pub fn condition(self, condition: Condition) -> Style {
        match condition {
            Condition::Alive => self.good(),
            Condition::Frozen => self.cold(),
            Condition::Dying => self.notable(),
            Condition::Dead => self.bad(),
            Condition::Starting | Condition::Left => self.faint(),
        }
    }

    /// The mark of the generator.
    pub fn mark(self) -> &'static str {
        if self.ascii { "*" } else { "◆" }
    }

    pub fn bars(self) -> symbols::bar::Set<'static> {
        if !self.ascii {
            return symbols::bar::NINE_LEVELS;
        }
        symbols::bar::Set {
            full: "#",
            seven_eighths: "#",
            three_quarters: "*",
            five_eighths: "+",
            half: "=",
            three_eighths: "-",
            one_quarter: ":",
            one_eighth: ".",
            empty: " ",
        }
    }

    /// A horizontal rule with a title in it.
    pub fn title(self, title: impl Into<SafeLine>, width: u16) -> SafeLine {
        let title = title.into().bold();
        let rule = if self.ascii { "-" } else { "─" };
        let rest = usize::from(width).saturating_sub(title.width() + 4);
        SafeLine::default()
            .add(format!("{rule} "), self.faint())
            .append(title)
            .add(format!(" {}", rule.repeat(rest + 1)), self.faint())
    }
}
