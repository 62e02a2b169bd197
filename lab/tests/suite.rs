//! The integration tests of packrat-lab, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod bundles;
mod field;
mod first_byte;
mod media;
mod multicast;
mod real;
mod regression;
mod senders;
mod traffic;
mod uploads;
