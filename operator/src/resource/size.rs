//! Sizes in bytes as Kubernetes writes them.

use thiserror::Error;

/// Failure to read a text as a size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{0}\" is not a size; write whole bytes or Ki, Mi or Gi, for example 512Ki or 1Mi")]
pub struct SizeError(String);

/// Bytes of a size such as `1048576`, `512Ki`, `1Mi` or `2Gi`, as the schema's pattern allows them.
///
/// # Errors
/// [`SizeError`] for anything else, and for a number that does not fit.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let error = || SizeError(text.to_owned());
    let digits = text.trim_end_matches(|character: char| !character.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(error()),
    };
    if digits.is_empty() || digits.len() > 15 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(error());
    }
    let number: u64 = digits.parse().map_err(|_| error())?;
    number.checked_mul(factor).ok_or_else(error)
}

/// Bytes of an amount of memory as a Pod has it, with a fraction and decimal suffixes, too, such as
/// `1.5Gi` or `500M`. `None` for other texts, some of which Kubernetes takes.
pub(super) fn parse_memory(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor = match &text[number.len()..] {
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => f64::from(1 << 10),
        "Mi" => f64::from(1 << 20),
        "Gi" => f64::from(1 << 30),
        "Ti" => f64::from(1 << 20) * f64::from(1 << 20),
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    (1.0..9e15).contains(&bytes).then_some(bytes as u64)
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
