//! Parameters of Gateways, within their class's parameters.

use packrat_operator::gateway_api::GatewayState;
use packrat_operator::resource::{EdgeGatewaySpec, GatewayParametersSpec};
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

/// The state of a Gateway of app with this infrastructure, and with parameters of its own and of its
/// class. Null: the class names some that are not there.
fn state_of(of_class: Option<&Value>, own: Option<&Value>, infrastructure: Value) -> GatewayState {
    let reference = |namespace: Option<&str>, name: &str| json!({ "group": "packrat.dev", "kind": "GatewayParameters", "namespace": namespace, "name": name });
    let (mut class, mut gateway) = (of_packrat(), quic_gateway());
    gateway["spec"]["infrastructure"] = infrastructure;
    let mut all = Vec::new();
    if let Some(own) = own {
        gateway["spec"]["infrastructure"]["parametersRef"] = reference(None, "own");
        all.push(parameters("app", "own", own.clone()));
    }
    if let Some(spec) = of_class {
        class["spec"]["parametersRef"] = reference(Some("packrat-system"), "of-class");
        let is_there = !spec.is_null();
        all.extend(is_there.then(|| parameters("packrat-system", "of-class", spec.clone())));
    }
    all.extend([class, gateway]);
    index(&all).resolve().attachments.gateways[&key("app", "edge")].clone()
}

/// What such a Gateway becomes, and what is said about it.
fn spec_of(
    of_class: Option<&Value>,
    own: Option<&Value>,
    infrastructure: Value,
) -> (EdgeGatewaySpec, String) {
    let state = state_of(of_class, own, infrastructure);
    assert_eq!(state.accepted.status, Some(true), "{}", state.accepted.message);
    (*state.spec.unwrap(), state.accepted.message)
}

fn as_parameters(spec: &Value) -> EdgeGatewaySpec {
    let parameters: GatewayParametersSpec = serde_json::from_value(spec.clone()).unwrap();
    parameters.edge_gateway("packrat")
}

/// Annotations make a balancer public, or bring containers into Pods. The parameters of a class therefore
/// list the ones that a Gateway may add, and a Gateway replaces none of the class's own.
#[test]
fn labels_and_annotations_of_a_gateway_stay_within_its_class() {
    let pairs = |of: &[(&str, &str)]| -> Value {
        of.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
    };
    let asked =
        pairs(&[("cloud/internal", "false"), ("mesh/inject", "true"), ("dns/name", "a.example")]);
    let ceiling = json!({
        "exposure": {
            "annotations": { "cloud/internal": "true" }, "loadBalancerSourceRanges": ["192.0.2.0/24"],
        },
        "limits": { "metadata": ["dns/*"] },
    });
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
        let (spec, message) = spec_of(Some(&ceiling), own.as_ref(), infrastructure);
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
    let said: Value = serde_saphyr::from_str(include_str!("ceiling.yaml")).unwrap();
    let (class, greedy) = (&said["class"], &said["greedy"]);
    let (spec, message) = spec_of(Some(class), Some(greedy), json!({}));
    let mut expected = as_parameters(class);
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
    for part in said["refused"].as_array().unwrap() {
        assert!(message.contains(part.as_str().unwrap()), "{part}: {message}");
    }
}

#[test]
fn a_gateway_may_have_what_its_class_has_or_allows_and_less() {
    let said: Value = serde_saphyr::from_str(include_str!("ceiling.yaml")).unwrap();
    let (class, greedy, modest) = (&said["class"], &said["greedy"], &said["modest"]);
    let mut generous = greedy.clone();
    generous["tokens"] = json!({ "policy": "Off" });
    let (spec, message) = spec_of(Some(&generous), Some(greedy), json!({}));
    assert_eq!(spec.limits, as_parameters(greedy).limits);
    assert_eq!(spec.cache, as_parameters(greedy).cache);
    assert_eq!(message, "all listeners can be served");
    // The class demands tokens: a Gateway's own policy is no weaker.
    let (spec, message) = spec_of(Some(&said["strict"]), Some(&said["stricter"]), json!({}));
    let tokens = &spec.tokens;
    assert_eq!(tokens.policy, packrat_api::token::TokenPolicy::Required, "a stricter policy stays");
    assert_eq!((tokens.lifetime_seconds, tokens.bind_to_network), (60, true));
    assert_eq!(tokens.tls.as_ref().unwrap().secret_name, "own");
    assert!(message.contains("tokens.lifetimeSeconds 300 (60 is used)"), "{message}");
    let (spec, message) = spec_of(Some(class), Some(modest), json!({}));
    assert_eq!((spec.cache.bytes_total.as_str(), spec.workload.replicas), ("2Mi", 5));
    assert_eq!(message, "all listeners can be served");
    // A class without parameters sets no limits; a class whose parameters are missing admits no
    // labels and annotations.
    let (spec, _) = spec_of(None, Some(greedy), json!({}));
    assert_eq!(spec.cache, as_parameters(greedy).cache);
    let refused = state_of(Some(&Value::Null), Some(modest), json!({}));
    assert_eq!((refused.accepted.reason, refused.spec), ("InvalidParameters", None));
}
