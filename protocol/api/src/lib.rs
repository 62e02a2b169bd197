//! The JSON documents that travel between Packrat's processes, each as one type for the one who
//! writes it and the one who reads it. Types and checks only: no input or output.
//!
//! | document | written by | read by |
//! | -- | -- | -- |
//! | [`route::RouteConfig`] | people, the operator | the gateway |
//! | [`status`]: `/packrat` and below | the gateway | `packrat`, the operator |
//! | [`token::TokenDocument`] | the token endpoint | clients |
//!
//! [`knobs::KNOBS`] has a row for each setting of a route, with its names in an EdgeGateway and in
//! annotations. docs/CONFIGURATION.md is generated from it.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod knobs;
pub mod route;
pub mod status;
pub mod token;
