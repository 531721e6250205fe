//! Foreign text, cut and made harmless.

use crate::escape::escape;

/// At most so many bytes of foreign text. Besides what steers a terminal, signs whose width terminals do not agree about
/// are left out: one that is drawn wider than was counted would shift, or stay behind in, what others wrote.
pub fn shown(bytes: &[u8], most: usize) -> String {
    let cut = &bytes[..bytes.len().min(most)];
    let mut text: String = escape(cut).chars().map(|c| if is_disputed(c) { '?' } else { c }).collect();
    if cut.len() < bytes.len() {
        text.push_str(" ...");
    }
    text
}

/// Halves of flags, variation selectors, skin tones, keycaps.
fn is_disputed(c: char) -> bool {
    matches!(c, '\u{1f1e6}'..='\u{1f1ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{20e3}')
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn signs_of_uncertain_width_are_left_out_and_long_text_is_cut() {
        assert_eq!(shown("a🇷🇺b\u{1b}漢".as_bytes(), 100), "a??b\\u{1b}漢");
        assert_eq!(shown(b"abcdef", 3), "abc ...");
    }
}
