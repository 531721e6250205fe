//! Makes foreign text safe to draw.

use estafeta_lab::escape::escape;

/// The first `max` bytes of foreign text. Escapes what could control the terminal, and replaces characters whose width
/// terminals disagree about. A character that is wider than expected would shift the text beside it, or its remains
/// would stay on the screen.
pub fn printable(bytes: &[u8], max: usize) -> String {
    let cut = &bytes[..bytes.len().min(max)];
    let mut text: String = escape(cut).chars().map(|c| if is_disputed(c) { '?' } else { c }).collect();
    if cut.len() < bytes.len() {
        text.push_str(" ...");
    }
    text
}

/// Whether terminals disagree about the width: halves of flags, variation selectors, skin tones, keycaps.
fn is_disputed(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{20e3}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn characters_of_disputed_width_are_replaced_and_long_text_is_cut() {
        assert_eq!(printable("a🇷🇺b\u{1b}漢".as_bytes(), 100), "a??b\\u{1b}漢");
        assert_eq!(printable(b"abcdef", 3), "abc ...");
    }
}
