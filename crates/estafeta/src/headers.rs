//! The headers of a message: facts about it that are no part of its body, such as a `traceparent`.
//!
//! Redis stores them as one block in front of the body: `bytes:name` and `bytes:value` for each header, in their order
//! and with nothing in between. The scripts know only the length of the block and skip it.

use crate::error::{Error, Result};
use crate::message::{Numbers, write_number};

/// The headers of a message: a short list of names and values, in the order in which they were added.
///
/// Names are compared byte by byte, and each occurs once. Names that begin with `estafeta-` belong to the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    entries: Vec<(String, String)>,
    /// The size of the block.
    bytes: usize,
}

impl Headers {
    /// The longest name in bytes. A name consists of visible ASCII characters.
    pub const MAX_NAME: usize = 64;
    /// The longest value in bytes. A value is any text.
    pub const MAX_VALUE: usize = 4 * 1024;
    /// The most headers of one message.
    pub const MAX_COUNT: usize = 64;
    /// The most bytes of all headers of one message, as Redis stores them.
    pub const MAX_BYTES: usize = 16 * 1024;

    /// The names that begin like this belong to the ring.
    const RESERVED: &str = "estafeta-";

    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header at the end, or changes the value of the header with this name. After an error, the headers are as
    /// they were before.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (name, value) = (name.into(), value.into());
        if !(1..=Self::MAX_NAME).contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            let expected = format!("1 to {} visible ASCII characters", Self::MAX_NAME);
            let shown: String = name.chars().take(80).flat_map(char::escape_default).collect();
            return Err(Error::expected("header name", expected, shown));
        }
        if value.len() > Self::MAX_VALUE {
            let expected = format!("at most {} bytes", Self::MAX_VALUE);
            return Err(Error::expected("header value", expected, format!("{} bytes", value.len())));
        }
        let at = self.entries.iter().position(|(other, _)| *other == name);
        if at.is_none() && self.len() == Self::MAX_COUNT {
            let expected = format!("at most {}", Self::MAX_COUNT);
            return Err(Error::expected("headers", expected, "more"));
        }
        let former = at.map_or(0, |at| stored_size(&self.entries[at].0) + stored_size(&self.entries[at].1));
        let bytes = self.bytes - former + stored_size(&name) + stored_size(&value);
        if bytes > Self::MAX_BYTES {
            let expected = format!("at most {} bytes in all", Self::MAX_BYTES);
            return Err(Error::expected("headers", expected, format!("{bytes} bytes")));
        }
        self.bytes = bytes;
        match at {
            Some(at) => self.entries[at].1 = value,
            None => self.entries.push((name, value)),
        }
        Ok(())
    }

    /// Adds a header in front of all others. The scripts look for some headers of the ring only there.
    pub(crate) fn insert_first(&mut self, name: &str, value: impl Into<String>) -> Result<()> {
        self.insert(name, value)?;
        let at = self.entries.iter().position(|(other, _)| other == name).expect("it was inserted");
        self.entries[..=at].rotate_right(1);
        Ok(())
    }

    /// Refuses a name that belongs to the ring.
    pub(crate) fn check_name(name: &str) -> Result<()> {
        match name.starts_with(Self::RESERVED) {
            true => {
                let expected = format!("none that begins with {}", Self::RESERVED);
                Err(Error::expected("header name", expected, name))
            }
            false => Ok(()),
        }
    }

    /// Refuses headers with a name that belongs to the ring.
    pub(crate) fn check_names(&self) -> Result<()> {
        self.iter().try_for_each(|(name, _)| Self::check_name(name))
    }

    /// The value of the header with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// How many headers there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no header.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The size of the block that [`write`](Self::write) appends.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the block that Redis stores.
    pub(crate) fn write(&self, element: &mut Vec<u8>) {
        for text in self.entries.iter().flat_map(|(name, value)| [name, value]) {
            write_number(element, text.len() as u64, b':');
            element.extend_from_slice(text.as_bytes());
        }
    }

    /// Reads a block. Returns None for a block that [`write`](Self::write) cannot have made.
    pub(crate) fn parse(block: &[u8]) -> Option<Self> {
        let (mut headers, mut at) = (Self::new(), 0);
        while at < block.len() {
            let (name, value) = (text(block, &mut at)?, text(block, &mut at)?);
            let count = headers.len();
            headers.insert(name, value).ok().filter(|()| headers.len() > count)?;
        }
        (headers.bytes == block.len()).then_some(headers)
    }
}

fn text<'a>(block: &'a [u8], at: &mut usize) -> Option<&'a str> {
    let mut numbers = Numbers { bytes: block, at: *at };
    let length = usize::try_from(numbers.next_before(b':')?).ok()?;
    let start = numbers.at;
    *at = start.checked_add(length)?;
    std::str::from_utf8(block.get(start..*at)?).ok()
}

/// The size of a text in a block: its length in digits, a colon and its bytes.
fn stored_size(text: &str) -> usize {
    itoa::Buffer::new().format(text.len()).len() + 1 + text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(list: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        list.iter().for_each(|(name, value)| headers.insert(*name, *value).unwrap());
        headers
    }

    fn block(headers: &Headers) -> Vec<u8> {
        let mut block = Vec::new();
        headers.write(&mut block);
        assert_eq!(block.len(), headers.bytes());
        block
    }

    /// Blocks that are right or nearly right.
    fn blocks() -> impl Strategy<Value = Vec<u8>> {
        let text = (prop_oneof![9 => Just(None), 1 => "[0-9]{0,3}".prop_map(Some)], "[ab:1é]{0,3}");
        let text = text.prop_map(|(length, text)| {
            format!("{}:{text}", length.unwrap_or_else(|| text.len().to_string()))
        });
        prop::collection::vec(text, 0..5).prop_map(|texts| texts.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn any_headers_come_back_as_they_were(list in prop::collection::vec(("[!-~]{1,64}", ".{0,200}"), 0..9)) {
            let mut sent = Headers::new();
            for (name, value) in &list {
                sent.insert(name, value).unwrap();
            }
            prop_assert_eq!(Headers::parse(&block(&sent)), Some(sent));
        }

        #[test]
        fn a_block_that_can_be_read_is_the_block_of_what_was_read(bytes in blocks()) {
            if let Some(headers) = Headers::parse(&bytes) {
                prop_assert_eq!(block(&headers), bytes);
            }
        }

        #[test]
        fn foreign_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Headers::parse(&bytes);
        }
    }

    #[test]
    fn a_block_is_names_and_values_with_their_lengths() {
        let sent = headers(&[("traceparent", "00-1-2-01"), ("empty", ""), ("name", "й")]);
        assert_eq!(block(&sent), "11:traceparent9:00-1-2-015:empty0:4:name2:й".as_bytes());
        assert_eq!(
            sent.iter().collect::<Vec<_>>(),
            [("traceparent", "00-1-2-01"), ("empty", ""), ("name", "й")]
        );
    }

    #[test]
    fn a_header_is_found_by_its_exact_name() {
        let headers = headers(&[("a", "1"), ("b", "2")]);
        assert_eq!((headers.get("b"), headers.get("B"), headers.len()), (Some("2"), None, 2));
        assert!(!headers.is_empty() && Headers::new().is_empty());
    }

    #[test]
    fn a_second_value_replaces_the_first_and_keeps_its_place() {
        let twice = headers(&[("a", "1"), ("b", "2"), ("a", "a longer value")]);
        assert_eq!(twice, headers(&[("a", "a longer value"), ("b", "2")]));
        assert_eq!(Headers::parse(&block(&twice)), Some(twice));
    }

    #[test]
    fn a_header_beyond_a_limit_is_refused_and_changes_nothing() {
        let mut headers = headers(&[("a", "1")]);
        let before = headers.clone();
        let (long_name, long_value) = ("n".repeat(65), "v".repeat(4097));
        let refused = [
            ("", "x", "header name: expected 1 to 64 visible ASCII characters, got ''"),
            ("a b", "x", "header name: expected 1 to 64 visible ASCII characters, got 'a b'"),
            ("\n", "x", "header name: expected 1 to 64 visible ASCII characters, got '\\n'"),
            ("é", "x", "header name: expected 1 to 64 visible ASCII characters, got '\\u{e9}'"),
            ("b", &long_value, "header value: expected at most 4096 bytes, got '4097 bytes'"),
        ];
        for (name, value, error) in refused {
            assert_eq!(headers.insert(name, value).unwrap_err().to_string(), error);
        }
        assert!(headers.insert(long_name, "x").is_err());
        assert_eq!(headers, before);
        headers.insert("n".repeat(64), "v".repeat(4096)).unwrap();
    }

    #[test]
    fn all_headers_together_fill_their_limit_and_no_more() {
        let mut headers = Headers::new();
        for name in ["a", "b", "c"] {
            headers.insert(name, "v".repeat(4096)).unwrap();
        }
        // One more header takes 3 bytes for its name and 5 for the length of its value.
        let left = Headers::MAX_BYTES - headers.bytes() - 3 - 5;
        let error = headers.insert("d", "v".repeat(left + 1)).unwrap_err();
        assert_eq!(error.to_string(), "headers: expected at most 16384 bytes in all, got '16385 bytes'");
        assert_eq!(headers.len(), 3);
        headers.insert("d", "v".repeat(left)).unwrap();
        assert_eq!(block(&headers).len(), Headers::MAX_BYTES);
        // A value that is replaced makes room for the new one.
        headers.insert("d", "w".repeat(left)).unwrap();
        assert_eq!(Headers::parse(&block(&headers)), Some(headers));
    }

    #[test]
    fn a_block_that_no_headers_make_cannot_be_read() {
        let blocks = [
            "1:a",
            "1:a1",
            "1:a1:",
            "1:a2:x",
            "0:1:x",
            "1:a1:b1:a1:c",
            "01:a1:b",
            "1:a01:b",
            "1:a1:bx",
            ":a1:b",
            "1: 1:b",
            "-1:a1:b",
            "1 a1:b",
            "999999999999999:a1:b",
            "18446744073709551615:a1:b",
        ];
        for block in blocks {
            assert_eq!(Headers::parse(block.as_bytes()), None, "{block}");
        }
        assert_eq!(Headers::parse(b"1:a1:\xff"), None);
        assert_eq!(Headers::parse(b""), Some(Headers::new()));
    }

    #[test]
    fn a_message_has_at_most_64_headers() {
        let mut many = Headers::new();
        for name in 0..64 {
            many.insert(name.to_string(), "").unwrap();
        }
        let full = many.clone();
        let error = many.insert("one more", "").unwrap_err().to_string();
        assert!(error.contains("header name"), "the name is looked at first: {error}");
        let error = many.insert("more", "").unwrap_err().to_string();
        assert!(error.contains("headers: expected at most 64"), "{error}");
        assert_eq!(many, full);
        many.insert("63", "another value").unwrap();
        assert_eq!((many.len(), many.get("63")), (64, Some("another value")));
    }
}
