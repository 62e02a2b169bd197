//! The operator's metrics. A test compares them with the operator's source.

/// Names without the prefix `packrat_operator_`, and their meaning; all are gauges.
pub const OPERATOR_METRICS: &[(&str, &str)] = &[
    ("elected", "1 if this replica writes."),
    ("edge_gateways", "EdgeGateways."),
    ("foreign_edge_gateways", "EdgeGateways of its class that belong to another operator."),
    (
        "edge_gateway_condition",
        "1 while an EdgeGateway's condition is True; labels `gateway`, `condition`, `reason`.",
    ),
    ("routes", "Routes of all EdgeGateways."),
    ("service_problems", "Problems of annotated Services; their conditions name them."),
    (
        "pods_without_sidecar",
        "Pods that ask for a sidecar and have none; the Pod's Event says why.",
    ),
    ("connected_gateways", "Gateways that this replica serves."),
    ("refusing_gateways", "Connected gateways that refused their newest configuration (xDS NACK)."),
    (
        "lagging_gateways",
        "Connected gateways that have not acknowledged their newest configuration.",
    ),
    (
        "authority_expires_timestamp_seconds",
        "End of the operator's authority certificate, in seconds since 1970; 0: unknown.",
    ),
];
