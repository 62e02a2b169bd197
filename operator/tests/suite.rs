//! The integration tests of packrat-operator, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod corpus;
mod definitions;
mod index;
mod knobs;
mod real_api_server;
mod real_envoy;
