//! Puts the client's shim under unmodified s2n-quic, through its I/O provider.
//!
//! An [`Endpoint`] owns one UDP socket. s2n-quic receives from and sends to clones of it; a third
//! clone sends the control datagrams of assistance from the same port, so that they travel on the
//! base connection's own 4-tuple. [`packrat_client::Shim`] is between the socket and s2n-quic: it
//! consumes control datagrams, removes the gateway's numbers from the others, and passes these on
//! in numerical order. Datagrams above a hole wait while the hole may still be repaired. s2n-quic
//! sees a link that repairs its losses. A task per remote address keeps the shim's timers.
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
//! # Guarantees
//! A failure of assistance never ends the base connection. The shim runs behind a guard: if it
//! panics, it is removed, its waiting datagrams are passed on, and all later datagrams pass
//! unchanged. Sending a control datagram never blocks. Assistance has no access to the connection's
//! keys or to the contents of its packets.
//!
//! # Limits
//! A gateway distinguishes flows by their 4-tuple. Therefore the connections of an endpoint to one
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
