//! The integration tests of packrat-socket, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod asynchronous;
mod flows;
mod peers;
mod socket;
