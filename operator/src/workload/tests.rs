//! The objects of a gateway.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::envoy::{ADMIN_SOCKET, ENVOY_PATH, METRICS_PORT, RUN_DIRECTORY, START_PATH, run_volume};
use crate::index::{GatewayView, Listener};
use crate::model::GatewayModel;
use crate::names::GATEWAY_LABEL;
use crate::object_key::ObjectKey;
use crate::resource::{
    Autoscaler, Autoscaling, EndpointsFrom, ExposureType, IpFamily, IpFamilyPolicy, Otlp,
    SecretKey, SecretName, SessionAffinity, WorkloadKind,
};

fn made(change: impl FnOnce(&mut GatewayModel)) -> BTreeMap<Kind, Value> {
    let mut model = GatewayModel::default();
    change(&mut model);
    let platform = Platform {
        image: "packrat/gateway:1".to_owned(),
        pull_policy: Some("Never".to_owned()),
        pull_secrets: vec!["mirror".to_owned()],
        discovery_host: "packrat-operator.packrat-system.svc".to_owned(),
        discovery_port: 18000,
        discovery_namespace: Some("packrat-system".to_owned()),
        egress_policy: true,
        listen_address: "::".to_owned(),
        ..Platform::default()
    };
    let listener = Listener {
        service: ObjectKey::new("shop", "web"),
        service_port: 443,
        endpoints: vec!["10.0.0.1:8443".parse().unwrap(), "10.0.0.2:8443".parse().unwrap()],
        ..Listener::default()
    };
    let view = GatewayView { listeners: [(443, listener)].into(), ..GatewayView::default() };
    objects(&ObjectKey::new("shop", "edge"), &model, &view, &platform)
        .into_iter()
        .map(|object| (object.kind, object.content))
        .collect()
}

/// Each session has a port towards its server.
#[test]
fn a_gateway_has_ports_for_the_sessions_that_it_has_by_default() {
    // What the data plane leaves to everything else.
    const LEFT: u64 = 512;
    let configured = packrat_api::route::default::MAXIMUM_SESSIONS;
    let ports = |change: fn(&mut GatewayModel)| {
        let objects = made(change);
        let pod = &objects[&Kind::Deployment]["spec"]["template"]["spec"];
        let sysctls = pod["securityContext"]["sysctls"].as_array().unwrap();
        let value = |name: &str| {
            let found = sysctls.iter().find(|sysctl| sysctl["name"] == name).unwrap();
            found["value"].as_str().unwrap().to_owned()
        };
        let number = |text: &str| text.parse::<u64>().unwrap();
        let range = value("net.ipv4.ip_local_port_range");
        let (first, last) = range.split_once(' ').unwrap();
        let reserved: u64 = value("net.ipv4.ip_local_reserved_ports")
            .split(',')
            .map(|part| part.split_once('-').unwrap_or((part, part)))
            .map(|(first, last)| number(last) - number(first) + 1)
            .sum();
        number(last) - number(first) + 1 - reserved
    };
    assert!(ports(|_| ()) >= 2 * configured + LEFT);
    assert!(ports(|model| model.spec.multicast.enabled = true) >= 2 * configured + LEFT);
    // On the hosts' network, and in a sidecar, the ports are Linux's default range.
    let of_linux = 60_999 - 32_768 + 1;
    assert!(of_linux >= configured + LEFT);
}

fn pages(objects: &BTreeMap<Kind, Value>) -> Vec<Value> {
    let text = objects[&Kind::ConfigMap]["data"]["envoy.json"].as_str().unwrap();
    let bootstrap: Value = serde_json::from_str(text).unwrap();
    let listeners = bootstrap["static_resources"]["listeners"].as_array().unwrap();
    listeners.iter().map(|listener| listener["address"]["socket_address"].clone()).collect()
}

#[test]
fn host_network_metrics_are_at_node_and_loopback_addresses_only() {
    let objects = made(|model| {
        model.spec.exposure.type_ = ExposureType::HostNetwork;
        model.spec.workload.kind = WorkloadKind::DaemonSet;
    });
    assert_eq!(pages(&objects), [json!({ "address": "127.0.0.1", "port_value": METRICS_PORT })]);
    let container = &objects[&Kind::DaemonSet]["spec"]["template"]["spec"]["containers"][0];
    let arguments: Vec<_> =
        container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let place = arguments.iter().position(|argument| *argument == "--config-yaml").unwrap();
    let page: Value = serde_json::from_str(arguments[place + 1]).unwrap();
    let address = &page["static_resources"]["listeners"][0]["address"]["socket_address"];
    assert_eq!(*address, json!({ "address": "$(POD_IP)", "port_value": METRICS_PORT }));
    let variable =
        json!({ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } });
    assert!(container["env"].as_array().unwrap().contains(&variable));
    assert!(!objects.contains_key(&Kind::Service) && !objects.contains_key(&Kind::NetworkPolicy));

    let on_the_pod_network = made(|_| {});
    let everywhere = json!({ "address": "::", "port_value": METRICS_PORT, "ipv4_compat": true });
    assert_eq!(pages(&on_the_pod_network), [everywhere]);
    let text = on_the_pod_network[&Kind::Deployment].to_string();
    assert!(!text.contains("--config-yaml"));
}

#[test]
fn a_service_has_further_labels_beside_those_of_the_operator() {
    let objects = made(|model| {
        let labels = [("pool", "blue"), (GATEWAY_LABEL, "another")];
        model.spec.exposure.labels = labels.map(|(name, value)| (name.into(), value.into())).into();
    });
    let labels = &objects[&Kind::Service]["metadata"]["labels"];
    assert_eq!((&labels["pool"], &labels[GATEWAY_LABEL]), (&json!("blue"), &json!("edge")));
}

/// Another image of the EdgeGateway's own is pulled according to its own pull policy.
#[test]
fn the_operators_image_is_pulled_as_its_installer_says() {
    let policy = |change: fn(&mut GatewayModel)| {
        let objects = made(change);
        let pod = &objects[&Kind::Deployment]["spec"]["template"]["spec"];
        pod["containers"][0]["imagePullPolicy"].clone()
    };
    assert_eq!(policy(|_| ()), "Never");
    assert_eq!(policy(|model| model.spec.envoy.image = Some("a/b:1".to_owned())), Value::Null);
    let own = |model: &mut GatewayModel| {
        model.spec.envoy.image_pull_policy = Some("Always".to_owned());
    };
    assert_eq!(policy(own), "Always");
}

/// An EdgeGateway's own pull secrets count, else the installer's.
#[test]
fn pull_secrets_are_the_edge_gateways_or_the_installers() {
    let secrets = |change: fn(&mut GatewayModel)| {
        let objects = made(change);
        objects[&Kind::Deployment]["spec"]["template"]["spec"]["imagePullSecrets"].clone()
    };
    assert_eq!(secrets(|_| ()), json!([{ "name": "mirror" }]));
    let own = |model: &mut GatewayModel| {
        model.spec.envoy.image_pull_secrets = vec![SecretName { name: "own".to_owned() }];
    };
    assert_eq!(secrets(own), json!([{ "name": "own" }]));
}

/// On OpenShift each namespace has users of its own, which its admission writes into Pods.
#[test]
fn the_user_of_gateways_can_be_left_to_the_platform() {
    let context = |user: &str| {
        let platform = Platform { user: user.parse().unwrap(), ..Platform::default() };
        let (key, model) = (ObjectKey::new("shop", "edge"), GatewayModel::default());
        let objects = objects(&key, &model, &GatewayView::default(), &platform);
        let workload = objects.iter().find(|object| object.kind == Kind::Deployment).unwrap();
        workload.content["spec"]["template"]["spec"]["securityContext"].clone()
    };
    let (own, chosen) = (context("1000"), context(""));
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        assert_eq!((&own[field], chosen.get(field)), (&json!(1000), None), "{field}");
    }
    assert_eq!(chosen["runAsNonRoot"], true);
}

/// With the Service would go its address, and a cloud's load balancer.
#[test]
fn the_service_exists_before_the_first_route_and_after_the_last() {
    let platform = Platform::default();
    let mut model = GatewayModel::default();
    let mut ports = |type_, name| {
        model.spec.exposure.type_ = type_;
        let key = ObjectKey::new("shop", name);
        let objects = objects(&key, &model, &GatewayView::default(), &platform);
        let service = objects.into_iter().find(|object| object.kind == Kind::Service)?;
        Some(service.content["spec"]["ports"].clone())
    };
    for type_ in [ExposureType::LoadBalancer, ExposureType::NodePort, ExposureType::ClusterIP] {
        let placeholder = ports(type_, "edge").unwrap();
        let port = &placeholder[0]["port"];
        let expected =
            json!([{ "name": "no-route", "port": port, "targetPort": port, "protocol": "UDP" }]);
        assert_eq!(placeholder, expected);
        assert!(port.as_u64().unwrap() >= 49_152, "{port}");
        // Both may share one address.
        assert_ne!(ports(type_, "other").unwrap()[0]["port"], *port);
        assert_eq!(ports(type_, "edge"), Some(placeholder));
    }
    assert_eq!(ports(ExposureType::HostNetwork, "edge"), None);
}

#[test]
fn the_service_sends_a_client_to_one_gateway_if_requested() {
    let affinity = |wished: Option<SessionAffinity>| {
        let objects = made(|model| model.spec.exposure.session_affinity = wished);
        objects[&Kind::Service]["spec"]["sessionAffinity"].clone()
    };
    assert_eq!(affinity(None), Value::Null, "some load balancers refuse any other than None");
    assert_eq!(affinity(Some(SessionAffinity::ClientIP)), "ClientIP");
}

/// A gateway that starts while the operator is away finds the last configuration. An image that
/// the EdgeGateway names may not have the program for that.
#[test]
fn gateways_start_without_an_operator() {
    let pod = |image: Option<&str>| {
        let mut objects = made(|model| model.spec.envoy.image = image.map(str::to_owned));
        objects.get_mut(&Kind::Deployment).unwrap()["spec"]["template"]["spec"].take()
    };
    let own = pod(None);
    let container = &own["containers"][0];
    assert_eq!(container["command"], json!([START_PATH]));
    let operator = "packrat-operator.packrat-system.svc:18000";
    let variables = container["env"].as_array().unwrap();
    assert!(variables.contains(&json!({ "name": "PACKRAT_OPERATOR", "value": operator })));
    let volumes = own["volumes"].as_array().unwrap();
    let last = volumes.iter().find(|volume| volume["name"] == "last").unwrap();
    assert_eq!(last["secret"]["optional"], true, "the first gateway of all has none");
    let mounted = container["volumeMounts"].as_array().unwrap();
    let mounted = mounted.iter().find(|mount| mount["name"] == "last").unwrap();
    let directory = mounted["mountPath"].as_str().unwrap();
    assert_eq!(LAST_CONFIGURATION, format!("{directory}/{LAST_ENTRY}"));
    let other = pod(Some("registry.example/packrat/gateway:0.1.0"));
    assert_eq!(other["containers"][0]["command"], json!([ENVOY_PATH]));
    assert!(!other.to_string().contains("\"last\""), "{other}");
}

/// On the host network a port of the loopback interface would be the node's.
#[test]
fn the_administration_interface_is_a_file_of_the_pods_own() {
    for on_host in [false, true] {
        let objects = made(|model| {
            if on_host {
                model.spec.exposure.type_ = ExposureType::HostNetwork;
            }
        });
        let text = objects[&Kind::ConfigMap]["data"]["envoy.json"].as_str().unwrap();
        let bootstrap: Value = serde_json::from_str(text).unwrap();
        let pipe = json!({ "pipe": { "path": ADMIN_SOCKET, "mode": 384 } });
        assert_eq!(bootstrap["admin"], json!({ "address": pipe }));
        let pod = &objects[&Kind::Deployment]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert!(!container.to_string().contains("9901"), "{container}");
        let mounts = container["volumeMounts"].as_array().unwrap();
        assert!(mounts.contains(&json!({ "name": "run", "mountPath": RUN_DIRECTORY })));
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(volumes.contains(&json!({ "name": "run", "emptyDir": run_volume() })));
        let drain = container["lifecycle"]["preStop"]["exec"]["command"].to_string();
        assert!(drain.contains(ADMIN_SOCKET), "{drain}");
    }
}

/// Envoy's main thread answers to a few readers, and its workers to readiness probes.
#[test]
fn metrics_readers_are_limited_and_do_not_delay_readiness() {
    let objects = made(|_| {});
    let text = objects[&Kind::ConfigMap]["data"]["envoy.json"].as_str().unwrap();
    let resources = &serde_json::from_str::<Value>(text).unwrap()["static_resources"];
    let public = &resources["listeners"][0]["default_filter_chain"]["filters"][0];
    let host = &public["typed_config"]["route_config"]["virtual_hosts"][0];
    let cluster = |path: &str| {
        let routes = host["routes"].as_array().unwrap();
        let route = routes.iter().find(|route| route["match"]["path"] == path).unwrap();
        let name = &route["route"]["cluster"];
        let clusters = resources["clusters"].as_array().unwrap();
        clusters.iter().find(|cluster| cluster["name"] == *name).unwrap()
    };
    for path in ["/stats/prometheus", "/packrat"] {
        let limits = &cluster(path)["circuit_breakers"]["thresholds"][0];
        assert!(limits["max_connections"].as_u64().unwrap() <= 8, "{path}");
        assert!(limits["max_pending_requests"].as_u64().unwrap() <= 8, "{path}");
    }
    let routes = host["routes"].as_array().unwrap();
    let unlimited = routes.iter().find(|route| route["route"]["cluster"] == "administration");
    assert_eq!(unlimited, None, "strangers have no other way to the main thread");
    let first = &public["typed_config"]["http_filters"][0];
    assert_eq!(first["name"], "envoy.filters.http.health_check");
    assert!(first["typed_config"]["headers"].to_string().contains(r#""exact":"/ready""#));
}

/// Gateways reach only the servers of their routes, the operator, and names.
#[test]
fn gateways_send_to_their_servers_only() {
    let objects = made(|model| {
        let endpoint = "http://collector.telemetry:4318/path".to_owned();
        model.spec.telemetry.otlp = Some(Otlp { endpoint, ..Otlp::default() });
    });
    let policy = &objects[&Kind::NetworkPolicy]["spec"];
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let namespace = |name: &str| {
        let labels = json!({ "kubernetes.io/metadata.name": name });
        json!([{ "namespaceSelector": { "matchLabels": labels } }])
    };
    let names = ["UDP", "TCP"]
        .map(|protocol| [53, 5353].map(|port| json!({ "port": port, "protocol": protocol })));
    let operator = json!([{ "port": 18000, "protocol": "TCP" }]);
    let collector = json!([{ "port": 4318, "protocol": "TCP" }]);
    let others = json!([{ "port": 443, "protocol": "UDP" }]);
    let servers = json!([{ "port": 8443, "protocol": "UDP" }]);
    assert_eq!(
        policy["egress"],
        json!([
            { "ports": names.concat() },
            { "to": namespace("packrat-system"), "ports": operator },
            { "ports": collector },
            { "to": [{ "podSelector": policy["podSelector"] }], "ports": others },
            { "to": namespace("shop"), "ports": servers },
        ])
    );
    // Endpoints that are not Pods are named one by one.
    let objects = made(|model| model.spec.routes.endpoints = EndpointsFrom::Any);
    let egress = objects[&Kind::NetworkPolicy]["spec"]["egress"].to_string();
    assert!(egress.contains(r#""cidr":"10.0.0.1/32""#), "{egress}");
    assert!(!egress.contains("4318"), "{egress}");
}

/// A budget that keeps the last gateway would keep its node from ever being drained.
#[test]
fn a_node_can_always_be_drained() {
    for change in [
        (|model: &mut GatewayModel| model.spec.workload.replicas = 1) as fn(&mut GatewayModel),
        |model| {
            let autoscaling = Autoscaling { minimum_replicas: 1, ..Autoscaling::default() };
            model.spec.workload.autoscaling = Some(autoscaling);
        },
        |model| model.spec.workload.kind = WorkloadKind::DaemonSet,
    ] {
        let objects = made(change);
        let budget = &objects[&Kind::PodDisruptionBudget]["spec"];
        assert_eq!((&budget["maxUnavailable"], &budget["minAvailable"]), (&json!(1), &Value::Null));
    }
}

#[test]
fn autoscaling_uses_sessions_and_datagrams_or_another_scaler() {
    let scaled = |autoscaling: Autoscaling| {
        made(|model| model.spec.workload.autoscaling = Some(autoscaling.clone()))
    };
    let by_all = scaled(Autoscaling {
        target_sessions: Some(5000),
        target_datagrams_per_second: Some(200_000),
        ..Autoscaling::default()
    });
    let metrics = &by_all[&Kind::HorizontalPodAutoscaler]["spec"]["metrics"];
    assert_eq!(metrics[0]["resource"]["name"], "cpu");
    let of_pods = |name: &str, value: &str| {
        let target = json!({ "type": "AverageValue", "averageValue": value });
        json!({ "type": "Pods", "pods": { "metric": { "name": name }, "target": target } })
    };
    assert_eq!(metrics[1], of_pods("packrat_sessions", "5000"));
    assert_eq!(metrics[2], of_pods("packrat_datagrams_per_second", "200000"));
    let usual = scaled(Autoscaling::default());
    let metrics = &usual[&Kind::HorizontalPodAutoscaler]["spec"]["metrics"];
    assert_eq!(metrics.as_array().map(Vec::len), Some(1));
    let by_other = scaled(Autoscaling { by: Autoscaler::Other, ..Autoscaling::default() });
    assert!(!by_other.contains_key(&Kind::HorizontalPodAutoscaler));
    assert!(by_other[&Kind::Deployment]["spec"].get("replicas").is_none());
}

#[test]
fn gateways_get_the_collector_and_read_headers_from_the_secret() {
    let environment = |otlp: Option<Otlp>| {
        let objects = made(|model| model.spec.telemetry.otlp = otlp);
        let container = &objects[&Kind::Deployment]["spec"]["template"]["spec"]["containers"][0];
        container["env"].as_array().unwrap().clone()
    };
    assert!(!json!(environment(None)).to_string().contains("OTEL"));
    let endpoint = "http://collector.telemetry:4318".to_owned();
    let headers_secret = Some(SecretKey { name: "vendor".to_owned(), key: "headers".to_owned() });
    let otlp = Otlp { endpoint: endpoint.clone(), headers_secret, plain_headers: false };
    let told = environment(Some(otlp.clone()));
    let plain = environment(Some(Otlp { plain_headers: true, ..otlp }));
    let permitted = json!({ "name": "PACKRAT_OTLP_PLAIN_HEADERS", "value": "true" });
    assert_eq!((told.contains(&permitted), plain.contains(&permitted)), (false, true));
    assert!(told.contains(&json!({ "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": endpoint })));
    let reference =
        json!({ "secretKeyRef": { "name": "vendor", "key": "headers", "optional": true } });
    assert!(
        told.contains(&json!({ "name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": reference }))
    );
}

#[test]
fn the_service_has_the_families_that_are_asked_for() {
    let objects = made(|model| {
        model.spec.exposure.ip_family_policy = Some(IpFamilyPolicy::PreferDualStack);
        model.spec.exposure.ip_families = vec![IpFamily::IPv6, IpFamily::IPv4];
    });
    let service = &objects[&Kind::Service]["spec"];
    assert_eq!(service["ipFamilyPolicy"], "PreferDualStack");
    assert_eq!(service["ipFamilies"], json!(["IPv6", "IPv4"]));
    assert!(
        made(|_| {})[&Kind::Service]["spec"].get("ipFamilies").is_none(),
        "the cluster chooses"
    );
}
