//! `packrat put`: an HTTP/3 uploader.
//!
//! [`upload`] is the uploader as a function: it connects, sends one request with a [`Source`] as
//! its body, and waits for the answer. [`Resumable`] is an upload that continues after a break.
//! [`command`] is the command around it. Connection, options and errors are shared with
//! `packrat get`.

pub(crate) mod command;
mod resumable;
mod source;
mod upload;

pub(crate) use resumable::Resumable;
pub(crate) use source::Source;
pub(crate) use upload::{Begun, Upload, content_type, upload};
