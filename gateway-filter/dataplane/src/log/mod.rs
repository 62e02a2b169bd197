//! Log lines: JSON objects with stable keys, limited per kind, written by the shell.
//!
//! Every line has `ts` (RFC 3339, UTC), `level` and `event`. Lines about a route have `gateway`,
//! `namespace` and `route`; those about a client's session `session` (a number that the process
//! never uses again) and `client`; those about its assistance `assistance` (the name of the session
//! in the protocol); lines with a cause have `reason`. `suppressed` counts the lines of this event
//! that were kept back since the last one. docs/METRICS.md lists events and keys.

mod client;
mod event;
mod level;
mod logger;
mod observations;
mod recent;
mod sink;
mod standard_output;
mod timestamp;

pub use client::Clients;
pub use event::Event;
pub use level::Level;
pub use logger::Logger;
pub use recent::Line;
pub use sink::{LogSink, Silent};
pub use standard_output::StandardOutput;
pub use timestamp::timestamp;

pub(crate) use logger::LogSubject;
pub(crate) use observations::Observations;
