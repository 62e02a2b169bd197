//! The integration tests of packrat-admin, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod browser;
mod gateway;
mod http;
