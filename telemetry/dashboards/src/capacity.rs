//! The gateway's use of the machine, and the cost of a datagram.

use packrat_figures::Unit;
use serde_json::Value;

use crate::dashboard::Dashboard;
use crate::panel::{
    RATE_WINDOW, Thresholds, curves, figure_curves, figure_stat, quantiles, rate, selected,
};

pub(crate) fn dashboard() -> Value {
    let by = "gateway";
    Dashboard {
        uid: "packrat-capacity",
        title: "Packrat / Capacity",
        description: "How much of the machine is used, and what a datagram costs.",
        by_route: true,
        has_logs: false,
        rows: vec![
            (
                "Room",
                vec![
                    figure_stat("packrat:sessions_usage:ratio", "max", Thresholds::Below(0.7, 0.9)).wide(6),
                    figure_stat("packrat:cache_usage:ratio", "max", Thresholds::Below(0.7, 0.9)).wide(6),
                    figure_stat("packrat:repair_overhead:ratio_rate5m", "max", Thresholds::None).wide(6),
                    figure_stat("packrat:cpu_per_datagram:seconds_rate5m", "max", Thresholds::None).wide(6),
                    curves(
                        "Sessions and their limit",
                        "The limit is what is configured, or less when the process may not open as many sockets.",
                        Unit::Count,
                        &[
                            (format!("sum by ({by}) ({})", selected("packrat_sessions")), "{{gateway}}"),
                            (format!("sum by ({by}) ({})", selected("packrat_sessions_limit")), "{{gateway}} limit"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Memory",
                        "Resident memory of the process (in Envoy: of Envoy), and the part of it that is the cache.",
                        Unit::Bytes,
                        &[
                            (
                                format!("sum by ({by}) ({})", selected("packrat_process_resident_memory_bytes")),
                                "{{gateway}} resident",
                            ),
                            (format!("sum by ({by}) ({})", selected("packrat_cache_bytes")), "{{gateway}} cache"),
                        ],
                        Thresholds::None,
                    ),
                ],
            ),
            (
                "Cost",
                vec![
                    curves(
                        "Processors in use",
                        "Processor seconds per second, of the whole process.",
                        Unit::Count,
                        &[(
                            format!(
                                "sum by ({by}) (rate({}[{RATE_WINDOW}])) / 1e6",
                                selected("packrat_process_cpu_microseconds_total")
                            ),
                            "{{gateway}}",
                        )],
                        Thresholds::None,
                    ),
                    figure_curves("packrat:cpu_per_datagram:seconds_rate5m", Thresholds::None),
                    figure_curves("packrat:forward_cost:seconds_rate5m", Thresholds::None),
                    figure_curves("packrat:control_cost:seconds_rate5m", Thresholds::None),
                    quantiles(
                        "Answering a control datagram",
                        "Time of one of them, eACKs mostly: what is far above the rest is a sketch that was hard to decode, or a thread that had to wait.",
                        Unit::Seconds,
                        "packrat_control_nanoseconds",
                        1e9,
                        false,
                    ),
                    quantiles(
                        "Datagrams per batch",
                        "From a server, received and sent on together (GRO, GSO): the more, the less each costs.",
                        Unit::Count,
                        "packrat_batch_datagrams",
                        1.0,
                        false,
                    ),
                ],
            ),
            (
                "Load",
                vec![
                    curves(
                        "Datagrams forwarded",
                        "Of base connections, in both directions.",
                        Unit::PerSecond,
                        &[
                            (rate("packrat_to_client_datagrams_total", by), "{{gateway}} to clients"),
                            (rate("packrat_to_server_datagrams_total", by), "{{gateway}} to servers"),
                            (rate("packrat_control_received_total", by), "{{gateway}} control"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Datagrams dropped",
                        "By the gateway itself: full sockets, refused clients, datagrams that are too large.",
                        Unit::PerSecond,
                        &[
                            (rate("packrat_to_client_dropped_total", by), "{{gateway}} to clients"),
                            (rate("packrat_to_server_dropped_total", by), "{{gateway}} to servers"),
                            (rate("packrat_sessions_refused_total", by), "{{gateway}} refused"),
                            (rate("packrat_sessions_evicted_total", by), "{{gateway}} evicted"),
                            (rate("packrat_too_large_total", by), "{{gateway}} too large"),
                            (rate("packrat_truncated_total", by), "{{gateway}} truncated"),
                            (rate("packrat_from_client_dropped_total", by), "{{gateway}} no listener"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Repairs put off by the budget",
                        "When this is not rare, the budget is too small for the loss.",
                        Unit::PerSecond,
                        &[(rate("packrat_budget_refusals_total", by), "{{gateway}}")],
                        Thresholds::Below(1.0, 100.0),
                    ),
                    curves(
                        "Log lines kept back",
                        "More than 50 lines of a kind came within a second.",
                        Unit::PerSecond,
                        &[(rate("packrat_log_lines_suppressed_total", by), "{{gateway}}")],
                        Thresholds::None,
                    ),
                ],
            ),
        ],
    }
    .json()
}
