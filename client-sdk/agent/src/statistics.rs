//! Figures of an agent.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

use packrat_client::{Condition, Counters};
use packrat_socket::FlowFigures;
use serde::Serialize;

/// Figures of a flow.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct FlowStatus {
    /// The number of its service.
    pub service: usize,
    /// The program's address.
    pub program: SocketAddr,
    /// The destination, if the program has chosen it.
    pub destination: Option<SocketAddr>,
    /// Condition of the flow.
    pub condition: Condition,
    /// Seconds since the last datagram.
    pub idle_seconds: f64,
    /// Round trip to the gateway, as measured.
    pub last_mile_round_trip_ms: Option<f64>,
    /// Counters of the flow.
    #[serde(flatten)]
    pub counters: Counters,
}

impl From<FlowFigures> for FlowStatus {
    fn from(flow: FlowFigures) -> Self {
        Self {
            service: flow.peer.service,
            program: flow.peer.address,
            destination: flow.peer.through.map(|(_, to)| to),
            condition: flow.condition,
            idle_seconds: flow.idle.as_secs_f64(),
            last_mile_round_trip_ms: flow.round_trip.map(|time| time.as_secs_f64() * 1e3),
            counters: flow.counters,
        }
    }
}

/// Figures of a service.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// Name of the service.
    pub name: String,
    /// Address that programs send to.
    pub listen: SocketAddr,
    /// Destination of the programs' datagrams; `None`: the programs choose.
    pub to: Option<SocketAddr>,
    /// Flows, by their condition.
    pub flows: BTreeMap<Condition, u64>,
    /// Datagrams of programs that were not served: the limit of flows was reached, descriptors were
    /// used up, or the agent itself had sent them.
    pub refused_datagrams: u64,
    /// Flows that have made room for others at the limit of flows.
    pub evicted_flows: u64,
    /// Datagrams that the system would not send.
    pub send_errors: u64,
    /// Datagrams that came from another address than the service's.
    pub foreign_datagrams: u64,
    /// The sums of the service's flows, including ended ones.
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

    /// The flows of each service, with Prometheus' labels.
    fn flows_by_condition(&self) -> Vec<(String, u64)> {
        let mut flows = Vec::new();
        for service in &self.services {
            flows.extend(Condition::ALL.map(|condition| {
                let count = service.flows.get(&condition).copied().unwrap_or_default();
                (format!("{{{},condition=\"{}\"}}", label(service), condition.name()), count)
            }));
        }
        flows
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
        let of_services = |value: Value<'_>| -> Vec<(String, u64)> {
            let with_label = |one| (format!("{{{}}}", label(one)), value(one));
            self.services.iter().map(with_label).collect()
        };
        series("flows", "gauge", "Flows, by their condition.", &self.flows_by_condition());
        for (name, kind, help, value) in [
            ("flow_limit", "gauge", "Flows that there may be.", self.flow_limit as u64),
            ("waiting_bytes", "gauge", "Bytes that wait for repairs.", self.waiting_bytes as u64),
            (
                "network_changes_total",
                "counter",
                "Times that the network has changed, or the host has slept.",
                self.network_changes,
            ),
        ] {
            series(name, kind, help, &[(String::new(), value)]);
        }
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

/// The label of a service's series.
fn label(service: &ServiceStatus) -> String {
    format!("service=\"{}\"", escape(&service.name))
}

/// A label's value (Prometheus' text format).
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
