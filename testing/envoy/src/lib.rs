//! A real Envoy as a process, for the tests of all crates that need one.
//!
//! ```text
//! find_envoy ──▶ Envoy::spawn ──▶ admin ──▶ get, post, metric, wait_until ──▶ terminate, or drop
//!                     │                              ▲
//!                     └── Envoy::start_gateway ──────┘   the filter, and listeners that `update` replaces
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a part of tests: it may fail anywhere

mod envoy;
mod gateway;
mod parts;
mod port;
mod unix;

pub use envoy::{EVENT_PATIENCE, Envoy};
pub use gateway::{listener, validates};
pub use parts::{find, find_envoy, module_directory};
pub use port::{free_address, free_port};
pub use unix::body_of;
