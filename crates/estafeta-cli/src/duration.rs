//! Durations as people write them: `500ms`, `2s`, `1m 30s`, and a plain `0`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration given by a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(try_from = "Written")]
pub struct HumanDuration(pub Duration);

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text.trim())
            .map(Self)
            .map_err(|_| format!("expected a duration such as 500ms, 2s or 0, got '{text}'"))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl serde::Serialize for HumanDuration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A duration in a settings file: text, or a plain 0.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Number(i64),
}

impl TryFrom<Written> for HumanDuration {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Number(number) => number.to_string().parse(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_duration_can_be_written_and_read_back(ms in 0..1_000_000_000_000_u64) {
            let duration = HumanDuration(Duration::from_millis(ms));
            let written = serde_json::to_value(duration).unwrap();
            prop_assert_eq!(written.as_str().unwrap().parse(), Ok(duration));
        }

        #[test]
        fn any_text_is_parsed_or_refused_with_an_explanation(text: String) {
            if let Err(error) = text.parse::<HumanDuration>() {
                prop_assert!(error.contains("expected a duration"), "{}", error);
            }
        }
    }

    #[test]
    fn the_usual_forms_are_parsed_and_others_are_refused() {
        let ms = |text: &str| text.parse::<HumanDuration>().map(|duration| duration.0.as_millis());
        assert_eq!(ms("500ms"), Ok(500));
        assert_eq!(ms("2s"), Ok(2000));
        assert_eq!(ms("1m 30s"), Ok(90_000));
        assert_eq!(ms("0"), Ok(0));
        assert_eq!(ms("0ms"), Ok(0));
        for wrong in ["", "-5ms", "500", "fast", "1.5"] {
            let error = ms(wrong).expect_err(wrong);
            assert!(error.contains("expected a duration"), "{error}");
        }
    }
}
