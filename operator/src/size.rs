//! Sizes in bytes as Kubernetes writes them.

use thiserror::Error;

/// Failure to read a text as a size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{0}\" is not a size; write whole bytes or Ki, Mi or Gi, for example 512Ki or 1Mi")]
pub(crate) struct SizeError(String);

/// Bytes of a size such as `1048576`, `512Ki`, `1Mi` or `2Gi`, as the schema's pattern allows them.
///
/// # Errors
/// [`SizeError`] for anything else, and for a number that does not fit.
pub(crate) fn parse_size(text: &str) -> Result<u64, SizeError> {
    let error = || SizeError(text.to_owned());
    let (digits, unit) = number_and_unit(text).ok_or_else(error)?;
    let is_whole = digits.len() <= 15 && digits.bytes().all(|byte| byte.is_ascii_digit());
    // No decimal suffixes, and no unit above Gi.
    if !is_whole || !unit.is_power_of_two() || unit > 1 << 30 {
        return Err(error());
    }
    let number: u64 = digits.parse().map_err(|_| error())?;
    number.checked_mul(unit).ok_or_else(error)
}

/// Bytes of an amount of memory as a Pod has it, also with a fraction and decimal suffixes, such as
/// `1.5Gi` or `500M`. `None` for other texts, some of which Kubernetes takes.
pub(crate) fn parse_memory(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let bytes = number.parse::<f64>().ok()? * unit as f64;
    (1.0..9e15).contains(&bytes).then_some(bytes as u64)
}

/// The number of an amount, and the bytes that its suffix stands for.
fn number_and_unit(text: &str) -> Option<(&str, u64)> {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    Some((number, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_pods() {
        for (text, bytes) in [
            ("1000000", 1_000_000),
            ("500M", 500_000_000),
            ("1.5Gi", 1_610_612_736),
            ("256Mi", 256 << 20),
            ("1Ti", 1 << 40),
        ] {
            assert_eq!(parse_memory(text), Some(bytes), "{text}");
        }
        for text in ["", "Gi", "1Q", "-1", "0", "1 Gi", "inf", "nan", "1e30"] {
            assert_eq!(parse_memory(text), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("1", 1),
            ("1048576", 1 << 20),
            ("512Ki", 512 << 10),
            ("1Mi", 1 << 20),
            ("2Gi", 2 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "Mi",
            "1M",
            "1.5Mi",
            "-1",
            " 1",
            "1 Mi",
            "9999999999999999",
            "99999999999999Gi",
            "é1",
        ] {
            let error = parse_size(text).unwrap_err().to_string();
            assert!(error.contains("512Ki"), "{text}: {error}");
        }
    }
}
