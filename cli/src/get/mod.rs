//! `packrat get`: an HTTP/3 downloader.
//!
//! [`download`] is the downloader as a function: it connects, sends one GET request and hands the
//! body to a [`sink::Sink`]. [`command`] is the command around it: options, progress bar,
//! files, exit codes.

pub(crate) mod command;
mod connect;
mod download;
mod error;
mod file;
#[cfg(test)]
mod fuzz_corpus;
mod head;
mod qlog;
mod report;
mod request;
mod resume;
mod sink;
mod summary;
pub(crate) mod token;
mod trust;

pub(crate) use download::download;
pub(crate) use error::GetError;
pub(crate) use report::{Progress, Report};
pub(crate) use request::{Request, Trust};
pub(crate) use trust::read_certificates;
