//! An existing cluster of any kind, named by KUBECONFIG. The client outside is in network
//! namespaces of this machine, and shares its route to the nodes.

use std::cell::Cell;
use std::path::PathBuf;

use super::{Cluster, text};
use crate::command::{Failure, Outcome, Prefix};
use crate::impairment::Place;
use crate::suite::{HELM_RELEASE, SHOP_NAMESPACE};

/// Environment variable with the command that puts image archives (its further arguments) into the
/// nodes.
const LOAD_VARIABLE: &str = "E2E_LOAD";
/// First three octets of the client's network.
const CLIENT_NETWORK: &str = "10.99.1";
/// First three octets of the network between the client's router and this machine.
const UPLINK_NETWORK: &str = "10.99.2";

/// A cluster that belongs to another owner. Its nodes are out of reach, so claims that need them
/// cannot be tried.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    kubeconfig: PathBuf,
    /// Prefix of the network namespaces, and name of the table with the address translation.
    name: String,
    nodes: Vec<String>,
    /// True if the tests may remove the namespaces that they use.
    own: Cell<bool>,
}

impl Given {
    /// The cluster of this kubeconfig. `name` is the prefix of the namespaces on this machine.
    ///
    /// # Errors
    /// The cluster does not answer, or has no node.
    pub(crate) fn new(kubeconfig: PathBuf, name: &str) -> Outcome<Self> {
        let mut given =
            Self { kubeconfig, name: name.to_owned(), nodes: Vec::new(), own: Cell::new(false) };
        let names =
            given.kubectl().output(["get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"])?;
        given.nodes = names.split_whitespace().map(str::to_owned).collect();
        if given.nodes.is_empty() {
            return Err(Failure::new("the cluster of KUBECONFIG has no nodes"));
        }
        Ok(given)
    }

    fn node_number(&self, number: usize) -> &str {
        // With fewer nodes than roles, some nodes have several roles.
        &self.nodes[number % self.nodes.len()]
    }

    /// Fails if the namespaces of the tests exist already.
    fn claim_namespaces(&self) -> Outcome {
        let names = [
            "get",
            "namespaces",
            HELM_RELEASE[0],
            SHOP_NAMESPACE,
            "--ignore-not-found",
            "--output=name",
        ];
        let there = self.kubectl().output(names)?.replace("namespace/", "").replace('\n', " ");
        if !there.trim().is_empty() {
            return Err(Failure(format!(
                "the cluster of KUBECONFIG has these already: {there}; the tests need the namespaces for \
                 themselves, so remove them or take another cluster"
            )));
        }
        self.own.set(true);
        Ok(())
    }

    /// Removes the tests' objects from the cluster, so that the next run starts from nothing.
    fn leave(&self) -> Outcome {
        let [namespace, release] = HELM_RELEASE;
        let helm = [
            "uninstall",
            release,
            "--namespace",
            namespace,
            "--ignore-not-found",
            "--wait",
            "--timeout=120s",
        ];
        let uninstalled = self.helm().output(helm);
        let names = [
            "delete",
            "namespaces",
            SHOP_NAMESPACE,
            namespace,
            "--ignore-not-found",
            "--timeout=120s",
        ];
        self.kubectl().output(names)?;
        self.kubectl().output([
            "label",
            "nodes",
            "--all",
            "packrat.dev/e2e-",
            "packrat.dev/e2e-first-",
        ])?;
        uninstalled.map(drop)
    }

    fn namespace(&self, which: &str) -> Prefix {
        Prefix::new(["nsenter".to_owned(), format!("--net=/run/netns/{}-{which}", self.name)])
    }
}

impl Cluster for Given {
    fn up(&self) -> Outcome {
        self.down()?;
        self.claim_namespaces()?;
        let name = &self.name;
        let plug = format!("up-{name:.9}");
        let script = format!(
            "set -e
            ip netns add {name}-rt; ip netns add {name}-cli
            ip link add {plug} type veth peer name lan netns {name}-rt
            ip addr add {UPLINK_NETWORK}.1/24 dev {plug}; ip link set {plug} up
            ip -n {name}-rt link add cli type veth peer name eth0 netns {name}-cli
            ip -n {name}-rt addr add {UPLINK_NETWORK}.2/24 dev lan; ip -n {name}-rt addr add {CLIENT_NETWORK}.1/24 dev cli
            ip -n {name}-cli addr add {CLIENT_NETWORK}.100/24 dev eth0
            for i in lo lan cli; do ip -n {name}-rt link set $i up; done
            for i in lo eth0; do ip -n {name}-cli link set $i up; done
            ip -n {name}-cli route add default via {CLIENT_NETWORK}.1; ip -n {name}-rt route add default via {UPLINK_NETWORK}.1
            ip route add {CLIENT_NETWORK}.0/24 via {UPLINK_NETWORK}.2
            nsenter --net=/run/netns/{name}-rt sh -c 'cd /proc/sys/net/ipv4; echo 1 >ip_forward; for f in conf/*/rp_filter; do echo 0 >$f; done'
            echo 1 >/proc/sys/net/ipv4/conf/{plug}/forwarding
            [ $(cat /proc/sys/net/ipv4/ip_forward) = 1 ] || echo 1 >/proc/sys/net/ipv4/ip_forward
            nft add table ip {name}; nft 'add chain ip {name} out {{ type nat hook postrouting priority srcnat; }}'
            nft add rule ip {name} out ip saddr {CLIENT_NETWORK}.0/24 masquerade"
        );
        Prefix::new(["sh", "-c"]).output([script]).map(drop)
    }

    fn down(&self) -> Outcome {
        let left = if self.own.get() { self.leave() } else { Ok(()) };
        let name = &self.name;
        let script = format!(
            "nft delete table ip {name} 2>/dev/null; ip netns del {name}-cli 2>/dev/null; ip netns del {name}-rt 2>/dev/null
            ip link del up-{name:.9} 2>/dev/null; true"
        );
        Prefix::new(["sh", "-c"]).output([script])?;
        left
    }

    fn load(&self, archives: &[PathBuf]) -> Outcome {
        let Ok(command) = std::env::var(LOAD_VARIABLE) else {
            println!("{LOAD_VARIABLE} is not set: the nodes have to find the images by themselves");
            return Ok(());
        };
        let mut words =
            vec!["-c".to_owned(), format!("{command} \"$@\""), LOAD_VARIABLE.to_owned()];
        words.extend(archives.iter().map(|path| text(path)));
        Prefix::new(["sh"]).output(words).map(drop)
    }

    fn kubectl(&self) -> Prefix {
        Prefix::new(["kubectl".to_owned(), format!("--kubeconfig={}", text(&self.kubeconfig))])
    }

    fn helm(&self) -> Prefix {
        Prefix::new(["helm".to_owned(), format!("--kubeconfig={}", text(&self.kubeconfig))])
    }

    fn client(&self) -> Prefix {
        self.namespace("cli")
    }

    fn administrator(&self) -> Prefix {
        Prefix::new(["env".to_owned(), format!("KUBECONFIG={}", text(&self.kubeconfig))])
    }

    fn router(&self) -> Prefix {
        self.namespace("rt")
    }

    fn node(&self, name: &str) -> Prefix {
        // The nodes of another owner's cluster are out of reach.
        Prefix::new([
            "sh",
            "-c",
            "echo \"node $0 of the cluster of KUBECONFIG cannot be entered\" >&2; exit 1",
            name,
        ])
    }

    fn inside(&self, name: &str) -> Prefix {
        self.node(name)
    }

    fn control_plane(&self) -> &str {
        self.node_number(0)
    }

    fn origin_node(&self) -> &str {
        self.node_number(1)
    }

    fn edge_nodes(&self) -> [&str; 2] {
        [self.node_number(0), self.node_number(2)]
    }

    fn node_address(&self, name: &str) -> Outcome<String> {
        let path = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
        let addresses = self.kubectl().output(["get", "node", name, "-o", path])?;
        // The first one is the main family's.
        let address = addresses.split_whitespace().next().map(str::to_owned);
        address.ok_or_else(|| Failure(format!("the node {name} has no InternalIP")))
    }

    fn outside(&self) -> &str {
        CLIENT_NETWORK
    }

    fn origin_pods(&self) -> Outcome<String> {
        Err(Failure::new("the Pods' networks of the cluster of KUBECONFIG are not known"))
    }

    fn far_segment(&self) -> Option<Outcome<Place>> {
        None
    }

    fn enters_nodes(&self) -> bool {
        false
    }

    fn balance(&self, _: &str) -> Option<Outcome<String>> {
        None
    }

    fn power(&self, _: &str, _: bool) -> Option<Outcome> {
        None
    }
}
