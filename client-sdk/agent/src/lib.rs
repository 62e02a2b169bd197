//! A local forwarder that makes any UDP program a client of a Packrat gateway, as the program is.
//!
//! A program sends to the agent's address instead of its server's; the agent forwards what it sends
//! unchanged, from an upstream socket of its own for each of the program's sockets, and passes what
//! comes back through a [`packrat_client::Shim`]: missing datagrams are repaired by the gateway on
//! the way, and come out in order. Without a gateway, and where assistance fails, everything passes
//! as it comes.
//!
//! - [`Agent`]: a [`packrat_socket::Table`] of flows on sockets, in one thread; [`Handle`] speaks to
//!   it from others
//! - [`Status`]: its figures, as JSON and for Prometheus
#![forbid(unsafe_code)]

mod forwarder;
mod handle;
mod network;
mod socket;
mod socks;
mod statistics;
mod token;

pub use forwarder::{Agent, Service, Target};
pub use handle::Handle;
pub use network::choose;
pub use packrat_client::{Access, ClientConfig, Condition, Counters, IdentifierScheme, Token};
pub use packrat_socket::Limits;
pub use socket::{DontFragment, transparent};
pub use socks::{Allowed, SocksListener};
pub use statistics::{FlowStatus, ServiceStatus, Status};
