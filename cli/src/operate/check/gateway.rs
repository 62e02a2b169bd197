//! Checks of one gateway.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use super::{Check, Verdict, network};
use crate::operate::gateway::{AskedGateway, Route, Status};
use crate::operate::output::{milliseconds, percent};
use crate::operate::probe::probe;

/// The check of a gateway that cannot be asked.
pub(super) fn silent(error: &impl ToString, hint: &str) -> Check {
    Check::of("gateway", "can be asked", false, Verdict::Failed, error.to_string(), hint)
}

/// Every check of one gateway.
pub(crate) fn all(gateway: &AskedGateway, address: Option<&str>) -> Vec<Check> {
    let status = match gateway.status() {
        Ok(status) => status,
        Err(error) => {
            let hint = "is the process running, and is this the right port? In Envoy the bootstrap extension must be configured: docs/OPERATING.md";
            return vec![silent(&error, hint)];
        }
    };
    let mut checks =
        vec![Check::passed("gateway", "can be asked", Some(gateway.url().to_string()))];
    checks.extend(of_gateway(&status));
    checks.extend(network::of_gateway(&status));
    for route in &status.routes {
        checks.extend(of_route(route));
    }
    checks.extend(of_path(gateway, &status, address));
    checks
}

pub(super) fn of_gateway(status: &Status) -> Vec<Check> {
    let ours = env!("CARGO_PKG_VERSION");
    let group = "gateway";
    vec![
        Check::of(
            group,
            "has the version of this command",
            status.version == ours,
            Verdict::Warning,
            format!("the gateway is {}, this command {ours}", status.version),
            "update the older of the two",
        ),
        Check::of(
            group,
            "takes new clients",
            !status.draining,
            Verdict::Warning,
            "it is draining",
            "it is going away: look at its replacement",
        ),
        Check::of(
            group,
            "has a route",
            !status.routes.is_empty(),
            Verdict::Failed,
            "nothing is configured",
            "configure a listener with Packrat's filter; if one is, look for configuration_refused in the log",
        ),
        Check::of(
            group,
            "logs everything",
            status
                .process
                .get("packrat_log_lines_suppressed_total")
                .is_none_or(|lines| *lines == 0.0),
            Verdict::Warning,
            "lines were kept back because too many came at once",
            "the metrics count them all",
        ),
    ]
}

/// Group of the checks of routes.
const ROUTES_GROUP: &str = "routes";

/// Every check of one route.
pub(super) fn of_route(route: &Route) -> Vec<Check> {
    let name = |what: &str| format!("{} {what}", route.route);
    let value = |series: &str| route.metrics.get(series).copied().unwrap_or_default();
    [
        of_configuration(route, name),
        of_forwarding(name, value),
        of_repairs(route.configuration.repair_budget, name, value),
    ]
    .concat()
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn of_configuration(route: &Route, name: impl Fn(&str) -> String) -> Vec<Check> {
    let configuration = &route.configuration;
    vec![
        Check::of(
            ROUTES_GROUP,
            name("has a listener"),
            !route.listeners.is_empty(),
            Verdict::Failed,
            "no socket is attached",
            "in Envoy the listener was removed, or its socket was not found: look for listener_unavailable in the log",
        ),
        Check::of(
            ROUTES_GROUP,
            name("has endpoints"),
            !configuration.endpoints.is_empty(),
            Verdict::Failed,
            "there is nothing to forward to",
            "name at least one endpoint",
        ),
        Check::of(
            ROUTES_GROUP,
            name("assists clients"),
            configuration.assist,
            Verdict::Warning,
            "assistance is switched off",
            "set assist: true, unless it is off on purpose",
        ),
        Check::of(
            ROUTES_GROUP,
            name("may have as many sessions as configured"),
            configuration.maximum_sessions_in_force >= configuration.maximum_sessions,
            Verdict::Warning,
            format!(
                "{} instead of {}, because {}",
                configuration.maximum_sessions_in_force,
                configuration.maximum_sessions,
                configuration
                    .sessions_limited_by
                    .as_deref()
                    .unwrap_or("the process cannot hold more")
            ),
            "more replicas, or what the detail names raised",
        )
        .see("packratsessionsnearlimit"),
    ]
}

fn of_forwarding(name: impl Fn(&str) -> String, value: impl Fn(&str) -> f64) -> Vec<Check> {
    let dropped =
        value("packrat_to_client_dropped_total") + value("packrat_to_server_dropped_total");
    let forwarded =
        value("packrat_to_client_datagrams_total") + value("packrat_to_server_datagrams_total");
    let errors = value("packrat_upstream_errors_total");
    vec![
        Check::of(
            ROUTES_GROUP,
            name("reaches its servers"),
            errors == 0.0 || share(errors, forwarded) < 0.001,
            Verdict::Warning,
            format!("{errors} errors from servers"),
            "look for upstream_error in the log: which endpoint, and why",
        ),
        Check::of(
            ROUTES_GROUP,
            name("drops nothing"),
            share(dropped, forwarded) < 0.001,
            Verdict::Warning,
            format!("{dropped} of {forwarded} datagrams dropped"),
            "raise net.core.wmem_max, or look for downstream_error in the log",
        ),
    ]
}

fn of_repairs(
    budget: f64,
    name: impl Fn(&str) -> String,
    value: impl Fn(&str) -> f64,
) -> Vec<Check> {
    let missing = value("packrat_datagrams_missing_total");
    let refused = share(value("packrat_budget_refusals_total"), missing);
    let evicted = share(value("packrat_repairs_given_up_total{reason=\"evicted\"}"), missing);
    let late = share(value("packrat_repairs_given_up_total{reason=\"late\"}"), missing);
    let panics = value("packrat_assistance_panics_total");
    vec![
        Check::of(
            ROUTES_GROUP,
            name("has had no fault in assistance"),
            panics == 0.0,
            Verdict::Warning,
            format!("{panics} faults; each cost a flow its assistance"),
            "report it with `packrat diagnose`",
        )
        .see("packratassistancefault"),
        Check::of(
            ROUTES_GROUP,
            name("repairs in time"),
            late < 0.1,
            Verdict::Warning,
            format!("{} of the losses were given up as too late", percent(late)),
            "a gateway closer to the clients, or a longer hold of theirs",
        )
        .see("packrattoolate"),
        Check::of(
            ROUTES_GROUP,
            name("keeps datagrams long enough"),
            evicted < 0.05,
            Verdict::Warning,
            format!("{} of the losses were not in the cache any more", percent(evicted)),
            "raise the cache per session, or in total",
        )
        .see("packratcachethrash"),
        Check::of(
            ROUTES_GROUP,
            name("stays within its repair budget"),
            refused < 0.1,
            Verdict::Warning,
            format!(
                "{} of the losses had to wait; the budget is {}",
                percent(refused),
                percent(budget)
            ),
            "raise the budget, unless the loss is congestion",
        )
        .see("packratbudgetexhausted"),
    ]
}

/// Checks the gateway at the address that the user has given.
pub(super) fn of_address(address: &str) -> Check {
    match address.to_socket_addrs().map(|mut found| found.next()) {
        Ok(Some(found)) => of_listener("from here", address, found),
        _ => {
            let hint = "give host:port of the gateway's UDP listener";
            Check::of("from here", address, false, Verdict::Failed, "no such address", hint)
        }
    }
}

fn of_path(gateway: &AskedGateway, status: &Status, address: Option<&str>) -> Vec<Check> {
    let group = "from here";
    let mut targets: Vec<(String, SocketAddr)> = Vec::new();
    if let Some(address) = address {
        return vec![of_address(address)];
    } else {
        for route in &status.routes {
            for listener in &route.listeners {
                let reachable =
                    SocketAddr::new(seen_from_here(listener.ip(), gateway), listener.port());
                targets.push((format!("{} at {reachable}", route.route), reachable));
            }
        }
    }
    targets.into_iter().map(|(name, target)| of_listener(group, &name, target)).collect()
}

/// The address of a listener as seen from here: a listener on all addresses has the gateway's.
fn seen_from_here(ip: IpAddr, gateway: &AskedGateway) -> IpAddr {
    if !ip.is_unspecified() {
        return ip;
    }
    let host = gateway.host().unwrap_or("127.0.0.1").trim_matches(['[', ']']);
    let found = host
        .parse()
        .ok()
        .or_else(|| (host, 0).to_socket_addrs().ok()?.next().map(|found| found.ip()));
    found.unwrap_or(IpAddr::from([127, 0, 0, 1]))
}

pub(super) fn of_listener(group: &'static str, name: &str, target: SocketAddr) -> Check {
    let probed = match probe(target) {
        Ok(probed) => probed,
        Err(error) => {
            let hint = "no program listens there, or a firewall refuses UDP";
            return Check::of(group, name, false, Verdict::Failed, error.to_string(), hint);
        }
    };
    let answers = probed.offers + probed.refusals;
    let way = format!(
        "{answers} of {} Discovers answered, round trip {}",
        probed.sent,
        probed
            .round_trip
            .map_or_else(|| "unknown".to_owned(), |time| milliseconds(time.as_secs_f64()))
    );
    if answers == 0 {
        let hint = "UDP to this port does not arrive: look at firewalls, security groups, NetworkPolicies, and the Service's protocol";
        return Check::of(group, name, false, Verdict::Failed, "no answer to a Discover", hint);
    }
    if probed.offers == 0 {
        let hint = "assistance is switched off, or the gateway is draining or full";
        return Check::of(
            group,
            name,
            false,
            Verdict::Warning,
            "the gateway refuses to assist",
            hint,
        );
    }
    if probed.loss() > 0.0 {
        let detail = format!("{way}: {} lost, both directions together", percent(probed.loss()));
        let hint = "that is the loss that Packrat is for; `packrat plan` says what to expect";
        return Check::of(group, name, false, Verdict::Warning, detail, hint);
    }
    Check::passed(group, format!("{name} answers a Discover"), Some(way))
}
