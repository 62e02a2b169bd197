//! The operator's metrics. A test compares them with the operator's source.

/// Names without the prefix `packrat_operator_`, and their meaning; all are gauges.
pub const OPERATOR_METRICS: &[(&str, &str)] = &[
    ("elected", "Whether this replica writes: 0 or 1."),
    ("edge_gateways", "EdgeGateways."),
    (
        "foreign_edge_gateways",
        "EdgeGateways of its class that this replica leaves alone, because they are another operator's.",
    ),
    (
        "edge_gateway_condition",
        "1 while a condition of an EdgeGateway is True, 0 while it is not; labels `gateway`, `condition`, `reason`.",
    ),
    ("routes", "Routes of all EdgeGateways."),
    ("service_problems", "What is wrong with annotated Services; their conditions say what."),
    (
        "pods_without_sidecar",
        "Pods that ask for a sidecar and have none; an Event on the Pod says why.",
    ),
    ("connected_gateways", "Gateways that this replica serves."),
    (
        "refusing_gateways",
        "Of those, gateways that have refused their newest configuration (xDS NACK).",
    ),
    (
        "lagging_gateways",
        "Of those, gateways that have not acknowledged their newest configuration.",
    ),
    (
        "authority_expires_timestamp_seconds",
        "When the certificate of the operator's authority ends, in seconds since 1970; 0 before it is known.",
    ),
];
