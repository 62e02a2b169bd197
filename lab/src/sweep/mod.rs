//! The sweep of Splitting25: one segment of a path at a time, and what splitting makes of two of them.
//!
//! [`grid`] has the segments, [`cache`] what was measured of each, [`paths`] the predictions for all paths of two segments, and [`check`]
//! holds some of them against a connection that is really split, in virtual time. [`advice`] measures what `packrat plan` knows.

mod advice;
mod cache;
mod check;
mod command;
mod grid;
mod paths;
mod report;

pub(crate) use command::Sweep;
