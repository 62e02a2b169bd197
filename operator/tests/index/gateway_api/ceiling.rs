//! Parameters of Gateways, within their class's parameters.

use packrat_operator::resource::GatewayParametersSpec;
use serde_json::{Value, json};

use super::super::key;
use super::{index, of_packrat, quic_gateway};

/// GatewayParameters `name` of a namespace.
fn parameters(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "packrat.dev/v1alpha1", "kind": "GatewayParameters",
        "metadata": { "namespace": namespace, "name": name }, "spec": spec,
    })
}

/// Annotations make a balancer public, or bring containers into Pods. The parameters of a class therefore
/// list the ones that a Gateway may add, and a Gateway replaces none of the class's own.
#[test]
fn labels_and_annotations_of_a_gateway_stay_within_its_class() {
    let pairs = |of: &[(&str, &str)]| -> Value {
        of.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
    };
    let reference = |namespace: Option<&str>, name: &str| json!({ "group": "packrat.dev", "kind": "GatewayParameters", "namespace": namespace, "name": name });
    let asked =
        pairs(&[("cloud/internal", "false"), ("mesh/inject", "true"), ("dns/name", "a.example")]);
    let ceiling = json!({
        "exposure": {
            "annotations": { "cloud/internal": "true" }, "loadBalancerSourceRanges": ["192.0.2.0/24"],
        },
        "limits": { "metadata": ["dns/*"] },
    });
    let spec_of = |of_class: Option<&Value>, own: Option<Value>, infrastructure: Value| {
        let mut class = of_packrat();
        let mut gateway = quic_gateway();
        gateway["spec"]["infrastructure"] = infrastructure;
        let mut all = Vec::new();
        if let Some(own) = own {
            gateway["spec"]["infrastructure"]["parametersRef"] = reference(None, "own");
            all.push(parameters("app", "own", own));
        }
        if let Some(spec) = of_class {
            class["spec"]["parametersRef"] = reference(Some("packrat-system"), "of-class");
            all.push(parameters("packrat-system", "of-class", spec.clone()));
        }
        all.extend([class, gateway]);
        let state = index(&all).resolve().attachments.gateways[&key("app", "edge")].clone();
        (*state.spec.unwrap(), state.accepted.message)
    };
    let infrastructure = json!({ "annotations": asked, "labels": asked });
    let own = json!({
        "exposure": { "annotations": asked, "labels": asked },
        "workload": { "pod": { "annotations": asked, "labels": asked } },
        "limits": { "metadata": ["*"] },
    });
    for (own, infrastructure) in
        [(None, infrastructure.clone()), (Some(own), json!({})), (Some(json!({})), json!({}))]
    {
        let asks = own != Some(json!({}));
        let (spec, message) = spec_of(Some(&ceiling), own, infrastructure);
        let (exposure, pod) = (&spec.exposure, &spec.workload.pod);
        assert_eq!(exposure.annotations["cloud/internal"], "true");
        assert_eq!(exposure.load_balancer_source_ranges, ["192.0.2.0/24"]);
        for all in [&exposure.annotations, &exposure.labels, &pod.annotations, &pod.labels] {
            assert_eq!(all.get("mesh/inject"), None);
            assert_eq!(all.contains_key("dns/name"), asks);
        }
        assert_eq!(spec.limits.metadata, ["dns/*"]);
        let parts = [
            "cloud/internal (the value of the class is used)",
            "mesh/inject (not in limits.metadata of the class)",
        ];
        assert!(parts.iter().all(|part| message.contains(part) == asks), "{message}");
    }
    let (spec, message) = spec_of(None, None, infrastructure);
    assert_eq!(spec.exposure.annotations["mesh/inject"], "true", "no parameters, no limits");
    assert_eq!(message, "all listeners can be served");
}

/// A Gateway's author does not become more than the class lets its Gateways be.
#[test]
fn a_gateways_parameters_only_lower_its_classs_settings() {
    let reference = |namespace: Option<&str>, name: &str| json!({ "group": "packrat.dev", "kind": "GatewayParameters", "namespace": namespace, "name": name });
    let state_with = |of_class: Option<&Value>, own: &Value| {
        let mut class = of_packrat();
        let mut gateway = quic_gateway();
        gateway["spec"]["infrastructure"] = json!({ "parametersRef": reference(None, "own") });
        let mut all = vec![parameters("app", "own", own.clone())];
        if let Some(spec) = of_class {
            class["spec"]["parametersRef"] = reference(Some("packrat-system"), "of-class");
            if !spec.is_null() {
                all.push(parameters("packrat-system", "of-class", spec.clone()));
            }
        }
        all.extend([class, gateway]);
        index(&all).resolve().attachments.gateways[&key("app", "edge")].clone()
    };
    let spec_with = |of_class: Option<&Value>, own: &Value| {
        let state = state_with(of_class, own);
        assert_eq!(state.accepted.status, Some(true), "{}", state.accepted.message);
        (*state.spec.unwrap(), state.accepted.message)
    };
    let as_parameters = |spec: &Value| {
        let parameters: GatewayParametersSpec = serde_json::from_value(spec.clone()).unwrap();
        parameters.edge_gateway("packrat")
    };
    let limits = json!({
        "cacheBytesPerSession": "4Gi", "cacheBytesTotal": "1000000Gi", "repairBudgetPercent": 1000,
        "idleTimeoutSeconds": 86400, "maximumSessions": 10_000_000,
        "sessionsPerSource": 10_000_000,
        "sparseCopies": true, "weakerTokens": true,
    });
    let greedy = json!({
        "cache": { "bytesPerSession": "2Gi", "bytesTotal": "100000Gi" },
        "repair": { "budgetPercent": 1000, "sparseCopies": true },
        "sessions": {
            "idleTimeoutSeconds": 86400, "maximum": 10_000_000, "perSource": 10_000_000,
        },
        "tokens": { "policy": "Off" }, "limits": limits, "endpoints": "Any",
        "envoy": { "image": "example.org/theirs:1" }, "exposure": { "type": "HostNetwork" },
        "multicast": { "enabled": true }, "tcp": "Passthrough", "terminate": "Allowed",
    });
    let class = json!({
        "assist": false, "exposure": { "type": "NodePort" }, "cache": { "bytesTotal": "64Mi" },
        "tokens": { "policy": "Required", "tls": { "secretName": "tls" } },
        "limits": { "maximumSessions": 200_000 },
    });
    let (spec, message) = spec_with(Some(&class), &greedy);
    let mut expected = as_parameters(&class);
    // What only lowers, or was not asked for, is the Gateway's own.
    expected.sessions.maximum = 200_000;
    expected.limits = spec.limits.clone();
    expected.workload = spec.workload.clone();
    expected.exposure = spec.exposure.clone();
    assert_eq!(spec, expected);
    assert_eq!(spec.exposure.type_, packrat_operator::resource::ExposureType::NodePort);
    let most = &spec.limits;
    assert_eq!(
        (most.cache_bytes_per_session.as_deref(), most.cache_bytes_total.as_deref()),
        (Some("1Mi"), Some("64Mi"))
    );
    assert_eq!((most.maximum_sessions, most.repair_budget_percent), (Some(200_000), Some(25)));
    assert!(!most.sparse_copies && !most.weaker_tokens, "{most:?}");
    for part in [
        "tokens.policy off (required is used)",
        "cache.bytesTotal 107374182400000 (67108864 is used)",
        "limits: cache.bytesTotal 1073741824000000 (67108864 is used)",
        "endpoints Any (Pods is used)",
        "envoy.image example.org/theirs:1",
        "exposure.type HostNetwork (NodePort is used)",
        "tcp Passthrough (Off is used)",
        "terminate Allowed (Off is used)",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }

    // What the class has or allows a Gateway may have, and less.
    let mut generous = greedy.clone();
    generous["tokens"] = json!({ "policy": "Off" });
    let (spec, message) = spec_with(Some(&generous), &greedy);
    assert_eq!(spec.limits, as_parameters(&greedy).limits);
    assert_eq!(spec.cache, as_parameters(&greedy).cache);
    assert_eq!(message, "all listeners can be served");
    // The class demands tokens: a Gateway's own policy is no weaker.
    let strict = json!({ "tokens": {
        "policy": "Optional", "tls": { "secretName": "tls" }, "bindToNetwork": true, "lifetimeSeconds": 60,
    }});
    let own = json!({ "tokens": { "policy": "Required", "tls": { "secretName": "own" } } });
    let (spec, message) = spec_with(Some(&strict), &own);
    let tokens = &spec.tokens;
    assert_eq!(tokens.policy, packrat_api::token::TokenPolicy::Required, "a stricter policy stays");
    assert_eq!((tokens.lifetime_seconds, tokens.bind_to_network), (60, true));
    assert_eq!(tokens.tls.as_ref().unwrap().secret_name, "own");
    assert!(message.contains("tokens.lifetimeSeconds 300 (60 is used)"), "{message}");
    let modest = json!({ "assist": false, "cache": { "bytesTotal": "2Mi" }, "workload": { "replicas": 5 }, "tokens": class["tokens"] });
    let (spec, message) = spec_with(Some(&class), &modest);
    assert_eq!((spec.cache.bytes_total.as_str(), spec.workload.replicas), ("2Mi", 5));
    assert_eq!(message, "all listeners can be served");
    // A class without parameters sets no limits; a class whose parameters are missing admits no
    // labels and annotations.
    let (spec, _) = spec_with(None, &greedy);
    assert_eq!(spec.cache, as_parameters(&greedy).cache);
    let refused = state_with(Some(&Value::Null), &modest);
    assert_eq!((refused.accepted.reason, refused.spec), ("InvalidParameters", None));
}
