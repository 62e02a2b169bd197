//! Sockets of the gateway: GRO in, GSO out, I/O threads, the process-wide session table.
//!
//! The same data plane runs inside Envoy (`packrat-envoy`) and on sockets of its own
//! (`packrat-gateway`). A shell starts one [`Dataplane`], describes its routes with
//! [`RouteConfig`], and hands it the sockets that clients send to ([`Dataplane::listen`]); a shell
//! that reads them itself ([`Dataplane::attach_and_read`]) passes clients' datagrams to
//! [`Ingress`]. The data plane keeps one connected upstream socket for every client, forwards both
//! ways, and lets `packrat-engine` repair the last mile's losses.
//!
//! # Layers
//!
//! Each layer uses only the layers below it; `tests/layers.rs` checks the imports.
//!
//! ```text
//!   process        the data plane, its I/O threads
//!   listener       the way of every datagram: client_to_server, control, server_to_client;
//!                  the sockets that a shell lends; the mailboxes of the I/O threads
//!   route          the sessions of a route by address and id, pending datagrams, the live stream
//!   session        one client: its path, its upstream socket, the engine's flow
//!   context        what all of them need: log, clock, limits; a route's settings and metrics
//!   configuration  what an operator writes; of it, stream and tokens
//!   socket         sending and receiving in batches, epoll, slots, addresses
//!   log, metrics   records; beside them clock and random
//!   sync           the locks and atomics of what threads share
//! ```
//!
//! A lower layer returns the work that it leaves to an upper one: a session reports that it has
//! another upstream socket, and the listener that has called it notifies the I/O thread.
//!
//! Plain forwarding never depends on assistance: an error or a panic in the engine costs the flow
//! its assistance and is counted, the datagram is forwarded all the same.
//!
//! Packets leave with don't-fragment set, in both directions: the path MTU is the base connection's
//! to find. A datagram that does not fit the outgoing link (also one that had arrived in fragments)
//! is dropped and counted, never fragmented.
//!
//! # Configuration of a route
//!
//! A JSON object, the same in both shells: [`packrat_api::route::RouteConfig`], read by
//! [`route_from_json`]. docs/CONFIGURATION.md has all fields, their defaults and what they mean.
//!
//! # Clients that move
//!
//! A NAT may give a client another port, or a client another address, in the middle of a
//! connection. A sealed datagram names its session, so that it is found wherever the datagram comes
//! from. One that is authentic and comes from another address is answered with a challenge to that
//! address alone; the right answer from there moves the session: its upstream socket stays, and the
//! server does not notice. Forged and replayed ones are dropped and counted, and no address gets
//! more bytes than came from there.
//!
//! Datagrams of the base connection that arrive from the new address before the first sealed one
//! would open a session and an upstream socket of their own. So, while a route has assisted
//! sessions, datagrams that look like QUIC packets with a short header wait at most 250 ms when
//! their address is unknown (64 datagrams of an address, 4096 addresses and 4 MiB of a route;
//! beyond, none waits). They leave through the session that a sealed datagram from there names,
//! or else through a new one. All others are never kept.
//!
//! # Live streams
//!
//! With `stream` a route is one live stream for all subscribers at its listeners (docs/MEDIA.md).
//!
//! Only `upstream` is required: an address of this host, or a multicast group, which is joined
//! while the route has a listener. Without `group` each subscriber gets a unicast copy. `sources`
//! are the hosts that may send the stream: by default the `endpoints`, and without endpoints any
//! host. Tokens, limits per source, the static key and the repair budget are the route's.
//! Subscribers' datagrams other than control datagrams are forwarded to `endpoints`, or dropped
//! without endpoints. An update that leaves `cache_bytes` and `key` alone costs no subscriber the
//! subscription.
//!
//! # Draining
//!
//! After [`Dataplane::drain`] no further client is assisted; forwarding continues, and so does the
//! assistance of assisted clients, until [`Dataplane::shutdown`], which sends Goodbye.
//!
//! # Metrics and log lines
//!
//! [`metrics::definitions`] and [`metrics::process::definitions`] name every series, the same in
//! both shells; [`log::Event`] every event. docs/METRICS.md is generated from them.
#![allow(unsafe_code)] // system calls, in `socket` and `metrics::process` only
#![deny(unsafe_op_in_unsafe_fn)]

mod clock;
pub mod configuration;
mod context;
#[cfg(any(test, fuzzing))]
mod fuzz_corpus;
mod listener;
pub mod log;
pub mod metrics;
mod process;
mod random;
mod route;
mod session;
pub mod socket;
mod stream;
mod sync;
mod tokens;

pub use configuration::{ConfigurationError, read_static_key, route_from_json};
#[cfg(fuzzing)]
pub use fuzz_corpus::session_table;
pub use listener::{Attachment, ClientDatagrams, Ingress};
pub use packrat_api::route::{RouteConfig, StreamRoute};
#[cfg(feature = "virtual-time")]
pub use process::virtual_time;
pub use process::{Dataplane, DataplaneError, DataplaneRef, ObservationError, Options};
pub use route::{Route, prometheus_text};
