//! Gateways on a node with a full disk.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::balancer::Balancer;
use super::exposure::{assisted, described, with};
use super::weather::{finish, report};
use crate::command::{Failure, Outcome, until};
use crate::suite::{LARGE_FILE, NODE_PORT, SHOP_GATEWAY, SHOP_NAMESPACE, Suite};

/// The gateway of `manifests/gateway-loadbalancer.yaml`: one on each of two nodes.
const BALANCED_GATEWAY: &str = "balanced";
/// Class of Pods that Kubernetes does not evict when a disk is full.
const PRIORITY_CLASS: &str = "system-node-critical";
/// The file that fills the disk.
const FILLING_FILE: &str = "/var/lib/packrat-e2e-filling";
/// Bytes of a download that have arrived when the disk is full.
const BYTES_BEFORE: u64 = 5_000_000;
/// Bytes per second of the download that continues while Pods are evicted.
const BYTES_PER_SECOND: u64 = 500_000;

/// The disk of a node gets full. A gateway that must not be evicted keeps running; of two others
/// one is evicted, and the second takes over.
pub(super) fn full(suite: &mut Suite) -> Outcome<String> {
    let node = suite.gateway_node(SHOP_GATEWAY)?;
    match suite.cluster.small_disk(&node, true) {
        Some(done) => done?,
        None => {
            return Ok(
                "not tried: the nodes of this cluster cannot be given a small disk".to_owned()
            );
        }
    }
    let outcome = with(suite, "gateway-loadbalancer.yaml", |suite| {
        suite.gateway_node(SHOP_GATEWAY)?;
        set_priority(suite, PRIORITY_CLASS.into())?;
        suite.rolled_out(&format!("deployment/packrat-gateway-{SHOP_GATEWAY}"), SHOP_NAMESPACE)?;
        let outcome = filled(suite, &node);
        set_priority(suite, Value::Null)?;
        outcome
    });
    // Simulates an operator who frees space and restarts the node. Kubernetes itself waits five
    // minutes before it trusts the free space.
    let restored = suite.cluster.small_disk(&node, false).unwrap_or(Ok(()));
    let text = outcome?;
    restored?;
    suite.gateway_node(SHOP_GATEWAY)?;
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let after = until(Duration::from_secs(60), "assistance afterwards", || assisted(suite, &to))?;
    Ok(format!("{text}; with room again: {}", described(&after)))
}

fn filled(suite: &mut Suite, node: &str) -> Outcome<String> {
    let Some(balancer) = Balancer::before(suite, BALANCED_GATEWAY)? else {
        return Ok("not tried: this cluster has no load balancer".to_owned());
    };
    let direct = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let (kept, _) = suite.gateway_pod(SHOP_GATEWAY)?;

    let mut request = suite.request(LARGE_FILE, &format!("{}:443", balancer.address));
    request.pace = Some(BYTES_PER_SECOND);
    let mut slow = suite.start_download(&request)?;
    let mut quick = suite.start_download(&suite.request(LARGE_FILE, &direct))?;
    quick.wait_for(BYTES_BEFORE)?;
    fill(suite, node)?;
    let (started, mut evicted) = (Instant::now(), None);
    while !quick.ended()? {
        if evicted.is_none() && is_evicted(suite, node)? {
            evicted = Some(started.elapsed());
        }
        thread::sleep(Duration::from_millis(500));
    }
    let quick = report(&finish(suite, quick)?, "")?;

    while !slow.ended()? {
        balancer.follow(suite)?;
        if evicted.is_none() && is_evicted(suite, node)? {
            evicted = Some(started.elapsed());
        }
        thread::sleep(Duration::from_millis(500));
    }
    let slow = report(&finish(suite, slow)?, "")?;
    let evicted = until(Duration::from_secs(60), "one of the two gateways is evicted", || {
        balancer.follow(suite)?;
        if is_evicted(suite, node)? {
            Ok(evicted.unwrap_or_else(|| started.elapsed()))
        } else {
            Err(Failure::new("none is"))
        }
    })?;
    let pressure =
        format!("jsonpath={{.status.conditions[?(@.type==\"{}\")].status}}", "DiskPressure");
    if suite.kubectl.output(["get", "node", node, "-o", &pressure])?.trim() != "True" {
        return Err(Failure(format!("{node} does not say that its disk is full")));
    }
    if suite.gateway_pod(SHOP_GATEWAY)?.0 != kept {
        return Err(Failure(format!("a gateway of the priority {PRIORITY_CLASS} was replaced")));
    }
    let direct = described(&assisted(suite, &direct)?);
    let balanced = described(&assisted(suite, &format!("{}:443", balancer.address))?);
    suite.cluster.inside(node).output(["sh", "-c", &format!("rm -f {FILLING_FILE}*")])?;
    Ok(format!(
        "with the priority {PRIORITY_CLASS}: {quick}; a new download: {direct}; \
         of two with no priority one was evicted {} s after: {slow}; a new download: {balanced}",
        evicted.as_secs()
    ))
}

/// Fills a node's disk until nothing can be written any more. (Evictions free space again.)
fn fill(suite: &Suite, node: &str) -> Outcome {
    let script = format!(
        "free=$(df --block-size=1M --output=avail /var/lib | tail -n 1)
        fallocate -l $((free - 8))M {FILLING_FILE} || exit
        ! dd if=/dev/zero of={FILLING_FILE}.end bs=4k 2>/dev/null"
    );
    suite.cluster.inside(node).output(["sh", "-c", &script]).map(drop)
}

/// True if one of the two gateways was evicted from a node.
fn is_evicted(suite: &Suite, node: &str) -> Outcome<bool> {
    let events = suite.get(SHOP_NAMESPACE, &["events", "--field-selector=reason=Evicted"])?;
    let name = format!("packrat-gateway-{BALANCED_GATEWAY}-");
    let evicted = |event: &Value| {
        event["source"]["host"] == node
            && event["involvedObject"]["name"].as_str().is_some_and(|pod| pod.starts_with(&name))
    };
    Ok(events["items"].as_array().is_some_and(|events| events.iter().any(evicted)))
}

/// Gives the first gateway a priority, and waits until it runs with it.
fn set_priority(suite: &Suite, priority: Value) -> Outcome {
    let patch =
        serde_json::json!({ "spec": { "workload": { "pod": { "priorityClassName": priority } } } });
    suite.patch_gateway(SHOP_GATEWAY, &patch)?;
    let deployment = format!("packrat-gateway-{SHOP_GATEWAY}");
    until(Duration::from_secs(60), "the operator passes the priority on", || {
        let deployment = suite.get(SHOP_NAMESPACE, &["deployment", &deployment])?;
        let now = &deployment["spec"]["template"]["spec"]["priorityClassName"];
        if *now == priority { Ok(()) } else { Err(Failure(format!("it is {now}"))) }
    })
}
