//! Makes foreign text safe to show. No body, reason or host name may control the terminal.

use std::fmt::Write as _;

/// Returns the text with control characters, C1 codes and marks that change the direction of writing spelled out. A
/// backslash becomes two, so that the text can be read back.
pub fn escape(bytes: &[u8]) -> String {
    escaped(bytes, "\\\\")
}

/// Like [`escape`], but a backslash stays as it is. For text that a person compares with what they wrote.
pub fn escape_for_people(bytes: &[u8]) -> String {
    escaped(bytes, "\\")
}

fn escaped(bytes: &[u8], backslash: &str) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => safe.push_str("\\n"),
                '\r' => safe.push_str("\\r"),
                '\t' => safe.push_str("\\t"),
                '\\' => safe.push_str(backslash),
                c if c.is_control() || is_format_character(c) => {
                    let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
                }
                c => safe.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(safe, "\\x{byte:02x}");
        }
    }
    safe
}

/// Returns the JSON with the same characters written as `\u....`. Its meaning stays the same.
pub fn escape_json(json: String) -> String {
    let is_unsafe = |c: char| is_format_character(c) || ('\u{7f}'..='\u{9f}').contains(&c);
    if !json.contains(is_unsafe) {
        return json;
    }
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unsafe(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Whether a character changes how the text around it is shown: bidirectional marks and overrides, line and paragraph
/// separators, invisible joiners, the byte order mark, tags.
fn is_format_character(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{escape, escape_json, is_format_character};

    proptest! {
        #[test]
        fn escaped_bytes_hold_no_control_or_format_characters(text: Vec<char>, tail: Vec<u8>) {
            let bytes = [text.iter().collect::<String>().as_bytes(), &tail].concat();
            let shown = escape(&bytes);
            prop_assert!(!shown.contains(|c: char| c.is_control() || is_format_character(c)), "{}", shown);
        }

        #[test]
        fn plain_text_stays_as_it_is(text in "[ -\\[\\]-~а-яё漢字]*") {
            prop_assert_eq!(escape(text.as_bytes()), text);
        }

        #[test]
        fn escaped_json_keeps_any_text_and_holds_no_control_or_format_characters(text: Vec<char>) {
            let text: String = text.into_iter().collect();
            let json = escape_json(serde_json::json!(text).to_string());
            prop_assert!(!json.contains(|c: char| c.is_control() || is_format_character(c)), "{}", json);
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn escaped_json_keeps_its_meaning_and_spells_out_what_could_control_a_terminal() {
        let text = "a\u{9b}31m \u{202e}b\u{e0041} ok";
        let json = escape_json(serde_json::json!({ "body": text }).to_string());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["body"], text);
    }

    #[test]
    fn control_characters_and_invalid_bytes_are_spelled_out() {
        assert_eq!(escape("plain, юникод, 漢字".as_bytes()), "plain, юникод, 漢字");
        assert_eq!(escape(b"\x1b[31mred\x07\0"), "\\u{1b}[31mred\\u{7}\\u{0}");
        assert_eq!(escape("a\u{9b}b\u{202e}c\u{2066}d".as_bytes()), "a\\u{9b}b\\u{202e}c\\u{2066}d");
        assert_eq!(escape(b"two\nlines\\n\tx\xff\xfe"), "two\\nlines\\\\n\\tx\\xff\\xfe");
    }
}
