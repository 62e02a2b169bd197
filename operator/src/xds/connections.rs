//! Limits of connections: how many there are, what each keeps in memory, and how long one stays whose
//! client has vanished.

use super::proto::{
    ConnectionLimit, Filter, Http2Options, SocketOption, Typed as _, UInt32Value, UInt64Value,
};

/// Sessions of which one TCP connection is the equal, which has two sockets: however many come, files
/// are left for sessions.
const SESSIONS_PER_CONNECTION: u64 = 4;
/// Bytes that wait on either side of the gateway for one connection. The sockets have buffers of their own,
/// as large as the path needs; Envoy's default is 1 MiB for what its client does not take.
const BUFFER_BYTES: u32 = 64 << 10;
/// Bytes that wait for one request over HTTP/2, in each direction. Envoy's default is some MiB.
const REQUEST_BUFFER: u32 = 256 << 10;
/// Bytes that a client may have sent over HTTP/2 and its servers have not taken.
const CLIENT_WINDOW: u32 = 1 << 20;
/// Most requests of a connection at a time.
const MOST_REQUESTS: u32 = 100;
/// Seconds of silence after which a client is asked whether it is there. Further questions follow
/// at an interval, until their number makes it count as gone.
const ASKED_AFTER: i64 = 60;
const ASKED_EVERY: i64 = 15;
const ASKED_TIMES: i64 = 4;

/// Linux's numbers of the options of sockets.
const SOL_SOCKET: i64 = 1;
const SO_KEEPALIVE: i64 = 9;
const IPPROTO_TCP: i64 = 6;
const TCP_KEEPIDLE: i64 = 4;
const TCP_KEEPINTVL: i64 = 5;
const TCP_KEEPCNT: i64 = 6;

/// Most connections of a route at one gateway. `sessions`: the most of its sessions.
pub(super) fn maximum(sessions: u64) -> u32 {
    u32::try_from(sessions / SESSIONS_PER_CONNECTION).unwrap_or(u32::MAX).max(1)
}

/// The filter that closes connections above the limit.
pub(super) fn limit(name: &str, connections: u64) -> Filter {
    let limit = ConnectionLimit {
        stat_prefix: name.to_owned(),
        max_connections: Some(UInt64Value { value: connections }),
    };
    Filter {
        name: "envoy.filters.network.connection_limit".to_owned(),
        typed_config: Some(limit.to_any()),
    }
}

pub(super) fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

/// The limit of what a connection keeps in memory.
pub(super) fn buffer() -> Option<UInt32Value> {
    number(BUFFER_BYTES)
}

/// HTTP/2 of clients.
pub(super) fn of_clients() -> Http2Options {
    Http2Options {
        max_concurrent_streams: number(MOST_REQUESTS),
        initial_stream_window_size: number(REQUEST_BUFFER),
        initial_connection_window_size: number(CLIENT_WINDOW),
    }
}

/// HTTP/2 to servers. Requests of many clients share a connection: it has room for all of them, so
/// that clients that read nothing do not keep the answers of others.
pub(super) fn to_servers() -> Http2Options {
    Http2Options {
        max_concurrent_streams: number(MOST_REQUESTS),
        initial_stream_window_size: number(REQUEST_BUFFER),
        initial_connection_window_size: number(MOST_REQUESTS * REQUEST_BUFFER),
    }
}

/// Has the system end connections of clients that have vanished, which are not noticed otherwise.
/// Accepted sockets have the options of the one that listens.
pub(super) fn keepalive() -> Vec<SocketOption> {
    let option = |level, name, value| SocketOption { level, name, int_value: Some(value) };
    vec![
        option(SOL_SOCKET, SO_KEEPALIVE, 1),
        option(IPPROTO_TCP, TCP_KEEPIDLE, ASKED_AFTER),
        option(IPPROTO_TCP, TCP_KEEPINTVL, ASKED_EVERY),
        option(IPPROTO_TCP, TCP_KEEPCNT, ASKED_TIMES),
    ]
}
