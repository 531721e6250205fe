//! How values become bodies, and bodies values: JSON, or the bytes as they are.
//!
//! [`Bytes`] is the one type that is not written as JSON. So a handler of `Job<Bytes>` gets any body as it is, and no
//! handler needs a trait of ours for its own types.

use std::any::Any;

use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// How many characters of a bad body its dead letter shows.
const SHOWN: usize = 40;

/// Returns the body of a value.
pub(crate) fn encode<T: Serialize + 'static>(value: &T) -> serde_json::Result<Bytes> {
    match (value as &dyn Any).downcast_ref::<Bytes>() {
        Some(raw) => Ok(raw.clone()),
        None => serde_json::to_vec(value).map(Bytes::from),
    }
}

/// Returns the value of a body.
pub(crate) fn decode<T: DeserializeOwned + 'static>(body: &Bytes) -> serde_json::Result<T> {
    let mut raw = Some(body.clone());
    match (&mut raw as &mut dyn Any).downcast_mut::<Option<T>>().and_then(Option::take) {
        Some(raw) => Ok(raw),
        None => serde_json::from_slice(body),
    }
}

/// Says why a body has no value of its handler's type, in one line. `error` is the parser's message.
pub(crate) fn explain(body: &Bytes, error: &serde_json::Error) -> String {
    if serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        return error.to_string();
    }
    let beginning = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN)]);
    let shown: String = beginning.chars().take(SHOWN).collect();
    let how = match shown.is_empty() {
        true => "is empty".to_owned(),
        false => format!("begins with {shown:?}"),
    };
    format!(
        "it is not JSON and {how} ({error}); Publisher<Bytes> and `estafeta publish` send text as it is, while Job<T> \
         reads JSON and Job<Bytes> any body"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_as_they_are_and_everything_else_is_json() {
        let raw = Bytes::from_static(b"\xff {");
        assert_eq!(encode(&raw).unwrap(), raw);
        assert_eq!(decode::<Bytes>(&raw).unwrap(), raw);
        assert_eq!(encode(&("a", 1)).unwrap(), r#"["a",1]"#);
        assert_eq!(decode::<(String, u8)>(&Bytes::from(r#"["a",1]"#)).unwrap(), ("a".to_owned(), 1));
        assert_eq!(encode(&"text".to_owned()).unwrap(), r#""text""#);
        assert!(decode::<String>(&Bytes::from("text")).is_err());
    }
    #[test]
    fn a_body_that_is_not_json_is_quoted_in_one_line_with_the_remedy() {
        fn reason(body: &[u8]) -> String {
            let body = Bytes::copy_from_slice(body);
            explain(&body, &decode::<u64>(&body).unwrap_err())
        }
        let remedy = "; Publisher<Bytes> and `estafeta publish` send text as it is, while Job<T> reads JSON and \
                      Job<Bytes> any body";
        let cases: [(&[u8], String); 4] = [
            (b"two\npizzas", r#"begins with "two\npizzas" (expected ident at line 1 column 2)"#.into()),
            (b"", "is empty (EOF while parsing a value at line 1 column 0)".into()),
            (b"\xff", "begins with \"\u{fffd}\" (expected value at line 1 column 1)".into()),
            (&[b'x'; 9000], format!("begins with {:?} (expected value at line 1 column 1)", "x".repeat(40))),
        ];
        for (body, how) in cases {
            assert_eq!(reason(body), format!("it is not JSON and {how}{remedy}"));
        }
        // The type does not fit before the parser sees that it is no JSON.
        assert!(
            reason(br#""two" pizzas"#).starts_with(r#"it is not JSON and begins with "\"two\" pizzas" ("#)
        );
        assert_eq!(reason(br#""two""#), r#"invalid type: string "two", expected u64 at line 1 column 5"#);
    }
}
