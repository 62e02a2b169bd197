//! The part of `packrat get` between its connection and its files: the command itself needs all of
//! HTTP/3.

#[path = "../../../cli/src/get/error.rs"]
pub mod error;
#[path = "../../../cli/src/get/file.rs"]
pub mod file;
#[path = "../../../cli/src/get/head.rs"]
pub mod head;
#[path = "../../../cli/src/get/resume.rs"]
pub mod resume;
#[path = "../../../cli/src/get/sink.rs"]
pub mod sink;
