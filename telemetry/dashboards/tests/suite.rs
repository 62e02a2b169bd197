//! The integration tests of packrat-dashboards, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod address;
#[path = "../../../gateway-filter/dataplane/tests/client/mod.rs"]
mod client;
mod compared;
mod generated;
mod live;
mod logs;
mod loki;
mod place;
mod prometheus;
mod scene;
