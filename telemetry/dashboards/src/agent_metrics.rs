//! The metrics of an agent. A test compares them with the agent's source.

/// A metric of an agent: its name without the prefix `packrat_agent_`, its type, and its meaning.
pub type AgentMetric = (&'static str, &'static str, &'static str);

/// Metrics of the agent itself; the counters of its flows are `packrat_client::Counters`.
pub const AGENT_METRICS: &[AgentMetric] = &[
    (
        "flows",
        "gauge",
        "Flows, by their `condition`: `assisted`, `asking`, `no_gateway`, `refused` or `failed`.",
    ),
    ("flow_limit", "gauge", "Flows that may exist at once; without `service`."),
    ("waiting_bytes", "gauge", "Bytes that wait for repairs; without `service`."),
    (
        "network_changes_total",
        "counter",
        "Changes of the network and sleeps of the host; without `service`.",
    ),
    (
        "refused_datagrams_total",
        "counter",
        "Programs' datagrams dropped: flows or descriptors are used up, or the agent itself sent them.",
    ),
    ("evicted_flows_total", "counter", "Idle flows ended to make room."),
    ("send_errors_total", "counter", "Datagrams that the system did not send."),
    (
        "foreign_datagrams_total",
        "counter",
        "Datagrams dropped: from another address than the service's.",
    ),
];
