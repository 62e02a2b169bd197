//! `packrat get`: an HTTP/3 downloader.
//!
//! [`download`] is the downloader as a function: it connects, sends one GET request and hands the
//! body to a [`download::Sink`]. [`command`] is the command around it: options, progress bar,
//! files, exit codes.

pub(crate) mod command;
mod connect;
mod download;
mod error;
mod file;
mod qlog;
mod report;
mod request;
mod summary;
mod token;
mod trust;

pub(crate) use download::download;
pub(crate) use error::GetError;
pub(crate) use report::{Progress, Report};
pub(crate) use request::{Request, Trust};
pub(crate) use trust::read_certificates;
