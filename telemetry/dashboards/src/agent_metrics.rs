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
        "Times that the network has changed, or the host has slept; without `service`.",
    ),
    (
        "refused_datagrams_total",
        "counter",
        "Datagrams of programs that the agent dropped: all flows or descriptors are in use, or the agent itself sent them.",
    ),
    ("evicted_flows_total", "counter", "Idle flows that ended to make room for others."),
    ("send_errors_total", "counter", "Datagrams that the system did not send."),
    (
        "foreign_datagrams_total",
        "counter",
        "Datagrams dropped because they came from another address than the service's.",
    ),
];
