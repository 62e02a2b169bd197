//! `packrat get`: an HTTP/3 downloader, which falls back to TCP if UDP brings no answer.
//!
//! [`download`] is the downloader as a function: it connects, sends one GET request and hands the
//! body to a [`sink::Sink`]. [`command`] is the command around it: options, progress bar,
//! files, exit codes. `packrat put` shares the connection ([`connection`]), the options and the
//! last words.

mod alternative;
pub(crate) mod command;
mod connect;
pub(crate) mod connection;
mod download;
pub(crate) mod ending;
mod error;
mod file;
#[cfg(test)]
mod fuzz_corpus;
mod head;
mod lost;
mod named;
pub(crate) mod options;
mod over_tcp;
mod qlog;
mod report;
mod request;
mod resume;
mod round_trip;
mod sink;
mod summary;
pub(crate) mod token;
mod trust;

pub(crate) use download::{ENDLESS_WAIT, download};
pub(crate) use error::GetError;
pub(crate) use report::{Progress, Report};
pub(crate) use request::{Request, Trust};
pub(crate) use trust::read_certificates;
