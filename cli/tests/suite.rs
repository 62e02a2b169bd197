//! The integration tests of packrat, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod agent;
#[path = "../../gateway-filter/dataplane/tests/client/mod.rs"]
mod client;
mod cluster;
mod demo;
mod get;
mod get_like_curl;
mod inject;
mod issuer;
mod last_download;
mod local_gateway;
mod lossy_path;
mod multicast;
mod multicast_network;
mod named;
mod operate;
mod piped;
mod player;
mod programs;
mod put;
mod qlog;
mod recv;
mod render;
mod roaming;
mod run;
mod server;
mod stream_gateway;
mod token;
mod token_endpoints;
