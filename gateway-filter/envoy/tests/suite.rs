//! The integration tests of packrat-envoy, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod module;
mod real_envoy;
mod reattach;
mod stream;
