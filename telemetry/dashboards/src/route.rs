//! One route in detail.

use packrat_figures::Unit;
use serde_json::Value;

use crate::dashboard::Dashboard;
use crate::panel::{
    Query, RATE_WINDOW, SELECTED_SERIES, Thresholds, curves, figure, figure_curves, figure_stat,
    heat_map, logs, quantile, quantiles, rate, selected,
};

pub(crate) fn dashboard() -> Value {
    let plain = |series: &str, legend: &'static str| -> Query {
        (format!("sum(rate({}[{RATE_WINDOW}]))", selected(series)), legend)
    };
    let expanded = |record: &str| figure(record).expanded(RATE_WINDOW, SELECTED_SERIES);
    let median = |histogram: &str, labels: &str, divisor: f64| {
        let series = selected(&format!("{histogram}_bucket"));
        let value =
            format!("histogram_quantile(0.5, sum by (le, {labels}) (increase({series}[1h])))");
        if divisor == 1.0 { value } else { format!("{value} / {divisor:e}") }
    };
    let lines = |event: &str| {
        format!(
            "{{app=\"packrat\"}} | json | event=~\"{event}\" | route=~\"$route\" | gateway=~\"$gateway\""
        )
    };
    Dashboard {
        uid: "packrat-route",
        title: "Packrat / Route",
        description: "One route: goodput, last mile, repairs, cache, Resets and the log lines beside them.",
        by_route: true,
        has_logs: true,
        rows: vec![
            (
                "Benefit",
                vec![
                    figure_stat("packrat:loss_hidden:ratio_rate5m", "avg", Thresholds::Above(0.8, 0.95)),
                    figure_stat("packrat:quality:points_rate5m", "min", Thresholds::Above(98.0, 99.5)),
                    figure_stat("packrat:speedup:times", "max", Thresholds::Above(1.0, 1.0)),
                    figure_stat("packrat:goodput_gain:times_rate5m", "max", Thresholds::None),
                    figure_stat("packrat:cache_hits:ratio_rate5m", "avg", Thresholds::Above(0.8, 0.95)),
                    figure_stat("packrat:too_late:ratio_rate5m", "max", Thresholds::Below(0.05, 0.1)),
                    figure_stat("packrat:assisted:ratio", "avg", Thresholds::None),
                    figure_curves("packrat:goodput:bits_rate5m", Thresholds::None),
                    curves(
                        "Last-mile loss, and what senders see of it",
                        "Losses that eACKs have shown, and those of them that no repair has filled.",
                        Unit::Ratio,
                        &[
                            (expanded("packrat:last_mile_loss:ratio_rate5m"), "{{route}} on the last mile"),
                            (
                                format!("1 - {} / 100", expanded("packrat:quality:points_rate5m")),
                                "{{route}} that senders see",
                            ),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Round trips",
                        "Of the last mile as the eACKs show it; of the far segment as the first answer of the server shows it.",
                        Unit::Seconds,
                        &[
                            (expanded("packrat:last_mile_round_trip:seconds"), "{{route}} last mile"),
                            (expanded("packrat:far_round_trip:seconds"), "{{route}} far segment"),
                        ],
                        Thresholds::None,
                    ),
                    figure_curves("packrat:quality:points_rate5m", Thresholds::None),
                    quantiles(
                        "Last-mile round trips of all clients",
                        "What half, nine of ten and 99 of 100 measurements do not exceed; clients that are busy measure more often.",
                        Unit::Seconds,
                        "packrat_last_mile_round_trip_sample_microseconds",
                        1e6,
                        false,
                    ),
                    heat_map(
                        "Last-mile round trips, how many where",
                        "Measurements per second: two bands are two kinds of last miles, a band that widens is a queue.",
                        "µs",
                        "packrat_last_mile_round_trip_sample_microseconds",
                    ),
                ],
            ),
            (
                "Proof: assisted sessions beside sessions held out",
                vec![
                    curves(
                        "Measured goodput gain, and how sure it is",
                        "Median goodput of assisted sessions as a multiple of that of sessions held out, with its 95 % interval: above 1, assistance pays; around 1, no difference is shown. Nothing before 30 sessions of either.",
                        Unit::Times,
                        &[
                            (expanded("packrat:speedup_upper:times"), "{{route}} at most"),
                            (expanded("packrat:speedup:times"), "{{route}} most likely"),
                            (expanded("packrat:speedup_lower:times"), "{{route}} at least"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Median goodput of transfers",
                        "Of sessions that ended within an hour and brought their clients 256 kB or more, without pauses of more than a second. `holdout` are clients that would have been assisted.",
                        Unit::BitsPerSecond,
                        &[(median("packrat_transfer_goodput_bits_per_second", "assisted", 1.0), "{{assisted}}")],
                        Thresholds::None,
                    ),
                    curves(
                        "Median time of transfers, by size",
                        "Of the same sessions: `256kB` up to 1 MB, `1MB` up to 10 MB, `10MB` and more.",
                        Unit::Seconds,
                        &[(
                            median("packrat_transfer_duration_microseconds", "assisted, size", 1e6),
                            "{{assisted}}, {{size}}",
                        )],
                        Thresholds::None,
                    ),
                    curves(
                        "Losses of assisted transfers",
                        "Of half of the sessions: lost by the last mile at first, and lost for good. Of sessions held out a gateway sees no losses; chance has given them the same last miles.",
                        Unit::Ratio,
                        &[(median("packrat_transfer_loss_ppm", "seen", 1e6), "{{seen}}")],
                        Thresholds::None,
                    ),
                    curves(
                        "What it costs: cores",
                        "Processors that recording datagrams and answering clients keep busy.",
                        Unit::Count,
                        &[(expanded("packrat:assistance:cores_rate5m"), "{{route}}")],
                        Thresholds::None,
                    ),
                    curves(
                        "What it costs: repairs",
                        "Bytes of repairs, copies and symbols on the last mile.",
                        Unit::BitsPerSecond,
                        &[(format!("8 * sum(rate({}[{RATE_WINDOW}]))", selected("packrat_repair_bytes_total")), "repairs")],
                        Thresholds::None,
                    ),
                    curves(
                        "Transfers with and without assistance",
                        "Mean goodput of sessions that brought their clients 256 kB or more, without pauses of more than a second, when they ended. `holdout` are clients that would have been assisted: compare `yes` with these.",
                        Unit::BitsPerSecond,
                        &[(
                            format!(
                                "8e6 * {} / {}",
                                rate("packrat_transfer_bytes_total", "assisted"),
                                rate("packrat_transfer_microseconds_total", "assisted")
                            ),
                            "{{assisted}}",
                        )],
                        Thresholds::None,
                    ),
                    curves(
                        "Sessions behind the comparison",
                        "Sessions of 256 kB or more that ended, by arm.",
                        Unit::PerSecond,
                        &[(rate("packrat_transfers_total", "assisted"), "{{assisted}}")],
                        Thresholds::None,
                    ),
                    curves(
                        "Sessions that are compared",
                        "Of the last day, one of an address in an hour, on all gateways; and gateways on which assistance has stopped by itself.",
                        Unit::Count,
                        &[
                            (
                                format!("sum by (assisted) ({})", selected("packrat_transfers_compared")),
                                "{{assisted}}",
                            ),
                            (format!("sum({})", selected("packrat_assistance_stopped")), "gateways that have stopped"),
                        ],
                        Thresholds::None,
                    ),
                ],
            ),
            (
                "Repairs",
                vec![
                    curves(
                        "What became of missing datagrams",
                        "Missing: shown by eACKs. Arrived, given up: their fate. Given up as tolerated: left to a sender that tolerates them (BBR).",
                        Unit::PerSecond,
                        &[
                            plain("packrat_datagrams_missing_total", "missing"),
                            plain("packrat_repairs_arrived_total", "repaired and arrived"),
                            (rate("packrat_repairs_given_up_total", "reason"), "given up: {{reason}}"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Transmissions of repairs",
                        "First ones, further ones, probes of quiet tails, early copies for thin live streams, copies of sparse flows' datagrams for clients without a session, and symbols of coded repair.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_repairs_total", "first"),
                            plain("packrat_repair_copies_total", "copies and repetitions"),
                            plain("packrat_tail_probes_total", "tail probes"),
                            plain("packrat_early_copies_total", "early copies"),
                            plain("packrat_sparse_copies_total", "copies for sparse flows"),
                            plain("packrat_symbols_total", "symbols"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Uploads",
                        "Datagrams of clients that were missing when a later one arrived, and their fate; left to the transport: a queue stands, or repairs pause.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_upward_missing_total", "missing"),
                            plain("packrat_upward_repaired_total", "repaired in time"),
                            plain("packrat_upward_given_up_total", "too late"),
                            plain("packrat_upward_shown_total", "left to the transport"),
                            plain("packrat_upward_waited_total", "waited for a missing one"),
                            plain("packrat_upward_pauses_total", "pauses of repairs"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Senders",
                        "Findings of sessions about their senders: those that tolerate losses (BBR) get them, up to 3 %; those that answer them are kept from seeing them.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_senders_tolerant_total", "tolerate losses"),
                            plain("packrat_senders_answering_total", "answer losses"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "How fast losses are repaired",
                        "From forwarding a datagram that got lost to its first repair, and to the eACK that shows its arrival. A client that lets datagrams above a hole wait for less time gains nothing.",
                        Unit::Seconds,
                        &[
                            (quantile(0.5, "packrat_repair_delay_microseconds", 1e6, false), "half are sent again within"),
                            (quantile(0.99, "packrat_repair_delay_microseconds", 1e6, false), "99 of 100 are sent again within"),
                            (quantile(0.5, "packrat_repair_arrival_microseconds", 1e6, false), "half have arrived within"),
                            (quantile(0.99, "packrat_repair_arrival_microseconds", 1e6, false), "99 of 100 have arrived within"),
                        ],
                        Thresholds::None,
                    ),
                    heat_map(
                        "How long holes stand, how many where",
                        "Repaired datagrams per second, by the time from forwarding them to the eACK that shows their arrival: a second band is that of repairs that got lost, too.",
                        "µs",
                        "packrat_repair_arrival_microseconds",
                    ),
                    quantiles(
                        "Losses found at once",
                        "Datagrams that an eACK shows to be missing, where there are any: 1 is loss by chance, many are bursts or a queue that overflows.",
                        Unit::Count,
                        "packrat_eack_missing_datagrams",
                        1.0,
                        false,
                    ),
                    curves(
                        "Repair overhead and budget",
                        "Bytes of repairs per byte forwarded, and what is allowed.",
                        Unit::Ratio,
                        &[
                            (expanded("packrat:repair_overhead:ratio_rate5m"), "{{route}} used"),
                            (format!("max({}) / 1e6", selected("packrat_repair_budget_ppm")), "allowed"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Repairs put off by the budget",
                        "Repairs that had to wait for the next eACK because the budget was used up.",
                        Unit::PerSecond,
                        &[plain("packrat_budget_refusals_total", "put off")],
                        Thresholds::Below(1.0, 100.0),
                    ),
                ],
            ),
            (
                "Cache",
                vec![
                    curves(
                        "Bytes kept",
                        "Bytes kept for repair, and how many may be kept.",
                        Unit::Bytes,
                        &[
                            (format!("sum({})", selected("packrat_cache_bytes")), "kept"),
                            (format!("sum({})", selected("packrat_cache_limit_bytes")), "limit"),
                            (format!("max({})", selected("packrat_cache_high_water_bytes")), "most of one session"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Evictions and misses",
                        "Evicted from a full cache before their fate was known; not kept at all; asked for when they were gone.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_evictions_full_total", "evicted"),
                            plain("packrat_datagrams_uncached_total", "did not fit"),
                            plain("packrat_repairs_given_up_total{reason=\"evicted\"}", "asked for in vain"),
                        ],
                        Thresholds::Below(1.0, 100.0),
                    ),
                ],
            ),
            (
                "Live streams with many receivers",
                vec![
                    curves(
                        "Subscribers",
                        "Receivers of the route's live stream, and packets that are under repair for them.",
                        Unit::Count,
                        &[
                            (format!("sum({})", selected("packrat_stream_subscribers")), "subscribers"),
                            (format!("sum({})", selected("packrat_stream_outstanding")), "under repair"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Packets and repairs",
                        "Packets of the stream; missed by subscribers; repairs to one, and to the group; symbols to the group; missed packets that arrived after all.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_stream_packets_total", "packets"),
                            plain("packrat_stream_missing_total", "missed"),
                            plain("packrat_stream_repairs_total", "repairs"),
                            plain("packrat_stream_group_repairs_total", "of them to the group"),
                            plain("packrat_stream_symbols_total", "symbols to the group"),
                            plain("packrat_stream_repairs_arrived_total", "arrived"),
                            (rate("packrat_stream_repairs_given_up_total", "reason"), "given up: {{reason}}"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Subscriptions",
                        "Begun; ended by the subscriber or its silence; refused: no room, or too many of one source; moved to another address.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_subscriptions_total", "begun"),
                            plain("packrat_subscriptions_ended_total", "ended"),
                            plain("packrat_subscriptions_refused_total", "refused"),
                            plain("packrat_subscriptions_moved_total", "moved"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Subscribers' eACKs",
                        "Those that a longer prefix was asked for, that were too many to be looked at, Resets asked for, and repairs that no budget was left for.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_stream_eacks_total", "eACKs"),
                            plain("packrat_stream_eacks_failed_total", "failed"),
                            plain("packrat_stream_eacks_limited_total", "too many"),
                            plain("packrat_stream_resets_total", "Resets"),
                            plain("packrat_stream_budget_refusals_total", "no budget"),
                        ],
                        Thresholds::None,
                    ),
                    curves(
                        "Memory of streams",
                        "Bytes kept for repair, for all subscribers together, and what is kept of the subscribers.",
                        Unit::Bytes,
                        &[
                            (format!("sum({})", selected("packrat_stream_cache_bytes")), "cache"),
                            (format!("sum({})", selected("packrat_stream_state_bytes")), "subscribers"),
                        ],
                        Thresholds::None,
                    ),
                ],
            ),
            (
                "eACKs and Resets",
                vec![
                    curves(
                        "eACKs by result",
                        "Failed: a longer prefix was asked for. Stale, other epoch: a newer one said the same.",
                        Unit::PerSecond,
                        &[(rate("packrat_eacks_total", "result"), "{{result}}")],
                        Thresholds::None,
                    ),
                    curves(
                        "Prefix bytes per eACK",
                        "How much of a sketch clients send.",
                        Unit::Bytes,
                        &[(
                            format!(
                                "sum(rate({}[{RATE_WINDOW}])) / (sum(rate({}[{RATE_WINDOW}])) > 0)",
                                selected("packrat_eack_prefix_bytes_total"),
                                selected("packrat_eacks_received_total")
                            ),
                            "bytes",
                        )],
                        Thresholds::None,
                    ),
                    quantiles(
                        "Symbols per eACK",
                        "Coded symbols or power sums: they grow with the number of losses that clients know of.",
                        Unit::Count,
                        "packrat_eack_symbols",
                        1.0,
                        false,
                    ),
                    curves(
                        "Resets by reason",
                        "How often gateway and client lost track of each other's sets; their log lines are beside.",
                        Unit::PerSecond,
                        &[(rate("packrat_resets_total", "side, reason"), "{{side}}: {{reason}}")],
                        Thresholds::Below(0.01, 0.1),
                    ),
                    logs("Resets", "Log lines of the Resets.", &lines("reset")),
                ],
            ),
            (
                "Sessions",
                vec![
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
                        "Handshakes by result",
                        "What clients that asked for assistance got.",
                        Unit::PerSecond,
                        &[(rate("packrat_handshakes_total", "result"), "{{result}}")],
                        Thresholds::None,
                    ),
                    quantiles(
                        "Age of sessions that ended",
                        "Within an hour; the idle timeout at the end is part of it.",
                        Unit::Seconds,
                        "packrat_session_duration_seconds",
                        1.0,
                        true,
                    ),
                    quantiles(
                        "Bytes to the client of sessions that ended",
                        "Within an hour. Small ones gain least from repairs.",
                        Unit::Bytes,
                        "packrat_session_to_client_bytes",
                        1.0,
                        true,
                    ),
                    quantiles(
                        "Far round trips of new sessions",
                        "Within an hour; one measurement per session, with the server's time to answer. What is far gains most from a gateway that is near.",
                        Unit::Seconds,
                        "packrat_far_round_trip_sample_microseconds",
                        1e6,
                        true,
                    ),
                    curves(
                        "Clients that moved",
                        "Addresses challenged, and sessions that moved to another address of their client or to another endpoint.",
                        Unit::PerSecond,
                        &[
                            plain("packrat_paths_challenged_total", "challenged"),
                            plain("packrat_paths_moved_total", "moved"),
                            plain("packrat_paths_refused_total", "refused: another session is there"),
                            plain("packrat_sessions_moved_total", "other endpoint"),
                            plain("packrat_sessions_taken_over_total", "from another gateway"),
                            plain("packrat_sessions_relayed_total", "relayed to their gateway"),
                            plain("packrat_inquiries_total", "other gateways asked"),
                            plain("packrat_sessions_named_total", "by connection ID"),
                        ],
                        Thresholds::None,
                    ),
                    logs(
                        "Sessions that were refused, and servers that could not be reached",
                        "Warnings and errors of the route.",
                        &lines("session_refused|upstream_error|downstream_error|assistance_panic"),
                    ),
                ],
            ),
        ],
    }
    .json()
}
