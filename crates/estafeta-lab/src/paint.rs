//! Colours for terminals that can show them.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

/// Something is well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something is wrong.
pub const BAD: Style = AnsiColor::Red.on_default();
/// Something is worth a look.
pub const NOTABLE: Style = AnsiColor::Yellow.on_default();
/// The generator.
pub const OFFICE: Style = AnsiColor::Cyan.on_default().bold();
/// Less important text.
pub const FAINT: Style = Style::new().dimmed();

/// Whether to write to `stream` in colour: it is a terminal that can show colours, and `NO_COLOR` is not set.
pub fn colour_for(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !refused && !dumb
}

/// Styles text, or leaves it plain.
#[derive(Clone, Copy)]
pub struct Paint(pub bool);

impl Paint {
    /// Returns the text in this style, if colours are wanted.
    pub fn paint(self, style: Style, text: &str) -> String {
        if self.0 { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}
