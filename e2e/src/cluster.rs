//! The cluster under test, and the client outside it.

mod given;
mod kind;
mod processes;

use std::path::{Path, PathBuf};

use crate::command::{Outcome, Prefix};
use crate::impairment::Place;

pub(crate) use given::Given;
pub(crate) use kind::Kind;
pub(crate) use processes::Processes;

/// UDP port of the servers' Pods.
pub(crate) const ORIGIN_PORT: u16 = 8443;

/// A cluster of three nodes, with a router between it and a client outside.
pub(crate) trait Cluster {
    /// Starts it.
    fn up(&self) -> Outcome;
    /// Removes it.
    fn down(&self) -> Outcome;
    /// Puts image archives into all nodes.
    fn load(&self, archives: &[PathBuf]) -> Outcome;
    /// Kubernetes' command.
    fn kubectl(&self) -> Prefix;
    /// Helm's command.
    fn helm(&self) -> Prefix;
    /// Commands of the client outside.
    fn client(&self) -> Prefix;
    /// Commands of an administrator with the kubeconfig.
    fn administrator(&self) -> Prefix;
    /// Commands in the network namespace of the router before the client.
    fn router(&self) -> Prefix;
    /// Commands of this machine in the network of a node.
    fn node(&self, name: &str) -> Prefix;
    /// Commands among the processes of a node.
    fn inside(&self, name: &str) -> Prefix;
    /// The node of the control plane.
    fn control_plane(&self) -> &str;
    /// The node of the servers; the far segment lies before it.
    fn origin_node(&self) -> &str;
    /// The nodes where gateways run.
    fn edge_nodes(&self) -> [&str; 2];
    /// A node's address.
    fn node_address(&self, name: &str) -> Outcome<String>;
    /// The client's network: its first three octets. The client is .100, and may be called .101.
    fn outside(&self) -> &str;
    /// The network of the Pods of the node of the servers.
    fn origin_pods(&self) -> Outcome<String>;
    /// Gives a LoadBalancer Service an address, and the client's router the routes to it; `None` if
    /// the cluster has no load balancer.
    fn balance(&self, service: &str) -> Option<Outcome<String>>;
    /// Cuts a node's power, or switches it on again; `None` where that is not possible.
    fn power(&self, node: &str, on: bool) -> Option<Outcome>;
    /// Restarts a node with its data on a small disk, or on its former disk; `None` where that is
    /// not possible.
    fn small_disk(&self, _node: &str, _small: bool) -> Option<Outcome> {
        None
    }

    /// The place of the last mile, between the client and the nodes.
    fn last_mile(&self) -> Place {
        Place {
            inside: self.router(),
            device: "lastmile",
            selectors: vec!["iif cli".to_owned(), "iif lan".to_owned()],
            clients: format!("{}.0/24", self.outside()),
        }
    }

    /// True if programs can run on the nodes. Otherwise their faults cannot be tried.
    fn enters_nodes(&self) -> bool {
        true
    }

    /// The far segment, between the servers' node and everything else: the UDP traffic of their
    /// Pods. `None` if no segment can be inserted.
    fn far_segment(&self) -> Option<Outcome<Place>> {
        Some(self.before_servers())
    }

    /// The place of the far segment on the node of the servers.
    fn before_servers(&self) -> Outcome<Place> {
        let pods = self.origin_pods()?;
        Ok(Place {
            inside: self.node(self.origin_node()),
            device: "far",
            selectors: vec![
                format!("to {pods} iif eth0 ipproto udp dport {ORIGIN_PORT}"),
                format!("from {pods} ipproto udp sport {ORIGIN_PORT}"),
            ],
            clients: pods,
        })
    }

    /// The client's address.
    fn client_address(&self) -> String {
        format!("{}.100", self.outside())
    }

    /// Another address to which the client's router may map it.
    fn second_client_address(&self) -> String {
        format!("{}.101", self.outside())
    }
}

/// A path as an argument.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
