//! Figures for decisions, derived from a gateway's counters.
//!
//! Each figure exists twice, side by side: as a computation over two readings of a route's counters
//! ([`Figures::between`], for the command and the gateway's own page) and as PromQL ([`ALL_FIGURES`],
//! for recording rules, dashboards and docs/METRICS.md). A test of the dashboards evaluates both
//! over the same counters.
//!
//! [`comparison`] is not made of counters: the worth of assistance is measured beside sessions that
//! are left without.
#![forbid(unsafe_code)]

pub mod comparison;
mod figures;
pub mod plan;
mod promql;
pub mod response;
pub mod text;

pub use figures::{Figures, Reading};
pub use promql::{ALL_FIGURES, Figure, Scope, Selector, Unit};
