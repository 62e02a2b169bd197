//! Configuration on its way to the gateways.

use packrat_figures::Unit;
use serde_json::Value;

use crate::dashboard::Dashboard;
use crate::panel::{Thresholds, curves, logs, stat};

pub(crate) fn dashboard() -> Value {
    Dashboard {
        uid: "packrat-operator",
        title: "Packrat / Operator",
        description: "Configuration on its way to the gateways: connections, updates, refusals, certificates.",
        by_route: false,
        has_logs: true,
        rows: vec![
            (
                "Gateways as Envoy sees them",
                vec![
                    stat(
                        "Connected to the operator",
                        "Envoys whose connection to the operator stands. Without it a gateway goes on with what it has.",
                        Unit::Count,
                        "sum(envoy_control_plane_connected_state)".to_owned(),
                        Thresholds::Above(1.0, 1.0),
                    )
                    .wide(6),
                    stat(
                        "Configurations refused in the last hour",
                        "Updates of listeners that an Envoy has refused (NACK); the old configuration stays in force. The log says why.",
                        Unit::Count,
                        "sum(increase(envoy_listener_manager_lds_update_rejected[1h]))".to_owned(),
                        Thresholds::Below(1.0, 1.0),
                    )
                    .wide(6),
                    stat(
                        "First certificate to expire",
                        "Time until the first certificate of any gateway expires. No value: no gateway has one.",
                        Unit::Seconds,
                        // Envoy reports 4294967295 when it has none.
                        "min(envoy_server_days_until_first_cert_expiring < 100000) * 86400".to_owned(),
                        Thresholds::Above(172_800.0, 345_600.0),
                    )
                    .wide(6),
                    stat(
                        "Listeners in force",
                        "Listeners of all gateways.",
                        Unit::Count,
                        "sum(envoy_listener_manager_total_listeners_active)".to_owned(),
                        Thresholds::None,
                    )
                    .wide(6),
                    curves(
                        "Updates of listeners",
                        "Taken and refused.",
                        Unit::PerSecond,
                        &[
                            ("sum(rate(envoy_listener_manager_lds_update_success[$__rate_interval]))".to_owned(), "taken"),
                            ("sum(rate(envoy_listener_manager_lds_update_rejected[$__rate_interval]))".to_owned(), "refused"),
                        ],
                        Thresholds::None,
                    ),
                    logs(
                        "Configurations",
                        "Log lines of gateways about what they were told.",
                        "{app=\"packrat\"} | json | event=~\"route_configured|configuration_refused|listener_unavailable|draining\"",
                    ),
                ],
            ),
            (
                "Operator",
                vec![
                    stat(
                        "Replica that writes",
                        "Exactly one replica of the operator is elected to write.",
                        Unit::Count,
                        "sum(packrat_operator_elected)".to_owned(),
                        Thresholds::Above(1.0, 1.0),
                    )
                    .wide(6),
                    stat(
                        "Gateways connected",
                        "Gateways that any replica of the operator serves.",
                        Unit::Count,
                        "sum(packrat_operator_connected_gateways)".to_owned(),
                        Thresholds::Above(1.0, 1.0),
                    )
                    .wide(6),
                    stat(
                        "Gateways that refuse",
                        "Gateways that have refused their newest configuration (NACK).",
                        Unit::Count,
                        "sum(packrat_operator_refusing_gateways)".to_owned(),
                        Thresholds::Below(1.0, 1.0),
                    )
                    .wide(6),
                    stat(
                        "Problems of Services",
                        "What is wrong with annotated Services; their events and conditions say what.",
                        Unit::Count,
                        "max(packrat_operator_service_problems)".to_owned(),
                        Thresholds::Below(1.0, 10.0),
                    )
                    .wide(6),
                    curves(
                        "What is configured",
                        "EdgeGateways, and the routes that Services ask for.",
                        Unit::Count,
                        &[
                            ("max(packrat_operator_edge_gateways)".to_owned(), "EdgeGateways"),
                            ("max(packrat_operator_routes)".to_owned(), "routes"),
                        ],
                        Thresholds::None,
                    ),
                    logs(
                        "Operator",
                        "Warnings and errors of the operator.",
                        "{app=\"packrat-operator\"} | json | level=~\"(?i)warn|error\"",
                    ),
                ],
            ),
        ],
    }
    .json()
}
