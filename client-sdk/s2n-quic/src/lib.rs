//! Puts the client's shim under unmodified s2n-quic, through its I/O provider.
//!
//! An [`Endpoint`] owns one UDP socket. s2n-quic receives from and sends to clones of it; a third
//! clone sends the control datagrams of assistance from the very same port, so that they travel on
//! the base connection's own 4-tuple. Between the socket and s2n-quic stands
//! [`packrat_client::Shim`]: it consumes control datagrams, takes the gateway's numbers off the
//! others, and passes those on in the order of the numbers; what is above a hole waits while the
//! hole may still be repaired. s2n-quic sees a link that repairs its losses. A task per remote
//! address keeps the shim's timers.
//!
//! ```no_run
//! # async fn example(tls: s2n_quic::provider::tls::rustls::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use packrat_s2n_quic::{ClientConfig, Endpoint, EndpointConfig};
//!
//! let config = EndpointConfig::default().with_assist(ClientConfig::default());
//! let endpoint = Endpoint::bind("0.0.0.0:0".parse()?, tls, config)?;
//! let (connection, assistance) = endpoint.connect("192.0.2.7:443".parse()?, "example.org").await?.split();
//! // … use `connection` as any other s2n_quic::Connection …
//! println!("{:?}", assistance.stats());
//! # drop(connection);
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//! Whatever goes wrong in assistance, the base connection goes on: the shim runs behind a guard,
//! and when it panics it is put away, what waited in it is passed on, and so is everything that
//! arrives. Sending a control datagram never blocks. Nothing here knows a key of the connection or
//! what is in its packets.
//!
//! # Limits
//! A gateway tells flows apart by their 4-tuple. Therefore the connections of an endpoint to one
//! remote address share their assistance and its figures, and the remote address of an assisted
//! connection is the one that was connected to: datagrams from elsewhere (a server's preferred
//! address) are passed on as they are.
#![forbid(unsafe_code)]

mod attachment;
mod connection;
mod connection_events;
mod driver;
mod endpoint;
mod host;
mod key_phases;
mod path;
mod paths;
mod received;
mod refusal;
mod release;
mod released;
mod socket;
mod upload;

#[cfg(any(test, fuzzing))]
mod fuzz_corpus;
#[cfg(any(test, fuzzing))]
mod test_gateway;

pub use attachment::Attachment;
pub use connection::{Assistance, AssistanceStats, Connection};
pub use endpoint::{ConnectError, Endpoint, EndpointConfig, EndpointError};
#[cfg(fuzzing)]
pub use fuzz_corpus::client_shell;
pub use host::{Host, Sleep};
pub use packrat_client::{
    Access, AssistState, AssistStats, ClientConfig, ClientEvent, Epoch, HoldEndedReason,
    IdentifierScheme, Live, LossMemory, MessageCounter, NotHeldReason, Observer, PacketNumber,
    RefusalReason, ResetReason, SessionClosedReason, SessionId, ShimStats, Timestamp, Token,
    TokenTooLong, Totals,
};
pub use received::ReceivedPacketNumbers;
pub use s2n_quic;

/// The lines of the README are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
