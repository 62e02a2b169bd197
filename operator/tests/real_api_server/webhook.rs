//! The API server asks the injector, according to the chart's configuration.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::Cluster;

/// The chart's configuration, for an injector at this URL instead of a Service.
fn configuration(url: &str) -> Value {
    let render = include_str!("../../../charts/renders/default.yaml");
    let mut configuration = serde_saphyr::from_multiple::<Value>(render)
        .unwrap()
        .into_iter()
        .find(|document| document["kind"] == "MutatingWebhookConfiguration")
        .unwrap();
    configuration["webhooks"][0]["clientConfig"] = json!({ "url": url });
    configuration
}

/// A Pod with a port that a sidecar could take over; `annotation`: the value of
/// `packrat.dev/inject`.
fn pod(namespace: &str, name: &str, annotation: Option<&str>) -> Value {
    let annotations = annotation.map_or(json!({}), |value| json!({ "packrat.dev/inject": value }));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "annotations": annotations },
        "spec": { "containers": [{
            "name": "server", "image": "game",
            "ports": [{ "containerPort": 7777, "hostPort": 7000, "protocol": "UDP" }],
        }]},
    })
}

fn sidecars(pod: &Value) -> usize {
    pod["spec"]["initContainers"].as_array().map_or(0, Vec::len)
}

#[test]
fn the_api_server_gets_pods_with_sidecars_from_the_injector() {
    let namespace = "packrat-test-webhook";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    let address = operator.listening(2);
    cluster.apply(configuration(&format!("https://{address}/inject")));
    cluster.wait_until("the certificate authority", || {
        let found = cluster.get("MutatingWebhookConfiguration", "", "packrat-injector").unwrap();
        found["webhooks"][0]["clientConfig"]["caBundle"].is_string()
    });
    // It takes the API server a moment to look at a new configuration.
    let mut number = 0;
    cluster.wait_until("a Pod with a sidecar", || {
        number += 1;
        let created =
            cluster.create(&pod(namespace, &format!("game-{number}"), Some("sidecar"))).unwrap();
        sidecars(&created) == 1
            && created["metadata"]["labels"]["packrat.dev/sidecar"] == "injected"
    });
    assert_eq!(sidecars(&cluster.create(&pod(namespace, "plain", None)).unwrap()), 0);
    assert_eq!(
        sidecars(&cluster.create(&pod(namespace, "disabled", Some("disabled"))).unwrap()),
        0
    );
    // A mistake does not keep the Pod from running.
    assert_eq!(sidecars(&cluster.create(&pod(namespace, "mistake", Some("yes"))).unwrap()), 0);
    // And neither does an operator that is away.
    drop(operator);
    assert_eq!(sidecars(&cluster.create(&pod(namespace, "later", Some("sidecar"))).unwrap()), 0);
    cluster.delete("MutatingWebhookConfiguration", "", "packrat-injector");
    cluster.remove_namespace(namespace);
}

/// An injector that hangs delays the Pods that ask for a sidecar, for a short time; it is not
/// called for others.
#[test]
fn a_hanging_injector_delays_only_pods_that_ask_for_a_sidecar() {
    let Some(cluster) = Cluster::find() else { return };
    let namespace = "packrat-test-hanging";
    cluster.namespace(namespace, &json!({}));
    let listener = TcpListener::bind((cluster.own_address().ip(), 0)).unwrap();
    let url = format!("https://{}/inject", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // Takes connections and never answers; ends with the process.
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            open.push(stream);
        }
    });
    let configuration = configuration(&url);
    assert!(configuration["webhooks"][0]["timeoutSeconds"].as_u64() <= Some(5));
    cluster.apply(configuration);
    let mut number = 0;
    cluster.wait_until("the API server to ask", || {
        number += 1;
        // It runs, without.
        let created =
            cluster.create(&pod(namespace, &format!("game-{number}"), Some("sidecar"))).unwrap();
        assert_eq!(sidecars(&created), 0);
        asked.load(Ordering::SeqCst) > 0
    });
    let before = asked.load(Ordering::SeqCst);
    for name in ["plain-1", "plain-2", "plain-3"] {
        cluster.create(&pod(namespace, name, None)).unwrap();
    }
    assert_eq!(
        asked.load(Ordering::SeqCst),
        before,
        "nobody has asked about Pods without the annotation"
    );
    cluster.delete("MutatingWebhookConfiguration", "", "packrat-injector");
    cluster.remove_namespace(namespace);
}
