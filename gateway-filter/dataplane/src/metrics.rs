//! The metrics of a route: one table with name, kind and help; atomics that any thread counts in.
//!
//! Shells read them from time to time with [`Metrics::values`]: Envoy's labelled metrics may be touched on its main thread
//! only, the standalone gateway renders [`prometheus_text`] when it is asked.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use packrat_engine::{FlowCounters, FlowGauges, HandshakeOutcome};

use crate::route::Route;

/// Name, kind and meaning of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name in Prometheus, the same in every shell. The labels are `route` and `gateway`.
    pub name: Cow<'static, str>,
    /// Counter or gauge.
    pub kind: Kind,
    /// One sentence for operators.
    pub help: &'static str,
}

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

macro_rules! metrics {
    ($($variant:ident $kind:ident $name:literal $help:literal;)*) => {
        /// What the dataplane itself counts for a route.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Metric {
            $(#[doc = concat!("`packrat_", $name, "`: ", $help)] $variant,)*
        }

        impl Metric {
            const DEFINITIONS: &'static [Definition] = &[$(Definition {
                name: Cow::Borrowed(concat!("packrat_", $name)),
                kind: Kind::$kind,
                help: $help,
            },)*];
        }
    };
}

metrics! {
    Sessions Gauge "sessions" "Client sessions that exist now.";
    SessionsOpened Counter "sessions_opened_total" "Client sessions opened.";
    SessionsClosed Counter "sessions_closed_total" "Client sessions ended, idle or by shutdown.";
    SessionsRefused Counter "sessions_refused_total" "Datagrams of new clients dropped: the limit of sessions, of descriptors or of ephemeral ports is reached, or no upstream socket could be opened.";
    SessionsMoved Counter "sessions_moved_total" "Sessions that moved to another endpoint because theirs was removed from the configuration.";
    DownstreamDatagrams Counter "to_client_datagrams_total" "Datagrams of the base connection forwarded to clients.";
    DownstreamBytes Counter "to_client_bytes_total" "Payload bytes of the base connection forwarded to clients.";
    UpstreamDatagrams Counter "to_server_datagrams_total" "Datagrams of the base connection forwarded to servers.";
    UpstreamBytes Counter "to_server_bytes_total" "Payload bytes of the base connection forwarded to servers.";
    DownstreamDropped Counter "to_client_dropped_total" "Datagrams that could not be sent to a client: full socket buffer, listener gone, or refused by the kernel.";
    UpstreamDropped Counter "to_server_dropped_total" "Datagrams that could not be sent to a server: full socket buffer or refused by the kernel.";
    FromClientDropped Counter "from_client_dropped_total" "Datagrams of clients dropped because the socket of their listener was not found: nobody could be answered.";
    TooLarge Counter "too_large_total" "Datagrams not forwarded because they exceed the MTU of the outgoing link; they are never fragmented.";
    Truncated Counter "truncated_total" "Received datagrams that did not fit the receive buffer and were not forwarded.";
    UpstreamErrors Counter "upstream_errors_total" "ICMP errors and other socket errors reported by upstream sockets, for example a server that refuses.";
    ControlReceived Counter "control_received_total" "Control datagrams received from clients; none of them is ever forwarded.";
    ControlSent Counter "control_sent_total" "Control datagrams sent to clients.";
    ControlDropped Counter "control_dropped_total" "Control datagrams dropped: malformed, for no known session, or assistance is switched off.";
    DatagramsWaited Counter "datagrams_waited_total" "Datagrams from unknown addresses kept back for a moment: they may belong to a client that has just moved.";
    DatagramsClaimed Counter "datagrams_claimed_total" "Datagrams from unknown addresses forwarded through the session that a sealed message from there has named.";
    DatagramsWaitedInVain Counter "datagrams_waited_in_vain_total" "Datagrams that waited, that no session has claimed, and that were forwarded as those of a new client.";
    AssistancePanics Counter "assistance_panics_total" "Faults in assistance; the flow went on without it.";
    HandshakesOffered Counter "handshakes_offered_total" "Discovers that were answered with an Offer.";
    HandshakesAccepted Counter "handshakes_accepted_total" "Inits that were answered with an InitAck, repeated ones included.";
    HandshakesRefusedVersion Counter "handshakes_refused_version_total" "Handshakes refused: no version in common.";
    HandshakesRefusedDisabled Counter "handshakes_refused_disabled_total" "Handshakes refused: the route is not assisted.";
    HandshakesRefusedCookie Counter "handshakes_refused_cookie_total" "Handshakes refused: the cookie is not valid (any more).";
    HandshakesRefusedFull Counter "handshakes_refused_full_total" "Handshakes refused: no room for another session.";
    HandshakesRefusedTokenMissing Counter "handshakes_refused_token_missing_total" "Handshakes refused: a token is required and the client brought none.";
    HandshakesRefusedTokenExpired Counter "handshakes_refused_token_expired_total" "Handshakes refused: the token has expired.";
    HandshakesRefusedTokenForged Counter "handshakes_refused_token_forged_total" "Handshakes refused: the token is malformed, forged, or made with a key that is not in force.";
    HandshakesRefusedTokenElsewhere Counter "handshakes_refused_token_elsewhere_total" "Handshakes refused: the token is for another route or another network.";
    HandshakesRefusedSession Counter "handshakes_refused_session_total" "Sealed datagrams refused: no session of this name exists (any more).";
    HandshakesMalformed Counter "handshakes_malformed_total" "Control datagrams dropped because they are malformed.";
}

/// The counter of a handshake's outcome.
pub(crate) const fn handshake(outcome: HandshakeOutcome) -> Metric {
    match outcome {
        HandshakeOutcome::Offered => Metric::HandshakesOffered,
        HandshakeOutcome::Accepted => Metric::HandshakesAccepted,
        HandshakeOutcome::RefusedVersion => Metric::HandshakesRefusedVersion,
        HandshakeOutcome::RefusedDisabled => Metric::HandshakesRefusedDisabled,
        HandshakeOutcome::RefusedCookie => Metric::HandshakesRefusedCookie,
        HandshakeOutcome::RefusedFull => Metric::HandshakesRefusedFull,
        HandshakeOutcome::RefusedTokenMissing => Metric::HandshakesRefusedTokenMissing,
        HandshakeOutcome::RefusedTokenExpired => Metric::HandshakesRefusedTokenExpired,
        HandshakeOutcome::RefusedTokenForged => Metric::HandshakesRefusedTokenForged,
        HandshakeOutcome::RefusedTokenElsewhere => Metric::HandshakesRefusedTokenElsewhere,
        HandshakeOutcome::RefusedSession => Metric::HandshakesRefusedSession,
        HandshakeOutcome::Malformed => Metric::HandshakesMalformed,
        _ => Metric::ControlDropped,
    }
}

/// What is exported from the levels of all assisted sessions.
const LEVELS: &[Definition] = &[
    level("packrat_sessions_assisted", "Client sessions that are assisted now."),
    level("packrat_cache_bytes", "Bytes kept for repair now."),
    level("packrat_cache_entries", "Datagrams kept for repair now."),
    level("packrat_cache_high_water_bytes", "Most bytes that any single session has ever kept for repair."),
    level(
        "packrat_last_mile_round_trip_microseconds",
        "Last-mile round trip, smoothed: mean over the assisted sessions that have measured it.",
    ),
    level(
        "packrat_last_mile_loss_ppm",
        "Last-mile loss in parts per million: mean over the assisted sessions that have measured the round trip.",
    ),
];

const fn level(name: &'static str, help: &'static str) -> Definition {
    Definition { name: Cow::Borrowed(name), kind: Kind::Gauge, help }
}

/// Name, kind and help of every metric, in the order of [`Metrics::values`]: what the dataplane counts, what the engine
/// counts, and the levels of the sessions.
pub fn definitions() -> &'static [Definition] {
    static ALL: OnceLock<Vec<Definition>> = OnceLock::new();
    ALL.get_or_init(|| {
        let engine = FlowCounters::FIELDS.iter().map(|&(name, help)| Definition {
            name: format!("packrat_{name}_total").into(),
            kind: Kind::Counter,
            help,
        });
        Metric::DEFINITIONS.iter().cloned().chain(engine).chain(LEVELS.iter().cloned()).collect()
    })
}

/// The levels of one session, as far as they are part of the route's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reported {
    assisted: u64,
    cache_bytes: u64,
    cache_entries: u64,
    measured: u64,
    round_trip_microseconds: u64,
    loss_ppm: u64,
}

impl Reported {
    fn of(gauges: &FlowGauges) -> Self {
        let measured = u64::from(gauges.round_trip_microseconds > 0);
        Self {
            assisted: gauges.assisted,
            cache_bytes: gauges.cache_bytes,
            cache_entries: gauges.cache_entries,
            measured,
            round_trip_microseconds: gauges.round_trip_microseconds,
            loss_ppm: gauges.loss_ppm * measured,
        }
    }
}

/// Sums of the levels of all sessions of a route.
#[derive(Debug, Default)]
struct Levels {
    assisted: AtomicU64,
    cache_bytes: AtomicU64,
    cache_entries: AtomicU64,
    cache_high_water_bytes: AtomicU64,
    measured: AtomicU64,
    round_trip_microseconds: AtomicU64,
    loss_ppm: AtomicU64,
}

/// The values of one route; any thread may count in them.
#[derive(Debug)]
pub struct Metrics {
    own: Vec<AtomicU64>,
    engine: Vec<AtomicU64>,
    levels: Levels,
}

impl Default for Metrics {
    fn default() -> Self {
        let zeros = |count| std::iter::repeat_with(|| AtomicU64::new(0)).take(count).collect();
        Self {
            own: zeros(Metric::DEFINITIONS.len()),
            engine: zeros(FlowCounters::FIELDS.len()),
            levels: Levels::default(),
        }
    }
}

impl Metrics {
    /// What the dataplane itself has counted.
    pub fn get(&self, metric: Metric) -> u64 {
        self.own.get(metric as usize).map_or(0, load)
    }

    /// Every value now, in the order of [`definitions`]. They are not a consistent snapshot.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        let levels = &self.levels;
        let measured = load(&levels.measured).max(1);
        self.own.iter().chain(&self.engine).map(load).chain([
            load(&levels.assisted),
            load(&levels.cache_bytes),
            load(&levels.cache_entries),
            load(&levels.cache_high_water_bytes),
            load(&levels.round_trip_microseconds) / measured,
            load(&levels.loss_ppm) / measured,
        ])
    }

    pub(crate) fn add(&self, metric: Metric, amount: u64) {
        if amount != 0
            && let Some(value) = self.own.get(metric as usize)
        {
            value.fetch_add(amount, Ordering::Relaxed);
        }
    }

    pub(crate) fn subtract(&self, metric: Metric, amount: u64) {
        if amount != 0
            && let Some(value) = self.own.get(metric as usize)
        {
            value.fetch_sub(amount, Ordering::Relaxed);
        }
    }

    /// Adds what the engine has counted for one flow.
    pub(crate) fn add_flow(&self, counters: &FlowCounters) {
        for (value, amount) in self.engine.iter().zip(counters.values()) {
            if amount != 0 {
                value.fetch_add(amount, Ordering::Relaxed);
            }
        }
    }

    /// Replaces what one flow has reported before by its levels now.
    pub(crate) fn replace_levels(&self, reported: &mut Reported, gauges: &FlowGauges) {
        let (before, now) = (*reported, Reported::of(gauges));
        for (sum, before, now) in [
            (&self.levels.assisted, before.assisted, now.assisted),
            (&self.levels.cache_bytes, before.cache_bytes, now.cache_bytes),
            (&self.levels.cache_entries, before.cache_entries, now.cache_entries),
            (&self.levels.measured, before.measured, now.measured),
            (
                &self.levels.round_trip_microseconds,
                before.round_trip_microseconds,
                now.round_trip_microseconds,
            ),
            (&self.levels.loss_ppm, before.loss_ppm, now.loss_ppm),
        ] {
            if now != before {
                // Wrapping arithmetic: one addition is right for both directions.
                sum.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
            }
        }
        self.levels.cache_high_water_bytes.fetch_max(gauges.cache_high_water_bytes, Ordering::Relaxed);
        *reported = now;
    }
}

fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

/// All metrics of all routes in the Prometheus text format, version 0.0.4.
pub fn prometheus_text(routes: &[Arc<Route>]) -> String {
    let mut text = String::new();
    let values: Vec<Vec<u64>> = routes.iter().map(|route| route.metrics().values().collect()).collect();
    for (index, Definition { name, kind, help }) in definitions().iter().enumerate() {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (route, values) in routes.iter().zip(&values) {
            let value = values.get(index).copied().unwrap_or_default();
            let (route, gateway) = (escape_label(route.name()), escape_label(&route.gateway_name()));
            let _ = writeln!(text, "{name}{{route=\"{route}\",gateway=\"{gateway}\"}} {value}");
        }
    }
    text
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_counters_end_in_total() {
        let mut names: Vec<_> = definitions().iter().map(|definition| definition.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), definitions().len());
        for definition in definitions() {
            let is_counter = definition.kind == Kind::Counter;
            assert_eq!(is_counter, definition.name.ends_with("_total"), "{definition:?}");
            assert!(definition.help.ends_with('.') && !definition.help.contains('\n'), "{definition:?}");
        }
        assert_eq!(Metrics::default().values().count(), definitions().len());
    }

    fn value(metrics: &Metrics, name: &str) -> u64 {
        let index = definitions().iter().position(|definition| definition.name == name).expect(name);
        metrics.values().nth(index).unwrap()
    }

    #[test]
    fn values_stand_under_their_names() {
        let metrics = Metrics::default();
        metrics.add(Metric::Sessions, 3);
        metrics.subtract(Metric::Sessions, 1);
        metrics.add(Metric::HandshakesMalformed, 7);
        let mut counters = FlowCounters::default();
        counters.repairs = 5;
        metrics.add_flow(&counters);
        metrics.add_flow(&counters);
        assert_eq!(value(&metrics, "packrat_sessions"), 2);
        assert_eq!(value(&metrics, "packrat_handshakes_malformed_total"), 7);
        assert_eq!(value(&metrics, "packrat_repairs_total"), 10);
    }

    #[test]
    fn levels_follow_the_sessions_up_and_down() {
        let metrics = Metrics::default();
        let (mut one, mut other) = (Reported::default(), Reported::default());
        let mut gauges = FlowGauges::default();
        gauges.assisted = 1;
        gauges.cache_bytes = 1000;
        gauges.cache_high_water_bytes = 1500;
        gauges.round_trip_microseconds = 20_000;
        metrics.replace_levels(&mut one, &gauges);
        gauges.cache_bytes = 50;
        gauges.round_trip_microseconds = 40_000;
        metrics.replace_levels(&mut other, &gauges);
        assert_eq!(value(&metrics, "packrat_cache_bytes"), 1050);
        assert_eq!(value(&metrics, "packrat_last_mile_round_trip_microseconds"), 30_000);
        metrics.replace_levels(&mut one, &FlowGauges::default());
        assert_eq!(value(&metrics, "packrat_cache_bytes"), 50);
        assert_eq!(value(&metrics, "packrat_sessions_assisted"), 1);
        assert_eq!(value(&metrics, "packrat_last_mile_round_trip_microseconds"), 40_000);
        metrics.replace_levels(&mut other, &FlowGauges::default());
        assert_eq!(value(&metrics, "packrat_cache_bytes"), 0);
        assert_eq!(value(&metrics, "packrat_cache_high_water_bytes"), 1500);
    }
}
