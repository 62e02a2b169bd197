//! The integration tests of packrat-engine, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod allocations;
mod allocator;
mod amplification;
mod audience;
mod client_memory;
mod corpus;
mod ends;
mod false_claims;
mod forged_datagrams;
mod golden_sessions;
mod marks;
mod memory;
mod outage;
mod path_validation;
mod reconciliation;
mod scone;
mod session_events;
mod sessions;
mod shim;
mod stream;
mod stream_events;
mod stream_memory;
mod stream_symbols;
mod successor;
mod tokens;
mod upward;
mod without_cookie;
mod work;
