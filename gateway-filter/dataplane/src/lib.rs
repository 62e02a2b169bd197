//! Sockets of the gateway: GRO in, GSO out, I/O threads, the process-wide session table.
//!
//! The same dataplane runs inside Envoy (`packrat-envoy`) and on sockets of its own (`packrat-gateway`). A shell starts one
//! [`Dataplane`], describes its routes with [`RouteConfig`], hands it the sockets that clients send to
//! ([`Dataplane::attach`]) and passes what clients send to [`Ingress`]. The dataplane keeps one connected upstream
//! socket for every client, forwards both ways, and lets `packrat-engine` repair what the last mile loses.
//!
//! Plain forwarding never depends on assistance: an error or a panic in the engine costs the flow its assistance and is
//! counted, the datagram is forwarded all the same.
//!
//! Packets leave with don't-fragment set, in both directions: the path MTU is the base connection's to find. A datagram that
//! does not fit the outgoing link (also one that had arrived in fragments) is dropped and counted, never fragmented.
//!
//! # Configuration of a route
//!
//! A JSON object, the same in both shells; unknown fields are errors:
//!
//! ```json
//! {
//!   "route": "web",
//!   "gateway": "edge",
//!   "namespace": "shop",
//!   "endpoints": ["192.0.2.10:443", "[2001:db8::10]:443"],
//!   "assist": true,
//!   "cache_bytes_per_session": 1048576,
//!   "cache_bytes_total": 268435456,
//!   "repair_budget": 0.25,
//!   "residual_loss_target": 0.00001,
//!   "idle_timeout_seconds": 120,
//!   "maximum_sessions": 100000,
//!   "sessions_per_source": 4096,
//!   "handshakes_per_second_per_source": 100,
//!   "handshakes_per_second_without_cookie": 100,
//!   "static_key_file": "/etc/packrat/static.key",
//!   "tokens": "off",
//!   "token_keys_file": "/etc/packrat/token.keys"
//! }
//! ```
//!
//! `route` and `endpoints` are required, everything else has the default shown (`gateway`: `"packrat"`; `namespace`: `"default"`; without
//! `static_key` (64 hexadecimal digits) or `static_key_file` (the same text, or 32 raw bytes) a random key is made at start).
//!
//! `tokens` says whether clients need an assist token (`"off"`, `"optional"`, `"required"`) from the token endpoint (`packrat-token`).
//! Its keys are `token_keys`, a list of one or two texts `identifier:64 hexadecimal digits`, the current key first and then the previous
//! one, or the lines of `token_keys_file`. To rotate: add the new key in the second place here, let the endpoint issue with it, then
//! move it to the first place; sessions that exist are not touched.
//!
//! A source is an IPv4 address, or the /64 of an IPv6 address. `sessions_per_source` and `handshakes_per_second_per_source` limit
//! assistance alone: a client beyond them is refused and forwarded plainly. `maximum_sessions` limits forwarding, too.
//!
//! While the handshakes of a route stay below `handshakes_per_second_without_cookie`, a client's first question is answered with a
//! session, which it has to prove by sealing something; above, and always when that is 0, it has to echo a cookie first.
//!
//! Every session needs a descriptor and an ephemeral port. However large `maximum_sessions` is, all routes together get no more
//! sessions than the process may have descriptors and the host has ephemeral ports, less 512 of each; the line
//! `sessions_limited` and the status of a route (`maximum_sessions_in_force`, `sessions_limited_by`) say so.
//!
//! # Clients that move
//!
//! A NAT may give a client another port, or a client another address, in the middle of a connection. A sealed datagram names its
//! session, so that it is found wherever the datagram comes from. One that is authentic and comes from another address is
//! answered with a challenge to that address alone; the right answer from there moves the session: its upstream socket stays, and the server
//! sees nothing. Forged and replayed ones are dropped and counted, and nobody gets more bytes than he has sent.
//!
//! Datagrams of the base connection that arrive from the new address before the first sealed one would open a session and an upstream
//! socket of their own. So, while a route has assisted sessions, datagrams that look like QUIC packets with a short header wait at most
//! 250 ms when their address is unknown (64 datagrams of an address, 4096 addresses and 4 MiB of a route; beyond, nobody waits). They
//! leave through the session that a sealed datagram from there names, or else through a new one. All others are never kept.
//!
//! # Live streams
//!
//! With `stream` a route is one live stream for everybody who subscribes at its listeners (docs/MEDIA.md):
//!
//! ```json
//! {
//!   "route": "tv",
//!   "stream": {
//!     "upstream": "239.1.2.3:5004",
//!     "sources": ["192.0.2.7"],
//!     "group": "239.9.9.9:5006",
//!     "group_hops": 1,
//!     "interface": "192.0.2.1",
//!     "key": "(64 hexadecimal digits)",
//!     "maximum_clients": 10000,
//!     "cache_bytes": 65536,
//!     "silence_seconds": 30,
//!     "group_repairs_from": 3
//!   }
//! }
//! ```
//!
//! Only `upstream` is required: an address of this host, or a multicast group, which is joined while the route has a listener. Without
//! `group` each subscriber gets a unicast copy. `sources` are the hosts that may send the stream; without them the `endpoints`, without
//! these anybody. Tokens, limits per source, the static key and the repair budget are the route's. What subscribers send
//! beside control datagrams is forwarded to `endpoints`, and dropped where there are none. An update that leaves `cache_bytes` and `key`
//! alone costs nobody the subscription.
//!
//! # Draining
//!
//! [`Dataplane::drain`] says Goodbye to all assisted clients at once and refuses new ones; forwarding goes on until
//! [`Dataplane::shutdown`].
//!
//! # Metrics and log lines
//!
//! [`metrics::definitions`] and [`metrics::process::definitions`] name every series, the same in both shells; [`log::Event`] every
//! event. docs/METRICS.md is generated from them.
#![allow(unsafe_code)] // system calls of the sockets, in `poller` and `socket` only
#![deny(unsafe_op_in_unsafe_fn)]

mod assistance;
mod assisted;
mod backend;
mod capacity;
pub mod configuration;
mod dataplane;
mod deadlines;
mod downstream;
mod gathering;
mod ingress;
pub mod log;
pub mod metrics;
mod poller;
mod route;
mod session;
mod snapshot;
pub mod socket;
mod steering;
mod stream;
mod table;
mod to_server;
mod tokens;
mod upstream;
mod waiting;
mod worker;

pub use configuration::{ConfigurationError, RouteConfig};
pub use dataplane::{Dataplane, DataplaneError, Options};
pub use downstream::Attachment;
pub use ingress::{ClientDatagrams, Ingress};
pub use route::Route;
pub use snapshot::SessionSnapshot;
pub use stream::{StreamRoute, StreamSummary};
pub use tokens::Tokens;
