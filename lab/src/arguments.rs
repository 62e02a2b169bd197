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

/// Reads a mean number of datagrams in a row: at least 1.
pub(crate) fn burst(text: &str) -> Result<f64, String> {
    let burst: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if burst >= 1.0 && burst.is_finite() {
        Ok(burst)
    } else {
        Err("it must be at least 1".to_owned())
    }
}
