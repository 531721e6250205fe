//! How values become bodies, and bodies values: JSON, or the bytes as they are.
//!
//! [`Bytes`] is the one type that is not written as JSON. So a handler of `Job<Bytes>` gets any body as it is, and no
//! handler needs a trait of ours for its own types.

use std::any::Any;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
}
