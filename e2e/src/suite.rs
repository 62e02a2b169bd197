//! The environment that all claims share: the product installed on a cluster, servers in it, a
//! client outside, and the path between them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use packrat_wire::hexadecimal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::certificate::Certificate;
use crate::cluster::Cluster;
use crate::command::{Failure, Outcome, Prefix, until};
use crate::download::{Download, Request, Transfer};
use crate::impairment::{Impairment, Segment};

/// Host name of the servers.
pub(crate) const HOST_NAME: &str = "shop.example";
/// Namespace of the servers.
pub(crate) const SHOP_NAMESPACE: &str = "shop";
/// The EdgeGateway of the shop, the default of annotations.
pub(crate) const SHOP_GATEWAY: &str = "default";
/// Namespace and name of the Helm release.
pub(crate) const HELM_RELEASE: [&str; 2] = ["packrat-system", "packrat"];
/// Name of the file for many clients at once.
pub(crate) const SMALLEST_FILE: &str = "1mb.bin";
/// Name of the file for comparisons.
pub(crate) const SMALL_FILE: &str = "4mb.bin";
/// Name of the file for long downloads.
pub(crate) const LARGE_FILE: &str = "25mb.bin";
/// Loss of the last mile.
pub(crate) const LAST_MILE_LOSS: f64 = 0.04;
/// Far segment, between gateway and servers: the demo's.
const FAR_SEGMENT: Segment = Segment { delay: 30, rate: 20, loss: 0.0 };
/// The last mile, between client and cluster.
const LAST_MILE: Segment = Segment { delay: 2, rate: 50, loss: LAST_MILE_LOSS };
/// Trials of a figure that is bad while this machine is late.
const MOST_TRIALS: u32 = 3;
/// One of this many datagrams may be late on a path that is on time.
const LATE_SHARE: u64 = 100;
/// Node port of the gateway's port 443, as in `manifests/gateway-nodeport.yaml`.
pub(crate) const NODE_PORT: u16 = 30443;

/// Paths on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The project's folder.
    pub(crate) project: PathBuf,
    /// Image archives.
    pub(crate) images: PathBuf,
    /// The `packrat` command.
    pub(crate) packrat: PathBuf,
    /// The servers' files, the same as in their image.
    pub(crate) files: PathBuf,
}

/// The environment, set up once.
pub(crate) struct Suite {
    pub(crate) cluster: Rc<dyn Cluster>,
    pub(crate) places: Places,
    pub(crate) kubectl: Prefix,
    pub(crate) last_mile: Impairment,
    /// Address of the last download under a fault, which can be used while the API server is
    /// unreachable.
    pub(crate) last_gateway: String,
    /// The far segment; `None` if none can be inserted.
    pub(crate) far: Option<Impairment>,
    certificate: Certificate,
    folder: TempDir,
}

impl Suite {
    /// Loads the images, inserts the segments, starts the servers. Packrat itself is installed by a
    /// claim.
    ///
    /// # Errors
    /// A part does not start.
    pub(crate) fn start(cluster: Rc<dyn Cluster>, places: Places) -> Outcome<Self> {
        let archives = ["operator", "gateway", "tools", "origin"];
        cluster.load(&archives.map(|name| places.images.join(format!("{name}.tar"))))?;
        let kubectl = cluster.kubectl();
        kubectl.output([
            "label",
            "node",
            cluster.origin_node(),
            "packrat.dev/e2e=origin",
            "--overwrite",
        ])?;
        for node in cluster.edge_nodes() {
            kubectl.output(["label", "node", node, "packrat.dev/e2e=edge", "--overwrite"])?;
        }
        // The first gateway stays on that node, so that its address stays the same.
        kubectl.output([
            "label",
            "node",
            cluster.edge_nodes()[1],
            "packrat.dev/e2e-first=true",
            "--overwrite",
        ])?;
        let certificate = Certificate::create(HOST_NAME)?;
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("authority.pem"), &certificate.authority)?;
        let far = cluster
            .far_segment()
            .map(|place| Impairment::start(place?, FAR_SEGMENT, 1))
            .transpose()?;
        let last_mile = Impairment::start(cluster.last_mile(), LAST_MILE, 2)?;
        let suite = Self {
            cluster,
            places,
            kubectl,
            last_mile,
            last_gateway: String::new(),
            far,
            certificate,
            folder,
        };
        suite.define_gateway_api()?;
        suite.start_servers()?;
        Ok(suite)
    }

    /// Puts the definitions of the Gateway API into the cluster, as most clusters have them;
    /// existing definitions stay as they are.
    fn define_gateway_api(&self) -> Outcome {
        for name in ["gatewayclasses", "gateways", "udproutes", "referencegrants"] {
            let definition = format!("customresourcedefinition/{name}.gateway.networking.k8s.io");
            let known =
                self.kubectl.output(["get", &definition, "--ignore-not-found", "-o", "name"])?;
            if !known.is_empty() {
                continue;
            }
            let path = self.places.project.join(format!(".packrat/gateway-api/{name}.yaml"));
            let text = fs::read_to_string(&path).map_err(|error| {
                Failure(format!("{}: {error}; run tools/install-gateway-api", path.display()))
            })?;
            self.apply(&text, None)?;
            let established = ["wait", &definition, "--for=condition=Established", "--timeout=60s"];
            self.kubectl.output(established)?;
        }
        Ok(())
    }

    fn start_servers(&self) -> Outcome {
        self.apply(
            &format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {SHOP_NAMESPACE}}}}}"),
            None,
        )?;
        self.tls_secret("web-tls", SHOP_NAMESPACE)?;
        self.apply(&self.manifest("origin.yaml")?, Some(SHOP_NAMESPACE))?;
        self.rolled_out("deployment/web", SHOP_NAMESPACE)
    }

    /// Creates a Secret with the certificate of [`HOST_NAME`], which gateways may also use.
    pub(crate) fn tls_secret(&self, name: &str, namespace: &str) -> Outcome {
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": name, "labels": { "packrat.dev/for-gateways": "true" } },
            "stringData": { "tls.crt": self.certificate.chain, "tls.key": self.certificate.key },
        });
        self.apply(&secret.to_string(), Some(namespace))
    }

    /// The text of a manifest of the suite.
    pub(crate) fn manifest(&self, name: &str) -> Outcome<String> {
        let path = self.places.project.join("e2e/manifests").join(name);
        fs::read_to_string(&path).map_err(|error| Failure(format!("{}: {error}", path.display())))
    }

    /// `kubectl apply`.
    pub(crate) fn apply(&self, manifest: &str, namespace: Option<&str>) -> Outcome {
        let mut arguments = vec!["apply", "--server-side", "--force-conflicts", "-f", "-"];
        arguments.extend(namespace.iter().flat_map(|namespace| ["-n", namespace]));
        // A webhook may answer a moment later than its Pod is ready.
        until(Duration::from_secs(60), "apply", || self.kubectl.feed(&arguments, manifest))
            .map(drop)
    }

    /// Waits until all Pods of a workload are ready.
    pub(crate) fn rolled_out(&self, workload: &str, namespace: &str) -> Outcome {
        self.kubectl
            .output(["rollout", "status", workload, "-n", namespace, "--timeout=120s"])
            .map(drop)
    }

    /// `kubectl get … -o json`.
    pub(crate) fn get(&self, namespace: &str, arguments: &[&str]) -> Outcome<Value> {
        let words =
            ["get", "-n", namespace, "-o", "json"].into_iter().chain(arguments.iter().copied());
        Ok(serde_json::from_str(&self.kubectl.output(words)?)?)
    }

    /// Sets an annotation of the shop's Service, `NAME=VALUE`, or removes it, `NAME-`.
    pub(crate) fn annotate_service(&self, setting: &str) -> Outcome<String> {
        let service = ["annotate", "--overwrite", "service", "web", "-n", SHOP_NAMESPACE];
        self.kubectl.output(service.into_iter().chain([setting]))
    }

    /// Deletes all EdgeGateways of the shop.
    pub(crate) fn delete_gateways(&self) -> Outcome<String> {
        let all = ["--all", "-n", SHOP_NAMESPACE, "--timeout=120s"];
        self.kubectl.output(["delete", "edgegateway"].into_iter().chain(all))
    }

    /// Merges `patch` into an EdgeGateway of the shop.
    pub(crate) fn patch_gateway(&self, name: &str, patch: &Value) -> Outcome<String> {
        let (kind, patch) = ("edgegateway", patch.to_string());
        self.kubectl.output([
            "patch",
            kind,
            name,
            "-n",
            SHOP_NAMESPACE,
            "--type=merge",
            "-p",
            &patch,
        ])
    }

    /// Installs or upgrades the chart as a user does.
    pub(crate) fn install_chart(&self, settings: &[&str]) -> Outcome {
        let [namespace, name] = HELM_RELEASE;
        let chart = self.places.project.join("charts/packrat").to_string_lossy().into_owned();
        let mut arguments =
            vec!["upgrade", "--install", name, &chart, "-n", namespace, "--create-namespace"];
        arguments.extend(["--wait", "--timeout", "180s"]);
        let namespaces = format!("gateway.namespaces[0]={SHOP_NAMESPACE}");
        for allowed in [
            &namespaces,
            "gateway.hostNetwork=true",
            "gateway.allowedImages[0]=packrat-e2e/gateway-calendar:dev",
        ] {
            arguments.extend(["--set", allowed]);
        }
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        self.cluster.helm().output(arguments).map(drop)
    }

    /// Waits until a condition of an EdgeGateway of the shop is True.
    pub(crate) fn gateway_is(&self, name: &str, condition: &str) -> Outcome {
        let condition = format!("--for=condition={condition}");
        let name = format!("edgegateway/{name}");
        self.kubectl
            .output(["wait", &condition, &name, "-n", SHOP_NAMESPACE, "--timeout=120s"])
            .map(drop)
    }

    /// `address:port` of the gateway's node port on a node that runs the gateway.
    pub(crate) fn node_port(&self, gateway: &str, port: u16) -> Outcome<String> {
        let node = self.gateway_node(gateway)?;
        Ok(format!("{}:{port}", self.cluster.node_address(&node)?))
    }

    /// The node of a ready Pod of a gateway.
    pub(crate) fn gateway_node(&self, gateway: &str) -> Outcome<String> {
        until(Duration::from_secs(60), "a ready gateway Pod", || {
            let (_, node) = self.gateway_pod(gateway)?;
            Ok(node)
        })
    }

    /// Name and node of a ready Pod of a gateway.
    pub(crate) fn gateway_pod(&self, gateway: &str) -> Outcome<(String, String)> {
        let selector = format!("packrat.dev/edge-gateway={gateway}");
        let pods = self.get(SHOP_NAMESPACE, &["pods", "-l", &selector])?;
        let ready = |pod: &&Value| {
            pod["metadata"]["deletionTimestamp"].is_null()
                && pod["status"]["conditions"].as_array().is_some_and(|conditions| {
                    conditions.iter().any(|condition| {
                        condition["type"] == "Ready" && condition["status"] == "True"
                    })
                })
        };
        let pod = pods["items"].as_array().and_then(|pods| pods.iter().find(ready));
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let name = text(pod.map(|pod| &pod["metadata"]["name"]));
        let node = text(pod.map(|pod| &pod["spec"]["nodeName"]));
        name.zip(node).ok_or_else(|| Failure(format!("no Pod of the gateway {gateway} is ready")))
    }

    /// The metrics of a gateway's Pod, in Prometheus' text format.
    pub(crate) fn metrics_page(&self, pod: &str) -> Outcome<String> {
        let path =
            format!("/api/v1/namespaces/{SHOP_NAMESPACE}/pods/{pod}:9902/proxy/stats/prometheus");
        self.kubectl.output(["get", "--raw", &path])
    }

    /// Sum over all labels of a metric of a gateway's Pod.
    pub(crate) fn metric(&self, pod: &str, name: &str) -> Outcome<f64> {
        let page = self.metrics_page(pod)?;
        let values = page.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Name of the Service in front of a gateway.
    pub(crate) fn service_of(&self, gateway: &str) -> Outcome<String> {
        let selector = format!("packrat.dev/edge-gateway={gateway}");
        until(Duration::from_secs(60), "the gateway's Service", || {
            let services = self.get(SHOP_NAMESPACE, &["services", "-l", &selector])?;
            let name = services["items"][0]["metadata"]["name"].as_str();
            name.map(str::to_owned)
                .ok_or_else(|| Failure(format!("the gateway {gateway} has no Service")))
        })
    }

    /// Tries to reach a figure, and again when it is bad but the path was late meanwhile: then it is this machine's. Other failures
    /// count in any case.
    pub(crate) fn judged(
        &mut self,
        mut trial: impl FnMut(&mut Self) -> Outcome<Outcome<String>>,
    ) -> Outcome<String> {
        let mut bad = String::new();
        for _ in 0..MOST_TRIALS {
            let [late, total] = self.lateness()?;
            match trial(self)? {
                Ok(text) => return Ok(text),
                Err(Failure(text)) => bad = text,
            }
            let now = self.lateness()?;
            if (now[0] - late) * LATE_SHARE <= now[1] - total {
                return Err(Failure(bad));
            }
        }
        Ok(format!("not judged, this machine was late in {MOST_TRIALS} trials: {bad}"))
    }

    /// Late datagrams of both segments, and all of them.
    fn lateness(&mut self) -> Outcome<[u64; 2]> {
        let [mut late, mut total] = self.last_mile.lateness()?;
        if let Some(far) = &mut self.far {
            let [far_late, far_total] = far.lateness()?;
            late += far_late;
            total += far_total;
        }
        Ok([late, total])
    }

    /// A request for a file of the servers through this address.
    pub(crate) fn request(&self, file: &str, connect_to: &str) -> Request {
        Request {
            url: format!("https://{HOST_NAME}/{file}"),
            connect_to: connect_to.to_owned(),
            options: Vec::new(),
            connect_limit: Duration::from_secs(20),
            limit: Duration::from_secs(180),
            pace: None,
        }
    }

    /// Starts a download as the client outside.
    pub(crate) fn start_download(&self, request: &Request) -> Outcome<Download> {
        let authority = self.folder.path().join("authority.pem");
        Download::start(&self.cluster.client(), &self.places.packrat, &authority, request)
    }

    /// Downloads as the client outside.
    pub(crate) fn download(&self, request: &Request) -> Outcome<Transfer> {
        self.start_download(request)?.finish()
    }

    /// Uploads a file of the servers to one of them as the client outside: the checksum of its answer,
    /// and the summary.
    pub(crate) fn upload(&self, file: &str, request: &Request) -> Outcome<(String, String)> {
        let authority = self.folder.path().join("authority.pem");
        let file = self.places.files.join(file);
        let client = self.cluster.client();
        crate::download::upload(&client, &self.places.packrat, &authority, &file, request)
    }

    /// The checksum of a file of the servers.
    pub(crate) fn checksum(&self, file: &str) -> Outcome<String> {
        let content = fs::read(self.places.files.join(file))?;
        Ok(hexadecimal::encode(&Sha256::digest(content)))
    }

    /// The client's other address.
    pub(crate) fn second_client_address(&self) -> Option<Ipv4Addr> {
        self.cluster.second_client_address().parse().ok()
    }

    /// Writes the information about a failure into a directory; returns the ends of the most
    /// important files.
    pub(crate) fn collect(&self, folder: &Path) -> Outcome<String> {
        fs::create_dir_all(folder)?;
        let mut ends = String::new();
        for (name, arguments) in information() {
            let text = self.kubectl.output(&arguments).unwrap_or_else(|error| error.to_string());
            let lines: Vec<&str> = text.lines().collect();
            let shown = match name {
                "pods.txt" => lines.len(),
                "events.txt" | "operator.log" => 12,
                "gateway.log" => 20,
                _ => 0,
            };
            for (number, line) in lines[lines.len().saturating_sub(shown)..].iter().enumerate() {
                if number == 0 {
                    ends += &format!("     --- {name}\n");
                }
                ends += &format!("     {:.240}\n", line);
            }
            fs::write(folder.join(name), text)?;
        }
        Ok(ends)
    }
}

/// The information about a failure: names of files, and the `kubectl` commands that fill them.
fn information() -> [(&'static str, Vec<&'static str>); 7] {
    let objects = "edgegateways,gateways,udproutes,packratpolicies,services,endpointslices";
    let (operators, gateways) = ("app.kubernetes.io/name=packrat", "packrat.dev/edge-gateway");
    let logs = |namespace, label, which: &[&'static str]| {
        [&["logs", "-n", namespace, "-l", label, "--prefix"], which].concat()
    };
    [
        ("pods.txt", vec!["get", "pods", "-A", "-o", "wide"]),
        ("events.txt", vec!["get", "events", "-A", "--sort-by=.lastTimestamp"]),
        ("nodes.txt", vec!["describe", "nodes"]),
        ("gateways.yaml", vec!["get", objects, "-n", SHOP_NAMESPACE, "-o", "yaml"]),
        ("operator.log", logs(HELM_RELEASE[0], operators, &["--tail=2000"])),
        ("gateway.log", logs(SHOP_NAMESPACE, gateways, &["--tail=2000"])),
        ("gateway-previous.log", logs(SHOP_NAMESPACE, gateways, &["--tail=500", "-p"])),
    ]
}
