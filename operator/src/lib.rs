//! The operator: turns annotated Services into routes of Envoy gateways at the cluster's edge.
//!
//! The decisions are pure and tested without a cluster: [`annotations`], [`model`] (the fields of objects
//! that matter), [`index`] (Services,
//! EndpointSlices, Namespaces and EdgeGateways to the listeners of each gateway), [`gateway_api`]
//! (Gateways and UDPRoutes to EdgeGateways and their listeners), [`xds`] (listeners to Envoy's
//! resources, and the state of a delta stream), [`certificates`], [`policy`], [`recent`] (versions
//! that a gateway may have), [`workload`] (the objects that make a gateway run), [`status`],
//! [`inject`] (the gateway as a sidecar of a Pod). [`shell`] touches the network: watches,
//! server-side apply, leases, TLS. [`drain`] is the command that ends a gateway gently,
//! `packrat-drain`; [`start`] the one that begins it, `packrat-start`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod annotations;
pub mod certificates;
pub mod drain;
pub mod envoy;
pub mod gateway_api;
pub mod index;
pub mod inject;
pub mod keys;
mod message;
pub mod model;
pub mod names;
pub mod object_key;
pub mod overrides;
pub mod policy;
pub mod problem;
pub mod recent;
pub mod resource;
pub mod rotation;
pub mod shell;
mod size;
pub mod start;
pub mod status;
pub mod workload;
pub mod xds;
