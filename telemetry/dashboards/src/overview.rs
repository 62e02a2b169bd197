//! The overview: savings and health of all gateways.

use packrat_figures::Unit;
use serde_json::Value;

use crate::dashboard::Dashboard;
use crate::panel::{
    RATE_WINDOW, SELECTED_SERIES, Thresholds, curves, figure, figure_curves, figure_stat, rate,
    routes_table, selected, stat,
};

pub(crate) fn dashboard() -> Value {
    let loss = figure("packrat:last_mile_loss:ratio_rate5m").expanded(RATE_WINDOW, SELECTED_SERIES);
    let quality = figure("packrat:quality:points_rate5m").expanded(RATE_WINDOW, SELECTED_SERIES);
    let by = "cluster, gateway, namespace, route";
    let legend = "{{gateway}} {{namespace}}/{{route}}";
    Dashboard {
        uid: "packrat-overview",
        title: "Packrat / Overview",
        description: "What Packrat saves, and whether it is well.",
        by_route: true,
        has_logs: false,
        rows: vec![
            (
                "What it saves",
                vec![
                    stat(
                        "Loss hidden from senders",
                        "Share of the last mile's losses on the selected routes that a repair has filled. No value while nothing is lost.",
                        Unit::Ratio,
                        format!(
                            "clamp_max(sum(rate({}[{RATE_WINDOW}])) / (sum(rate({}[{RATE_WINDOW}])) > 0), 1)",
                            selected("packrat_repairs_arrived_total"),
                            selected("packrat_datagrams_missing_total")
                        ),
                        Thresholds::Above(0.8, 0.95),
                    ),
                    figure_stat("packrat:speedup:times", "max", Thresholds::Above(1.0, 1.0)),
                    figure_stat("packrat:goodput_gain:times_rate5m", "max", Thresholds::None),
                    figure_stat("packrat:quality:points_rate5m", "min", Thresholds::Above(98.0, 99.5)),
                    figure_stat("packrat:saved_retransmissions:rate5m", "sum", Thresholds::None),
                    figure_stat("packrat:goodput:bits_rate5m", "sum", Thresholds::None),
                    stat(
                        "Assisted sessions",
                        "Client sessions that are assisted now.",
                        Unit::Count,
                        format!("sum({})", selected("packrat_sessions_assisted")),
                        Thresholds::None,
                    ),
                    curves(
                        "Loss on the last mile, and what senders see of it",
                        "The distance between the curves is what Packrat hides.",
                        Unit::Ratio,
                        &[
                            (format!("avg({loss})"), "on the last mile"),
                            (format!("avg(1 - {quality} / 100)"), "that senders see"),
                        ],
                        Thresholds::None,
                    ),
                    figure_curves("packrat:goodput:bits_rate5m", Thresholds::None),
                    figure_curves("packrat:saved_retransmissions:rate5m", Thresholds::None),
                    figure_curves("packrat:speedup:times", Thresholds::None),
                ],
            ),
            (
                "Health",
                vec![
                    stat(
                        "Gateways",
                        "Processes whose metrics arrive.",
                        Unit::Count,
                        "count(packrat_process_uptime_seconds{gateway=~\"$gateway\"})".to_owned(),
                        Thresholds::Above(1.0, 1.0),
                    ),
                    stat(
                        "Resets in the last hour",
                        "How often gateway and client lost track of each other's sets.",
                        Unit::Count,
                        format!("sum(increase({}[1h]))", selected("packrat_resets_total")),
                        Thresholds::Below(1.0, 100.0),
                    ),
                    stat(
                        "Faults in assistance in the last hour",
                        "Each cost one flow its assistance; forwarding went on. Please report them.",
                        Unit::Count,
                        format!("sum(increase({}[1h]))", selected("packrat_assistance_panics_total")),
                        Thresholds::Below(1.0, 1.0),
                    ),
                    figure_stat("packrat:decode_failures:ratio_rate5m", "max", Thresholds::Below(0.01, 0.05)),
                    figure_stat("packrat:cache_usage:ratio", "max", Thresholds::Below(0.7, 0.9)),
                    figure_stat("packrat:sessions_usage:ratio", "max", Thresholds::Below(0.7, 0.9)),
                    routes_table(
                        "Routes",
                        "A row leads to its route.",
                        &[
                            "packrat:goodput:bits_rate5m",
                            "packrat:last_mile_loss:ratio_rate5m",
                            "packrat:loss_hidden:ratio_rate5m",
                            "packrat:quality:points_rate5m",
                            "packrat:speedup:times",
                            "packrat:goodput_gain:times_rate5m",
                            "packrat:saved_retransmissions:rate5m",
                            "packrat:assisted:ratio",
                            "packrat:resets:rate5m",
                        ],
                    ),
                    curves(
                        "Sessions",
                        "Clients, and those of them that are assisted.",
                        Unit::Count,
                        &[
                            (format!("sum({})", selected("packrat_sessions")), "all"),
                            (format!("sum({})", selected("packrat_sessions_assisted")), "assisted"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Datagrams dropped",
                        "Datagrams of base connections that the gateway could not pass on, by route.",
                        Unit::PerSecond,
                        &[
                            (rate("packrat_to_client_dropped_total", by), legend),
                            (rate("packrat_to_server_dropped_total", by), legend),
                            (rate("packrat_sessions_refused_total", by), legend),
                        ],
                        Thresholds::None,
                    ),
                ],
            ),
        ],
    }
    .json()
}
