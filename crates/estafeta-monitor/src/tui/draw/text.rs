//! Makes text safe to draw. Every piece of text on the screen passes through [`SafeLine`], which escapes it. No other
//! module makes lines or spans of ratatui.

use estafeta_lab::escape::escape;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

/// A line that is safe to draw. It escapes all text that is added to it, so the text must not be escaped before.
#[derive(Clone, Default)]
pub struct SafeLine(Line<'static>);

impl SafeLine {
    /// A line in one style.
    pub fn styled(text: impl AsRef<[u8]>, style: Style) -> Self {
        Self::from(text).style(style)
    }

    /// Sets the style of the whole line.
    pub fn style(self, style: Style) -> Self {
        Self(self.0.style(style))
    }

    pub fn bold(mut self) -> Self {
        for span in &mut self.0.spans {
            span.style = span.style.add_modifier(Modifier::BOLD);
        }
        self
    }

    pub fn right_aligned(self) -> Self {
        Self(self.0.right_aligned())
    }

    /// Adds text in the style of the line.
    pub fn raw(self, text: impl AsRef<[u8]>) -> Self {
        self.add(text, Style::new())
    }

    pub fn add(mut self, text: impl AsRef<[u8]>, style: Style) -> Self {
        self.0.push_span(Span::styled(drawable(text.as_ref()), style));
        self
    }

    /// Adds at most the first `max` bytes of a text. Dots replace the rest.
    pub fn add_cut(self, text: impl AsRef<[u8]>, max: usize, style: Style) -> Self {
        match text.as_ref().get(..max) {
            Some(start) if start.len() < text.as_ref().len() => self.add(start, style).add(" ...", style),
            _ => self.add(text, style),
        }
    }

    /// Adds all pieces of another line, in their styles.
    pub fn append(mut self, other: Self) -> Self {
        self.0.spans.extend(other.0.spans);
        self
    }

    /// Keeps only the first characters, as they are drawn.
    pub fn truncated(mut self, mut characters: usize) -> Self {
        for span in &mut self.0.spans {
            let kept: String = span.content.chars().take(characters).collect();
            characters -= kept.chars().count();
            span.content = kept.into();
        }
        self
    }

    /// How many columns the line needs.
    pub fn width(&self) -> usize {
        self.0.width()
    }
}

impl<T: AsRef<[u8]>> From<T> for SafeLine {
    fn from(text: T) -> Self {
        Self::default().raw(text)
    }
}

impl From<SafeLine> for Text<'static> {
    fn from(line: SafeLine) -> Self {
        line.0.into()
    }
}

/// The lines as one widget.
pub fn paragraph(lines: impl IntoIterator<Item = SafeLine>) -> Paragraph<'static> {
    Paragraph::new(lines.into_iter().map(|line| line.0).collect::<Vec<_>>())
}

/// Escapes what could control the terminal, and replaces characters whose width terminals disagree about. A character
/// that is wider than expected would shift the text beside it, or its remains would stay on the screen.
fn drawable(text: &[u8]) -> String {
    escape(text).chars().map(|c| if is_disputed(c) { '?' } else { c }).collect()
}

/// Whether terminals disagree about the width: halves of flags, variation selectors, skin tones, keycaps.
fn is_disputed(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{20e3}')
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::SafeLine;

    #[test]
    fn control_characters_are_escaped_and_characters_of_disputed_width_are_replaced() {
        assert_eq!(SafeLine::from("a🇷🇺b\u{1b}漢").0.to_string(), "a??b\\u{1b}漢");
        assert_eq!(SafeLine::from(b"\xff\n").0.to_string(), "\\xff\\n");
    }

    #[test]
    fn long_text_is_cut() {
        let cut = |max| SafeLine::default().add_cut("abcdef", max, Style::new()).0.to_string();
        assert_eq!([3, 6, 7].map(cut), ["abc ...", "abcdef", "abcdef"]);
        assert_eq!(SafeLine::from("ab").raw("\u{1b}c").truncated(4).0.to_string(), "ab\\u");
    }
}
