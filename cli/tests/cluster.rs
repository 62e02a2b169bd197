//! The operators' commands against a real cluster: they find gateways by the kubeconfig and ask
//! them through the API server. The gateways are real, without Envoy; the test writes the
//! operator's status. `make test-command` sets it up.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::UdpSocket;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

/// Longest time that the test waits for an expected event.
const PATIENCE: Duration = Duration::from_secs(90);
const SHOP: &str = "shop";
const SYSTEM: &str = "packrat-system";
/// Secrets that must not be in a bundle.
const SECRETS: [&str; 3] = ["correct-horse-battery-staple", "sesame-in-the-environment", TOKEN_KEY];
const TOKEN_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// UDP port of the gateway on the node's network.
const PORT: u16 = 8443;

struct Cluster {
    kubeconfig: String,
    image: String,
    client: Client,
    runtime: tokio::runtime::Runtime,
    /// The server to which the gateways forward.
    server: UdpSocket,
}

impl Cluster {
    fn find() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let (Some(kubeconfig), Some(image)) =
            (variable("PACKRAT_TEST_KUBECONFIG"), variable("PACKRAT_TEST_GATEWAY_IMAGE"))
        else {
            println!("SKIPPED: no cluster: make test-command");
            return None;
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (client, api_server) = runtime.block_on(async {
            let read = Kubeconfig::read_from(&kubeconfig).unwrap();
            let config =
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
            let api_server = config.cluster_url.authority().unwrap().to_string();
            (Client::try_from(config).unwrap(), api_server)
        });
        // The address at which nodes reach this machine.
        let way = UdpSocket::bind("0.0.0.0:0").unwrap();
        way.connect(api_server).unwrap();
        let server = UdpSocket::bind((way.local_addr().unwrap().ip(), 0)).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        Some(Self { kubeconfig, image, client, runtime, server })
    }

    fn apply(&self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = text(&object["apiVersion"]);
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(&object["kind"])));
        let namespace = text(&object["metadata"]["namespace"]);
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &namespace, &resource)
        };
        let name = text(&object["metadata"]["name"]);
        let parameters = PatchParams::apply("packrat-test").force();
        let begun = Instant::now();
        loop {
            // A namespace's ServiceAccount, or a definition, may come a moment later.
            match self.runtime.block_on(api.patch(&name, &parameters, &Patch::Apply(object))) {
                Ok(_) => break,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{name}: {error}"),
            }
            sleep(Duration::from_millis(200));
        }
        if !object["status"].is_null() {
            self.runtime
                .block_on(api.patch_status(&name, &parameters, &Patch::Apply(object)))
                .unwrap();
        }
    }

    fn namespace(&self, name: &str) {
        self.apply(
            &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        );
    }

    fn definitions(&self) {
        let text = packrat_operator::resource::definitions().unwrap();
        for document in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            self.apply(&document);
        }
    }

    /// A gateway's Pod like the operator's, except for its program.
    fn gateway(&self, name: &str, on_node: bool) {
        let labels = json!({ "app.kubernetes.io/name": "packrat-gateway", "packrat.dev/edge-gateway": "edge" });
        self.pod(name, on_node, &labels, "envoy", "shop/web:443", "shop/edge");
    }

    fn pod(
        &self,
        name: &str,
        on_node: bool,
        labels: &Value,
        container: &str,
        route: &str,
        gateway: &str,
    ) {
        let route = json!({
            "route": route, "gateway": gateway, "namespace": SHOP, "maximum_sessions": 100,
            "endpoints": [self.server.local_addr().unwrap()], "tokens": "optional", "token_keys": [format!("1:{TOKEN_KEY}")],
        });
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": format!("{name}-route"), "namespace": SHOP,
                "labels": { "packrat.dev/edge-gateway": "edge" } },
            "stringData": { "route.json": route.to_string(), "password": SECRETS[0] },
        }));
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": SHOP, "labels": labels },
            "spec": {
                "hostNetwork": on_node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": container, "image": self.image, "imagePullPolicy": "Never",
                    // The page is on the loopback interface: it is unreachable from outside the
                    // Pod.
                    "args": ["--listen", format!("0.0.0.0:{PORT}"), "--config", "/route/route.json", "--metrics", "127.0.0.1:9902"],
                    "env": [{ "name": "PASSWORD", "value": SECRETS[1] }],
                    "volumeMounts": [{ "name": "route", "mountPath": "/route" }],
                }],
                "volumes": [{ "name": "route", "secret": { "secretName": format!("{name}-route") } }],
            },
        }));
    }

    /// A placeholder for the operator.
    fn operator(&self) {
        self.namespace(SYSTEM);
        let labels = json!({
            "app.kubernetes.io/component": "operator", "helm.sh/chart": concat!("packrat-", env!("CARGO_PKG_VERSION")),
            "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
        });
        for document in serde_saphyr::from_multiple::<Value>(include_str!(
            "../../charts/renders/cluster-wide.yaml"
        ))
        .unwrap()
        {
            let kind = document["kind"].as_str().unwrap_or_default();
            let rights = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
            if kind == "ServiceAccount" || rights.contains(&kind) {
                self.apply(&document);
            }
        }
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "packrat-operator", "namespace": SYSTEM, "labels": labels },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": "packrat-operator",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "operator", "image": self.image, "imagePullPolicy": "Never",
                        "args": ["--listen", "127.0.0.1:8443", "--endpoint", "127.0.0.1:9"],
                    }],
                },
            }},
        }));
        let now = jiff::Timestamp::now();
        self.apply(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "packrat-operator", "namespace": SYSTEM },
            "spec": { "holderIdentity": "packrat-operator-1", "renewTime": format!("{now:.6}") },
        }));
    }

    /// The EdgeGateway with the operator's status.
    fn edge_gateway(&self, address: &str) {
        let condition = |type_: &str| {
            json!({
                "type": type_, "status": "True", "reason": type_, "message": "as it should be",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let conditions =
            ["Accepted", "ResolvedRoutes", "Programmed", "Ready", "RolledOut"].map(condition);
        self.apply(&json!({
            "apiVersion": "packrat.dev/v1alpha1", "kind": "EdgeGateway",
            "metadata": { "name": "edge", "namespace": SHOP },
            "spec": { "exposure": { "type": "HostNetwork" } },
            "status": {
                "observedGeneration": 1, "addresses": [address], "attachedRoutes": 1,
                "listeners": [{ "port": PORT, "service": "shop/web", "servicePort": 443, "endpoints": 1 }],
                "conditions": conditions,
            },
        }));
    }

    /// The address of a Pod, once it is ready.
    fn address_of(&self, pod: &str) -> String {
        let api = Api::<Pod>::namespaced(self.client.clone(), SHOP);
        let begun = Instant::now();
        loop {
            let found = self.runtime.block_on(api.get(pod)).unwrap().status.unwrap_or_default();
            let mut conditions = found.conditions.iter().flatten();
            if conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
            {
                return found.pod_ip.unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "{pod} does not become ready: {found:?}");
            sleep(Duration::from_millis(200));
        }
    }

    /// Sends a client's request through the gateway, and receives the answer.
    fn ask(&self, gateway: &str) {
        let client = UdpSocket::bind("0.0.0.0:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.connect((gateway, PORT)).unwrap();
        client.send(b"a question that is longer").unwrap();
        let mut buffer = [0; 100];
        let (length, from) = self.server.recv_from(&mut buffer).unwrap();
        self.server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), length);
    }

    fn packrat(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_packrat"))
            .args(arguments)
            .env_remove("PACKRAT_GATEWAY")
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.packrat(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.packrat(&[arguments, &["-o", "json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    /// Waits until a check has a given result.
    fn wait_for_check(
        &self,
        what: &str,
        arguments: &[&str],
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let begun = Instant::now();
        loop {
            let report = self.json(arguments);
            if is_so(&report) {
                return report;
            }
            assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}: {report:#}");
            sleep(Duration::from_millis(500));
        }
    }
}

fn verdict(report: &Value, part: &str) -> String {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"].as_str().unwrap().contains(part));
    let found = found.unwrap_or_else(|| panic!("no check {part:?}: {report:#}"));
    found["verdict"].as_str().unwrap().to_owned()
}

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn from_an_empty_cluster_to_two_gateways() {
    let Some(cluster) = Cluster::find() else { return };
    an_empty_cluster(&cluster);
    cluster.definitions();
    cluster.namespace(SHOP);
    cluster.operator();
    let missing = cluster.packrat(&["stat", "-n", SHOP]);
    assert!(
        error(&missing).contains("there is no EdgeGateway in namespace shop; make one"),
        "{missing:?}"
    );
    cluster.gateway("edge-on-node", true);
    cluster.gateway("edge-on-pod-network", false);
    let node = cluster.address_of("edge-on-node");
    cluster.address_of("edge-on-pod-network");
    cluster.edge_gateway(&node);
    cluster.ask(&node);
    everything_is_well(&cluster, &node);
    what_gateways_do(&cluster);
    a_bundle_without_secrets(&cluster);
    a_sidecar_is_a_gateway(&cluster);
    the_operator_needs_its_rights_in_the_named_namespaces_only(&cluster);
    what_is_wrong_is_said(&cluster, &node);
}

/// A Pod with a gateway beside its own containers, as the commands see it.
fn a_sidecar_is_a_gateway(cluster: &Cluster) {
    let labels = json!({ "packrat.dev/sidecar": "injected" });
    cluster.pod("game-0", false, &labels, "packrat-gateway", "game/7000", "game-0");
    cluster.address_of("game-0");
    let said = cluster.text(&["stat", "-n", SHOP, "--window", "0.2"]);
    let lines: Vec<Vec<&str>> =
        said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.iter().any(|line| line[..4] == [SHOP, "edge", "2", "shop/web:443"]), "{said}");
    assert!(lines.iter().any(|line| line[..4] == [SHOP, "game-0", "1", "game/7000"]), "{said}");
    let only = cluster.json(&[
        "stat",
        "-n",
        SHOP,
        "--window",
        "0.2",
        "--by-pod",
        "--edge-gateway",
        "game-0",
    ]);
    assert_eq!(
        (&only["routes"][0]["pod"], &only["routes"][1]),
        (&json!("game-0"), &Value::Null),
        "{only:#}"
    );
    let said = cluster.text(&["check", "-v", "-n", SHOP]);
    assert!(said.contains("√ shop/game-0 is well"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bundle.tar.gz");
    cluster.text(&["diagnose", "--file", file.to_str().unwrap()]);
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(file).unwrap()));
    let names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    for name in ["gateways/shop/game-0/status.json", "logs/shop/game-0-packrat-gateway.log"] {
        assert!(names.contains(&format!("packrat-diagnose/{name}")), "{name}: {names:?}");
    }
}

/// The chart limits the operator to namespaces by default.
fn the_operator_needs_its_rights_in_the_named_namespaces_only(cluster: &Cluster) {
    cluster.namespace("edge");
    let everywhere =
        Api::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>::all(cluster.client.clone());
    cluster
        .runtime
        .block_on(everywhere.delete("packrat-operator-gateways", &Default::default()))
        .unwrap();
    for document in
        serde_saphyr::from_multiple::<Value>(include_str!("../../charts/renders/namespaces.yaml"))
            .unwrap()
    {
        let kind = document["kind"].as_str().unwrap_or_default();
        if ["ClusterRole", "Role", "RoleBinding"].contains(&kind) {
            cluster.apply(&document);
        }
    }
    let name = "the operator may do its work";
    cluster.wait_for_check("the limited rights to do", &["check"], |report| {
        verdict(report, name) == "passed"
    });
    let bindings =
        Api::<k8s_openapi::api::rbac::v1::RoleBinding>::namespaced(cluster.client.clone(), SHOP);
    cluster
        .runtime
        .block_on(bindings.delete("packrat-operator-gateways", &Default::default()))
        .unwrap();
    let report = cluster.wait_for_check("the rights in shop to be missed", &["check"], |report| {
        verdict(report, name) == "failed"
    });
    let check =
        report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap();
    let detail = check["detail"].as_str().unwrap();
    assert!(
        detail.contains("patch deployments.apps in shop") && !detail.contains("in edge"),
        "{detail}"
    );
}

fn an_empty_cluster(cluster: &Cluster) {
    let before = cluster.json(&["check", "--pre"]);
    assert_eq!(before["ok"], true, "{before:#}");
    assert_eq!(verdict(&before, "you may install the chart"), "passed");
    let report = cluster.packrat(&["check"]);
    assert_eq!(report.status.code(), Some(1), "{report:?}");
    let said = String::from_utf8_lossy(&report.stdout);
    for part in [
        "× edgegateways.packrat.dev is there",
        "helm install packrat",
        "docs/RUNBOOK.md#check-definitions",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(error(&cluster.packrat(&["stat"])).contains("Packrat is not installed"));
}

fn everything_is_well(cluster: &Cluster, node: &str) {
    let report =
        cluster.wait_for_check("all checks to pass", &["check"], |report| report["ok"] == true);
    let checks = report["checks"].as_array().unwrap();
    let is_well =
        |check: &&Value| ["passed", "unknown"].contains(&check["verdict"].as_str().unwrap());
    let failed: Vec<&Value> = checks.iter().filter(|check| !is_well(check)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let groups: Vec<&str> = checks.iter().map(|check| check["group"].as_str().unwrap()).collect();
    for group in [
        "kubernetes",
        "rights",
        "definitions",
        "operator",
        "gateways",
        "gateway",
        "network",
        "routes",
        "from here",
    ] {
        assert!(groups.contains(&group), "{group}: {groups:?}");
    }
    assert_eq!(
        verdict(&report, &format!("{node}:{PORT} for shop/web answers a Discover")),
        "passed"
    );
    let said = cluster.text(&["check", "-v", "-n", SHOP]);
    assert!(
        said.contains("√ shop/edge-on-pod-network is well") && said.ends_with(" is well.\n"),
        "{said}"
    );
}

fn what_gateways_do(cluster: &Cluster) {
    let everywhere = cluster.text(&["stat", "-A", "--window", "0.2"]);
    let lines: Vec<Vec<&str>> =
        everywhere.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0][..5],
        ["NAMESPACE", "GATEWAY", "PODS", "ROUTE", "SESSIONS"],
        "{everywhere}"
    );
    assert_eq!(lines[1][..5], [SHOP, "edge", "2", "shop/web:443", "1"], "{everywhere}");
    let by_pod = cluster.json(&["stat", "-n", SHOP, "--by-pod", "--window", "0.2"]);
    let routes = by_pod["routes"].as_array().unwrap();
    let sessions: BTreeMap<&str, f64> = routes
        .iter()
        .map(|route| (route["pod"].as_str().unwrap(), route["sessions"].as_f64().unwrap()))
        .collect();
    assert_eq!(sessions, BTreeMap::from([("edge-on-node", 1.0), ("edge-on-pod-network", 0.0)]));
    // As with kubectl, the default namespace is the context's.
    let default_namespace = cluster.packrat(&["stat"]);
    assert!(
        error(&default_namespace).contains("there are some in shop: choose with -n"),
        "{default_namespace:?}"
    );
    let event =
        cluster.json(&["tap", "-n", SHOP, "--past", "--lines", "1", "--event", "session_opened"]);
    assert_eq!((&event["pod"], &event["gateway"]), (&json!("edge-on-node"), &json!("shop/edge")));
    let unmeasured = cluster.packrat(&["plan", "-n", SHOP]);
    assert!(String::from_utf8_lossy(&unmeasured.stdout).contains("measured"), "{unmeasured:?}");
    assert!(error(&cluster.packrat(&["top", "-n", SHOP])).contains("terminal"));
    let other = cluster.packrat(&["stat", "-n", SHOP, "--edge-gateway", "other"]);
    assert!(error(&other).contains("no EdgeGateway other"), "{other:?}");
}

fn a_bundle_without_secrets(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bundle.tar.gz");
    let said = cluster.text(&["diagnose", "--file", file.to_str().unwrap()]);
    assert!(said.contains("no Secrets"), "{said}");
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(file).unwrap()));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        files.insert(name, content);
    }
    for (name, content) in &files {
        for secret in SECRETS {
            assert!(
                !content.contains(secret) && !content.contains(&base64(secret)),
                "a secret in {name}"
            );
        }
        assert!(!content.contains("\"kind\": \"Secret\""), "a Secret in {name}");
    }
    for name in [
        "check.json",
        "about.json",
        "cluster/edgegateways.json",
        "cluster/gateways-pods.json",
        "cluster/operator-deployments.json",
        "cluster/events.json",
        "gateways/shop/edge-on-node/status.json",
        "gateways/shop/edge-on-pod-network/metrics.txt",
        "logs/shop/edge-on-node-envoy.log",
    ] {
        let content = files.get(&format!("packrat-diagnose/{name}"));
        let names: Vec<&String> = files.keys().collect();
        assert!(content.is_some_and(|content| content.len() > 10), "{name}: {names:?}");
    }
    assert!(files["packrat-diagnose/cluster/edgegateways.json"].contains("\"name\": \"edge\""));
    assert!(files["packrat-diagnose/logs/shop/edge-on-node-envoy.log"].contains("session_opened"));
}

/// The base64 form of a text, as in a Secret.
fn base64(text: &str) -> String {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |bits: u32| alphabet[(bits & 63) as usize] as char;
    // The end depends on the text that follows.
    text.as_bytes()
        .chunks_exact(3)
        .map(|three| u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]))
        .flat_map(|bits| [18, 12, 6, 0].map(|shift| digit(bits >> shift)))
        .collect()
}

fn what_is_wrong_is_said(cluster: &Cluster, node: &str) {
    // No gateway listens at the status's address.
    let begun = Instant::now();
    let unreachable = cluster.packrat(&["check", "--probe", &format!("{node}:9")]);
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(begun.elapsed() < PATIENCE);
    assert!(
        String::from_utf8_lossy(&unreachable.stdout).contains("docs/RUNBOOK.md#check-from-here")
    );
    // Without the binding, the operator has no rights.
    let bindings =
        Api::<k8s_openapi::api::rbac::v1::ClusterRoleBinding>::all(cluster.client.clone());
    cluster.runtime.block_on(bindings.delete("packrat-operator", &Default::default())).unwrap();
    cluster.wait_for_check("the missing rights", &["check"], |report| {
        verdict(report, "the operator may do its work") == "failed"
    });
    // A gateway that cannot start.
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "edge-without-image", "namespace": SHOP, "labels": { "packrat.dev/edge-gateway": "edge" } },
        "spec": { "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "envoy", "image": "packrat/no-such-image:1", "imagePullPolicy": "Never" }] },
    }));
    cluster.wait_for_check("the image to be missed", &["check", "-n", SHOP], |report| {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["name"] == "shop/edge-without-image is ready");
        found.is_some_and(|check| {
            check["detail"].as_str().is_some_and(|detail| detail.contains("ErrImageNeverPull"))
        })
    });
}
