//! The alternatives that Sidekick24 (docs/REFERENCES.md) compares its quACK with: the strawmen of
//! its section 3.3, and power sums with identifiers of other widths. They serve comparison only:
//! the product uses the sketches of packrat-eack.

mod strawmen;
mod widths;

pub(crate) use strawmen::{HashQuack, SlidingWindow};
pub(crate) use widths::{Missing, Sums, Width, with_modulus};

/// The probability that an identifier of this many bytes equals another one among `count`
/// (Sidekick24, section 3.2).
pub(crate) fn collision(bytes: u8, count: usize) -> f64 {
    let values = 256_f64.powi(i32::from(bytes));
    // 1 - (1 - 1/values)^(count - 1), without the cancellation.
    -((count as f64 - 1.0) * (-1.0 / values).ln_1p()).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collisions_are_as_likely_as_table_1_says() {
        for (bytes, paper) in [(1, 0.090), (2, 0.0004), (4, 5.6e-9)] {
            let ratio = collision(bytes, 25) / paper;
            assert!((0.9..1.1).contains(&ratio), "{bytes}: {ratio}");
        }
    }
}
