//! The figures as PromQL expressions.

/// The unit of a figure; Grafana has all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// 0 to 1.
    Ratio,
    /// 0 to 100, where 100 is best.
    Points,
    /// A factor.
    Times,
    /// Seconds.
    Seconds,
    /// Events per second.
    PerSecond,
    /// Bits per second.
    BitsPerSecond,
    /// Bytes.
    Bytes,
    /// A plain number.
    Count,
}

impl Unit {
    /// Grafana's name of the unit.
    pub const fn grafana(self) -> &'static str {
        match self {
            Self::Ratio => "percentunit",
            Self::Points | Self::Count => "short",
            Self::Times => "none",
            Self::Seconds => "s",
            Self::PerSecond => "cps",
            Self::BitsPerSecond => "bps",
            Self::Bytes => "bytes",
        }
    }

    /// The name in documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio, 0 to 1",
            Self::Points => "points, 0 to 100",
            Self::Times => "times",
            Self::Seconds => "seconds",
            Self::PerSecond => "per second",
            Self::BitsPerSecond => "bits per second",
            Self::Bytes => "bytes",
            Self::Count => "number",
        }
    }
}

/// The subject of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A route of one gateway: labels `gateway`, `namespace`, `route`.
    Route,
    /// A gateway: label `gateway`.
    Gateway,
}

impl Scope {
    /// The labels of the aggregated series.
    pub const fn labels(self) -> &'static str {
        match self {
            Self::Route => "cluster, gateway, namespace, route",
            Self::Gateway => "gateway",
        }
    }
}

/// A figure as a recording rule.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Name of the recording rule, by Prometheus' convention `level:metric:operations`.
    pub record: &'static str,
    /// The title in panels.
    pub title: &'static str,
    /// Meaning of the figure, and its reliability.
    pub help: &'static str,
    /// Unit of the figure.
    pub unit: Unit,
    /// Subject of the figure.
    pub scope: Scope,
    /// The query; `RATE(x)` stands for the sum over the gateway's replicas of the rate of `x` over
    /// five minutes, `SUM(x)` and `MEAN(x)` for the sum and the mean of gauges, each by the
    /// labels of the scope. `SERIES(x)` stands for the series themselves, `LABELS` for these labels.
    expression: &'static str,
}

/// The series selected by a query.
#[derive(Debug, Clone, Copy)]
pub struct Selector {
    /// Matchers for series with the labels `gateway`, `namespace` and `route`.
    pub of_routes: &'static str,
    /// Matchers for series of a process, which have `gateway` alone.
    pub of_processes: &'static str,
}

impl Selector {
    fn apply(self, series: &str) -> String {
        let of_process =
            series.starts_with("packrat_process_") || series.starts_with("packrat_log_");
        let matchers = if of_process { self.of_processes } else { self.of_routes };
        match series.split_once('{') {
            _ if matchers.is_empty() => series.to_owned(),
            Some((name, labels)) => format!("{name}{{{matchers}, {labels}"),
            None => format!("{series}{{{matchers}}}"),
        }
    }
}

impl Figure {
    /// The query of the recording rule: over five minutes, with other figures by their names.
    pub fn promql(&self) -> String {
        self.render("5m", Selector { of_routes: "", of_processes: "" })
    }

    /// The query without recording rules: over `window`, for the series of `selector`.
    pub fn expanded(&self, window: &str, selector: Selector) -> String {
        let mut text = self.render(window, selector);
        for figure in ALL_FIGURES {
            if text.contains(figure.record) {
                text = text
                    .replace(figure.record, &format!("({})", figure.expanded(window, selector)));
            }
        }
        text
    }

    fn render(&self, window: &str, selector: Selector) -> String {
        let by = self.scope.labels();
        let mut text = String::new();
        let mut rest = self.expression;
        while let Some(open) = rest.find('(') {
            let (head, tail) = rest.split_at(open);
            let inside = tail.get(1..).unwrap_or_default();
            let close = inside.find(')').unwrap_or(inside.len());
            let series = inside.get(..close).unwrap_or_default();
            let marker = ["RATE", "SUM", "MEAN", "SERIES"]
                .into_iter()
                .find_map(|name| head.strip_suffix(name).map(|head| (name, head)));
            let Some((name, head)) = marker else {
                text.push_str(head);
                text.push('(');
                rest = inside;
                continue;
            };
            let series = selector.apply(series);
            text.push_str(head);
            text.push_str(&match name {
                "RATE" => format!("sum by ({by}) (rate({series}[{window}]))"),
                "SERIES" => series,
                "SUM" => format!("sum by ({by}) ({series})"),
                // Replicas without a measurement report 0, and do not count.
                _ => format!("avg by ({by}) ({series} > 0)"),
            });
            rest = inside.get(close + 1..).unwrap_or_default();
        }
        text.push_str(rest);
        text.replace("LABELS", by)
    }

    /// The figure with this record.
    pub fn named(record: &str) -> Option<&'static Self> {
        ALL_FIGURES.iter().find(|figure| figure.record == record)
    }
}

const fn figure(
    record: &'static str,
    title: &'static str,
    unit: Unit,
    scope: Scope,
    expression: &'static str,
    help: &'static str,
) -> Figure {
    Figure { record, title, help, unit, scope, expression }
}

/// The width of a gateway's interval, as a logarithm.
macro_rules! width {
    () => {
        "(ln(SERIES(packrat_transfer_speedup_ppm{bound=\"upper\"}) > 0) - ignoring (bound) ln(SERIES(packrat_transfer_speedup_ppm{bound=\"lower\"}) > 0))"
    };
}

/// The precision of the intervals of all gateways together.
macro_rules! precision {
    () => {
        concat!("sum by (LABELS) (1 / ", width!(), " ^ 2)")
    };
}

/// Every figure, in the order of the recording rules: later ones use earlier ones.
pub const ALL_FIGURES: &[Figure] = &[
    figure(
        "packrat:goodput:bits_rate5m",
        "Goodput to clients",
        Unit::BitsPerSecond,
        Scope::Route,
        "8 * RATE(packrat_to_client_bytes_total)",
        "Payload to all clients, without repairs.",
    ),
    figure(
        "packrat:last_mile_loss:ratio_rate5m",
        "Last-mile loss",
        Unit::Ratio,
        Scope::Route,
        "clamp_max(RATE(packrat_datagrams_missing_total) / (RATE(packrat_datagrams_recorded_total) > 0), 1)",
        "Share of the datagrams to assisted clients that eACKs showed missing at first.",
    ),
    figure(
        "packrat:loss_hidden:ratio_rate5m",
        "Loss hidden from senders",
        Unit::Ratio,
        Scope::Route,
        "clamp_max(RATE(packrat_repairs_arrived_total) / (RATE(packrat_datagrams_missing_total) > 0), 1)",
        "Share of the last mile's losses that a repair filled, also after the client's hold. Absent without losses.",
    ),
    figure(
        "packrat:saved_retransmissions:rate5m",
        "Saved sender retransmissions",
        Unit::PerSecond,
        Scope::Route,
        "RATE(packrat_repairs_arrived_total)",
        "Retransmissions that repairs spared senders.",
    ),
    figure(
        "packrat:quality:points_rate5m",
        "Quality",
        Unit::Points,
        Scope::Route,
        "100 * (1 - clamp(RATE(packrat_datagrams_missing_total) - RATE(packrat_repairs_arrived_total), 0, Inf) / (RATE(packrat_datagrams_recorded_total) > 0))",
        "100 less the percentage of datagrams to assisted clients that the last mile lost for good.",
    ),
    figure(
        "packrat:cache_hits:ratio_rate5m",
        "Cache hit ratio",
        Unit::Ratio,
        Scope::Route,
        "clamp_max(RATE(packrat_repairs_total) / (RATE(packrat_datagrams_missing_total) > 0), 1)",
        "Repairs per missing datagram. Below 1: evicted, too late, or over budget.",
    ),
    figure(
        "packrat:too_late:ratio_rate5m",
        "Too late",
        Unit::Ratio,
        Scope::Route,
        "clamp_max(RATE(packrat_repairs_given_up_total{reason=\"late\"}) / (RATE(packrat_datagrams_missing_total) > 0), 1)",
        "Share of the missing datagrams given up because a repair would come too late.",
    ),
    figure(
        "packrat:last_mile_round_trip:seconds",
        "Last-mile round trip",
        Unit::Seconds,
        Scope::Route,
        "MEAN(packrat_last_mile_round_trip_microseconds) / 1e6",
        "Smoothed, mean of assisted sessions.",
    ),
    figure(
        "packrat:far_round_trip:seconds",
        "Far round trip",
        Unit::Seconds,
        Scope::Route,
        "MEAN(packrat_far_round_trip_microseconds) / 1e6",
        "From a session's first datagram to the server to the first answer, mean of sessions.",
    ),
    // Each gateway has its own interval. They are put together as independent studies are: weighted by
    // their precision, on the logarithms (fixed effects). Two ends are 2 · 1.96 standard errors apart.
    figure(
        "packrat:speedup:times",
        "Measured goodput gain",
        Unit::Times,
        Scope::Route,
        concat!(
            "exp(sum by (LABELS) (ln((SERIES(packrat_transfer_speedup_ppm{bound=\"estimate\"}) > 0) / 1e6) / ignoring (bound) ",
            width!(),
            " ^ 2) / ",
            precision!(),
            ")"
        ),
        "Median goodput of assisted sessions, as a multiple of sessions held out (setting `holdout`), of the last day. Absent with fewer than 30 of either on each gateway. A little too small: senders' retransmissions count as goodput.",
    ),
    figure(
        "packrat:speedup_lower:times",
        "Measured goodput gain, at least",
        Unit::Times,
        Scope::Route,
        concat!("packrat:speedup:times / exp(0.5 / sqrt(", precision!(), "))"),
        "Lower end of the 95 % confidence interval.",
    ),
    figure(
        "packrat:speedup_upper:times",
        "Measured goodput gain, at most",
        Unit::Times,
        Scope::Route,
        concat!("packrat:speedup:times * exp(0.5 / sqrt(", precision!(), "))"),
        "Upper end. Below 1, assistance makes clients slower; gateways then stop it.",
    ),
    figure(
        "packrat:assistance:cores_rate5m",
        "Cores for assistance",
        Unit::Count,
        Scope::Route,
        "(RATE(packrat_assistance_forward_nanoseconds_total) + RATE(packrat_assistance_control_nanoseconds_total)) / 1e9",
        "Processors busy with recording datagrams and answering clients.",
    ),
    figure(
        "packrat:goodput_gain:times_rate5m",
        "Estimated goodput gain",
        Unit::Times,
        Scope::Route,
        "clamp_min(RATE(packrat_datagrams_recorded_total) / (SUM(packrat_sessions_assisted) > 0) * (packrat:last_mile_round_trip:seconds + (packrat:far_round_trip:seconds or 0 * packrat:last_mile_round_trip:seconds)) * sqrt(packrat:last_mile_loss:ratio_rate5m > 0) / 1.22, 1) unless packrat:speedup:times",
        "Multiple of the rate that the square-root law (Mathis et al. 1997) gives a loss-based sender at the same loss and round trip. Not a measurement: real senders lose less, BBR least; idle sessions make it smaller. Absent where the gain is measured.",
    ),
    figure(
        "packrat:repair_overhead:ratio_rate5m",
        "Repair overhead",
        Unit::Ratio,
        Scope::Route,
        "RATE(packrat_repair_bytes_total) / (RATE(packrat_to_client_bytes_total) > 0)",
        "Bytes of repairs, copies included, per byte forwarded.",
    ),
    figure(
        "packrat:decode_failures:ratio_rate5m",
        "Decode failures",
        Unit::Ratio,
        Scope::Route,
        "RATE(packrat_eacks_total{result=\"failed\"}) / (RATE(packrat_eacks_received_total) > 0)",
        "Share of the eACKs that could not be decoded.",
    ),
    figure(
        "packrat:resets:rate5m",
        "Resets",
        Unit::PerSecond,
        Scope::Route,
        "RATE(packrat_resets_total)",
        "Resets of gateway's and client's sets.",
    ),
    figure(
        "packrat:cache_usage:ratio",
        "Cache in use",
        Unit::Ratio,
        Scope::Route,
        "SUM(packrat_cache_bytes) / (SUM(packrat_cache_limit_bytes) > 0)",
        "Share of the bytes that the route may keep for repair.",
    ),
    figure(
        "packrat:sessions_usage:ratio",
        "Sessions of the limit",
        Unit::Ratio,
        Scope::Route,
        "SUM(packrat_sessions) / (SUM(packrat_sessions_limit) > 0)",
        "Client sessions, as a share of the limit.",
    ),
    figure(
        "packrat:assisted:ratio",
        "Assisted sessions",
        Unit::Ratio,
        Scope::Route,
        "SUM(packrat_sessions_assisted) / (SUM(packrat_sessions) > 0)",
        "Share of the client sessions that are assisted.",
    ),
    figure(
        "packrat:cpu_per_datagram:seconds_rate5m",
        "Processor time per datagram",
        Unit::Seconds,
        Scope::Gateway,
        "RATE(packrat_process_cpu_microseconds_total) / 1e6 / (RATE(packrat_to_client_datagrams_total) + RATE(packrat_to_server_datagrams_total) > 0)",
        "Processor time of the process (of all Envoy) per datagram forwarded in either direction.",
    ),
    figure(
        "packrat:forward_cost:seconds_rate5m",
        "Recording a datagram",
        Unit::Seconds,
        Scope::Gateway,
        "RATE(packrat_assistance_forward_nanoseconds_total) / 1e9 / (RATE(packrat_datagrams_recorded_total) > 0)",
        "Time per datagram of an assisted session.",
    ),
    figure(
        "packrat:control_cost:seconds_rate5m",
        "Answering an eACK",
        Unit::Seconds,
        Scope::Gateway,
        "RATE(packrat_assistance_control_nanoseconds_total) / 1e9 / (RATE(packrat_control_received_total) > 0)",
        "Time per control datagram, repairs included.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_name_their_labels_and_leave_other_functions_alone() {
        let figure = Figure::named("packrat:loss_hidden:ratio_rate5m").unwrap();
        assert_eq!(
            figure.promql(),
            "clamp_max(sum by (cluster, gateway, namespace, route) (rate(packrat_repairs_arrived_total[5m])) / \
             (sum by (cluster, gateway, namespace, route) (rate(packrat_datagrams_missing_total[5m])) > 0), 1)"
        );
        for figure in ALL_FIGURES {
            let query = figure.promql();
            assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
            assert!(
                !["RATE", "SUM", "MEAN", "SERIES", "LABELS"]
                    .iter()
                    .any(|word| query.contains(word)),
                "{query}"
            );
            assert!(figure.help.ends_with('.'), "{figure:?}");
        }
    }
}
