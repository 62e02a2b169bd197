//! Joins the sans-IO client core to unmodified s2n-quic, through its packet interceptor.
//!
//! An [`Endpoint`] owns one UDP socket. s2n-quic receives from and sends to clones of it; a third
//! clone sends the control datagrams of assistance from the very same port, so that they travel on
//! the base connection's own 4-tuple. Received control datagrams end in front of s2n-quic. A
//! datagram of the base connection is recorded once s2n-quic has decrypted it; one that has to be
//! kept back is authenticated first, with the connection's own keys. The interceptor rewrites the
//! ACK frames of outgoing 1-RTT packets. A task per connection keeps the core's timers.
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
//! Whatever goes wrong in assistance, the base connection goes on: the core runs behind a guard,
//! and when it panics it is put away, nothing is withheld any more, and control datagrams are
//! dropped. Sending a control datagram never blocks.
//!
//! # Limits
//! A gateway tells connections apart by their 4-tuple. Therefore an endpoint has at most one
//! connection to the same remote address at a time ([`ConnectError::RemoteInUse`] otherwise; use a
//! second endpoint), and the remote address of an assisted connection is the one that was connected
//! to: datagrams from elsewhere (a server's preferred address) are passed on unrecorded.
#![forbid(unsafe_code)]

mod acknowledgements;
mod attachment;
mod connection;
mod connection_events;
mod driver;
mod endpoint;
mod guard;
mod header_protection;
mod host;
mod interceptor;
mod packet_protection;
mod path;
mod received;
mod refusal;
mod release;
mod socket;
mod tls;

#[cfg(any(test, fuzzing))]
mod fuzz_corpus;
#[cfg(any(test, fuzzing))]
mod test_gateway;
#[cfg(any(test, fuzzing))]
mod test_keys;

pub use attachment::Attachment;
pub use connection::{Assistance, AssistanceStats, Connection};
pub use endpoint::{ConnectError, Endpoint, EndpointConfig, EndpointError};
#[cfg(fuzzing)]
pub use fuzz_corpus::client_shell;
pub use host::{Host, Sleep};
pub use packrat_client::{
    Access, AssistState, AssistStats, ClientConfig, ClientEvent, Epoch, HoldEndedReason,
    IdentifierScheme, Live, MessageCounter, NotHeldReason, Observer, PacketNumber, RefusalReason,
    ResetReason, SessionClosedReason, SessionId, Timestamp, Token, TokenTooLong, Totals,
};
pub use s2n_quic;
pub use tls::{KeyOf as HeaderKeyOf, PacketKeyOf};
