//! The integration tests of packrat-client, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod connections;
mod corpus;
mod refusals;
