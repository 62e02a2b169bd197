//! The part of a route's configuration that is about a live stream.

pub(crate) mod config;
