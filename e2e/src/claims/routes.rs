//! Several Services, gateways and kinds of servers.

use std::time::Duration;

use super::exposure::{assisted, described, with};
use crate::command::{Failure, Outcome, until};
use crate::suite::{LARGE_FILE, NODE_PORT, SHOP_GATEWAY, SHOP_NAMESPACE, SMALLEST_FILE, Suite};

/// Number of Services of the second gateway.
const SERVICE_COUNT: u16 = 20;
/// Gateway port of the first of them; the others follow.
const FIRST_PORT: u16 = 7001;

/// Twenty Services get ports on a second gateway while the first one serves a download. A few of
/// them are tried.
pub(super) fn many(suite: &mut Suite) -> Outcome<String> {
    let first = suite.node_port(SHOP_GATEWAY, NODE_PORT)?;
    with(suite, "gateway-second.yaml", |suite| {
        let mut download = suite.start_download(&suite.request(LARGE_FILE, &first))?;
        download.wait_for(2_000_000)?;
        let services: Vec<_> =
            (0..SERVICE_COUNT).map(|number| service(number).to_string()).collect();
        let made = suite
            .apply(&services.join("\n---\n"), Some(SHOP_NAMESPACE))
            .and_then(|()| tried(suite));
        let transfer = download.finish();
        let removed = suite.kubectl.output([
            "delete",
            "services",
            "-n",
            SHOP_NAMESPACE,
            "-l",
            "packrat.dev/e2e=many",
        ]);
        let (made, transfer) = (made?, transfer?);
        removed?;
        transfer.expect(&suite.checksum(LARGE_FILE)?)?;
        Ok(format!(
            "{SERVICE_COUNT} Services on the second gateway, {made}; the first one's download meanwhile: stalled {} ms, {}",
            transfer.stall.as_millis(),
            described(&transfer)
        ))
    })
}

fn service(number: u16) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": format!("web-{number}"),
            "labels": { "packrat.dev/e2e": "many" },
            "annotations": {
                "packrat.dev/assist": "enabled",
                "packrat.dev/gateway": "second",
                "packrat.dev/port": format!("{}:http3", FIRST_PORT + number),
            },
        },
        "spec": {
            "selector": { "app": "web" },
            "ports": [{ "name": "http3", "port": 443, "targetPort": 8443, "protocol": "UDP" }],
        },
    })
}

/// Waits until all Services are attached, and downloads through the first, one in the middle and
/// the last.
fn tried(suite: &Suite) -> Outcome<String> {
    until(Duration::from_secs(90), "all Services are attached", || {
        let routes =
            &suite.get(SHOP_NAMESPACE, &["edgegateway", "second"])?["status"]["attachedRoutes"];
        if routes == SERVICE_COUNT {
            Ok(())
        } else {
            Err(Failure(format!("{routes} are attached")))
        }
    })?;
    suite.gateway_is("second", "Programmed")?;
    suite.gateway_is("second", "Ready")?;
    let node = suite.cluster.node_address(&suite.gateway_node("second")?)?;
    let name = suite.service_of("second")?;
    let mut texts = Vec::new();
    for port in [FIRST_PORT, FIRST_PORT + SERVICE_COUNT / 2, FIRST_PORT + SERVICE_COUNT - 1] {
        let ports = suite.get(SHOP_NAMESPACE, &["service", &name])?["spec"]["ports"].clone();
        let node_port = ports.as_array().into_iter().flatten().find(|entry| entry["port"] == port);
        let node_port = node_port
            .and_then(|entry| entry["nodePort"].as_u64())
            .ok_or_else(|| Failure(format!("the gateway's Service has no node port for {port}")))?;
        let transfer = until(Duration::from_secs(60), "an assisted download", || {
            let mut request = suite.request(SMALLEST_FILE, &format!("{node}:{node_port}"));
            request.connect_limit = Duration::from_secs(10);
            let transfer = suite.download(&request)?;
            transfer.expect(&suite.checksum(SMALLEST_FILE)?)?;
            match transfer.repaired() {
                Some(_) => Ok(transfer),
                None => Err(Failure(format!("no assistance: {}", transfer.assistance()))),
            }
        })?;
        texts.push(format!("port {port}: {:.1} Mbit/s", transfer.goodput()));
    }
    Ok(texts.join(", "))
}

/// Servers of another QUIC implementation: an unmodified Envoy (quiche) ends HTTP/3 in front of the
/// same files.
pub(super) fn another_server(suite: &mut Suite) -> Outcome<String> {
    with(suite, "other-servers.yaml", |suite| {
        suite.rolled_out("deployment/quiche", SHOP_NAMESPACE)?;
        suite.gateway_is("other", "Programmed")?;
        suite.gateway_is("other", "Ready")?;
        let to = suite.node_port("other", 30445)?;
        until(Duration::from_secs(60), "the servers answer", || assisted(suite, &to).map(drop))?;
        let mut request = suite.request(LARGE_FILE, &to);
        let mut download = suite.start_download(&request)?;
        download.wait_for(5_000_000)?;
        suite.last_mile.rebind(None)?;
        let transfer = download.finish()?;
        transfer.expect(&suite.checksum(LARGE_FILE)?)?;
        if transfer.repaired().is_none() {
            return Err(Failure(format!("no assistance: {}", transfer.assistance())));
        }
        request = suite.request(SMALLEST_FILE, &to);
        request.options.push("--no-assist".to_owned());
        let plain = suite.download(&request)?;
        plain.expect(&suite.checksum(SMALLEST_FILE)?)?;
        Ok(format!(
            "stalled {} ms when the client's port changed, {}; a plain client: {:.1} Mbit/s",
            transfer.stall.as_millis(),
            described(&transfer),
            plain.goodput()
        ))
    })
}
