//! A number as JSON Schema understands integers.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// The largest number that every program reads exactly from JSON.
const MOST: u64 = (1 << 53) - 1;

/// A number from 0 to 2^53 - 1. `17.0` is the same number as `17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeNumber(pub u64);

impl WholeNumber {
    /// The number that these digits are.
    pub fn parse(digits: &str) -> Option<Self> {
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|number| is_plain && *number <= MOST).map(Self)
    }
}

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeNumberVisitor)
    }
}

struct WholeNumberVisitor;

impl Visitor<'_> for WholeNumberVisitor {
    type Value = WholeNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {MOST}")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<WholeNumber, E> {
        if number > MOST {
            return Err(E::invalid_value(Unexpected::Unsigned(number), &self));
        }
        Ok(WholeNumber(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<WholeNumber, E> {
        if number.fract() != 0.0 || !(0.0..=MOST as f64).contains(&number) {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        Ok(WholeNumber(number as u64))
    }
}

impl PartialSchema for WholeNumber {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(0))
            .maximum(Some(MOST))
            .into()
    }
}

impl ToSchema for WholeNumber {
    fn name() -> Cow<'static, str> {
        "WholeNumber".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let read = |text| serde_json::from_str::<WholeNumber>(text).map(|number| number.0).ok();
        for (text, number) in [
            ("0", 0),
            ("-0.0", 0),
            ("17.0", 17),
            ("9007199254740991", MOST),
            ("1e3", 1000),
            ("1922242298506057.0", 1_922_242_298_506_057),
        ] {
            assert_eq!(read(text), Some(number), "{text}");
        }
        for text in ["-1", "0.5", "9007199254740992", "1e300", "18446744073709551616", "\"17\"", "null", "[]"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn digits_are_a_whole_number() {
        let parse = |text| WholeNumber::parse(text).map(|number| number.0);
        assert_eq!([parse("0"), parse("17"), parse("9007199254740991")], [Some(0), Some(17), Some(MOST)]);
        for text in ["", "+1", "-1", "1.0", " 1", "x", "9007199254740992", "99999999999999999999"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
