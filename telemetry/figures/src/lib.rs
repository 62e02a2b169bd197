//! Figures for decisions, derived from a gateway's counters.
//!
//! [`Figures::between`] computes them from two readings of a route's counters, for the command and
//! the gateway's own page. `telemetry/dashboards/data/figures.toml` has them as PromQL; a test of the
//! dashboards evaluates both over the same counters.
//!
//! [`comparison`] is not made of counters: the worth of assistance is measured beside sessions that
//! are left without.
#![forbid(unsafe_code)]

pub mod comparison;
mod figures;
pub mod plan;
pub mod response;
pub mod text;

pub use figures::{Figures, Reading};
