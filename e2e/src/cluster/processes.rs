//! Nodes as processes in network namespaces of this machine, made by the program of e2e/cluster.

use std::path::{Path, PathBuf};

use super::{Cluster, text};
use crate::command::{Outcome, Prefix};

/// An address for the LoadBalancer Service, in an otherwise unused network.
const BALANCER_ADDRESS: &str = "10.99.250.1";

/// Size of the disk that is filled: enough for a node, and for the free space that kubelets
/// require.
const SMALL_DISK: &str = "6G";

/// First three octets of the nodes' network.
const NODE_NETWORK: &str = "10.99.0";
/// First three octets of the client's network.
const CLIENT_NETWORK: &str = "10.99.1";
/// The network of the Pods of the node of the servers.
const ORIGIN_PODS: &str = "10.244.2.0/24";

/// The program, whose networks are those above.
#[derive(Debug, Clone)]
pub(crate) struct Processes {
    tool: Prefix,
}

impl Processes {
    /// The cluster of this program.
    pub(crate) fn new(tool: &Path) -> Self {
        Self { tool: Prefix::new([text(tool)]) }
    }

    /// Restarts a node, whose directory is beside the kubeconfig. The small disk is mounted in the
    /// node's namespace only, so that it goes with the node.
    fn restart_on(&self, node: &str, small: bool) -> Outcome {
        let kubeconfig = self.tool.output(["kubeconfig"])?;
        let folder = Path::new(kubeconfig.trim()).with_file_name(node);
        let number = node.trim_start_matches('n');
        self.tool.output(["node-down", number])?;
        let disk = folder.with_extension("disk");
        if !small {
            // The file may not exist.
            let _ = std::fs::remove_file(&disk);
            return self.tool.output(["node-up", number]).map(drop);
        }
        let script = "set -e
            folder=$1 disk=$2; shift 2
            truncate --size $DISK \"$disk\"
            mkfs.ext4 -q -F -m 0 \"$disk\"
            mkdir -p \"$disk.d\"
            mount -o loop \"$disk\" \"$disk.d\"
            cp --archive \"$folder/.\" \"$disk.d/\"
            mount --bind \"$disk.d\" \"$folder\"
            exec \"$@\"";
        let size = format!("DISK={SMALL_DISK}");
        let own = [
            "env",
            &size,
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
        ];
        let up = self.tool.then(["node-up", number]);
        up.after(own.into_iter().map(str::to_owned).chain([text(&folder), text(&disk)]))
            .output::<&str>([])
            .map(drop)
    }
}

impl Cluster for Processes {
    fn up(&self) -> Outcome {
        self.tool.output(["up", "--nodes", "3", "--with-router"]).map(drop)
    }

    fn down(&self) -> Outcome {
        self.tool.output(["down"]).map(drop)
    }

    fn load(&self, archives: &[PathBuf]) -> Outcome {
        let words = archives.iter().map(|path| text(path));
        self.tool.output(std::iter::once("load".to_owned()).chain(words)).map(drop)
    }

    fn kubectl(&self) -> Prefix {
        self.tool.then(["kubectl"])
    }

    fn helm(&self) -> Prefix {
        self.tool.then(["helm"])
    }

    fn client(&self) -> Prefix {
        self.tool.then(["client"])
    }

    // The API server can be reached from there, and the kubeconfig is set.
    fn administrator(&self) -> Prefix {
        self.client()
    }

    fn router(&self) -> Prefix {
        self.tool.then(["router"])
    }

    fn node(&self, name: &str) -> Prefix {
        self.tool.then(["exec", name])
    }

    fn inside(&self, name: &str) -> Prefix {
        self.node(name)
    }

    fn control_plane(&self) -> &str {
        "n1"
    }

    fn origin_node(&self) -> &str {
        "n2"
    }

    fn edge_nodes(&self) -> [&str; 2] {
        ["n1", "n3"]
    }

    fn node_address(&self, name: &str) -> Outcome<String> {
        Ok(format!("{NODE_NETWORK}.1{}", name.trim_start_matches('n')))
    }

    fn outside(&self) -> &str {
        CLIENT_NETWORK
    }

    fn origin_pods(&self) -> Outcome<String> {
        Ok(ORIGIN_PODS.to_owned())
    }

    fn balance(&self, service: &str) -> Option<Outcome<String>> {
        Some(
            self.tool
                .output(["lb", service, BALANCER_ADDRESS])
                .map(|_| BALANCER_ADDRESS.to_owned()),
        )
    }

    fn small_disk(&self, node: &str, small: bool) -> Option<Outcome> {
        Some(self.restart_on(node, small))
    }

    fn power(&self, node: &str, on: bool) -> Option<Outcome> {
        let command = if on { "node-up" } else { "node-down" };
        Some(self.tool.output([command, node.trim_start_matches('n')]).map(drop))
    }
}
