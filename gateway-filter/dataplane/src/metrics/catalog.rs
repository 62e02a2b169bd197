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
    Sessions Gauge "sessions" "Client sessions that exist now.";
    SessionsOpened Counter "sessions_opened_total" "Client sessions opened.";
    SessionsClosed Counter "sessions_closed_total" "Client sessions ended, idle or by shutdown.";
    SessionsEvicted Counter "sessions_evicted_total" "Client sessions ended early to make room: nothing proved the client's address, which may have been forged.";
    SessionsRefused Counter "sessions_refused_total" "Datagrams of new clients dropped: the limit of sessions, of descriptors or of ephemeral ports is reached, or the share of their source while half of all are taken, or no upstream socket could be opened.";
    SessionsMoved Counter "sessions_moved_total" "Sessions that moved to another endpoint because theirs was removed from the configuration.";
    SessionsNamed Counter "sessions_named_total" "Sessions opened with the server that the client's connection ID names (QUIC-LB).";
    SessionsTakenOver Counter "sessions_taken_over_total" "Sessions opened with the server that their client had through another gateway with the same key, as its ticket says.";
    SessionsRelayed Counter "sessions_relayed_total" "Sessions that pass everything to another gateway of the same address, which has the session of their client.";
    Inquiries Counter "inquiries_total" "Questions to the other gateways of the same address about the session of a client that has moved.";
    DownstreamDatagrams Counter "to_client_datagrams_total" "Datagrams of the base connection forwarded to clients.";
    DownstreamBytes Counter "to_client_bytes_total" "Payload bytes of the base connection forwarded to clients.";
    UpstreamDatagrams Counter "to_server_datagrams_total" "Datagrams of the base connection forwarded to servers.";
    UpstreamBytes Counter "to_server_bytes_total" "Payload bytes of the base connection forwarded to servers.";
    DownstreamDropped Counter "to_client_dropped_total" "Datagrams that could not be sent to a client: full socket buffer, listener gone, or refused by the kernel.";
    UpstreamDropped Counter "to_server_dropped_total" "Datagrams that could not be sent to a server: full socket buffer or refused by the kernel.";
    FromClientDropped Counter "from_client_dropped_total" "Datagrams of clients dropped because the socket of their listener was not found: no client could be answered.";
    TooLarge Counter "too_large_total" "Datagrams not forwarded because they exceed the MTU of the outgoing link; they are never fragmented.";
    Truncated Counter "truncated_total" "Received datagrams that did not fit the receive buffer and were not forwarded.";
    UpstreamErrors Counter "upstream_errors_total" "ICMP errors and other socket errors reported by upstream sockets, for example a server that refuses.";
    ControlReceived Counter "control_received_total" "Control datagrams received from clients; none of them is ever forwarded.";
    ControlSent Counter "control_sent_total" "Control datagrams sent to clients.";
    ControlDropped Counter "control_dropped_total" "Control datagrams dropped: malformed, for no known session, or assistance is switched off.";
    DatagramsWaited Counter "datagrams_waited_total" "Datagrams from unknown addresses kept back for a moment: they may belong to a client that has just moved.";
    DatagramsClaimed Counter "datagrams_claimed_total" "Datagrams from unknown addresses that waited and were forwarded through the session whose client has proved to be there.";
    DatagramsWaitedInVain Counter "datagrams_waited_in_vain_total" "Datagrams that waited, whose address no client of a session has proved to be at, and that were forwarded as those of a new client.";
    AssistancePanics Counter "assistance_panics_total" "Faults in assistance; the flow went on without it.";
    HandshakesOffered Counter "handshakes_total" {result="offered"} "Discovers that were answered with an Offer.";
    HandshakesAccepted Counter "handshakes_total" {result="accepted"} "Inits that were answered with an InitAck, repeated ones included.";
    HandshakesAcceptedWithoutCookie Counter "handshakes_total" {result="accepted_without_cookie"} "Discovers that were answered with an InitAck: the gateway is not busy, the client proves its address afterwards.";
    HandshakesRefusedVersion Counter "handshakes_total" {result="refused_version"} "Handshakes refused: no version in common.";
    HandshakesRefusedDisabled Counter "handshakes_total" {result="refused_disabled"} "Handshakes refused: the route is not assisted.";
    HandshakesRefusedCookie Counter "handshakes_total" {result="refused_cookie"} "Handshakes refused: the cookie is not valid (any more).";
    HandshakesRefusedFull Counter "handshakes_total" {result="refused_full"} "Handshakes refused: no room for another session, or the source has too many or begins too many per second.";
    HandshakesPutOff Counter "handshakes_total" {result="put_off"} "Handshakes that waited because many others had just begun: answered a moment later, or when the client asks again.";
    HandshakesRefusedTokenMissing Counter "handshakes_total" {result="refused_token_missing"} "Handshakes refused: a token is required and the client brought none.";
    HandshakesRefusedTokenExpired Counter "handshakes_total" {result="refused_token_expired"} "Handshakes refused: the token has expired.";
    HandshakesRefusedTokenForged Counter "handshakes_total" {result="refused_token_forged"} "Handshakes refused: the token is malformed, forged, or made with a key that is not in force.";
    HandshakesRefusedTokenElsewhere Counter "handshakes_total" {result="refused_token_elsewhere"} "Handshakes refused: the token is for another route or another network.";
    HandshakesRefusedHoldout Counter "handshakes_total" {result="refused_holdout"} "Handshakes refused: the client is one of those that are left without assistance for comparison.";
    HandshakesRefusedSession Counter "handshakes_total" {result="refused_session"} "Sealed datagrams refused: no session of this name exists (any more).";
    HandshakesMalformed Counter "handshakes_total" {result="malformed"} "Control datagrams dropped because they are malformed.";
    ResetByGatewayDecodeFailed Counter "resets_total" {side="gateway", reason="decode_failed"} "Resets that the gateway asked for: not even the longest prefix could be decoded.";
    ResetByGatewayStateLost Counter "resets_total" {side="gateway", reason="state_lost"} "Resets that the gateway asked for: the gateway had lost its state.";
    ResetByGatewayClientOverflow Counter "resets_total" {side="gateway", reason="client_overflow"} "Resets that the gateway asked for: the client could not keep up.";
    ResetByClientDecodeFailed Counter "resets_total" {side="client", reason="decode_failed"} "Resets that the client asked for: not even the longest prefix could be decoded.";
    ResetByClientStateLost Counter "resets_total" {side="client", reason="state_lost"} "Resets that the client asked for: the gateway had lost its state.";
    ResetByClientClientOverflow Counter "resets_total" {side="client", reason="client_overflow"} "Resets that the client asked for: the client could not keep up.";
    StreamRefused Counter "stream_foreign_total" "Datagrams dropped on a route with a live stream: not from one of the hosts that may send it, or from a subscriber when there is no server to forward to.";
    TransfersAssisted Counter "transfers_total" {assisted="yes"} "Sessions that have ended and brought their clients 256 kB or more, whose clients were assisted.";
    TransfersPlain Counter "transfers_total" {assisted="no"} "Sessions that have ended and brought their clients 256 kB or more, whose clients did not ask to be assisted, or were refused.";
    TransfersHoldout Counter "transfers_total" {assisted="holdout"} "Sessions that have ended and brought their clients 256 kB or more, whose clients were left without assistance for comparison.";
    TransferBytesAssisted Counter "transfer_bytes_total" {assisted="yes"} "Payload bytes to the clients of these sessions.";
    TransferBytesPlain Counter "transfer_bytes_total" {assisted="no"} "Payload bytes to the clients of these sessions.";
    TransferBytesHoldout Counter "transfer_bytes_total" {assisted="holdout"} "Payload bytes to the clients of these sessions.";
    TransferTimeAssisted Counter "transfer_microseconds_total" {assisted="yes"} "Time that these sessions took to bring them, without pauses of more than a second, in microseconds.";
    TransferTimePlain Counter "transfer_microseconds_total" {assisted="no"} "Time that these sessions took to bring them, without pauses of more than a second, in microseconds.";
    TransferTimeHoldout Counter "transfer_microseconds_total" {assisted="holdout"} "Time that these sessions took to bring them, without pauses of more than a second, in microseconds.";
    SpeedupEstimate Gauge "transfer_speedup_ppm" {bound="estimate"} "Median goodput of assisted sessions as a multiple of that of sessions held out, in parts per million: of the last day, one session of an address in an hour; 0 while there are fewer than 30 of either.";
    SpeedupLower Gauge "transfer_speedup_ppm" {bound="lower"} "The lower end of the interval in which this multiple is with a confidence of 95 %.";
    SpeedupUpper Gauge "transfer_speedup_ppm" {bound="upper"} "The upper end of this interval.";
    ComparedAssisted Gauge "transfers_compared" {assisted="yes"} "Assisted sessions that are compared.";
    ComparedHoldout Gauge "transfers_compared" {assisted="holdout"} "Sessions held out that are compared.";
    AssistanceStopped Gauge "assistance_stopped" "1 while assistance has stopped by itself on this gateway, because assisted sessions were slower than sessions held out.";
    ForwardNanoseconds Counter "assistance_forward_nanoseconds_total" "Time that recording forwarded datagrams for repair has taken, in nanoseconds.";
    ControlNanoseconds Counter "assistance_control_nanoseconds_total" "Time that answering control datagrams (eACKs, mostly) has taken, in nanoseconds.";
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
    static ENGINE: OnceLock<Vec<(usize, Definition)>> = OnceLock::new();
    ENGINE.get_or_init(|| {
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
    static STREAMS: OnceLock<Vec<Definition>> = OnceLock::new();
    STREAMS.get_or_init(|| {
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
    level("packrat_stream_subscribers", "Live streams: subscribers now."),
    level(
        "packrat_stream_cache_bytes",
        "Live streams: bytes kept for repair now, for all subscribers together.",
    ),
    level(
        "packrat_stream_outstanding",
        "Live streams: packets under repair now, of all subscribers.",
    ),
    level(
        "packrat_stream_state_bytes",
        "Live streams: memory of all subscribers now, with their sealed channels and what is under repair.",
    ),
];

/// The levels of all sessions together, and the configured limits.
pub(super) const LEVELS: &[Definition] = &[
    level("packrat_sessions_assisted", "Client sessions that are assisted now."),
    level(
        "packrat_sessions_limit",
        "Client sessions that may exist at once: the configured limit, or less when the process cannot hold as many.",
    ),
    level("packrat_cache_bytes", "Bytes kept for repair now."),
    level("packrat_cache_entries", "Datagrams kept for repair now."),
    level(
        "packrat_cache_limit_bytes",
        "Bytes that all sessions of the route together may keep for repair.",
    ),
    level(
        "packrat_cache_high_water_bytes",
        "Most bytes that any single session has ever kept for repair.",
    ),
    level(
        "packrat_last_mile_round_trip_microseconds",
        "Last-mile round trip, smoothed: mean over the assisted sessions that have measured it; 0 while none has.",
    ),
    level(
        "packrat_last_mile_loss_ppm",
        "Last-mile loss in parts per million: mean over the assisted sessions that have measured the round trip.",
    ),
    level(
        "packrat_far_round_trip_microseconds",
        "Round trip to the server, taken from the first datagram that a session sent there to the first that came back, with the server's time to answer: mean over the sessions that have measured it; 0 while none has.",
    ),
    level(
        "packrat_repair_budget_ppm",
        "Bytes that repairs may take, in parts per million of the forwarded bytes.",
    ),
    level("packrat_assist_enabled", "Whether clients may ask for assistance: 0 or 1."),
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
    static ALL: OnceLock<Vec<Definition>> = OnceLock::new();
    ALL.get_or_init(|| {
        let engine = engine().iter().map(|(_, definition)| definition.clone());
        Metric::DEFINITIONS
            .iter()
            .cloned()
            .chain(engine)
            .chain(LEVELS.iter().cloned())
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
