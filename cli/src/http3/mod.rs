//! Transfers over HTTP/3, and downloads over TCP if UDP brings no answer.
//!
//! [`download`] connects, unless a connection of [`Connections`] stands, sends one GET request and hands the body to a [`sink::Sink`], such as a
//! [`PartialFile`]. [`upload`] connects, sends one request with a [`Source`] as its body, and waits
//! for the answer. [`Resumable`] is an upload that continues after a break.

mod alternative;
mod connect;
mod connection;
mod connections;
mod credentials;
mod download;
pub(crate) mod error;
mod field;
mod file;
#[cfg(test)]
mod fuzz_corpus;
mod head;
mod lost;
mod named;
mod netrc;
mod over_tcp;
mod places;
mod proxy;
mod qlog;
mod redirect;
mod report;
mod request;
mod resumable;
mod resume;
mod round_trip;
mod sink;
mod source;
pub(crate) mod token;
mod trust;
mod upload;

pub(crate) use connections::Connections;
pub(crate) use credentials::{Secret, basic, bearer, of_user};
pub(crate) use download::download;
pub(crate) use error::{GetError, redacted};
pub(crate) use field::UserField;
pub(crate) use file::PartialFile;
pub(crate) use netrc::Netrc;
pub(crate) use places::{ConnectTo, Family, Places, Resolve, host_and_port};
pub(crate) use proxy::Proxies;
pub(crate) use report::{KnownKey, Progress, Report};
pub(crate) use request::{Request, Trust};
pub(crate) use resumable::{Beginning, Resumable};
pub(crate) use source::{Source, length};
pub(crate) use trust::read_certificates;
pub(crate) use upload::{Begun, Upload, content_type, upload};
