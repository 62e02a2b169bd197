//! The integration tests of packrat-agent, one program: linking is dear.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod descriptors;
mod own_process;
mod running;
mod silence;
mod sockets;
mod socks;
mod turn;
