//! The integration tests of packrat-assist-token, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod corpus;
mod tokens;
mod wiping;
