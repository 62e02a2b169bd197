//! The sweep of Splitting25: single segments of a path, and the effect of splitting paths of two.
//!
//! [`grid`] has the segments, [`cache`] their measurements, [`paths`] the predictions for all paths
//! of two segments, and [`check`] compares some of them with a connection that is really split, in
//! virtual time. [`advice`] measures the tables of `packrat plan`.

mod advice;
mod cache;
mod check;
mod command;
mod grid;
mod paths;
mod report;

pub(crate) use command::Sweep;
