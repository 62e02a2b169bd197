//! Connections and streams of any QUIC stack.

mod client;
mod request;
mod server;
mod stream;

pub(crate) use client::ClientConnection;
pub(crate) use request::Request;
pub(crate) use server::Server;
pub(crate) use stream::{Outcome, Stream};
