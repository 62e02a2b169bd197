//! The integration tests of packrat-gateway, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

#[path = "../../dataplane/tests/client/mod.rs"]
mod client;
mod clients;
mod command_line;
mod descriptors;
mod flood;
mod interop;
mod otlp;
mod program;
