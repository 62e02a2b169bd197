//! The integration tests of packrat-dataplane, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod assistance;
mod attack;
mod beside;
mod bundles;
mod client;
mod control;
mod corpus;
mod faults;
mod forwarding;
mod gateway;
mod holdout;
mod layers;
mod limits;
mod names;
#[cfg(feature = "virtual-time")]
mod network;
mod numbers;
mod observation;
mod put_off;
mod relayed_clients;
mod roaming;
mod self_stop;
mod several_gateways;
mod sparse_copies;
mod spoofing;
mod stream;
