//! The API server asks the injector, according to the chart's configuration.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::Cluster;

/// The chart's configuration, for an injector at this URL instead of a Service.
pub(super) fn configuration(url: &str) -> Value {
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
pub(super) fn pod(namespace: &str, name: &str, annotation: Option<&str>) -> Value {
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

/// Kubernetes' own admission counts and limits.
#[test]
fn a_pod_gets_a_sidecar_that_fits_or_runs_without() {
    let namespace = "packrat-test-room";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    let address = operator.listening(2);
    cluster.apply(configuration(&format!("https://{address}/inject")));
    let quota = |name: &str, hard: Value| {
        cluster.apply(json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": name, "namespace": namespace }, "spec": { "hard": hard },
        }));
        cluster.wait_until("the quota to be counted", || {
            let found = cluster.get("ResourceQuota", namespace, name).unwrap();
            found["status"]["hard"] == found["spec"]["hard"]
        });
    };
    quota("limits", json!({ "limits.cpu": "8", "limits.memory": "8Gi" }));
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "least", "namespace": namespace },
        "spec": { "limits": [{ "type": "Container", "min": { "memory": "128Mi" } }] },
    }));
    let game = |name: &str| {
        let mut pod = pod(namespace, name, Some("sidecar"));
        pod["spec"]["containers"][0]["resources"] = json!({
            "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "cpu": "200m", "memory": "256Mi" },
        });
        cluster.create(&pod).unwrap()
    };
    let mut number = 0;
    let mut injected = Value::Null;
    cluster.wait_until("a Pod with a sidecar", || {
        number += 1;
        injected = game(&format!("game-{number}"));
        cluster.delete("Pod", namespace, &format!("game-{number}"));
        sidecars(&injected) == 1
    });
    assert_eq!(
        injected["spec"]["initContainers"][0]["resources"],
        json!({ "requests": { "cpu": "50m", "memory": "128Mi" }, "limits": { "cpu": "500m", "memory": "256Mi" } })
    );

    // A Pod alone has its place, with a sidecar it has none.
    quota("small", json!({ "limits.cpu": "300m" }));
    let alone = game("alone");
    assert_eq!(sidecars(&alone), 0);
    let refused = alone["metadata"]["annotations"]["packrat.dev/sidecar-refused"].as_str().unwrap();
    assert!(refused.contains("ResourceQuota small has 300m of limits.cpu left"), "{refused}");
    cluster.wait_until("the Event", || {
        let events =
            cluster.runtime.block_on(cluster.api("Event", namespace).list(&Default::default()));
        events.unwrap().items.iter().any(|event| {
            let note = event.data["note"].as_str().unwrap_or_default();
            event.data["regarding"]["name"] == "alone" && note.contains("ResourceQuota small")
        })
    });
    assert!(!operator.lacks_rules(), "{}", operator.log());
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
