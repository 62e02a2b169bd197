//! The configuration of a live stream, as its sockets and its engine take it.

use std::time::Duration;

use packrat_api::route::StreamRoute;
use packrat_api::status::StreamSummary;
use packrat_engine::StreamConfig;
use packrat_wire::hexadecimal::decode_key;
use packrat_wire::identifier::IdentifierScheme;

/// The configured key; `None`: one is to be made.
pub(crate) fn read_key(config: &StreamRoute) -> Option<[u8; 32]> {
    decode_key(config.key.as_ref()?.reveal().as_bytes())
}

/// True if a change needs other identifiers: then subscribers join again.
pub(crate) fn needs_other_identifiers(before: &StreamRoute, after: &StreamRoute) -> bool {
    before.key != after.key
}

/// True if a change needs other sockets.
pub(crate) fn needs_other_sockets(before: &StreamRoute, after: &StreamRoute) -> bool {
    let sockets =
        |config: &StreamRoute| (config.upstream, config.group, config.group_hops, config.interface);
    sockets(before) != sockets(after)
}

/// The engine's limits.
pub(crate) fn engine(config: &StreamRoute) -> StreamConfig {
    StreamConfig {
        scheme: IdentifierScheme::Payload,
        cache_bytes: config.cache_bytes as usize,
        maximum_subscribers: config.maximum_clients as usize,
        silence: Duration::from_secs(config.silence_seconds.into()),
        group_repairs_from: config.group.map(|_| config.group_repairs_from),
        ..StreamConfig::default()
    }
}

/// The configuration for an operator to see.
pub(crate) fn summary(config: &StreamRoute) -> StreamSummary {
    StreamSummary {
        upstream: config.upstream,
        group: config.group,
        maximum_clients: config.maximum_clients,
        unavailable: None,
    }
}
