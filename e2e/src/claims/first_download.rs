//! From an empty cluster to an assisted download and back.

use std::time::Duration;

use crate::command::{Failure, Outcome, until};
use crate::suite::{
    HELM_RELEASE, LARGE_FILE, NODE_PORT, SHOP_GATEWAY, SHOP_NAMESPACE, SMALL_FILE, SMALLEST_FILE,
    Suite,
};

/// Least ratio of the goodput with assistance to that end to end, at a loss of 4 %.
const LEAST_FACTOR: f64 = 5.0;

/// `helm install`: the operator becomes ready.
pub(super) fn install(suite: &mut Suite) -> Outcome<String> {
    suite.install_chart(&[])?;
    let pods = suite.get(HELM_RELEASE[0], &["pods"])?;
    Ok(format!("{} Pods", pods["items"].as_array().map_or(0, Vec::len)))
}

/// `helm test` succeeds.
pub(super) fn helm_test(suite: &mut Suite) -> Outcome<String> {
    let [namespace, name] = HELM_RELEASE;
    let output =
        suite.cluster.helm().output(["test", name, "-n", namespace, "--timeout", "120s"])?;
    let succeeded =
        output.lines().filter(|line| line.contains("Phase:") && line.contains("Succeeded")).count();
    if succeeded == 0 { Err(Failure(output)) } else { Ok(format!("{succeeded} succeeded")) }
}

/// An EdgeGateway and an annotation: a gateway runs and forwards to the Service.
pub(super) fn annotate(suite: &mut Suite) -> Outcome<String> {
    suite.apply(&suite.manifest("gateway-nodeport.yaml")?, Some(SHOP_NAMESPACE))?;
    suite.annotate_service("packrat.dev/assist=enabled")?;
    suite.gateway_is(SHOP_GATEWAY, "Programmed")?;
    suite.gateway_is(SHOP_GATEWAY, "Ready")?;
    let selector = format!("packrat.dev/edge-gateway={SHOP_GATEWAY}");
    for kind in ["networkpolicies", "poddisruptionbudgets"] {
        let found = suite.get(SHOP_NAMESPACE, &[kind, "-l", &selector])?;
        if found["items"].as_array().is_none_or(Vec::is_empty) {
            return Err(Failure(format!("the gateway has no {kind}")));
        }
    }
    suite.node_port(SHOP_GATEWAY, NODE_PORT)
}

/// The first download through the gateway is repaired and intact.
pub(super) fn assisted(suite: &mut Suite) -> Outcome<String> {
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let request = suite.request(LARGE_FILE, &to);
    let transfer = suite.download(&request)?;
    transfer.expect(&suite.checksum(LARGE_FILE)?)?;
    match transfer.repaired() {
        Some(repaired) if repaired > 0 => Ok(format!(
            "{:.1} Mbit/s, {repaired} datagrams repaired, longest stall {} ms",
            transfer.goodput(),
            transfer.stall.as_millis()
        )),
        _ => Err(Failure(format!("no assistance: {}", transfer.assistance()))),
    }
}

/// An upload is repaired from the client's side, and an unmodified server has it intact: it answers
/// with what it has.
pub(super) fn assisted_upload(suite: &mut Suite) -> Outcome<String> {
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let (sha256, summary) = suite.upload(LARGE_FILE, &suite.request("uploaded", &to))?;
    let expected = suite.checksum(LARGE_FILE)?;
    if sha256 != expected {
        return Err(Failure(format!("the server has sha256 {sha256} instead of {expected}")));
    }
    let line = summary.lines().find(|line| line.contains("towards the server")).map(str::trim);
    let again = line.and_then(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.windows(3).position(|words| words == ["were", "sent", "again"])?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    });
    match (again, line) {
        (Some(again), Some(line)) if again > 0 => Ok(line.to_owned()),
        _ => Err(Failure(format!("no datagram was sent again: {summary}"))),
    }
}

/// Downloads over the same path without assistance, which must be at least [`LEAST_FACTOR`] times slower.
pub(super) fn five_times(suite: &mut Suite) -> Outcome<String> {
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let request = suite.request(SMALL_FILE, &to);
    // The part that has arrived by then is enough for the comparison.
    let mut unassisted = request.clone();
    unassisted.options.push("--no-assist".to_owned());
    unassisted.limit = Duration::from_secs(20);
    suite.judged(|suite| {
        let assisted = suite.download(&request)?;
        assisted.expect(&suite.checksum(SMALL_FILE)?)?;
        let alone = suite.download(&unassisted)?;
        let factor = assisted.goodput() / alone.goodput();
        let text = format!(
            "{:.2} and {:.2} Mbit/s: {factor:.1} times",
            assisted.goodput(),
            alone.goodput()
        );
        // The claim holds for a path with a far segment. Without one, the sender itself recovers from
        // losses quickly.
        let least = if suite.far.is_some() { LEAST_FACTOR } else { 1.0 };
        Ok(if factor < least { Err(Failure(text)) } else { Ok(text) })
    })
}

/// A hundred clients download at the same time, all of them with assistance.
pub(super) fn hundred_clients(suite: &mut Suite) -> Outcome<String> {
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let mut request = suite.request(SMALLEST_FILE, &to);
    // A hundred handshakes take a small machine a while.
    request.connect_limit = Duration::from_secs(120);
    request.limit = Duration::from_secs(400);
    suite.judged(|suite| {
        let downloads: Vec<_> =
            (0..100).map(|_| suite.start_download(&request)).collect::<Outcome<_>>()?;
        let checksum = suite.checksum(SMALLEST_FILE)?;
        let (mut assisted, mut repaired, mut longest) = (0, 0, Duration::ZERO);
        for download in downloads {
            let transfer = download.finish()?;
            transfer.expect(&checksum)?;
            assisted += usize::from(transfer.repaired().is_some());
            repaired += transfer.repaired().unwrap_or(0);
            longest = longest.max(transfer.time);
        }
        if assisted < 100 {
            return Ok(Err(Failure(format!("only {assisted} of 100 were assisted"))));
        }
        Ok(Ok(format!(
            "100 times 1 MB in {:.0} s, {repaired} datagrams repaired",
            longest.as_secs_f64()
        )))
    })
}

/// A plain client gets the same bytes.
pub(super) fn plain_client(suite: &mut Suite) -> Outcome<String> {
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    let mut request = suite.request(SMALL_FILE, &to);
    request.options.push("--no-assist".to_owned());
    suite.last_mile.set_loss(0.0, 1.0)?;
    let transfer = suite.download(&request);
    suite.last_mile.set_loss(crate::suite::LAST_MILE_LOSS, 1.0)?;
    let transfer = transfer?;
    transfer.expect(&suite.checksum(SMALL_FILE)?)?;
    Ok(format!("{:.1} Mbit/s without loss", transfer.goodput()))
}

/// The gateway keeps control datagrams to itself: the last mile's do not reach the far segment.
pub(super) fn control_stays(suite: &mut Suite) -> Outcome<String> {
    let last_mile = suite.last_mile.control_datagrams()?;
    let Some(far) = &mut suite.far else {
        return Ok(
            "not tried: nobody can look at the datagrams before this cluster's servers".to_owned()
        );
    };
    let far = far.control_datagrams()?;
    if last_mile == 0 || far > 0 {
        return Err(Failure(format!("{last_mile} on the last mile, {far} on the far segment")));
    }
    Ok(format!("{last_mile} on the last mile, none on the far segment"))
}

/// Removes the annotation, after which the gateway forwards no datagram.
pub(super) fn unannotate(suite: &mut Suite) -> Outcome<String> {
    let to = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    suite.annotate_service("packrat.dev/assist-")?;
    until(Duration::from_secs(60), "no route attached", || {
        let gateway = suite.get(SHOP_NAMESPACE, &["edgegateway", SHOP_GATEWAY])?;
        match gateway["status"]["attachedRoutes"].as_i64() {
            None | Some(0) => Ok(()),
            Some(routes) => Err(Failure(format!("{routes} routes are attached"))),
        }
    })?;
    let mut request = suite.request(SMALL_FILE, &to);
    request.limit = Duration::from_secs(5);
    let transfer = suite.download(&request)?;
    if transfer.bytes > 0 {
        return Err(Failure(format!(
            "{} bytes arrived through a gateway without routes",
            transfer.bytes
        )));
    }
    Ok("no route, nothing forwarded".to_owned())
}

/// Deleting the EdgeGateway and `helm uninstall` leave nothing behind.
pub(super) fn uninstall(suite: &mut Suite) -> Outcome<String> {
    suite.delete_gateways()?;
    until(Duration::from_secs(90), "the gateway's objects are gone", || {
        let kinds = "pods,deployments,daemonsets,services,configmaps,secrets,poddisruptionbudgets,networkpolicies";
        let left = suite.kubectl.output([
            "get",
            kinds,
            "-n",
            SHOP_NAMESPACE,
            "-l",
            "packrat.dev/edge-gateway",
            "-o",
            "name",
        ])?;
        if left.trim().is_empty() { Ok(()) } else { Err(Failure(left.replace('\n', " "))) }
    })?;
    let [namespace, name] = HELM_RELEASE;
    suite.cluster.helm().output([
        "uninstall",
        name,
        "-n",
        namespace,
        "--wait",
        "--timeout",
        "120s",
    ])?;
    until(Duration::from_secs(60), "the release's objects are gone", || {
        let kinds = "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations";
        let left = suite.kubectl.output([
            "get",
            kinds,
            "-l",
            "app.kubernetes.io/instance=packrat",
            "-o",
            "name",
        ])?;
        if left.trim().is_empty() { Ok(()) } else { Err(Failure(left.replace('\n', " "))) }
    })?;
    // The Service is unchanged.
    suite
        .kubectl
        .output(["get", "service", "web", "-n", SHOP_NAMESPACE])
        .map(|_| "nothing is left".to_owned())
}
