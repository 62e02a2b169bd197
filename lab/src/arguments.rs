//! Values of options that several commands have.

/// Reads a share: at least 0 and below 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..1.0).contains(&share) {
        Ok(share)
    } else {
        Err("it must be at least 0 and below 1".to_owned())
    }
}

/// The first of the seeds that only `field --verdict` uses.
pub(crate) const FIRST_RESERVED_SEED: u64 = 900_001;
/// The largest first seed of all else: no run has as many seeds as lie between.
const LARGEST_SEED: u64 = 880_000;

/// Reads a first seed that is not reserved.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let seed: u64 = text.parse().map_err(|error| format!("{error}"))?;
    if seed <= LARGEST_SEED {
        Ok(seed)
    } else {
        Err(format!(
            "it must be at most {LARGEST_SEED}: those from {FIRST_RESERVED_SEED} on are reserved for field --verdict"
        ))
    }
}

/// Reads a mean number of datagrams in a row: at least 1.
pub(crate) fn burst(text: &str) -> Result<f64, String> {
    let burst: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if burst >= 1.0 && burst.is_finite() {
        Ok(burst)
    } else {
        Err("it must be at least 1".to_owned())
    }
}
