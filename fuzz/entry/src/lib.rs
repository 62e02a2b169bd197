//! The entry functions of the fuzz targets. Each takes an input, and panics when a promise is
//! broken.
//!
//! The fuzz targets call them with the fuzzer's inputs, the tests `corpus` of the crates with the
//! committed ones ([`corpus`]). A function that needs private items of a crate is in that crate.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a part of tests: a panic is the result

#[cfg(feature = "arena")]
pub mod arena;
#[cfg(feature = "engine")]
mod claims;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "code")]
mod code;
#[cfg(feature = "configuration")]
mod configuration;
pub mod corpus;
#[cfg(feature = "engine")]
mod gateway;
#[cfg(any(feature = "client", feature = "media"))]
mod gateway_half;
#[cfg(feature = "client")]
mod group_symbols;
#[cfg(feature = "media")]
mod live_packets;
#[cfg(feature = "engine")]
mod meeting;
#[cfg(feature = "messages")]
mod messages;
#[cfg(feature = "media")]
mod rtp_assist;
#[cfg(feature = "sketches")]
mod sketches;
#[cfg(feature = "engine")]
mod subscribers;
mod take;
#[cfg(feature = "tokens")]
mod tokens;

#[cfg(feature = "arena")]
pub use arena::knowing_attacker;
#[cfg(feature = "client")]
pub use client::{client, client_sessions};
#[cfg(feature = "code")]
pub use code::code;
#[cfg(feature = "configuration")]
pub use configuration::configuration;
#[cfg(feature = "engine")]
pub use gateway::gateway;
#[cfg(feature = "client")]
pub use group_symbols::{group_symbols, recovered_by_group_symbols};
#[cfg(feature = "media")]
pub use live_packets::live_packets;
#[cfg(feature = "engine")]
pub use meeting::meeting;
#[cfg(feature = "messages")]
pub use messages::{handshake, wire};
#[cfg(feature = "media")]
pub use rtp_assist::rtp_assist;
#[cfg(feature = "sketches")]
pub use sketches::{coded_symbols, power_sums};
#[cfg(feature = "engine")]
pub use subscribers::subscribers;
pub use take::take;
#[cfg(feature = "tokens")]
pub use tokens::tokens;
