//! A message as a command prints it: a line of text, or a JSON object with headers, a key and a delay.

use bytes::Bytes;
use estafeta::{Draft, Failure};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::reply::{base64, duration, quoted};

/// What a line of output means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineForm {
    /// The line is the body.
    #[default]
    Plain,
    /// The line is a JSON object with a `body` or a `bodyBase64`, and perhaps `headers`, a `key` and a `delay`.
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
    key: Option<String>,
    delay: Option<Value>,
}

impl LineForm {
    pub(crate) fn read(self, line: &[u8]) -> Result<Draft, Failure> {
        match self {
            Self::Plain => Ok(Draft::new(line)),
            Self::Json => {
                let read: Result<PrintedMessage, _> = serde_json::from_slice(line);
                let read = read.map_err(|error| {
                    Failure::new(format_args!(
                        "line: expected a JSON object with body, headers, key and delay ({error}), got {}",
                        quoted(line)
                    ))
                });
                let (body, draft) = read?.read()?;
                Ok(draft.body(body))
            }
        }
    }
}

impl PrintedMessage {
    /// The body, and the message without it. A body that is no string is written as JSON. What is wrong with a header or
    /// a key is known when the message is published.
    pub fn read(self) -> Result<(Bytes, Draft), Failure> {
        let body = match (self.body, self.body_base64) {
            (Some(Value::String(text)), None) => text.into(),
            (Some(value), None) => value.to_string().into(),
            (None, Some(encoded)) => base64("bodyBase64", &encoded)?,
            (None, None) => return Err(Failure::new("line: expected a body or a bodyBase64, got neither")),
            (Some(_), Some(_)) => {
                return Err(Failure::new("line: expected a body or a bodyBase64, got both"));
            }
        };
        let mut draft = Draft::new("");
        for (name, value) in self.headers {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            draft = draft.header(name, text);
        }
        if let Some(key) = self.key {
            draft = draft.key(key);
        }
        if let Some(delay) = &self.delay {
            draft = draft.delay(duration("delay", delay)?);
        }
        Ok((body, draft))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estafeta::Batch;

    #[test]
    fn a_line_is_a_body_or_an_object_with_one() {
        let batch = |draft: Draft| -> Batch<Bytes> { Batch::empty().with_draft(draft) };
        let read = |line: &str| LineForm::Json.read(line.as_bytes()).map(batch);
        assert_eq!(batch(LineForm::Plain.read(b"{\"body\":1}").unwrap()), batch(Draft::new("{\"body\":1}")));
        let second = std::time::Duration::from_secs(1);
        let cases = [
            (r#"{"body":"text"}"#, Draft::new("text")),
            (r#"{"body":{"a":[1]}}"#, Draft::new(r#"{"a":[1]}"#)),
            (r#"{"bodyBase64":"/wA="}"#, Draft::new(&b"\xff\0"[..])),
            (
                r#"{"body":"","headers":{"n":7,"shop":"berlin"}}"#,
                Draft::new("").header("n", "7").header("shop", "berlin"),
            ),
            (
                r#"{"body":"x","key":"k","delay":"90s","headers":{"a":"b"}}"#,
                Draft::new("x").key("k").delay(90 * second).header("a", "b"),
            ),
            (r#"{"body":"x","delay":1}"#, Draft::new("x").delay(second)),
            (r#"{"body":"x","key":null,"delay":null}"#, Draft::new("x")),
        ];
        for (line, draft) in cases {
            assert_eq!(read(line).unwrap(), batch(draft), "{line}");
        }
        let refused = [
            "",
            "text",
            "{}",
            "[]",
            r#"{"body":"","bodyBase64":""}"#,
            r#"{"body":"","kee":"k"}"#,
            r#"{"body":"","key":7}"#,
            r#"{"body":"","delay":"soon"}"#,
        ];
        for bad in refused {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
