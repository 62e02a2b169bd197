//! The chart's committed definitions are those that the code generates.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may fail anywhere"
)]

use std::path::Path;

use packrat_operator::resource;

#[test]
fn the_charts_custom_resource_definition_is_current() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/packrat/crds/edgegateways.yaml");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = resource::definitions().unwrap();
    assert!(
        committed == expected,
        "{} is out of date; write it anew with: cargo run -p packrat-operator -- crds >charts/packrat/crds/edgegateways.yaml",
        path.display()
    );
}

#[test]
fn every_field_says_what_it_is() {
    fn check(path: &str, schema: &serde_json::Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(property["description"].is_string(), "{path} has no description");
            check(&path, property);
        }
    }
    let definition =
        serde_json::to_value(<resource::EdgeGateway as kube::CustomResourceExt>::crd()).unwrap();
    let schema =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert!(schema["properties"].as_object().unwrap().len() >= 10);
    check("spec", schema);
}

/// `kubectl explain` shows the default of each field.
#[test]
fn every_default_is_said_in_the_description_of_its_field() {
    fn check(path: &str, schema: &serde_json::Value, checked: &mut usize) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let default = &property["default"];
            if !default.is_null() && !default.is_object() && !default.is_array() {
                let description = property["description"].as_str().unwrap_or_default();
                let said = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
                assert!(description.contains(&format!("Default: {said}")), "{path}: {description}");
                *checked += 1;
            }
            check(&path, property, checked);
        }
    }
    let definition =
        serde_json::to_value(<resource::EdgeGateway as kube::CustomResourceExt>::crd()).unwrap();
    let schema =
        &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut checked = 0;
    check("spec", schema, &mut checked);
    assert!(checked >= 20, "{checked}");
}

#[test]
fn what_kubectl_get_shows_and_how_the_resource_is_called() {
    let definition =
        serde_json::to_value(<resource::EdgeGateway as kube::CustomResourceExt>::crd()).unwrap();
    let names = &definition["spec"]["names"];
    assert_eq!(
        (&names["shortNames"][0], &names["categories"][0]),
        (&"egw".into(), &"packrat".into())
    );
    let version = &definition["spec"]["versions"][0];
    assert!(version["subresources"]["status"].is_object());
    let columns: Vec<_> = version["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column["jsonPath"].as_str().unwrap()))
        .collect();
    assert_eq!(
        columns,
        [
            ("Exposure", ".spec.exposure.type"),
            ("Address", ".status.addresses[0]"),
            ("Routes", ".status.attachedRoutes"),
            ("Programmed", ".status.conditions[?(@.type==\"Programmed\")].status"),
            ("Ready", ".status.conditions[?(@.type==\"Ready\")].status"),
            ("Sessions", ".status.sessions"),
            ("Age", ".metadata.creationTimestamp"),
        ]
    );
}

/// The operator is tested with `rules.yaml`; the chart gives it the same rules, neither fewer nor
/// more.
#[test]
fn the_charts_rules_are_those_that_the_operator_is_tested_with() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = |file: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
        let of = |kind: &str| {
            let roles: Vec<_> =
                documents.iter().filter(|document| document["kind"] == kind).collect();
            assert_eq!(roles.len(), 1, "{kind} in {file}");
            roles[0]["rules"].clone()
        };
        [of("ClusterRole"), of("Role")]
    };
    assert_eq!(rules("../charts/renders/default.yaml"), rules("tests/rules.yaml"));
}

/// With `gateway.namespaces` the same rules are given, those that make something in these
/// namespaces only.
#[test]
fn in_named_namespaces_the_chart_gives_the_same_rules_and_elsewhere_those_for_reading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = |file: &str| -> Vec<serde_json::Value> {
        serde_saphyr::from_multiple(&std::fs::read_to_string(root.join(file)).unwrap()).unwrap()
    };
    let rules = |document: &serde_json::Value| document["rules"].as_array().unwrap().clone();
    let sorted = |mut rules: Vec<serde_json::Value>| {
        rules.sort_by_key(ToString::to_string);
        rules
    };
    let tested = documents("tests/rules.yaml");
    let all = rules(tested.iter().find(|document| document["kind"] == "ClusterRole").unwrap());
    let chart = documents("../charts/renders/namespaces.yaml");
    let everywhere =
        rules(chart.iter().find(|document| document["kind"] == "ClusterRole").unwrap());
    assert!(!serde_json::Value::from(everywhere.clone()).to_string().contains("secrets"));
    for namespace in ["edge", "shop"] {
        let found = |kind: &str| {
            chart.iter().find(|document| {
                document["kind"] == kind && document["metadata"]["namespace"] == namespace
            })
        };
        let role = found("Role").unwrap();
        assert_eq!(sorted([everywhere.clone(), rules(role)].concat()), sorted(all.clone()));
        let binding = found("RoleBinding").unwrap();
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        assert_eq!(binding["subjects"][0]["name"], "packrat-operator");
    }
}
