//! The metrics of a route: one table with name, kind and help; atomics that any thread counts in.
//!
//! Shells read them from time to time with [`Metrics::get`]: Envoy's labelled metrics may be touched on its main thread
//! only, the standalone gateway renders [`prometheus_text`] when it is asked.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packrat_engine::FlowCounters;

use crate::route::Route;

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
        /// A metric of a route. [`Metric::name`] is exported as `packrat_<name>{route,gateway}`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Metric {
            $(#[doc = concat!("`packrat_", $name, "`: ", $help)] $variant,)*
        }

        impl Metric {
            /// Every metric, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name without the prefix `packrat_`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Counter or gauge.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$variant => Kind::$kind,)* }
            }

            /// One sentence for operators.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

metrics! {
    Sessions Gauge "sessions" "Client sessions that exist now.";
    SessionsOpened Counter "sessions_opened_total" "Client sessions opened.";
    SessionsClosed Counter "sessions_closed_total" "Client sessions ended, idle or by shutdown.";
    SessionsRefused Counter "sessions_refused_total" "Datagrams of new clients dropped: the limit of sessions is reached or no upstream socket could be opened.";
    SessionsMoved Counter "sessions_moved_total" "Sessions that moved to another endpoint because theirs was removed from the configuration.";
    DownstreamDatagrams Counter "to_client_datagrams_total" "Datagrams of the base connection forwarded to clients.";
    DownstreamBytes Counter "to_client_bytes_total" "Payload bytes of the base connection forwarded to clients.";
    UpstreamDatagrams Counter "to_server_datagrams_total" "Datagrams of the base connection forwarded to servers.";
    UpstreamBytes Counter "to_server_bytes_total" "Payload bytes of the base connection forwarded to servers.";
    DownstreamDropped Counter "to_client_dropped_total" "Datagrams that could not be sent to a client: full socket buffer, listener gone, or refused by the kernel.";
    UpstreamDropped Counter "to_server_dropped_total" "Datagrams that could not be sent to a server: full socket buffer or refused by the kernel.";
    TooLarge Counter "too_large_total" "Datagrams not forwarded because they exceed the MTU of the outgoing link; they are never fragmented.";
    Truncated Counter "truncated_total" "Received datagrams that did not fit the receive buffer and were not forwarded.";
    UpstreamErrors Counter "upstream_errors_total" "ICMP errors and other socket errors reported by upstream sockets, for example a server that refuses.";
    ControlReceived Counter "control_received_total" "Control datagrams received from clients; none of them is ever forwarded.";
    ControlSent Counter "control_sent_total" "Control datagrams sent to clients.";
    ControlDropped Counter "control_dropped_total" "Control datagrams dropped: malformed, for no known session, or assistance is switched off.";
    RepairDatagrams Counter "repair_datagrams_total" "Datagrams sent to clients as repairs, copies and tail probes included.";
    RepairBytes Counter "repair_bytes_total" "Payload bytes sent to clients as repairs.";
    AssistancePanics Counter "assistance_panics_total" "Faults in assistance; the flow went on without it.";
    CacheBytes Gauge "cache_bytes" "Bytes kept for repair now.";
    EngineRepairs Counter "repairs_total" "First repairs of missing datagrams.";
}

/// Adds what the engine counted for one flow. The only place that knows the fields of [`FlowCounters`].
pub(crate) fn add_flow_counters(metrics: &Metrics, counters: &FlowCounters) {
    metrics.add(Metric::EngineRepairs, counters.repairs);
}

/// The values of one route.
#[derive(Debug)]
pub struct Metrics {
    values: Vec<AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { values: Metric::ALL.iter().map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Metrics {
    /// The value now. Values of different metrics are not a consistent snapshot.
    pub fn get(&self, metric: Metric) -> u64 {
        self.values.get(metric as usize).map_or(0, |value| value.load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, metric: Metric, amount: u64) {
        if amount != 0
            && let Some(value) = self.values.get(metric as usize)
        {
            value.fetch_add(amount, Ordering::Relaxed);
        }
    }

    pub(crate) fn subtract(&self, metric: Metric, amount: u64) {
        if amount != 0
            && let Some(value) = self.values.get(metric as usize)
        {
            value.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

/// All metrics of all routes in the Prometheus text format, version 0.0.4.
pub fn prometheus_text(routes: &[Arc<Route>]) -> String {
    let mut text = String::new();
    for &metric in Metric::ALL {
        let kind = match metric.kind() {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let name = metric.name();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP packrat_{name} {}\n# TYPE packrat_{name} {kind}", metric.help());
        for route in routes {
            let value = route.metrics().get(metric);
            let (route, gateway) = (escape_label(route.name()), escape_label(&route.gateway_name()));
            let _ = writeln!(text, "packrat_{name}{{route=\"{route}\",gateway=\"{gateway}\"}} {value}");
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
        let mut names: Vec<_> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Metric::ALL.len());
        for metric in Metric::ALL {
            assert_eq!(metric.kind() == Kind::Counter, metric.name().ends_with("_total"), "{metric:?}");
        }
    }

    #[test]
    fn values_are_kept_apart() {
        let metrics = Metrics::default();
        for (amount, &metric) in Metric::ALL.iter().enumerate() {
            metrics.add(metric, amount as u64 + 1);
        }
        metrics.subtract(Metric::Sessions, 1);
        assert_eq!(metrics.get(Metric::Sessions), 0);
        for (amount, &metric) in Metric::ALL.iter().enumerate().skip(1) {
            assert_eq!(metrics.get(metric), amount as u64 + 1);
        }
    }
}
