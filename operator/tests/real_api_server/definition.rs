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
    let size = "write whole bytes or Ki, Mi or Gi, at least 1, for example";
    for (spec, message) in [
        (
            json!({ "exposure": { "type": "Balancer" } }),
            "supported values: \"LoadBalancer\", \"NodePort\", \"ClusterIP\", \"HostNetwork\"",
        ),
        (
            json!({ "exposure": { "type": "NodePort", "loadBalancerClass": "x" } }),
            "loadBalancerClass needs exposure type LoadBalancer; remove it or change the type",
        ),
        (
            json!({ "exposure": { "type": "ClusterIP", "loadBalancerSourceRanges": ["10.0.0.0/8"] } }),
            "loadBalancerSourceRanges need exposure type LoadBalancer; remove them or change the type",
        ),
        (
            json!({ "exposure": { "nodePorts": { "443": 30443 } } }),
            "nodePorts need exposure type NodePort; remove them or change the type",
        ),
        (
            json!({ "exposure": { "type": "NodePort", "nodePorts": { "443": 99999 } } }),
            "nodePorts are ports of the nodes by the gateway's port, both from 1 to 65535",
        ),
        (
            json!({ "exposure": { "type": "NodePort", "nodePorts": { "https": 30443 } } }),
            "nodePorts are ports of the nodes by the gateway's port, both from 1 to 65535",
        ),
        (
            json!({ "exposure": { "type": "HostNetwork", "externalTrafficPolicy": "Cluster" } }),
            "externalTrafficPolicy Cluster needs exposure type LoadBalancer or NodePort; remove it or change the type",
        ),
        (
            json!({ "exposure": { "type": "HostNetwork", "ipFamilies": ["IPv6"] } }),
            "ipFamilyPolicy and ipFamilies are those of a Service, and exposure type HostNetwork has none: gateways listen on all addresses of their nodes; remove them",
        ),
        (
            json!({ "exposure": { "ipFamilyPolicy": "Dual" } }),
            "supported values: \"SingleStack\", \"PreferDualStack\", \"RequireDualStack\"",
        ),
        (
            json!({ "workload": { "autoscaling": {}, "pod": { "resources": { "requests": { "memory": "1Gi" } } } } }),
            "spec.workload.autoscaling measures the use of the requested processor time; set spec.workload.pod.resources.requests.cpu, for example 250m",
        ),
        (
            json!({ "exposure": { "type": "HostNetwork" }, "workload": { "autoscaling": {} } }),
            "spec.workload.autoscaling has no use with exposure HostNetwork: one gateway fits on a node; remove it",
        ),
        (
            json!({ "workload": { "kind": "DaemonSet", "autoscaling": {} } }),
            "spec.workload.autoscaling needs spec.workload.kind Deployment; remove it or change the kind",
        ),
        (
            json!({ "workload": { "autoscaling": { "minimumReplicas": 5, "maximumReplicas": 4 } } }),
            "spec.workload.autoscaling.minimumReplicas must not be above maximumReplicas",
        ),
        (json!({ "workload": { "replicas": -1 } }), "should be greater than or equal to 0"),
        (
            json!({ "workload": { "pod": { "resources": { "limits": { "memory": "lots" } } } } }),
            "should match",
        ),
        (json!({ "cache": { "bytesPerSession": "1M" } }), size),
        (json!({ "cache": { "bytesTotal": "0" } }), size),
        (
            json!({ "cache": { "bytesPerSession": "1Gi", "bytesTotal": "1Mi" } }),
            "spec.cache.bytesTotal must be at least spec.cache.bytesPerSession",
        ),
        (json!({ "repair": { "budgetPercent": 1001 } }), "should be less than or equal to 1000"),
        (json!({ "sessions": { "maximum": 0 } }), "should be greater than or equal to 1"),
        (
            json!({ "tokens": { "policy": "Required" } }),
            "spec.tokens.policy Optional and Required need spec.tokens.tls.secretName: tokens are given out over TLS; name a Secret of type kubernetes.io/tls",
        ),
        (
            json!({ "tokens": { "lifetimeSeconds": 86400, "rotationHours": 24 } }),
            "spec.tokens.rotationHours must be longer than spec.tokens.lifetimeSeconds: the previous key verifies for one rotation",
        ),
        (json!({ "drain": { "seconds": -1 } }), "should be greater than or equal to 0"),
        (
            json!({ "multicast": { "ports": { "first": 5001, "last": 5000 } } }),
            "first must not be above last",
        ),
        (
            json!({ "routes": { "ports": [{ "first": 2, "last": 1 }] } }),
            "first must not be above last",
        ),
        (json!({ "limits": { "cacheBytesTotal": "0" } }), size),
        (
            json!({ "limits": { "repairBudgetPercent": 1001 } }),
            "should be less than or equal to 1000",
        ),
        (json!({ "routes": { "endpoints": "Nodes" } }), "supported values: \"Pods\", \"Any\""),
        (json!({ "envoy": { "imagePullPolicy": "Sometimes" } }), "should match"),
    ] {
        let error = cluster.create(&gateway(namespace, "wrong", &spec)).unwrap_err().to_string();
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
