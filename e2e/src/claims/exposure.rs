//! The ways in which clients reach gateways.

use std::time::Duration;

use crate::command::{Failure, Outcome, until};
use crate::download::Transfer;
use crate::suite::{LARGE_FILE, SHOP_GATEWAY, SHOP_NAMESPACE, SMALL_FILE, Suite};

use super::balancer::{Balancer, deployment};
use super::weather::{compared, finish, report};

/// The EdgeGateway of `manifests/gateway-loadbalancer.yaml`.
const BALANCED_GATEWAY: &str = "balanced";

pub(super) fn described(transfer: &Transfer) -> String {
    let repaired = transfer
        .repaired()
        .map_or_else(|| "not assisted".to_owned(), |count| format!("{count} repaired"));
    format!("{:.1} Mbit/s, {repaired}", transfer.goodput())
}

/// Downloads through `to`, and fails without assistance.
pub(super) fn assisted(suite: &Suite, to: &str) -> Outcome<Transfer> {
    let transfer = suite.download(&suite.request(SMALL_FILE, to))?;
    transfer.expect(&suite.checksum(SMALL_FILE)?)?;
    if transfer.repaired().is_none() {
        return Err(Failure(format!("no assistance: {}", transfer.assistance())));
    }
    Ok(transfer)
}

/// Fails unless the nodes have handed the client's datagrams to a gateway under the client's own
/// address: the connection tracking knows the destination of a gateway's answers before the
/// translation is undone. (Gateways do not reveal clients' addresses.)
fn expect_client_address(suite: &Suite, port: u16) -> Outcome {
    let client = suite.cluster.client_address();
    let (from, to) = (format!(" src={client} "), format!(" dport={port} "));
    let mut kept = 0;
    for node in suite.cluster.edge_nodes() {
        let table = suite.cluster.node(node).output(["cat", "/proc/net/nf_conntrack"])?;
        for line in table.lines().filter(|line| line.contains("udp")) {
            let Some((original, reply)) =
                line.match_indices(" src=").nth(1).map(|(at, _)| line.split_at(at))
            else {
                continue;
            };
            let original = format!("{original} ");
            if !(original.contains(&from) && original.contains(&to)) {
                continue;
            }
            if !reply.contains(&format!(" dst={client} ")) {
                return Err(Failure(format!(
                    "the client has another address behind {node}: {line}"
                )));
            }
            kept += 1;
        }
    }
    if kept == 0 {
        Err(Failure(format!("no flow of {client} to port {port} was seen")))
    } else {
        Ok(())
    }
}

/// Runs a trial with the objects of a manifest, and removes them in any case.
pub(super) fn with(
    suite: &mut Suite,
    manifest: &str,
    trial: impl FnOnce(&mut Suite) -> Outcome<String>,
) -> Outcome<String> {
    suite.apply(&suite.manifest(manifest)?, Some(SHOP_NAMESPACE))?;
    let outcome = trial(suite);
    let removed = remove(suite, manifest);
    let text = outcome?;
    removed.map(|()| text)
}

fn remove(suite: &Suite, manifest: &str) -> Outcome {
    let manifest = suite.manifest(manifest)?;
    let delete =
        ["delete", "-n", SHOP_NAMESPACE, "-f", "-", "--ignore-not-found", "--timeout=120s"];
    suite.kubectl.feed(delete, &manifest)?;
    // The next objects of the same name must not meet the rest of these.
    until(Duration::from_secs(90), "the gateway's objects are gone", || {
        let kinds = "pods,deployments,daemonsets,services,secrets";
        let selector = format!("packrat.dev/edge-gateway,packrat.dev/edge-gateway!={SHOP_GATEWAY}");
        let left = suite.kubectl.output([
            "get",
            kinds,
            "-n",
            SHOP_NAMESPACE,
            "-l",
            &selector,
            "-o",
            "name",
        ])?;
        if left.trim().is_empty() { Ok(()) } else { Err(Failure(left.replace('\n', " "))) }
    })
}

/// A LoadBalancer Service with the policy Local: the gateway sees the client's address.
pub(super) fn load_balancer(suite: &mut Suite) -> Outcome<String> {
    with(suite, "gateway-loadbalancer.yaml", |suite| {
        let Some(Balancer { address, .. }) = Balancer::before(suite, BALANCED_GATEWAY)? else {
            return Ok("not tried: this cluster has no load balancer".to_owned());
        };
        let transfer = assisted(suite, &format!("{address}:443"))?;
        expect_client_address(suite, 443)?;
        let status =
            suite.get(SHOP_NAMESPACE, &["edgegateway", BALANCED_GATEWAY])?["status"]["addresses"]
                [0]
            .clone();
        if status != address.as_str() {
            return Err(Failure(format!("the status says {status}, not {address}")));
        }
        Ok(format!("{}, the client's address is kept", described(&transfer)))
    })
}

/// Replaces both gateways behind a load balancer, one after the other, during a download.
pub(super) fn rolled(suite: &mut Suite) -> Outcome<String> {
    with(suite, "gateway-loadbalancer.yaml", |suite| {
        let Some(balancer) = Balancer::before(suite, BALANCED_GATEWAY)? else {
            return Ok("not tried: this cluster has no load balancer".to_owned());
        };
        let transfer = download_while_rolling(suite, &balancer)?;
        Ok(format!("stalled {} ms, {}", transfer.stall.as_millis(), described(&transfer)))
    })
}

/// Rolls the gateway with the default drain, and measures goodput: no window of five seconds but
/// one is slower than 0.8 times the windows of an undisturbed download.
pub(super) fn goodput_while_rolling(suite: &mut Suite) -> Outcome<String> {
    with(suite, "gateway-loadbalancer.yaml", |suite| {
        let patch = serde_json::json!({ "spec": { "drain": { "seconds": 60 } } });
        suite.patch_gateway(BALANCED_GATEWAY, &patch)?;
        let Some(balancer) = Balancer::before(suite, BALANCED_GATEWAY)? else {
            return Ok("not tried: this cluster has no load balancer".to_owned());
        };
        suite.judged(|suite| {
            let undisturbed =
                suite.download(&suite.request(LARGE_FILE, &format!("{}:443", balancer.address)))?;
            undisturbed.expect(&suite.checksum(LARGE_FILE)?)?;
            let transfer = download_while_rolling(suite, &balancer)?;
            let text = report(&transfer, "")?;
            Ok(compared(&undisturbed, &transfer, &text))
        })
    })
}

fn download_while_rolling(suite: &Suite, balancer: &Balancer) -> Outcome<Transfer> {
    let to = format!("{}:443", balancer.address);
    let mut download = suite.start_download(&suite.request(LARGE_FILE, &to))?;
    download.wait_for(5_000_000)?;
    suite.kubectl.output([
        "rollout",
        "restart",
        &deployment(BALANCED_GATEWAY),
        "-n",
        SHOP_NAMESPACE,
    ])?;
    while !download.ended()? {
        balancer.follow(suite)?;
        // Each look costs this machine some commands.
        std::thread::sleep(Duration::from_secs(2));
    }
    finish(suite, download)
}

/// Gateways on the nodes' own network.
pub(super) fn host_network(suite: &mut Suite) -> Outcome<String> {
    with(suite, "gateway-hostnetwork.yaml", |suite| {
        suite.gateway_is("on-nodes", "Programmed")?;
        suite.gateway_is("on-nodes", "Ready")?;
        let mut texts = Vec::new();
        for node in suite.cluster.edge_nodes() {
            let transfer = assisted(suite, &format!("{}:8443", suite.cluster.node_address(node)?))?;
            texts.push(format!("{node}: {}", described(&transfer)));
        }
        expect_client_address(suite, 8443)?;
        Ok(texts.join("; "))
    })
}

/// A Pod with a host port gets the gateway as a sidecar.
pub(super) fn sidecar(suite: &mut Suite) -> Outcome<String> {
    with(suite, "sidecar.yaml", |suite| {
        suite.kubectl.output([
            "wait",
            "pod/on-host-port",
            "-n",
            SHOP_NAMESPACE,
            "--for=condition=Ready",
            "--timeout=120s",
        ])?;
        let pod = suite.get(SHOP_NAMESPACE, &["pod", "on-host-port"])?;
        let containers = pod["spec"]["containers"].as_array().map_or(0, Vec::len)
            + pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        if containers != 2 {
            return Err(Failure(format!("the Pod has {containers} containers")));
        }
        let node =
            suite.cluster.node_address(pod["spec"]["nodeName"].as_str().unwrap_or_default())?;
        let transfer = until(Duration::from_secs(60), "a download", || {
            assisted(suite, &format!("{node}:9443"))
        })?;
        Ok(described(&transfer))
    })
}
