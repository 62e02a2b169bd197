//! A stock kind cluster, and a client outside in network namespaces beside it.

use std::path::PathBuf;

use super::{Cluster, text};
use crate::command::{Failure, Outcome, Prefix};

/// Path of the cluster's description in the project.
const DESCRIPTION_FILE: &str = "e2e/kind.yaml";
/// First three octets of the client's network.
const CLIENT_NETWORK: &str = "10.99.1";

/// kind, Docker and this machine's network namespaces; needs root.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    name: String,
    project: PathBuf,
    kubeconfig: PathBuf,
    nodes: [String; 3],
    /// True if the cluster existed before, and stays.
    existing: bool,
}

impl Kind {
    /// The cluster of that name if it exists (of three nodes), else one made from the description
    /// in the project.
    pub(crate) fn new(name: &str, project: PathBuf, kubeconfig: PathBuf) -> Self {
        let clusters =
            Prefix::new(["kind", "get", "clusters"]).output::<&str>([]).unwrap_or_default();
        let existing = clusters.lines().any(|line| line == name);
        let nodes = ["control-plane", "worker", "worker2"].map(|role| format!("{name}-{role}"));
        Self { name: name.to_owned(), project, kubeconfig, nodes, existing }
    }

    fn docker(&self, arguments: &[&str]) -> Outcome<String> {
        Ok(Prefix::new(["docker"]).output(arguments)?.trim().to_owned())
    }

    fn disconnect_client(&self) {
        let name = &self.name;
        for namespace in ["cli", "rt"] {
            // The namespace may not exist.
            let _ = Prefix::new(["ip", "netns", "del"]).output([format!("{name}-{namespace}")]);
        }
    }

    /// Two namespaces: the client, and the router between it and the bridge of kind's containers.
    fn connect_client(&self) -> Outcome {
        let network = self.docker(&["network", "inspect", "kind", "--format", "{{.Id}}"])?;
        let bridge = format!("br-{}", network.get(..12).unwrap_or(&network));
        let node = self.node_address(&self.nodes[0])?;
        // Far away from the addresses that Docker gives out.
        let octets: Vec<&str> = node.split('.').collect();
        let [a, b, ..] = octets.as_slice() else {
            return Err(Failure(format!("a node without an IPv4 address: {node}")));
        };
        let router = format!("{a}.{b}.255.254");
        let name = &self.name;
        // Names of devices must be short.
        let plug = format!("plug-{:.9}", name.rsplit('-').next().unwrap_or(name));
        let script = format!(
            "set -e
            ip netns add {name}-rt; ip netns add {name}-cli
            ip link add {plug} type veth peer name lan netns {name}-rt
            ip link set {plug} master {bridge} up
            ip -n {name}-rt link add cli type veth peer name eth0 netns {name}-cli
            ip -n {name}-rt addr add {router}/16 dev lan; ip -n {name}-rt addr add {CLIENT_NETWORK}.1/24 dev cli
            ip -n {name}-cli addr add {CLIENT_NETWORK}.100/24 dev eth0
            for i in lo lan cli; do ip -n {name}-rt link set $i up; done
            for i in lo eth0; do ip -n {name}-cli link set $i up; done
            ip -n {name}-cli route add default via {CLIENT_NETWORK}.1
            nsenter --net=/run/netns/{name}-rt sh -c 'cd /proc/sys/net/ipv4; echo 1 >ip_forward; for f in conf/*/rp_filter; do echo 0 >$f; done'"
        );
        Prefix::new(["sh", "-c"]).output([script])?;
        for node in &self.nodes {
            self.docker(&[
                "exec",
                node,
                "ip",
                "route",
                "replace",
                &format!("{CLIENT_NETWORK}.0/24"),
                "via",
                &router,
            ])?;
        }
        Ok(())
    }
}

impl Cluster for Kind {
    fn up(&self) -> Outcome {
        let (description, kubeconfig) =
            (text(&self.project.join(DESCRIPTION_FILE)), text(&self.kubeconfig));
        if self.existing {
            Prefix::new(["kind", "export", "kubeconfig", "--name", &self.name])
                .output(["--kubeconfig", &kubeconfig])?;
        } else {
            Prefix::new(["kind", "create", "cluster", "--name", &self.name, "--wait", "180s"])
                .output(["--config", &description, "--kubeconfig", &kubeconfig])?;
        }
        // Gateways also run on the node of the control plane. Without a taint, there is nothing to
        // remove.
        let taint = "node-role.kubernetes.io/control-plane-";
        let _ = self.kubectl().output(["taint", "node", &self.nodes[0], taint]);
        self.disconnect_client();
        self.connect_client()
    }

    fn down(&self) -> Outcome {
        self.disconnect_client();
        if self.existing {
            return Ok(());
        }
        Prefix::new(["kind", "delete", "cluster", "--name", &self.name])
            .output::<&str>([])
            .map(drop)
    }

    fn load(&self, archives: &[PathBuf]) -> Outcome {
        for archive in archives {
            Prefix::new(["kind", "load", "image-archive", "--name", &self.name])
                .output([text(archive)])?;
        }
        Ok(())
    }

    fn kubectl(&self) -> Prefix {
        Prefix::new(["kubectl".to_owned(), format!("--kubeconfig={}", text(&self.kubeconfig))])
    }

    fn helm(&self) -> Prefix {
        Prefix::new(["helm".to_owned(), format!("--kubeconfig={}", text(&self.kubeconfig))])
    }

    fn client(&self) -> Prefix {
        Prefix::new(["nsenter".to_owned(), format!("--net=/run/netns/{}-cli", self.name)])
    }

    fn administrator(&self) -> Prefix {
        Prefix::new(["env".to_owned(), format!("KUBECONFIG={}", text(&self.kubeconfig))])
    }

    fn router(&self) -> Prefix {
        Prefix::new(["nsenter".to_owned(), format!("--net=/run/netns/{}-rt", self.name)])
    }

    fn node(&self, name: &str) -> Prefix {
        // The namespace's file is Docker's, or, if Docker's files are not on this machine, the file
        // of the container's first process.
        let script = format!(
            "net=$(docker inspect --format '{{{{.NetworkSettings.SandboxKey}}}}' {name})
            [ -e \"$net\" ] || {{
                id=$(docker inspect --format '{{{{.Id}}}}' {name})
                for process in $(grep -l \"$id\" /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3); do
                    ! grep -q kubepods /proc/$process/cgroup || continue
                    [ \"$(sed -n 's/^NSpid:.*[[:space:]]//p' /proc/$process/status)\" = 1 ] || continue
                    net=/proc/$process/ns/net
                    break
                done
            }}
            exec nsenter --net=$net -- \"$@\""
        );
        Prefix::new(["sh".to_owned(), "-c".to_owned(), script, "node".to_owned()])
    }

    fn inside(&self, name: &str) -> Prefix {
        Prefix::new(["docker", "exec", name])
    }

    fn control_plane(&self) -> &str {
        &self.nodes[0]
    }

    fn origin_node(&self) -> &str {
        &self.nodes[1]
    }

    fn edge_nodes(&self) -> [&str; 2] {
        [&self.nodes[0], &self.nodes[2]]
    }

    fn node_address(&self, name: &str) -> Outcome<String> {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        self.docker(&["inspect", "--format", format, name])
    }

    fn outside(&self) -> &str {
        CLIENT_NETWORK
    }

    fn origin_pods(&self) -> Outcome<String> {
        self.kubectl().output([
            "get",
            "node",
            self.origin_node(),
            "--output",
            "jsonpath={.spec.podCIDR}",
        ])
    }

    fn balance(&self, _: &str) -> Option<Outcome<String>> {
        None
    }

    fn power(&self, node: &str, on: bool) -> Option<Outcome> {
        Some(self.docker(&[if on { "start" } else { "kill" }, node]).map(drop))
    }
}
