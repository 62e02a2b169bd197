//! A real API server, and the operator's own program with the rules that it is given there.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest time that a test waits for something that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The operator's namespace.
pub(crate) const HOME: &str = "packrat-test-system";

/// One operator at a time: it looks at the whole cluster.
static ALONE: Mutex<()> = Mutex::new(());

/// A cluster that is there for the test alone.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) runtime: tokio::runtime::Runtime,
    kubeconfig: PathBuf,
    directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Cluster {
    /// The cluster of `PACKRAT_TEST_KUBECONFIG`, with the definitions and rules applied. Without
    /// one it is `None`, and a line is printed.
    pub(crate) fn find() -> Option<Self> {
        let Some(kubeconfig) = std::env::var_os("PACKRAT_TEST_KUBECONFIG").map(PathBuf::from)
        else {
            println!(
                "SKIPPED: no cluster: set PACKRAT_TEST_KUBECONFIG to the kubeconfig of one that the test may use alone"
            );
            return None;
        };
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let read = Kubeconfig::read_from(&kubeconfig).unwrap();
            let config =
                Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
            Client::try_from(config).unwrap()
        });
        let directory = tempfile::tempdir().unwrap();
        let cluster = Self { client, runtime, kubeconfig, directory, _alone: alone };
        cluster.set_up();
        Some(cluster)
    }

    /// The cluster, an empty namespace, and an operator that is elected.
    pub(crate) fn with_operator(namespace: &str) -> Option<(Self, Operator)> {
        Self::with_operator_and(namespace, &[])
    }

    /// A cluster with an operator that has these additional options.
    pub(crate) fn with_operator_and(namespace: &str, options: &[&str]) -> Option<(Self, Operator)> {
        let cluster = Self::find()?;
        cluster.namespace(namespace, &json!({}));
        let operator = cluster.operator_with("only", None, options);
        cluster.wait_until("the election", || operator.is_elected());
        Some((cluster, operator))
    }

    /// The rules that the operator is given: ClusterRole and Role with their bindings.
    pub(crate) fn rules() -> Vec<Value> {
        let text = include_str!("../rules.yaml")
            .replace("{{namespace}}", HOME)
            .replace("{{account}}", "operator");
        serde_saphyr::from_multiple(&text).unwrap()
    }

    fn set_up(&self) {
        self.make_namespace(HOME, &json!({}));
        self.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "operator", "namespace": HOME } }));
        for document in Self::rules() {
            self.apply(document);
        }
        for definition in self.definitions() {
            self.define(definition);
        }
        // Both take effect a moment after they were written.
        let gateways = self.api("EdgeGateway", "");
        self.wait_until("EdgeGateways to be served", || {
            self.runtime.block_on(gateways.list(&Default::default())).is_ok()
        });
        self.wait_until("the rules to be in force", || {
            self.operator_may("list", "services", "") && self.operator_may("get", "secrets", "")
        });
    }

    /// The present definitions.
    pub(crate) fn definitions(&self) -> Vec<Value> {
        let text = packrat_operator::resource::definitions().unwrap();
        serde_saphyr::from_multiple(&text).unwrap()
    }

    /// Makes or replaces a definition.
    pub(crate) fn define(&self, definition: Value) {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        self.apply(definition);
        let api = Api::<CustomResourceDefinition>::all(self.client.clone());
        self.wait_until("the definition to be established", || {
            let found = self.runtime.block_on(api.get(&name)).unwrap();
            found
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten())
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
        });
    }

    /// True if the operator's ServiceAccount may do that, in a namespace or, without one, in all.
    pub(crate) fn operator_may(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        let attributes = json!({ "verb": verb, "resource": resource, "namespace": namespace });
        self.may(&format!("system:serviceaccount:{HOME}:operator"), &attributes)
    }

    /// True if a user has the right that these attributes name.
    pub(crate) fn may(&self, user: &str, attributes: &Value) -> bool {
        let review = json!({ "spec": { "user": user, "resourceAttributes": attributes } });
        let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = self.runtime.block_on(api.create(&PostParams::default(), &review)).unwrap();
        answer.status.is_some_and(|status| status.allowed)
    }

    /// Makes a namespace; remains of a former run are removed first.
    pub(crate) fn namespace(&self, name: &str, annotations: &Value) {
        self.remove_namespace(name);
        let api = Api::<Namespace>::all(self.client.clone());
        self.wait_until("the former namespace to end", || {
            self.runtime.block_on(api.get_opt(name)).unwrap().is_none()
        });
        self.make_namespace(name, annotations);
    }

    fn make_namespace(&self, name: &str, annotations: &Value) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "annotations": annotations },
        }));
        // The ServiceAccount is made by a controller; Pods need it.
        let api = Api::<ServiceAccount>::namespaced(self.client.clone(), name);
        self.wait_until("the default ServiceAccount", || {
            self.runtime.block_on(api.get_opt("default")).unwrap().is_some()
        });
    }

    pub(crate) fn remove_namespace(&self, name: &str) {
        let api = Api::<Namespace>::all(self.client.clone());
        // It may be gone.
        let _ = self.runtime.block_on(api.delete(name, &DeleteParams::background()));
    }

    pub(crate) fn api(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version, plural) = match kind {
            "EdgeGateway" => ("packrat.dev", "v1alpha1", "edgegateways"),
            "GatewayParameters" => ("packrat.dev", "v1alpha1", "gatewayparameters"),
            "PackratPolicy" => ("packrat.dev", "v1alpha1", "packratpolicies"),
            "GatewayClass" => ("gateway.networking.k8s.io", "v1", "gatewayclasses"),
            "Gateway" => ("gateway.networking.k8s.io", "v1", "gateways"),
            "UDPRoute" => ("gateway.networking.k8s.io", "v1", "udproutes"),
            "ReferenceGrant" => ("gateway.networking.k8s.io", "v1", "referencegrants"),
            "Service" => ("", "v1", "services"),
            "Pod" => ("", "v1", "pods"),
            "Node" => ("", "v1", "nodes"),
            "Namespace" => ("", "v1", "namespaces"),
            "Secret" => ("", "v1", "secrets"),
            "ConfigMap" => ("", "v1", "configmaps"),
            "LimitRange" => ("", "v1", "limitranges"),
            "ResourceQuota" => ("", "v1", "resourcequotas"),
            "ServiceAccount" => ("", "v1", "serviceaccounts"),
            "EndpointSlice" => ("discovery.k8s.io", "v1", "endpointslices"),
            "Deployment" => ("apps", "v1", "deployments"),
            "DaemonSet" => ("apps", "v1", "daemonsets"),
            "HorizontalPodAutoscaler" => ("autoscaling", "v2", "horizontalpodautoscalers"),
            "PodDisruptionBudget" => ("policy", "v1", "poddisruptionbudgets"),
            "NetworkPolicy" => ("networking.k8s.io", "v1", "networkpolicies"),
            "Lease" => ("coordination.k8s.io", "v1", "leases"),
            "Event" => ("events.k8s.io", "v1", "events"),
            "ClusterRole" => ("rbac.authorization.k8s.io", "v1", "clusterroles"),
            "ClusterRoleBinding" => ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
            "Role" => ("rbac.authorization.k8s.io", "v1", "roles"),
            "RoleBinding" => ("rbac.authorization.k8s.io", "v1", "rolebindings"),
            "CustomResourceDefinition" => {
                ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            }
            "ValidatingAdmissionPolicy" => {
                ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
            }
            "ValidatingAdmissionPolicyBinding" => {
                ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings")
            }
            "MutatingWebhookConfiguration" => {
                ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
            }
            _ => panic!("{kind}"),
        };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        if namespace.is_empty() {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), namespace, &resource)
        }
    }

    fn place(object: &Value) -> (String, String, String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (
            text(&object["kind"]),
            text(&object["metadata"]["namespace"]),
            text(&object["metadata"]["name"]),
        )
    }

    /// Applies an object as the test.
    pub(crate) fn apply(&self, object: Value) {
        self.try_apply(object).unwrap();
    }

    pub(crate) fn try_apply(&self, object: Value) -> Result<DynamicObject, kube::Error> {
        let (kind, namespace, name) = Self::place(&object);
        let parameters = PatchParams::apply("packrat-test").force();
        self.runtime.block_on(self.api(&kind, &namespace).patch(
            &name,
            &parameters,
            &Patch::Apply(object),
        ))
    }

    /// Creates an object, as `kubectl create` does.
    pub(crate) fn create(&self, object: &Value) -> Result<Value, kube::Error> {
        let (kind, namespace, _) = Self::place(object);
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let created = self
            .runtime
            .block_on(self.api(&kind, &namespace).create(&PostParams::default(), &object))?;
        Ok(serde_json::to_value(created).unwrap())
    }

    pub(crate) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.runtime.block_on(self.api(kind, namespace).get_opt(name)).unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    pub(crate) fn delete(&self, kind: &str, namespace: &str, name: &str) {
        self.runtime
            .block_on(self.api(kind, namespace).delete(name, &DeleteParams::background()))
            .unwrap();
    }

    pub(crate) fn merge(&self, kind: &str, namespace: &str, name: &str, change: &Value) {
        let patch = Patch::Merge(change);
        self.runtime
            .block_on(self.api(kind, namespace).patch(name, &PatchParams::default(), &patch))
            .unwrap();
    }

    /// Makes a Pod of a gateway that is ready, at an address.
    pub(crate) fn ready_gateway(&self, namespace: &str, gateway: &str, address: &str) {
        let labels = json!({
            "packrat.dev/edge-gateway": gateway, "app.kubernetes.io/managed-by": "packrat-operator",
        });
        let name = format!("ready-{gateway}");
        self.apply(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "labels": labels },
            "spec": { "schedulerName": "none", "containers": [{ "name": "a", "image": "a" }] },
        }));
        let status = json!({ "status": {
            "podIP": address, "podIPs": [{ "ip": address }], "conditions": [{ "type": "Ready", "status": "True" }],
        }});
        let patched: Result<DynamicObject, _> =
            self.runtime.block_on(self.api("Pod", namespace).patch_status(
                &name,
                &Default::default(),
                &Patch::Merge(&status),
            ));
        patched.unwrap();
    }

    pub(crate) fn wait_until(&self, what: &str, condition: impl FnMut() -> bool) {
        wait_until(what, condition);
    }

    /// The condition of an object: status, reason, message.
    pub(crate) fn condition(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        type_: &str,
    ) -> Option<(String, String, String)> {
        let object = self.get(kind, namespace, name)?;
        let conditions = object["status"]["conditions"].as_array()?.clone();
        let condition = conditions.into_iter().find(|condition| condition["type"] == type_)?;
        let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
        Some((text("status"), text("reason"), text("message")))
    }

    /// Starts a replica of the operator, with a token of its ServiceAccount. `through`: the way to
    /// the API server, instead of the direct one.
    pub(crate) fn operator(&self, replica: &str, through: Option<SocketAddr>) -> Operator {
        self.operator_with(replica, through, &[])
    }

    /// The operator of another release, with these additional options.
    pub(crate) fn operator_with(
        &self,
        replica: &str,
        through: Option<SocketAddr>,
        options: &[&str],
    ) -> Operator {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), HOME);
        let request = TokenRequest {
            spec: TokenRequestSpec { audiences: Vec::new(), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let token = self
            .runtime
            .block_on(accounts.create_token_request("operator", &PostParams::default(), &request))
            .unwrap()
            .status
            .unwrap()
            .token;
        let admin: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&self.kubeconfig).unwrap()).unwrap();
        let mut cluster = admin["clusters"][0]["cluster"].clone();
        if let Some(through) = through {
            let server: http::Uri = cluster["server"].as_str().unwrap().parse().unwrap();
            cluster["tls-server-name"] = server.host().unwrap().into();
            cluster["server"] = format!("https://{through}").into();
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }],
            "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        let kubeconfig = self.directory.path().join(format!("{replica}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let log = self.directory.path().join(format!("{replica}.log"));
        let host = self.own_address().ip();
        let process = Command::new(env!("CARGO_BIN_EXE_packrat-operator"))
            .args(["run", "--namespace", HOME, "--replica", replica, "--lease-seconds", "3"])
            .args(["--allow-host-network", "--allowed-images", "mirror.example/packrat/gateway:*"])
            .args(["--discovery-listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"])
            .args(["--webhook-listen", &format!("{host}:0"), "--discovery-host", &host.to_string()])
            .args(options)
            .env("KUBECONFIG", &kubeconfig)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&log).unwrap())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Operator { process, log }
    }

    /// An address of this machine that the API server can probably reach: the one from which this
    /// machine reaches it.
    pub(crate) fn own_address(&self) -> SocketAddr {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.connect(self.server()).unwrap();
        socket.local_addr().unwrap()
    }

    /// The address of the API server.
    pub(crate) fn server(&self) -> SocketAddr {
        let admin: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&self.kubeconfig).unwrap()).unwrap();
        let server: http::Uri =
            admin["clusters"][0]["cluster"]["server"].as_str().unwrap().parse().unwrap();
        let authority = format!("{}:{}", server.host().unwrap(), server.port_u16().unwrap_or(443));
        std::net::ToSocketAddrs::to_socket_addrs(&authority).unwrap().next().unwrap()
    }
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A replica of the operator; killed when it is dropped.
pub(crate) struct Operator {
    process: Child,
    log: PathBuf,
}

impl Operator {
    /// The log that it has written.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The address that it listens on, one of the `wanted` addresses.
    pub(crate) fn listening(&self, number: usize) -> SocketAddr {
        let mut address = None;
        wait_until("the operator to listen", || {
            let log = self.log();
            let mut lines = log.lines().filter(|line| line.contains("\"event\":\"listening\""));
            // The line may not be complete yet.
            address = lines.nth(number).and_then(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                line["address"].as_str()?.parse().ok()
            });
            address.is_some()
        });
        address.unwrap()
    }

    /// True if its page `/ready` says so.
    pub(crate) fn is_ready(&self) -> bool {
        let mut stream = TcpStream::connect(self.listening(0)).unwrap();
        stream.write_all(b"GET /ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.1 200")
    }

    pub(crate) fn is_elected(&self) -> bool {
        self.log()
            .lines()
            .rfind(|line| line.contains("\"event\":\"election\""))
            .is_some_and(|line| line.contains("true"))
    }

    /// True if it was refused something that its rules would have to allow. In a namespace that
    /// ends everything is refused.
    pub(crate) fn lacks_rules(&self) -> bool {
        self.log().contains("forbidden: User")
    }

    /// Resident memory in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the operator's log:\n{}", self.log());
        }
    }
}
