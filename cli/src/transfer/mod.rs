//! `packrat get` and `packrat put`: options, progress, files, last words and exit codes around
//! [`crate::http3`].

mod ending;
pub(crate) mod get;
#[cfg(feature = "operate")]
mod memory;
mod options;
pub(crate) mod put;
mod summary;
