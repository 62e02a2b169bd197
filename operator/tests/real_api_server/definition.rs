//! The schema: defaults, and the messages about invalid values.

use packrat_operator::resource::EdgeGatewaySpec;
use serde_json::{Value, json};

use super::{Cluster, gateway};

const NAMESPACE: &str = "packrat-test-definition";

#[test]
fn the_api_server_fills_in_the_defaults_of_the_types() {
    let Some(cluster) = Cluster::find() else { return };
    cluster.namespace(NAMESPACE, &json!({}));
    let empty = json!({ "routes": {} });
    let created = cluster.create(&gateway(NAMESPACE, "empty", &empty)).unwrap();
    let read: EdgeGatewaySpec = serde_json::from_value(created["spec"].clone()).unwrap();
    assert_eq!(read, EdgeGatewaySpec::default());
    assert_eq!(created["spec"]["routes"]["endpoints"], "Pods");
    let part = json!({ "cache": { "bytesTotal": "1Gi" }, "workload": { "autoscaling": {} } });
    let created = cluster.create(&gateway(NAMESPACE, "part", &part)).unwrap();
    assert_eq!(created["spec"]["cache"], json!({ "bytesPerSession": "1Mi", "bytesTotal": "1Gi" }));
    assert_eq!(created["spec"]["workload"]["autoscaling"]["maximumReplicas"], 10);
    assert_eq!(created["spec"]["workload"]["pod"]["resources"]["requests"]["cpu"], "250m");
    cluster.remove_namespace(NAMESPACE);
}

/// Each kind of invalid value, and the message that the user reads.
#[test]
fn nonsense_is_refused_with_what_to_write_instead() {
    let Some(cluster) = Cluster::find() else { return };
    let namespace = "packrat-test-nonsense";
    cluster.namespace(namespace, &json!({}));
    let cases: Vec<Value> = serde_saphyr::from_str(include_str!("nonsense.yaml")).unwrap();
    for case in &cases {
        let (spec, message) = (&case["spec"], case["says"].as_str().unwrap());
        let error = cluster.create(&gateway(namespace, "wrong", spec)).unwrap_err().to_string();
        assert!(error.contains(message), "{spec}:\n{error}");
    }
    let long: Value = gateway(namespace, &"a".repeat(41), &json!({}));
    let error = cluster.create(&long).unwrap_err().to_string();
    assert!(error.contains("metadata.name is longer than 40 characters"), "{error}");
    let dotted = gateway(namespace, "a.b", &json!({}));
    let error = cluster.create(&dotted).unwrap_err().to_string();
    assert!(error.contains("metadata.name must be made of a-z, 0-9 and -"), "{error}");
    cluster.remove_namespace(namespace);
}
