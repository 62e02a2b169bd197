//! Figures of an agent.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

use packrat_client::{AssistState, AssistStats, ShimStats};
use serde::Serialize;

/// The condition of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// A gateway repairs for it.
    Assisted,
    /// A gateway is asked.
    Asking,
    /// No gateway answers; it is asked again now and then.
    NoGateway,
    /// A gateway will not assist.
    Refused,
    /// Assistance has failed on this host; the flow goes on without.
    Failed,
}

impl Condition {
    const ALL: [Self; 5] =
        [Self::Assisted, Self::Asking, Self::NoGateway, Self::Refused, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Assisted => "assisted",
            Self::Asking => "asking",
            Self::NoGateway => "no_gateway",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl From<AssistStats> for Condition {
    fn from(stats: AssistStats) -> Self {
        match stats.state {
            AssistState::Established => Self::Assisted,
            AssistState::NoGateway => Self::NoGateway,
            AssistState::Refused => Self::Refused,
            _ => Self::Asking,
        }
    }
}

macro_rules! counters {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// Counters of a flow, or sums of flows.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $text])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds those of another flow.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            fn described(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($text),*), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Datagrams of programs that were forwarded.
    sent_datagrams,
    /// Bytes of them (UDP payload).
    sent_bytes,
    /// Datagrams that programs got.
    delivered_datagrams,
    /// Bytes of them (UDP payload).
    delivered_bytes,
    /// Sessions with gateways that were begun.
    sessions,
    /// Datagrams that were missing when a later one arrived.
    holes,
    /// Missing datagrams that were repaired before the program could notice.
    repaired_in_time,
    /// Missing datagrams that were repaired after a later one had been passed on.
    repaired_late,
    /// Missing datagrams that the agent has waited for in vain.
    given_up,
    /// Datagrams that were put together from the gateway's repair symbols.
    recovered,
    /// Datagrams that waited for a repair of an earlier one.
    kept,
    /// Datagrams that came more than once.
    duplicates,
    /// Control datagrams that were dropped as malformed, forged or replayed.
    control_dropped,
    /// Reports to gateways.
    eacks,
    /// Bytes of these reports (UDP payload).
    eack_bytes,
    /// Bytes of all control datagrams to gateways (UDP payload).
    control_bytes_sent,
    /// Bytes of all control datagrams from gateways (UDP payload).
    control_bytes_received,
}

impl Counters {
    /// The same with what the shim has counted.
    pub(crate) fn with(self, assist: &AssistStats, shim: &ShimStats) -> Self {
        Self {
            sessions: assist.sessions,
            holes: assist.holes,
            repaired_in_time: assist.filled_in_time,
            repaired_late: assist.filled_late,
            given_up: assist.expired,
            recovered: shim.recovered,
            kept: shim.kept,
            duplicates: assist.duplicates,
            control_dropped: assist.control_dropped,
            eacks: assist.eacks,
            eack_bytes: assist.eack_bytes,
            control_bytes_sent: assist.control_bytes_sent,
            control_bytes_received: assist.control_bytes_received,
            ..self
        }
    }

    /// Missing datagrams that were repaired.
    pub const fn repaired(&self) -> u64 {
        self.repaired_in_time + self.repaired_late
    }
}

/// One flow.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct FlowStatus {
    /// The number of its service.
    pub service: usize,
    /// The program's address.
    pub program: SocketAddr,
    /// The destination, where the program has chosen it.
    pub destination: Option<SocketAddr>,
    /// Its condition.
    pub condition: Condition,
    /// Since when nothing has passed.
    pub idle_seconds: f64,
    /// Round trip to the gateway, as measured.
    pub last_mile_round_trip_ms: Option<f64>,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Counters,
}

/// One service.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// Where programs send to.
    pub listen: SocketAddr,
    /// Where their datagrams go; `None`: the programs choose.
    pub to: Option<SocketAddr>,
    /// Flows, by their condition.
    pub flows: BTreeMap<Condition, u64>,
    /// Datagrams of programs that were not served because there were as many flows as there may be,
    /// or no descriptors, or because they were the agent's own.
    pub refused_datagrams: u64,
    /// Flows that have made room for others when there were as many as there may be.
    pub evicted_flows: u64,
    /// Datagrams that the system would not send.
    pub send_errors: u64,
    /// Datagrams that came from elsewhere than the service's address.
    pub foreign_datagrams: u64,
    /// The sums of its flows, of those that are over too.
    #[serde(flatten)]
    pub counters: Counters,
}

/// An agent.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The version of this crate.
    pub version: &'static str,
    /// Flows that there may be.
    pub flow_limit: usize,
    /// Bytes that wait for repairs.
    pub waiting_bytes: usize,
    /// Times that the network has changed, or the host has slept.
    pub network_changes: u64,
    /// The services.
    pub services: Vec<ServiceStatus>,
    /// The flows that have carried most.
    pub flows: Vec<FlowStatus>,
}

impl Status {
    /// The sums of all services.
    pub fn total(&self) -> Counters {
        let mut total = Counters::default();
        self.services.iter().for_each(|service| total.add(&service.counters));
        total
    }

    /// Flows of all services in this condition.
    pub fn flows_in(&self, condition: Condition) -> u64 {
        self.services.iter().filter_map(|service| service.flows.get(&condition)).sum()
    }

    /// As text for Prometheus.
    pub fn prometheus(&self) -> String {
        let mut text = String::new();
        let mut series = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "# HELP packrat_agent_{name} {help}");
            let _ = writeln!(text, "# TYPE packrat_agent_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(text, "packrat_agent_{name}{labels} {value}");
            }
        };
        let label = |service: &ServiceStatus| format!("service=\"{}\"", escape(&service.name));
        let of_services = |value: Value<'_>| -> Vec<(String, u64)> {
            let with_label = |one| (format!("{{{}}}", label(one)), value(one));
            self.services.iter().map(with_label).collect()
        };
        let mut flows = Vec::new();
        for service in &self.services {
            flows.extend(Condition::ALL.map(|condition| {
                let count = service.flows.get(&condition).copied().unwrap_or_default();
                (format!("{{{},condition=\"{}\"}}", label(service), condition.name()), count)
            }));
        }
        let plain = |value: usize| [(String::new(), value as u64)];
        series("flows", "gauge", "Flows, by their condition.", &flows);
        series("flow_limit", "gauge", "Flows that there may be.", &plain(self.flow_limit));
        series(
            "waiting_bytes",
            "gauge",
            "Bytes that wait for repairs.",
            &plain(self.waiting_bytes),
        );
        series(
            "network_changes_total",
            "counter",
            "Times that the network has changed, or the host has slept.",
            &[(String::new(), self.network_changes)],
        );
        let beside: [(&str, &str, Value<'_>); 4] = [
            ("refused_datagrams", "Datagrams of programs that were not served.", &|service| {
                service.refused_datagrams
            }),
            ("evicted_flows", "Idle flows that have made room for others.", &|service| {
                service.evicted_flows
            }),
            ("send_errors", "Datagrams that the system would not send.", &|service| {
                service.send_errors
            }),
            (
                "foreign_datagrams",
                "Datagrams that came from another address than the service's.",
                &|service| service.foreign_datagrams,
            ),
        ];
        for (name, help, value) in beside {
            series(&format!("{name}_total"), "counter", help, &of_services(value));
        }
        let counters = |service: &ServiceStatus| service.counters.described().collect::<Vec<_>>();
        for (index, (name, help, _)) in Counters::default().described().enumerate() {
            let value =
                |service: &ServiceStatus| counters(service).get(index).map_or(0, |one| one.2);
            series(&format!("{name}_total"), "counter", help.trim(), &of_services(&value));
        }
        text
    }
}

/// Reads a figure of a service.
type Value<'a> = &'a dyn Fn(&ServiceStatus) -> u64;

/// A label's value (Prometheus' text format).
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
