//! Numbers as Envoy passes them on. It hands this configuration over as a
//! `google.protobuf.Struct`: its numbers are floating point, and fractions or numbers above 2^31 of
//! a YAML file arrive as texts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;

/// Reads a whole number that may be written as `120`, `120.0`, `1.2e2` or `"120"`.
pub(crate) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct WholeNumber;

    impl Visitor<'_> for WholeNumber {
        type Value = u64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a whole number that is not negative")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
            // Above 2^53 a floating-point number no longer identifies a whole number.
            if value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value) {
                Ok(value as u64)
            } else {
                Err(E::invalid_value(de::Unexpected::Float(value), &self))
            }
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<u64, E> {
            value.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
        }
    }

    deserializer.deserialize_any(WholeNumber)
}

/// Reads a whole number below 2^32, written in any of the same ways.
pub(crate) fn small_whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = whole(deserializer)?;
    u32::try_from(value).map_err(|_| {
        de::Error::invalid_value(de::Unexpected::Unsigned(value), &"a whole number below 2^32")
    })
}

/// Reads numbers by address, each as [`fraction`] does.
pub(super) fn fractions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<SocketAddr, f64>, D::Error> {
    #[derive(Deserialize)]
    struct Fraction(#[serde(deserialize_with = "fraction")] f64);

    let read = BTreeMap::<SocketAddr, Fraction>::deserialize(deserializer)?;
    Ok(read.into_iter().map(|(address, number)| (address, number.0)).collect())
}

/// Reads a number that may be written as `0.25` or `"0.25"`.
pub(super) fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Fraction;

    impl Visitor<'_> for Fraction {
        type Value = f64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a number")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
            Ok(value)
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<f64, E> {
            value.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
        }
    }

    deserializer.deserialize_any(Fraction)
}

/// Writes a whole number as a text, which a `Struct` does not round.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn as_text<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// True if a field has the value `N`.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is<const N: u32>(value: &u32) -> bool {
    *value == N
}
