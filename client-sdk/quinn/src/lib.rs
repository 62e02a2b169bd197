//! Joins the client core to unmodified quinn.
//!
//! A [`Socket`] is quinn's [`AsyncUdpSocket`](quinn::AsyncUdpSocket). Below the endpoint, each peer
//! has a datagram shim. The shim looks for a gateway and delivers arriving datagrams in the order
//! in which the gateway forwarded them, repairs included. quinn's keys, connections and streams are
//! unchanged. Without a gateway, every datagram passes as it arrives.
//!
//! ```no_run
//! use packrat_quinn::{ClientConfig, Socket};
//!
//! # async fn example(tls: quinn::ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
//! let socket = Socket::bind("0.0.0.0:0".parse()?, ClientConfig::default())?;
//! let endpoint = socket.endpoint()?;
//! let remote = "192.0.2.7:443".parse()?;
//! let connection = endpoint.connect_with(tls, remote, "example.org")?.await?;
//! let (_, mut stream) = connection.open_bi().await?;
//! stream.read_to_end(1 << 20).await?;
//! println!("{} repaired in time", socket.counters().repaired_in_time);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod socket;

pub use packrat_socket::{
    Access, ClientConfig, Condition, Counters, FlowFigures, IdentifierScheme, SocketError, Token,
};
pub use socket::Socket;

/// The lines of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
