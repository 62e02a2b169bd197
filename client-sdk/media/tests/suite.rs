//! The integration tests of packrat-media, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod corpus;
mod forged_packets;
mod live;
mod receiver;
mod stream;
mod udp;
mod webrtc;
