//! The part of `packrat get` between its connection and its files: the command itself needs all of
//! HTTP/3.

#[path = "../../../cli/src/http3/error.rs"]
pub mod error;
#[path = "../../../cli/src/http3/file.rs"]
pub mod file;
#[path = "../../../cli/src/http3/head.rs"]
pub mod head;
#[path = "../../../cli/src/http3/resume.rs"]
pub mod resume;
#[path = "../../../cli/src/http3/sink.rs"]
pub mod sink;
