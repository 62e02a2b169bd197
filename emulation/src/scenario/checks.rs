//! Checks of a scenario's file. What fails is said in a sentence about the first mistake.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// The first mistake, if there is one.
pub(super) type Checked = Result<(), String>;

/// Requires that this holds; otherwise that is the mistake.
pub(super) fn require(holds: bool, mistake: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(mistake.into()) }
}

/// Requires that a value, if it is given, is in a range.
pub(super) fn within<T: PartialOrd + Display>(
    name: impl Display,
    value: impl Into<Option<T>>,
    range: RangeInclusive<T>,
) -> Checked {
    match value.into() {
        Some(value) if !range.contains(&value) => {
            Err(format!("{name} is {value}, not in {} to {}", range.start(), range.end()))
        }
        _ => Ok(()),
    }
}
