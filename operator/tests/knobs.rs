//! The table of settings (`packrat_api::knobs`) matches EdgeGateways, annotations and the README.

use std::collections::BTreeSet;

use packrat_api::knobs::{ClusterValues, Knob, in_cluster};
use packrat_api::route::RouteConfig;
use packrat_operator::annotations::{Annotations, Carrier};
use packrat_operator::names::{CONFIG_PREFIX, WRITTEN_ANNOTATIONS};
use packrat_operator::resource::{EdgeGateway, EdgeGatewaySpec, PackratPolicy, PolicySettings};
use serde_json::{Map, Value, json};

fn route() -> RouteConfig {
    RouteConfig::unchecked("web", ["192.0.2.1:443".parse().unwrap()])
}

/// A value that is not the default, as an EdgeGateway and as an annotation writes it.
fn another_value(knob: &Knob, values: ClusterValues) -> (Value, &'static str) {
    match values {
        ClusterValues::Bytes if knob.field == "cache_bytes_total" => (json!("512Mi"), "512Mi"),
        ClusterValues::Bytes => (json!("2Mi"), "2Mi"),
        ClusterValues::Numbers { .. } => (json!(7), "7"),
        ClusterValues::Words(_) => match knob.field {
            "tokens" => (json!("Optional"), "optional"),
            "sender" => (json!("LossBased"), "loss-based"),
            "affinity" => (json!("ClientPort"), "port"),
            other => panic!("{other} has no words"),
        },
        ClusterValues::Switch if knob.field == "sparse_copies" => (json!(true), "on"),
        ClusterValues::Switch => (json!(false), "off"),
    }
}

#[test]
fn the_schema_of_edge_gateways_has_every_setting_with_its_range() {
    let definition = serde_json::to_value(<EdgeGateway as kube::CustomResourceExt>::crd()).unwrap();
    let schema =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    for (_, knob) in in_cluster() {
        let path = knob.edge_gateway;
        let property = path.split('.').fold(schema, |schema, name| &schema["properties"][name]);
        match knob.values {
            ClusterValues::Bytes => {
                let rule = property["x-kubernetes-validations"][0]["rule"].as_str();
                assert!(rule.unwrap_or_default().contains("Ki|Mi|Gi"), "{path}: {property}");
            }
            ClusterValues::Numbers { least, most } => assert_eq!(
                (property["minimum"].as_f64(), property["maximum"].as_f64()),
                (Some(least.into()), Some(most.into())),
                "{path}"
            ),
            ClusterValues::Words(_) => {
                let words = match path {
                    "sender" => json!(["Any", "LossBased", "BBR", "BBR1"]),
                    "sessions.affinity" => json!(["ClientAddress", "ClientPort"]),
                    "tokens.policy" => json!(["Off", "Optional", "Required"]),
                    other => panic!("{other} has no words"),
                };
                assert_eq!(property["enum"], words, "{path}");
            }
            ClusterValues::Switch => assert_eq!(property["type"], "boolean", "{path}"),
        }
    }
}

#[test]
fn a_gateway_without_settings_has_the_defaults_of_a_route() {
    let mut of_gateway = route();
    EdgeGatewaySpec::default().apply(&mut of_gateway);
    assert_eq!(of_gateway, route());
}

/// Each setting of an EdgeGateway, and each annotation, changes the one field of the route that
/// its row names, and both to the same value.
#[test]
fn settings_and_annotations_reach_the_field_of_their_row() {
    let fields = |route: &RouteConfig| match serde_json::to_value(route).unwrap() {
        Value::Object(fields) => fields,
        other => panic!("{other}"),
    };
    let before = fields(&route());
    let changed = |after: &Map<String, Value>| -> Vec<String> {
        // Settings with their default values may be left out.
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        keys.into_iter().filter(|key| before.get(*key) != after.get(*key)).cloned().collect()
    };
    for (knob, cluster) in in_cluster() {
        let (in_spec, in_annotation) = another_value(knob, cluster.values);
        let spec =
            cluster.edge_gateway.rsplit('.').fold(in_spec, |inner, name| json!({ name: inner }));
        let spec: EdgeGatewaySpec = serde_json::from_value(spec).unwrap();
        let mut by_gateway = route();
        spec.apply(&mut by_gateway);

        let name = format!("{CONFIG_PREFIX}{}", cluster.annotation);
        let read = Annotations::read(Carrier::Service, [(name.as_str(), in_annotation)]);
        assert_eq!(read.problems, [], "{name}");
        let mut by_annotation = route();
        read.overrides.apply(&mut by_annotation);

        assert_eq!(by_gateway, by_annotation, "{name}");
        assert_eq!(changed(&fields(&by_gateway)), [knob.field], "{}", cluster.edge_gateway);
    }
}

/// A policy has each of these settings with the words and ranges of an EdgeGateway, and it reaches
/// the same field.
#[test]
fn a_policy_has_every_setting_of_a_route() {
    let definition =
        serde_json::to_value(<PackratPolicy as kube::CustomResourceExt>::crd()).unwrap();
    assert_eq!(definition["metadata"]["labels"]["gateway.networking.k8s.io/policy"], "Inherited");
    let schema =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    for (knob, cluster) in in_cluster() {
        let (in_spec, _) = another_value(knob, cluster.values);
        let path = cluster.edge_gateway;
        for part in ["defaults", "overrides"] {
            let property = path
                .split('.')
                .fold(&schema["properties"][part], |schema, name| &schema["properties"][name]);
            assert!(property["description"].is_string(), "{part}.{path}: {property}");
            let words = &property["enum"];
            let is_word = |words: &Vec<Value>| words.contains(&in_spec);
            assert!(words.as_array().is_none_or(is_word), "{path}: {words}");
        }
        let nested = path.rsplit('.').fold(in_spec, |inner, name| json!({ name: inner }));
        let settings: PolicySettings = serde_json::from_value(nested.clone()).unwrap();
        let mut by_policy = route();
        settings.overrides().unwrap().apply(&mut by_policy);
        let spec: EdgeGatewaySpec = serde_json::from_value(nested).unwrap();
        let mut by_gateway = route();
        spec.apply(&mut by_gateway);
        assert_eq!(by_policy, by_gateway, "{path}");
    }
    for wrong in [
        json!({ "repair": { "budgetPercent": 1001 } }),
        json!({ "repair": { "budgetPercent": "much" } }),
        json!({ "sender": "bbr" }),
        json!({ "cache": { "bytesTotal": "1M" } }),
    ] {
        let settings: PolicySettings = serde_json::from_value(wrong.clone()).unwrap();
        assert!(settings.overrides().is_err(), "{wrong}");
    }
}

#[test]
fn the_readme_lists_every_annotation() {
    let readme = include_str!("../README.md");
    for (name, on) in WRITTEN_ANNOTATIONS {
        assert!(readme.contains(&format!("| `{name}` | {on} |")), "no row for {name} on {on}");
    }
    let listed = readme.split_once("\n`NAME`: ").unwrap().1.split_once("\n\n").unwrap().0;
    for (_, knob) in in_cluster() {
        assert!(listed.contains(&format!("`{}`", knob.annotation)), "{}", knob.annotation);
    }
}
