//! Every series of a route.

use std::borrow::Cow;
use std::sync::OnceLock;

use packrat_engine::{FlowCounters, HandshakeOutcome, Side, StreamCounters};
use packrat_wire::message::ResetReason;

use super::definition::{Definition, Kind};
use super::histogram;

macro_rules! metrics {
    ($($variant:ident $kind:ident $name:literal $({$($label:ident = $value:literal),+})? $help:literal;)*) => {
        /// A counter or gauge of the data plane itself, for a route.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Metric {
            $(#[doc = concat!("`packrat_", $name, "`: ", $help)] $variant,)*
        }

        impl Metric {
            pub(super) const DEFINITIONS: &'static [Definition] = &[$(Definition {
                name: Cow::Borrowed(concat!("packrat_", $name)),
                labels: &[$($((stringify!($label), $value),)+)?],
                kind: Kind::$kind,
                help: Cow::Borrowed($help),
            },)*];
        }
    };
}

metrics! {
    Sessions Gauge "sessions" "Client sessions now.";
    SessionsOpened Counter "sessions_opened_total" "Client sessions opened.";
    SessionsClosed Counter "sessions_closed_total" "Client sessions ended, idle or by shutdown.";
    SessionsEvicted Counter "sessions_evicted_total" "Client sessions with unproven addresses, ended early to make room.";
    SessionsRefused Counter "sessions_refused_total" "Datagrams of new clients dropped: no session, descriptor or ephemeral port is free, the source has its share, or no upstream socket could be opened.";
    SessionsMoved Counter "sessions_moved_total" "Sessions moved to another endpoint because the configuration lost theirs.";
    SessionsNamed Counter "sessions_named_total" "Sessions opened with the server that a connection ID names (QUIC-LB).";
    SessionsTakenOver Counter "sessions_taken_over_total" "Sessions opened with the server that a ticket of another gateway with the same key names.";
    SessionsRelayed Counter "sessions_relayed_total" "Sessions relayed to the gateway of the same address that has the client's session.";
    Inquiries Counter "inquiries_total" "Questions to gateways of the same address about a moved client's session.";
    DownstreamDatagrams Counter "to_client_datagrams_total" "Datagrams forwarded to clients.";
    DownstreamBytes Counter "to_client_bytes_total" "Payload bytes forwarded to clients, without repairs.";
    UpstreamDatagrams Counter "to_server_datagrams_total" "Datagrams forwarded to servers.";
    UpstreamBytes Counter "to_server_bytes_total" "Payload bytes forwarded to servers.";
    DownstreamDropped Counter "to_client_dropped_total" "Datagrams not sent to a client: socket buffer full, listener gone, or kernel refuses.";
    UpstreamDropped Counter "to_server_dropped_total" "Datagrams not sent to a server: socket buffer full, or kernel refuses.";
    FromClientDropped Counter "from_client_dropped_total" "Datagrams of clients dropped because their listener's socket was not found.";
    TooLarge Counter "too_large_total" "Datagrams not forwarded because they exceed the outgoing link's MTU.";
    Truncated Counter "truncated_total" "Datagrams not forwarded because they exceed the receive buffer.";
    UpstreamErrors Counter "upstream_errors_total" "ICMP and other errors of upstream sockets.";
    ControlReceived Counter "control_received_total" "Control datagrams received from clients.";
    ControlSent Counter "control_sent_total" "Control datagrams sent to clients.";
    ControlDropped Counter "control_dropped_total" "Control datagrams dropped: malformed, for no known session, or assistance is switched off.";
    DatagramsWaited Counter "datagrams_waited_total" "Datagrams from unknown addresses that waited: their client may have moved.";
    DatagramsClaimed Counter "datagrams_claimed_total" "Datagrams that waited until a session's client proved to be at their address.";
    DatagramsWaitedInVain Counter "datagrams_waited_in_vain_total" "Datagrams that waited and were forwarded as a new client's.";
    AssistancePanics Counter "assistance_panics_total" "Faults in assistance; the flow continued without it.";
    HandshakesOffered Counter "handshakes_total" {result="offered"} "Discovers answered with an Offer.";
    HandshakesAccepted Counter "handshakes_total" {result="accepted"} "Inits answered with an InitAck, repeated ones included.";
    HandshakesAcceptedWithoutCookie Counter "handshakes_total" {result="accepted_without_cookie"} "Discovers answered with an InitAck.";
    HandshakesRefusedVersion Counter "handshakes_total" {result="refused_version"} "No version in common.";
    HandshakesRefusedDisabled Counter "handshakes_total" {result="refused_disabled"} "The route is not assisted.";
    HandshakesRefusedCookie Counter "handshakes_total" {result="refused_cookie"} "The cookie is invalid or expired.";
    HandshakesRefusedFull Counter "handshakes_total" {result="refused_full"} "Sessions, or the source's sessions or handshakes per second, are at their limit.";
    HandshakesPutOff Counter "handshakes_total" {result="put_off"} "Handshakes delayed because many others had just begun.";
    HandshakesRefusedTokenMissing Counter "handshakes_total" {result="refused_token_missing"} "The required token is missing.";
    HandshakesRefusedTokenExpired Counter "handshakes_total" {result="refused_token_expired"} "The token has expired.";
    HandshakesRefusedTokenForged Counter "handshakes_total" {result="refused_token_forged"} "The token is malformed, forged, or of a key not in force.";
    HandshakesRefusedTokenElsewhere Counter "handshakes_total" {result="refused_token_elsewhere"} "The token is for another route or network.";
    HandshakesRefusedHoldout Counter "handshakes_total" {result="refused_holdout"} "The client is held out for comparison.";
    HandshakesRefusedSession Counter "handshakes_total" {result="refused_session"} "Sealed datagrams of no existing session.";
    HandshakesMalformed Counter "handshakes_total" {result="malformed"} "Malformed control datagrams.";
    ResetByGatewayDecodeFailed Counter "resets_total" {side="gateway", reason="decode_failed"} "Resets: the longest prefix could not be decoded.";
    ResetByGatewayStateLost Counter "resets_total" {side="gateway", reason="state_lost"} "Resets: the gateway had lost its state.";
    ResetByGatewayClientOverflow Counter "resets_total" {side="gateway", reason="client_overflow"} "Resets: the client could not keep up.";
    ResetByClientDecodeFailed Counter "resets_total" {side="client", reason="decode_failed"} "Resets: the longest prefix could not be decoded.";
    ResetByClientStateLost Counter "resets_total" {side="client", reason="state_lost"} "Resets: the gateway had lost its state.";
    ResetByClientClientOverflow Counter "resets_total" {side="client", reason="client_overflow"} "Resets: the client could not keep up.";
    StreamRefused Counter "stream_foreign_total" "Live stream's route: datagrams dropped, of a host that may not send, or of a subscriber without a server.";
    TransfersAssisted Counter "transfers_total" {assisted="yes"} "Ended sessions of 256 kB to the client or more.";
    TransfersPlain Counter "transfers_total" {assisted="no"} "The same, not asking or refused.";
    TransfersHoldout Counter "transfers_total" {assisted="holdout"} "The same, held out for comparison.";
    TransferBytesAssisted Counter "transfer_bytes_total" {assisted="yes"} "Payload bytes of `packrat_transfers_total`'s sessions to clients.";
    TransferBytesPlain Counter "transfer_bytes_total" {assisted="no"} "Payload bytes of `packrat_transfers_total`'s sessions to clients.";
    TransferBytesHoldout Counter "transfer_bytes_total" {assisted="holdout"} "Payload bytes of `packrat_transfers_total`'s sessions to clients.";
    TransferTimeAssisted Counter "transfer_microseconds_total" {assisted="yes"} "Time of these bytes, without pauses above a second.";
    TransferTimePlain Counter "transfer_microseconds_total" {assisted="no"} "Time of these bytes, without pauses above a second.";
    TransferTimeHoldout Counter "transfer_microseconds_total" {assisted="holdout"} "Time of these bytes, without pauses above a second.";
    SpeedupEstimate Gauge "transfer_speedup_ppm" {bound="estimate"} "Median goodput of assisted sessions, as a multiple of sessions held out, of the last day, one session per address and hour; 0 with fewer than 30 of either.";
    SpeedupLower Gauge "transfer_speedup_ppm" {bound="lower"} "Its 95 % confidence interval's lower end.";
    SpeedupUpper Gauge "transfer_speedup_ppm" {bound="upper"} "The upper end.";
    ComparedAssisted Gauge "transfers_compared" {assisted="yes"} "Sessions compared.";
    ComparedHoldout Gauge "transfers_compared" {assisted="holdout"} "Sessions compared.";
    AssistanceStopped Gauge "assistance_stopped" "1 while this gateway has stopped assistance because it made sessions slower.";
    ForwardNanoseconds Counter "assistance_forward_nanoseconds_total" "Time for recording datagrams for repair.";
    ControlNanoseconds Counter "assistance_control_nanoseconds_total" "Time for answering control datagrams.";
}

/// The counter of a handshake's outcome.
pub(crate) const fn handshake(outcome: HandshakeOutcome) -> Metric {
    match outcome {
        HandshakeOutcome::Offered => Metric::HandshakesOffered,
        HandshakeOutcome::Accepted => Metric::HandshakesAccepted,
        HandshakeOutcome::AcceptedWithoutCookie => Metric::HandshakesAcceptedWithoutCookie,
        HandshakeOutcome::RefusedVersion => Metric::HandshakesRefusedVersion,
        HandshakeOutcome::RefusedDisabled => Metric::HandshakesRefusedDisabled,
        HandshakeOutcome::RefusedCookie => Metric::HandshakesRefusedCookie,
        HandshakeOutcome::RefusedFull => Metric::HandshakesRefusedFull,
        HandshakeOutcome::RefusedTokenMissing => Metric::HandshakesRefusedTokenMissing,
        HandshakeOutcome::RefusedTokenExpired => Metric::HandshakesRefusedTokenExpired,
        HandshakeOutcome::RefusedTokenForged => Metric::HandshakesRefusedTokenForged,
        HandshakeOutcome::RefusedTokenElsewhere => Metric::HandshakesRefusedTokenElsewhere,
        HandshakeOutcome::RefusedHoldout => Metric::HandshakesRefusedHoldout,
        HandshakeOutcome::RefusedSession => Metric::HandshakesRefusedSession,
        HandshakeOutcome::Malformed => Metric::HandshakesMalformed,
        _ => Metric::ControlDropped,
    }
}

/// The counter of a Reset.
pub(crate) const fn reset(side: Side, reason: ResetReason) -> Metric {
    match (side, reason) {
        (Side::Gateway, ResetReason::DecodeFailed) => Metric::ResetByGatewayDecodeFailed,
        (Side::Gateway, ResetReason::StateLost | ResetReason::Unspecified) => {
            Metric::ResetByGatewayStateLost
        }
        (Side::Gateway, ResetReason::ClientOverflow) => Metric::ResetByGatewayClientOverflow,
        (Side::Client, ResetReason::DecodeFailed) => Metric::ResetByClientDecodeFailed,
        (Side::Client, ResetReason::StateLost | ResetReason::Unspecified) => {
            Metric::ResetByClientStateLost
        }
        (Side::Client, ResetReason::ClientOverflow) => Metric::ResetByClientClientOverflow,
    }
}

/// Counters of the engine that are exported under another name than `packrat_<field>_total`: as
/// series of one name that differ in a label, or (`None`) not at all, because the dataplane counts
/// the same with more labels.
type Renamed = Option<(&'static str, &'static [(&'static str, &'static str)])>;

fn renamed(field: &str) -> Option<Renamed> {
    Some(match field {
        "resets_gateway" | "resets_client" => None,
        "eacks_decoded" => Some(("packrat_eacks_total", &[("result", "decoded")])),
        "eacks_failed" => Some(("packrat_eacks_total", &[("result", "failed")])),
        "eacks_stale" => Some(("packrat_eacks_total", &[("result", "stale")])),
        "eacks_other_epoch" => Some(("packrat_eacks_total", &[("result", "other_epoch")])),
        "eacks_limited" => Some(("packrat_eacks_total", &[("result", "limited")])),
        "sealed_replayed" => Some(("packrat_sealed_dropped_total", &[("reason", "replayed")])),
        "sealed_forged" => Some(("packrat_sealed_dropped_total", &[("reason", "forged")])),
        "sealed_malformed" => Some(("packrat_sealed_dropped_total", &[("reason", "malformed")])),
        "repairs_late" => Some(("packrat_repairs_given_up_total", &[("reason", "late")])),
        "losses_shown" => Some(("packrat_repairs_given_up_total", &[("reason", "queue")])),
        "losses_tolerated" => Some(("packrat_repairs_given_up_total", &[("reason", "tolerated")])),
        "repairs_paused" => Some(("packrat_repairs_given_up_total", &[("reason", "paused")])),
        "repairs_evicted" => Some(("packrat_repairs_given_up_total", &[("reason", "evicted")])),
        _ => return None,
    })
}

/// Index among the engine's counters, and definition, of everything that the engine counts and that
/// is exported.
pub(super) fn engine() -> &'static [(usize, Definition)] {
    static ENGINE_DEFINITIONS: OnceLock<Vec<(usize, Definition)>> = OnceLock::new();
    ENGINE_DEFINITIONS.get_or_init(|| {
        let mut all = Vec::new();
        for (index, &(field, help)) in FlowCounters::FIELDS.iter().enumerate() {
            let (name, labels): (Cow<'static, str>, _) = match renamed(field) {
                Some(None) => continue,
                Some(Some((name, labels))) => (name.into(), labels),
                None => (format!("packrat_{field}_total").into(), [].as_slice()),
            };
            // The engine's help begins with the space of its documentation comment.
            all.push((
                index,
                Definition { name, labels, kind: Kind::Counter, help: help.trim().into() },
            ));
        }
        all
    })
}

/// The name of a counter of live streams, without `packrat_` and `_total`: with a prefix if its
/// subject would be unclear without one, and with a label if several numbers share the name.
fn of_streams(field: &str) -> Renamed {
    Some(match field {
        "stream_eacks" => ("packrat_stream_eacks_total", &[]),
        "stream_late" => ("packrat_stream_repairs_given_up_total", &[("reason", "late")]),
        "stream_unrepairable" => {
            ("packrat_stream_repairs_given_up_total", &[("reason", "evicted")])
        }
        "stream_foreign" => ("packrat_stream_identifiers_foreign_total", &[]),
        "stream_refused" => ("packrat_stream_control_dropped_total", &[]),
        _ => return None,
    })
}

/// Every counter of live streams, in the order of [`StreamCounters::FIELDS`].
pub(super) fn streams() -> &'static [Definition] {
    static STREAM_DEFINITIONS: OnceLock<Vec<Definition>> = OnceLock::new();
    STREAM_DEFINITIONS.get_or_init(|| {
        StreamCounters::FIELDS
            .iter()
            .map(|&(field, help)| {
                let (name, labels): (Cow<'static, str>, _) = match of_streams(field) {
                    Some((name, labels)) => (name.into(), labels),
                    None => (format!("packrat_{field}_total").into(), [].as_slice()),
                };
                let help = format!("Live streams: {}", help.trim());
                Definition { name, labels, kind: Kind::Counter, help: help.into() }
            })
            .collect()
    })
}

/// The levels of a live stream, in the order of `StreamGauges`.
pub(super) const STREAM_LEVELS: &[Definition] = &[
    level("packrat_stream_subscribers", "Live streams: Subscribers now."),
    level("packrat_stream_cache_bytes", "Live streams: Bytes kept for repair now."),
    level("packrat_stream_outstanding", "Live streams: Packets under repair now."),
    level("packrat_stream_state_bytes", "Live streams: Memory of all subscribers now."),
];

/// The levels of all sessions together, and the configured limits.
pub(super) const LEVEL_DEFINITIONS: &[Definition] = &[
    level("packrat_sessions_assisted", "Assisted sessions now."),
    level(
        "packrat_sessions_limit",
        "Client sessions allowed: the configured limit, or the process's if lower.",
    ),
    level("packrat_cache_bytes", "Bytes kept for repair now."),
    level("packrat_cache_entries", "Datagrams kept for repair now."),
    level("packrat_cache_limit_bytes", "Bytes that the route may keep for repair."),
    level("packrat_cache_high_water_bytes", "Most bytes that one session has kept for repair."),
    level(
        "packrat_last_mile_round_trip_microseconds",
        "Smoothed last-mile round trip, mean of assisted sessions; 0: not measured.",
    ),
    level("packrat_last_mile_loss_ppm", "Last-mile loss, mean of assisted sessions."),
    level(
        "packrat_far_round_trip_microseconds",
        "From a session's first datagram to the server to the server's first, mean of sessions; 0: not measured.",
    ),
    level("packrat_repair_budget_ppm", "Repair bytes allowed per forwarded byte."),
    level("packrat_assist_enabled", "1 if clients may ask for assistance."),
];

const fn level(name: &'static str, help: &'static str) -> Definition {
    Definition {
        name: Cow::Borrowed(name),
        labels: &[],
        kind: Kind::Gauge,
        help: Cow::Borrowed(help),
    }
}

/// Every series of a route, in the order of [`super::Metrics::values`]: what the dataplane counts,
/// what the engine counts, the levels, the same two of live streams, and the histograms.
pub fn definitions() -> &'static [Definition] {
    static ALL_DEFINITIONS: OnceLock<Vec<Definition>> = OnceLock::new();
    ALL_DEFINITIONS.get_or_init(|| {
        let engine = engine().iter().map(|(_, definition)| definition.clone());
        Metric::DEFINITIONS
            .iter()
            .cloned()
            .chain(engine)
            .chain(LEVEL_DEFINITIONS.iter().cloned())
            .chain(streams().iter().cloned())
            .chain(STREAM_LEVELS.iter().cloned())
            .chain(histogram::series().cloned())
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn series_are_unique_and_names_follow_the_conventions() {
        let mut series: Vec<_> = definitions().iter().map(Definition::series).collect();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), definitions().len());
        let mut kinds = HashMap::new();
        for definition in definitions() {
            let is_counter = definition.kind == Kind::Counter;
            assert_eq!(is_counter, definition.name.ends_with("_total"), "{definition:?}");
            let is_part =
                ["_bucket", "_sum", "_count"].iter().any(|end| definition.name.ends_with(end));
            assert_eq!(is_part, definition.kind == Kind::Histogram, "{definition:?}");
            assert!(
                definition.help.ends_with('.') && !definition.help.contains('\n'),
                "{definition:?}"
            );
            assert!(!definition.help.starts_with(' '), "{definition:?}");
            // Series of one name have the same kind and the same labels, as Prometheus and Envoy
            // want it.
            let labels: Vec<_> = definition.labels.iter().map(|(label, _)| *label).collect();
            let shape = (definition.kind.name(), labels);
            assert_eq!(
                *kinds.entry(&definition.name).or_insert(shape.clone()),
                shape,
                "{definition:?}"
            );
        }
    }

    #[test]
    fn a_series_is_written_as_a_selector() {
        let offered = &Metric::DEFINITIONS[Metric::HandshakesOffered as usize];
        assert_eq!(offered.series(), "packrat_handshakes_total{result=\"offered\"}");
        let reset = &Metric::DEFINITIONS[reset(Side::Client, ResetReason::StateLost) as usize];
        assert_eq!(reset.series(), "packrat_resets_total{side=\"client\",reason=\"state_lost\"}");
    }
}
