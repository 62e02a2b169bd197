//! `packrat put`: an HTTP/3 uploader.
//!
//! [`upload`] is the uploader as a function: it connects, sends one request with a [`Source`] as its
//! body, and waits for the answer. [`command`] is the command around it. Connection, options and
//! errors are those of `packrat get`.

pub(crate) mod command;
mod source;
mod upload;

pub(crate) use source::Source;
pub(crate) use upload::{Upload, upload};
