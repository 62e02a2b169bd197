//! Checks of the network around gateways: how large packets may be, and the kernel's table of tracked
//! connections.

use packrat_api::status::ConnectionTracking;
use packrat_wire::number::NUMBER_LENGTH;

use super::{Check, Verdict};
use crate::operate::gateway::Status;

/// Name of this group of checks.
const CHECK_GROUP: &str = "network";
/// Bytes of the headers of IPv6 and UDP, the longest in front of a datagram.
const HEADER_BYTES: u32 = 48;
/// Bytes of the headers of IPv4 and UDP, the shortest.
const SHORT_HEADERS: u32 = 28;
/// Bytes of a datagram that every path of QUIC must take (RFC 9000, section 14).
const SMALLEST_MAXIMUM: u32 = 1200;
/// Bytes of the longest datagrams that servers commonly probe paths with.
const COMMON_MAXIMUM: u32 = 1452;
/// Bytes of the number in front of a datagram.
const NUMBER_BYTES: u32 = NUMBER_LENGTH as u32;
/// Share of its entries from which a table is full for practical purposes.
const FULL_SHARE: f64 = 0.8;
/// Entries of a session: the client's flow to the gateway, and the gateway's to the server.
const ENTRIES_PER_SESSION: u64 = 2;
/// Maximum number of a gateway's sessions: each has a port of its own.
const MOST_SESSIONS: u64 = 1 << 16;

/// Every check of the network around one gateway.
pub(super) fn of_gateway(status: &Status) -> Vec<Check> {
    let network = &status.network;
    let mut checks = packets(network.mtu_to_clients, network.mtu_to_servers);
    match &network.tracking {
        Some(table) => checks.extend(tracked(status, table)),
        None => checks.push(unknown(
            "tracked connections",
            "the gateway cannot read the kernel's table, or is older than this command",
            NODES_HINT,
        )),
    }
    checks
}

/// Advice when a gateway cannot see its node's connection tracking.
const NODES_HINT: &str = "on a node: sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max net.netfilter.nf_conntrack_udp_timeout_stream; without these names nothing is tracked";

fn unknown(name: &str, detail: &str, hint: &str) -> Check {
    Check::of(CHECK_GROUP, name, false, Verdict::Unknown, detail, hint)
}

fn packets(to_clients: Option<u32>, to_servers: Option<u32>) -> Vec<Check> {
    let Some(smallest) = to_clients.into_iter().chain(to_servers).min() else {
        let hint = "on the gateway's node or in its Pod: ip route get ADDRESS, ip link";
        return vec![unknown(
            "packet size",
            "the gateway does not say how large packets may be",
            hint,
        )];
    };
    let needed = SMALLEST_MAXIMUM + NUMBER_BYTES + HEADER_BYTES;
    let verdict = if smallest < needed - NUMBER_BYTES { Verdict::Failed } else { Verdict::Warning };
    let mut checks = vec![Check::of(
        CHECK_GROUP,
        format!("packets of {needed} bytes fit"),
        smallest >= needed,
        verdict,
        format!("the way to clients or servers takes {smallest}, and drops what is longer"),
        "raise the MTU of the Pod network or tunnel: every QUIC connection needs datagrams of 1,200 bytes",
    )];
    let Some((to_clients, to_servers)) = to_clients.zip(to_servers) else { return checks };
    let longest = to_servers.min(COMMON_MAXIMUM + SHORT_HEADERS);
    let limit = to_clients.saturating_sub(SHORT_HEADERS + NUMBER_BYTES);
    checks.push(Check::of(
        CHECK_GROUP,
        "numbers fit in front of servers' longest datagrams",
        to_clients >= longest + NUMBER_BYTES,
        Verdict::Warning,
        format!(
            "the way to clients takes packets of {to_clients} bytes, the way to servers {to_servers}: datagrams of servers that probe for the longest have no numbers"
        ),
        format!(
            "limit the servers' datagrams to {limit} bytes over IPv4, {} over IPv6, or raise the MTU towards clients",
            limit.saturating_sub(HEADER_BYTES - SHORT_HEADERS)
        ),
    ));
    checks
}

fn tracked(status: &Status, table: &ConnectionTracking) -> Vec<Check> {
    let configurations = || status.routes.iter().map(|route| &route.configuration);
    let sessions: u64 = configurations()
        .map(|configuration| configuration.maximum_sessions_in_force)
        .fold(0, u64::saturating_add);
    let needed = sessions.min(MOST_SESSIONS) * ENTRIES_PER_SESSION;
    let mut checks = vec![Check::of(
        CHECK_GROUP,
        "the table of tracked connections has an entry for each flow of all sessions",
        needed <= table.maximum,
        Verdict::Warning,
        format!(
            "{sessions} sessions may be there and need {needed} entries; the host has {} for everything",
            table.maximum
        ),
        format!(
            "where the node tracks connections, raise net.netfilter.nf_conntrack_max to {needed} and what else it needs, or lower maximum_sessions"
        ),
    )];
    if table.entries == 0 {
        checks.push(unknown(
            "tracked connections",
            "none in the gateway's network namespace; what the node tracks cannot be seen from there",
            NODES_HINT,
        ));
        return checks;
    }
    checks.push(Check::of(
        CHECK_GROUP,
        "the table of tracked connections has room",
        (table.entries as f64) < FULL_SHARE * table.maximum as f64,
        Verdict::Warning,
        format!("{} of {} entries are taken", table.entries, table.maximum),
        "raise net.netfilter.nf_conntrack_max: a full table drops the datagrams of new clients",
    ));
    let idle = configurations().map(|configuration| configuration.idle_timeout_seconds).max();
    let idle = idle.unwrap_or_default();
    checks.push(Check::of(
        CHECK_GROUP,
        "silent clients are tracked as long as their sessions last",
        table.udp_stream_timeout_seconds >= idle,
        Verdict::Warning,
        format!(
            "a flow is forgotten after {} s without a datagram, a session after {idle} s: its client may reach another gateway then",
            table.udp_stream_timeout_seconds
        ),
        format!(
            "set net.netfilter.nf_conntrack_udp_timeout_stream to {idle}, or idle_timeout_seconds to less"
        ),
    ));
    checks
}

/// The checks of all gateways, each with its name. Checks that none of them can make are listed
/// once.
pub(super) fn of_all(
    gateways: Vec<(String, Vec<Check>)>,
) -> (Vec<(String, Vec<Check>)>, Vec<Check>) {
    let mut unseen: Vec<(Check, usize)> = Vec::new();
    let seen = gateways.into_iter().map(|(name, checks)| {
        let (unknown, seen) =
            checks.into_iter().partition(|check| check.verdict == Verdict::Unknown);
        let unknown: Vec<Check> = unknown;
        for check in unknown {
            match unseen.iter_mut().find(|(other, _)| *other == check) {
                Some((_, count)) => *count += 1,
                None => unseen.push((check, 1)),
            }
        }
        (name, seen)
    });
    let seen = seen.collect();
    let counted = |(check, count): (Check, usize)| match count {
        1 => check.about("1 gateway:"),
        _ => check.about(&format!("{count} gateways:")),
    };
    (seen, unseen.into_iter().map(counted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(network: Value) -> Status {
        serde_json::from_value(json!({ "network": network, "routes": [{
            "route": "web", "metrics": {},
            "configuration": { "maximum_sessions_in_force": 25_000, "idle_timeout_seconds": 120 },
        }]}))
        .unwrap()
    }

    fn table(entries: u64, maximum: u64, stream: u64) -> Value {
        json!({ "tracking": {
            "entries": entries, "maximum": maximum, "udp_timeout_seconds": 30, "udp_stream_timeout_seconds": stream,
        }})
    }

    /// The checks that did not pass, by their text.
    fn told(network: Value) -> Vec<(Verdict, String)> {
        let checks = of_gateway(&status(network)).into_iter();
        let ill = checks.filter(|check| check.verdict != Verdict::Passed);
        ill.map(|check| (check.verdict, check.detail.unwrap())).collect()
    }

    #[test]
    fn packets_must_take_1200_bytes_and_a_number() {
        let of_packets = |to_clients: u32, to_servers: u32| {
            let mut told =
                told(json!({ "mtu_to_clients": to_clients, "mtu_to_servers": to_servers }));
            told.pop();
            told
        };
        assert_eq!(of_packets(1500, 1500), []);
        assert_eq!(of_packets(65_536, 65_536), []);
        assert_eq!(of_packets(1500, 1256), []);
        for (smallest, verdict) in [(1255, Verdict::Warning), (1247, Verdict::Failed)] {
            let said = of_packets(1500, smallest);
            assert!(said[0].0 == verdict && said[0].1.contains(&smallest.to_string()), "{said:?}");
        }
        // An overlay on both sides: packets that fit the one have no room for a number on the
        // other.
        let said = of_packets(1450, 1450);
        assert!(
            matches!(&said[..], [(Verdict::Warning, text)] if text.contains("no numbers")),
            "{said:?}"
        );
        let checks = packets(Some(1450), Some(1450));
        assert!(checks[1].hint.as_ref().unwrap().contains("1414 bytes over IPv4, 1394 over IPv6"));
        assert_eq!(of_packets(1450, 1442), []);
    }

    #[test]
    fn a_table_of_connections_is_compared_with_the_sessions() {
        let of_table = |network: Value| {
            let mut told = told(network);
            assert_eq!(told.remove(0).0, Verdict::Unknown, "the size of packets");
            told
        };
        assert_eq!(of_table(table(10, 131_072, 120)), []);
        let verdicts = |network: Value| -> Vec<Verdict> {
            of_table(network).into_iter().map(|(verdict, _)| verdict).collect()
        };
        assert_eq!(verdicts(table(10, 49_999, 120)), [Verdict::Warning]);
        assert_eq!(verdicts(table(104_858, 131_072, 120)), [Verdict::Warning]);
        assert_eq!(verdicts(table(10, 131_072, 119)), [Verdict::Warning]);
    }

    #[test]
    fn what_cannot_be_seen_is_said_once_for_all_gateways() {
        // A Pod without rules sees only the host's maximum, and its own timeouts, which prove
        // nothing.
        let in_a_pod = of_gateway(&status(table(0, 131_072, 30)));
        let verdicts: Vec<Verdict> = in_a_pod.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [Verdict::Unknown, Verdict::Passed, Verdict::Unknown]);
        let older = of_gateway(&status(json!({})));
        assert!(older.iter().all(|check| check.verdict == Verdict::Unknown));
        let of = |name: &str| (name.to_owned(), in_a_pod.clone());
        let (seen, unseen) = of_all(vec![of("shop/a"), of("shop/b"), ("shop/c".to_owned(), older)]);
        assert_eq!(seen.iter().map(|(_, checks)| checks.len()).collect::<Vec<_>>(), [1, 1, 0]);
        let names: Vec<&str> = unseen.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "3 gateways: packet size",
                "2 gateways: tracked connections",
                "1 gateway: tracked connections"
            ]
        );
    }
}
