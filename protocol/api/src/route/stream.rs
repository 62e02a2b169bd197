//! The live stream of a route.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{Hidden, default, number};

/// A live stream for all subscribers at the route's listeners.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamRoute {
    /// Address at which the stream arrives: an address of this host, or a multicast group to join.
    pub upstream: SocketAddr,
    /// The only hosts that may send the stream. Empty: the route's endpoints; without these, any
    /// host that reaches the address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IpAddr>,
    /// A multicast group to which the stream is sent once, instead of a copy to each subscriber.
    #[serde(default)]
    pub group: Option<SocketAddr>,
    /// Routers that datagrams to the group may pass, plus one.
    #[serde(
        default = "default::group_hops",
        deserialize_with = "number::small_whole",
        skip_serializing_if = "number::is::<{ default::group_hops() }>"
    )]
    pub group_hops: u32,
    /// The address of the interface at which IPv4 groups are joined and sent to; else the routing
    /// table decides. IPv6 groups have it in their scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<Ipv4Addr>,
    /// The stream's key, 64 hexadecimal digits: identifiers are made with it. Without it, a new
    /// one at each start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Hidden>,
    /// Subscribers at the same time.
    #[serde(
        default = "default::maximum_clients",
        deserialize_with = "number::small_whole",
        skip_serializing_if = "number::is::<{ default::maximum_clients() }>"
    )]
    pub maximum_clients: u32,
    /// Bytes of packets kept for repair, for all subscribers together.
    #[serde(
        default = "default::stream_cache_bytes",
        deserialize_with = "number::small_whole",
        skip_serializing_if = "number::is::<{ default::stream_cache_bytes() }>"
    )]
    pub cache_bytes: u32,
    /// Seconds of silence after which a subscriber is forgotten.
    #[serde(
        default = "default::silence_seconds",
        deserialize_with = "number::small_whole",
        skip_serializing_if = "number::is::<{ default::silence_seconds() }>"
    )]
    pub silence_seconds: u32,
    /// With a group: number of subscribers that miss the same packet within a round trip from which
    /// a repair goes to the whole group.
    #[serde(
        default = "default::group_repairs_from",
        deserialize_with = "number::small_whole",
        skip_serializing_if = "number::is::<{ default::group_repairs_from() }>"
    )]
    pub group_repairs_from: u32,
}

impl StreamRoute {
    /// A stream with the defaults.
    pub const fn new(upstream: SocketAddr) -> Self {
        Self {
            upstream,
            sources: Vec::new(),
            group: None,
            group_hops: default::group_hops(),
            interface: None,
            key: None,
            maximum_clients: default::maximum_clients(),
            cache_bytes: default::stream_cache_bytes(),
            silence_seconds: default::silence_seconds(),
            group_repairs_from: default::group_repairs_from(),
        }
    }
}
