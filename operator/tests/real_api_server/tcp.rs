//! TCP beside UDP: a Service with two protocols at one port, which the API server has to take.

use serde_json::{Value, json};

use super::{Cluster, gateway, service};

/// The protocols and node ports of a Service's port.
fn of_port(service: &Value, number: u16) -> Vec<(String, u64)> {
    let ports = service["spec"]["ports"].as_array().unwrap().iter();
    ports
        .filter(|port| port["port"] == number)
        .map(|port| {
            (port["protocol"].as_str().unwrap().to_owned(), port["nodePort"].as_u64().unwrap())
        })
        .collect()
}

#[test]
fn one_service_has_both_protocols_of_a_route() {
    let namespace = "packrat-test-tcp";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    let spec = json!({ "exposure": { "type": "LoadBalancer" }, "tcp": "Yes" });
    let wrong = cluster.try_apply(gateway(namespace, "default", &spec)).unwrap_err().to_string();
    assert!(wrong.contains("spec.tcp"), "{wrong}");
    let spec = json!({ "exposure": { "type": "LoadBalancer" } });
    cluster.apply(gateway(namespace, "default", &spec));
    cluster.ready_gateway(namespace, "default", "192.0.2.9");
    let ask = json!({ "packrat.dev/assist": "enabled", "packrat.dev/tcp": "passthrough" });
    for mut object in service(namespace, "web", 443, &ask, &["192.0.2.1".to_owned()]) {
        let (at, port) = match object["kind"].as_str() {
            Some("Service") => ("/spec/ports", 443),
            _ => ("/ports", 9443),
        };
        let ports = object.pointer_mut(at).unwrap().as_array_mut().unwrap();
        ports.push(json!({ "name": "https", "port": port, "protocol": "TCP" }));
        cluster.apply(object);
    }
    let name = "packrat-gateway-default";
    let protocols = || {
        let service = cluster.get("Service", namespace, name)?;
        Some(of_port(&service, 443).into_iter().map(|(protocol, _)| protocol).collect::<Vec<_>>())
    };
    let condition = || cluster.condition("Service", namespace, "web", "packrat.dev/Assisted");
    cluster.wait_until("the Service to be told that TCP is not allowed", || {
        condition().is_some_and(|(_, reason, message)| {
            reason == "NotAllowed" && message.contains("spec.tcp")
        })
    });
    cluster.wait_until("UDP alone", || protocols() == Some(vec!["UDP".to_owned()]));

    cluster.merge("EdgeGateway", namespace, "default", &json!({ "spec": { "tcp": "Allowed" } }));
    cluster.wait_until("both protocols", || {
        protocols() == Some(vec!["UDP".to_owned(), "TCP".to_owned()])
    });
    cluster.wait_until("the status", || {
        let found = cluster.get("EdgeGateway", namespace, "default").unwrap();
        let listener = &found["status"]["listeners"][0];
        let service = cluster.get("Service", namespace, name).unwrap();
        // Each protocol has its node port: clients with assistance use UDP's.
        listener["tcpEndpoints"] == 1 && listener["nodePort"] == of_port(&service, 443)[0].1
    });
    cluster.wait_until("the Service's condition", || {
        condition().is_some_and(|(status, reason, _)| status == "True" && reason == "Assisted")
    });
    cluster.wait_until("the last configuration with its clusters", || {
        cluster.get("Secret", namespace, "packrat-gateway-default-last").is_some_and(|secret| {
            let has =
                |file: &str| secret["data"][file].as_str().is_some_and(|text| text.len() > 200);
            has("listeners.pb") && has("clusters.pb")
        })
    });
}
