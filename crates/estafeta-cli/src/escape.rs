//! Makes foreign text safe to show: nothing that a body, a reason or a host name holds may steer the terminal.

use std::fmt::Write as _;

/// The text with control characters, C1 codes and marks that change the direction of writing spelled out.
pub fn escape(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => safe.push_str("\\n"),
                '\r' => safe.push_str("\\r"),
                '\t' => safe.push_str("\\t"),
                '\\' => safe.push_str("\\\\"),
                c if c.is_control() || is_steering(c) => {
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

/// JSON with the same characters written as `\u....`, which means the same to whoever reads it.
pub fn escape_json(json: String) -> String {
    let steers = |c: char| is_steering(c) || ('\u{7f}'..='\u{9f}').contains(&c);
    if !json.contains(steers) {
        return json;
    }
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Bidirectional marks and overrides, line and paragraph separators, invisible joiners, the byte order mark, tags.
fn is_steering(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{escape, escape_json, is_steering};

    proptest! {
        #[test]
        fn whatever_comes_stays_on_its_line_and_steers_nothing(text: Vec<char>, tail: Vec<u8>) {
            let bytes = [text.iter().collect::<String>().as_bytes(), &tail].concat();
            let shown = escape(&bytes);
            prop_assert!(!shown.contains(|c: char| c.is_control() || is_steering(c)), "{}", shown);
        }

        #[test]
        fn plain_text_is_shown_as_it_is(text in "[ -\\[\\]-~а-яё漢字]*") {
            prop_assert_eq!(escape(text.as_bytes()), text);
        }

        #[test]
        fn any_text_means_the_same_in_json(text: Vec<char>) {
            let text: String = text.into_iter().collect();
            let json = escape_json(serde_json::json!(text).to_string());
            prop_assert!(!json.contains(|c: char| c.is_control() || is_steering(c)), "{}", json);
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn json_means_the_same_but_steers_nothing() {
        let text = "a\u{9b}31m \u{202e}b\u{e0041} ok";
        let json = escape_json(serde_json::json!({ "body": text }).to_string());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["body"], text);
    }

    #[test]
    fn nothing_foreign_steers_the_terminal() {
        assert_eq!(escape("plain, юникод, 漢字".as_bytes()), "plain, юникод, 漢字");
        assert_eq!(escape(b"\x1b[31mred\x07\0"), "\\u{1b}[31mred\\u{7}\\u{0}");
        assert_eq!(escape("a\u{9b}b\u{202e}c\u{2066}d".as_bytes()), "a\\u{9b}b\\u{202e}c\\u{2066}d");
        assert_eq!(escape(b"two\nlines\\n\tx\xff\xfe"), "two\\nlines\\\\n\\tx\\xff\\xfe");
    }
}
