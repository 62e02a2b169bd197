//! The JSON documents that travel between Packrat's processes, each as one type for the one who
//! writes it and the one who reads it. Types and checks only: no input or output.
//!
//! | document | written by | read by |
//! | -- | -- | -- |
//! | [`route::RouteConfig`] | people, the operator | the gateway |
//! | [`status`]: `/packrat` and below | the gateway | `packrat`, the operator |
//! | [`token_endpoint::TokenEndpointConfig`] | people, the operator | the token endpoint |
//! | [`token::TokenDocument`] | the token endpoint | clients |
//!
//! [`knobs::ROUTE_KNOBS`] has a row for each setting of a route, with its names in an EdgeGateway and in
//! annotations; [`knobs::TOKEN_ENDPOINT_KNOBS`] has one for each setting of a token endpoint.
//! docs/CONFIGURATION.md is generated from them.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod affinity;
mod invalid_field;
pub mod knobs;
pub mod route;
pub mod sender;
pub mod status;
pub mod token;
pub mod token_endpoint;
mod words;
