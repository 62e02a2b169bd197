//! The chart's committed definitions equal the generated ones.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use packrat_operator::resource;

#[test]
fn the_charts_custom_resource_definition_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../charts/packrat/definitions/edgegateways.yaml");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = resource::definitions().unwrap();
    assert!(
        committed == expected,
        "{} is out of date; write it anew with: cargo run -p packrat-operator -- crds >charts/packrat/definitions/edgegateways.yaml",
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
            ("Accepted", ".status.conditions[?(@.type==\"Accepted\")].status"),
            ("Programmed", ".status.conditions[?(@.type==\"Programmed\")].status"),
            ("Ready", ".status.conditions[?(@.type==\"Ready\")].status"),
            ("Sessions", ".status.sessions"),
            ("Age", ".metadata.creationTimestamp"),
        ]
    );
}

fn documents(file: &str) -> Vec<serde_json::Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Kind, namespace, and name of the role of each binding.
fn bindings(documents: &[serde_json::Value]) -> Vec<[String; 3]> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut bindings: Vec<_> = documents
        .iter()
        .filter(|document| text(&document["kind"]).ends_with("Binding"))
        .map(|document| {
            assert_eq!(document["subjects"][0]["name"], "packrat-operator");
            let names = [
                &document["kind"],
                &document["metadata"]["namespace"],
                &document["roleRef"]["name"],
            ];
            names.map(text)
        })
        .collect();
    bindings.sort();
    bindings
}

/// The operator is tested with `rules.yaml`; the chart gives it the same rules, neither fewer nor
/// more.
#[test]
fn the_charts_rules_are_those_that_the_operator_is_tested_with() {
    let rules = |file: &str| {
        let of = |kind: &str| -> Vec<serde_json::Value> {
            // The others are for people.
            let is_operators = |one: &serde_json::Value| {
                let name = one["metadata"]["name"].as_str().unwrap_or_default();
                one["kind"] == kind && name.starts_with("packrat-operator")
            };
            let documents = documents(file).into_iter().filter(is_operators);
            documents.map(|mut one| one["rules"].take()).collect()
        };
        (of("ClusterRole"), of("Role"))
    };
    let tested = rules("tests/rules.yaml");
    assert_eq!((tested.0.len(), tested.1.len()), (2, 1));
    for render in ["default", "namespaces", "cluster-wide"] {
        assert_eq!(rules(&format!("../charts/renders/{render}.yaml")), tested, "{render}");
    }
}

/// The role that is bound everywhere only reads and reports; to make something, and to read a Secret, the
/// operator is bound in single namespaces, unless the whole cluster is asked for.
#[test]
fn the_operator_makes_things_in_the_namespaces_that_it_is_given() {
    let bound = |render: &str| bindings(&documents(&format!("../charts/renders/{render}.yaml")));
    let (reads, makes) = ("packrat-operator", "packrat-operator-gateways");
    let of = |kind: &str, namespace: &str, role: &str| [kind, namespace, role].map(str::to_owned);
    let always = [of("ClusterRoleBinding", "", reads), of("RoleBinding", "packrat-system", reads)];
    let expected = |more: &[[String; 3]]| {
        let mut all = [&always[..], more].concat();
        all.sort();
        all
    };
    assert_eq!(bound("default"), expected(&[of("RoleBinding", "packrat-system", makes)]));
    let named = ["edge", "packrat-system", "shop"];
    let named = named.map(|namespace| of("RoleBinding", namespace, makes));
    assert_eq!(bound("namespaces"), expected(&named));
    assert_eq!(bound("cluster-wide"), expected(&[of("ClusterRoleBinding", "", makes)]));

    let default = documents("../charts/renders/default.yaml");
    let everywhere = default
        .iter()
        .find(|document| document["kind"] == "ClusterRole" && document["metadata"]["name"] == reads)
        .unwrap();
    for rule in everywhere["rules"].as_array().unwrap() {
        let resources = rule["resources"].to_string();
        let writes = ["create", "patch", "update", "delete"]
            .iter()
            .any(|verb| rule["verbs"].to_string().contains(verb));
        let reports = ["/status\"", "\"events\"", "mutatingwebhookconfigurations"]
            .iter()
            .any(|part| resources.contains(part));
        assert!(!resources.contains("secrets") && (reports || !writes), "{rule}");
    }
}

#[test]
fn by_default_an_edge_gateways_author_has_no_power_over_nodes() {
    let arguments = |render: &str| {
        let all = documents(&format!("../charts/renders/{render}.yaml"));
        let operator = all.iter().find(|document| document["kind"] == "Deployment").unwrap();
        operator["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
    };
    let default = arguments("default");
    assert!(!default.contains("--allow-host-network") && !default.contains("--allowed-images"));
    assert!(default.contains("--gateway-egress-policy=true"), "{default}");
    let all = arguments("cluster-wide");
    assert!(all.contains("--allow-host-network") && all.contains("--denied-networks=10.96.0.0/12"));
    assert!(all.contains("--allowed-images=mirror.example/packrat/gateway:*"), "{all}");
}

/// The definitions that `helm upgrade` upgrades equal the generated ones, and outlive the release.
#[test]
fn the_release_has_the_definitions_and_leaves_them_behind() {
    let read = |file: &str| -> Vec<CustomResourceDefinition> {
        let documents = documents(file).into_iter().filter(|one| !one.is_null());
        documents.map(|one| serde_json::from_value(one).unwrap()).collect()
    };
    let generated = read("../charts/packrat/definitions/edgegateways.yaml");
    let rendered = read("../charts/renders/definitions.yaml");
    assert_eq!((generated.len(), rendered.len()), (3, 3));
    for (generated, rendered) in generated.iter().zip(rendered) {
        let metadata = rendered.metadata;
        assert_eq!(metadata.name, generated.metadata.name);
        let name = metadata.name.unwrap();
        assert!(rendered.spec == generated.spec, "{name}: run `make write-chart`");
        let policy = metadata.annotations.unwrap().remove("helm.sh/resource-policy");
        assert_eq!(policy.as_deref(), Some("keep"), "{name}");
        let labels = metadata.labels.unwrap();
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{name}");
    }
}
