//! A message as a command prints it: a line of text, or a JSON object with headers.

use bytes::Bytes;
use estafeta::{Failure, Headers};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::reply::{base64, quoted};

/// What a line of output means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineForm {
    /// The line is the body.
    #[default]
    Plain,
    /// The line is a JSON object with a `body` or a `bodyBase64`, and perhaps `headers`.
    Json,
}

/// A message as a JSON object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PrintedMessage {
    body: Option<Value>,
    body_base64: Option<String>,
    #[serde(default)]
    headers: Map<String, Value>,
}

impl LineForm {
    pub(crate) fn read(self, line: &[u8]) -> Result<(Bytes, Headers), Failure> {
        match self {
            Self::Plain => Ok((Bytes::copy_from_slice(line), Headers::new())),
            Self::Json => {
                let read: Result<PrintedMessage, _> = serde_json::from_slice(line);
                let read = read.map_err(|error| {
                    Failure::new(format_args!(
                        "line: expected a JSON object with body and headers ({error}), got {}",
                        quoted(line)
                    ))
                });
                read?.read()
            }
        }
    }
}

impl PrintedMessage {
    /// The body and the headers. A body that is no string is written as JSON.
    pub fn read(self) -> Result<(Bytes, Headers), Failure> {
        let body = match (self.body, self.body_base64) {
            (Some(Value::String(text)), None) => text.into(),
            (Some(value), None) => value.to_string().into(),
            (None, Some(encoded)) => base64("bodyBase64", &encoded)?,
            (None, None) => return Err(Failure::new("line: expected a body or a bodyBase64, got neither")),
            (Some(_), Some(_)) => {
                return Err(Failure::new("line: expected a body or a bodyBase64, got both"));
            }
        };
        let mut headers = Headers::new();
        for (name, value) in self.headers {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            headers.insert(name, text)?;
        }
        Ok((body, headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_body_or_an_object_with_one() {
        assert_eq!(LineForm::Plain.read(b"{\"body\":1}").unwrap(), ("{\"body\":1}".into(), Headers::new()));
        let read = |line: &str| LineForm::Json.read(line.as_bytes());
        assert_eq!(read(r#"{"body":"text"}"#).unwrap().0, "text");
        assert_eq!(read(r#"{"body":{"a":[1]}}"#).unwrap().0, r#"{"a":[1]}"#);
        assert_eq!(&read(r#"{"bodyBase64":"/wA="}"#).unwrap().0[..], b"\xff\0");
        let (_, headers) = read(r#"{"body":"","headers":{"shop":"berlin","n":7}}"#).unwrap();
        assert_eq!((headers.get("shop"), headers.get("n")), (Some("berlin"), Some("7")));
        for bad in ["", "text", "{}", "[]", r#"{"body":"","bodyBase64":""}"#, r#"{"body":"","key":"k"}"#] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
