//! The claims, in the order in which they are tried.

mod balancer;
mod calendar;
mod definitions;
mod disk;
mod exposure;
mod first_download;
mod fleet;
mod gateway_api;
mod operate;
mod quick_start;
mod routes;
mod tokens;
mod weather;

pub(crate) use calendar::let_gateway_be_set;
pub(crate) use weather::{process_of, send_garbage};

use crate::command::Outcome;
use crate::suite::Suite;

/// A claim, and the trial that shows it.
pub(crate) struct Claim {
    /// The claim in words, with hyphens.
    pub(crate) name: &'static str,
    /// True if it is part of the short run (`--smoke`).
    pub(crate) smoke: bool,
    /// True if later claims need the objects that it creates.
    pub(crate) prepares: bool,
    /// True if it runs programs on the nodes.
    pub(crate) enters_nodes: bool,
    /// True if it takes minutes, and is tried only when it is named (`--only`).
    pub(crate) long: bool,
    /// Tries it; the text reports the measurements.
    pub(crate) run: fn(&mut Suite) -> Outcome<String>,
}

type Trial = fn(&mut Suite) -> Outcome<String>;

const fn preparation(name: &'static str, run: Trial) -> Claim {
    Claim { name, smoke: true, prepares: true, enters_nodes: false, long: false, run }
}

const fn smoke(name: &'static str, run: Trial) -> Claim {
    Claim { name, smoke: true, prepares: false, enters_nodes: false, long: false, run }
}

const fn full(name: &'static str, run: Trial) -> Claim {
    Claim { name, smoke: false, prepares: false, enters_nodes: false, long: false, run }
}

const fn on_nodes(name: &'static str, run: Trial) -> Claim {
    Claim { enters_nodes: true, ..full(name, run) }
}

const fn long(name: &'static str, run: Trial) -> Claim {
    Claim { long: true, ..full(name, run) }
}

/// All claims.
pub(crate) const ALL_CLAIMS: &[Claim] = &[
    preparation("install", first_download::install),
    smoke("helm-test", first_download::helm_test),
    preparation("annotate", first_download::annotate),
    smoke("assisted-download", first_download::assisted),
    smoke("assisted-upload", first_download::assisted_upload),
    smoke("packrat-check-is-green", operate::check),
    smoke("packrat-stat-shows-the-download", operate::stat),
    full("dashboards-are-answered", operate::dashboards),
    smoke("five-times-end-to-end", first_download::five_times),
    smoke("control-datagrams-reach-no-server", first_download::control_stays),
    smoke("gateway-api", gateway_api::udp_route),
    full("hundred-clients-at-once", first_download::hundred_clients),
    full("plain-client", first_download::plain_client),
    on_nodes("load-balancer-local", exposure::load_balancer),
    on_nodes("host-network", exposure::host_network),
    full("sidecar", exposure::sidecar),
    full("tokens-required", tokens::required),
    full("token-keys-rotated", tokens::rotated),
    full("many-services-two-gateways", routes::many),
    full("another-server-stack", routes::another_server),
    full("last-mile-blackhole-5s", weather::blackhole),
    full("last-mile-30-percent-in-bursts-10s", weather::bursts),
    full("client-port-changes", weather::port_changes),
    full("client-address-changes", weather::address_changes),
    on_nodes("gateway-process-killed", weather::gateway_killed),
    full("gateway-pod-deleted", weather::gateway_deleted),
    full("goodput-while-a-gateway-drains", weather::goodput_while_draining),
    full("assistance-switched-off-and-on", weather::switched_off),
    on_nodes("flows-of-the-node-forgotten", weather::flows_forgotten),
    full("node-lost-and-returned", weather::node_lost),
    full("gateways-rolled-behind-load-balancer", exposure::rolled),
    full("goodput-while-two-gateways-roll", exposure::goodput_while_rolling),
    long("moving-clients-of-a-fleet", fleet::moving_clients),
    full("operator-killed", weather::operator_killed),
    full("chart-upgraded", weather::chart_upgraded),
    full("servers-scaled", weather::servers_scaled),
    full("envoy-reconfigured-100-times", weather::reconfigured),
    full("cache-cut-to-a-tenth", weather::cache_cut),
    on_nodes("api-server-gone-60s", weather::api_server_gone),
    on_nodes("garbage-10000-per-second", weather::garbage),
    on_nodes("clock-jumps-an-hour", calendar::jumps),
    on_nodes("disk-full", disk::full),
    smoke("unannotate", first_download::unannotate),
    smoke("uninstall", first_download::uninstall),
    full("definitions-of-0.1.0-adopted", definitions::adopted),
    full("quick-start", quick_start::as_written),
];

/// Faults that leave the gateway's process alone, for the soak.
pub(crate) const HARMLESS_FAULTS: &[Claim] = &[
    full("last-mile-blackhole-5s", weather::blackhole),
    full("last-mile-30-percent-in-bursts-10s", weather::bursts),
    full("client-port-changes", weather::port_changes),
    full("client-address-changes", weather::address_changes),
    full("operator-killed", weather::operator_killed),
    full("servers-scaled", weather::servers_scaled),
    full("envoy-reconfigured-100-times", weather::reconfigured),
    full("cache-cut-to-a-tenth", weather::cache_cut),
    on_nodes("garbage-10000-per-second", weather::garbage),
    on_nodes("flows-of-the-node-forgotten", weather::flows_forgotten),
    full("token-keys-rotated", tokens::rotated),
    on_nodes("clock-jumps-an-hour-and-back", calendar::there_and_back),
];
