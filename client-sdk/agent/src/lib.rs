//! A local forwarder that makes any UDP program a client of a Packrat gateway, unmodified.
//!
//! A program sends to the agent's address instead of its server's. The agent forwards the program's
//! datagrams unchanged, from one upstream socket for each of the program's sockets, and passes the
//! answers through a [`packrat_client::Shim`]: the gateway repairs missing datagrams on the way,
//! and they are delivered in order. Without a gateway, or if assistance fails, every datagram
//! passes as it arrives.
//!
//! - [`Agent`]: a [`packrat_socket::Table`] of flows on sockets, in one thread; [`Handle`] controls
//!   it from other threads
//! - [`Status`]: the agent's figures, as JSON and for Prometheus
#![forbid(unsafe_code)]

mod allow;
mod forwarder;
mod handle;
mod network;
mod socket;
mod socks;
mod statistics;
mod token;
mod turn;

pub use allow::Allowed;
pub use forwarder::{Agent, Choosing, Service, Target, TurnListener};
pub use handle::Handle;
pub use network::choose;
pub use packrat_client::{Access, ClientConfig, Condition, Counters, IdentifierScheme, Token};
pub use packrat_socket::Limits;
pub use socket::{DontFragment, transparent};
pub use socks::SocksListener;
pub use statistics::{FlowStatus, ServiceStatus, Status};
pub use turn::{MOST_ALLOCATIONS, TurnCredentials};
