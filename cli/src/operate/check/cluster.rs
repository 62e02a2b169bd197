//! Checks of a cluster: before Packrat is installed, and afterwards.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use packrat_operator::resource::EdgeGateway;

use super::{Check, Report, Verdict, definitions, edge, envoy, gateway, network, operator, rights};
use crate::operate::cluster::{Cluster, Place, is_ready};
use crate::operate::error::OperateError;
use crate::operate::target::{Target, forwarded};

/// The oldest Kubernetes with everything that the chart uses, its `kubeVersion`.
const OLDEST_KUBERNETES: (u32, u32) = (1, 30);
/// The oldest Linux whose UDP takes and gives batches (UDP_SEGMENT, UDP_GRO).
const OLDEST_LINUX: (u32, u32) = (5, 0);

/// Checks that Packrat can be installed.
pub(super) fn before_installation(target: &Target, report: &mut Report) {
    let Some(cluster) = connected(target, report) else { return };
    report.add(nodes(&cluster));
    report.add(rights::to_install(&cluster));
    report.add(definitions::before_installation(&cluster));
    report.add(operator::before_installation(&cluster));
}

/// Checks an installed Packrat.
pub(crate) fn of_cluster(target: &Target, address: Option<&str>, report: &mut Report) {
    let Some(cluster) = connected(target, report) else { return };
    report.add(rights::of_this_user(&cluster));
    let definitions = definitions::installed(&cluster);
    // Without them nothing else can be asked.
    let is_installed = definitions.iter().all(|check| check.verdict != Verdict::Failed);
    report.add(definitions);
    let (checks, operator) = operator::installed(&cluster);
    report.add(checks);
    if let Some(operator) = &operator {
        report.add(rights::of_operator(&cluster, operator));
    }
    if !is_installed {
        return;
    }
    let gateways: Vec<EdgeGateway> = match cluster.edge_gateways() {
        Ok(found) => found.into_iter().filter(|found| target.wants(&found.name_any())).collect(),
        Err(error) => {
            let hint = "you need the right to list edgegateways.packrat.dev";
            report.add([not_listed("gateways", "can be listed", &error, hint)]);
            return;
        }
    };
    report.add([Check::of(
        "gateways",
        "there is an EdgeGateway",
        !gateways.is_empty(),
        Verdict::Warning,
        cluster
            .namespace()
            .map_or_else(|| "none in this cluster".to_owned(), |name| format!("none in {name}")),
        "make one and annotate a Service: docs/QUICKSTART.md",
    )]);
    for gateway in &gateways {
        report.add(edge::conditions(gateway));
    }
    match cluster.gateway_pods() {
        Ok(mut pods) => {
            pods.retain(|(place, _)| target.wants(&place.edge_gateway));
            of_pods(&cluster, pods, report);
        }
        Err(error) => {
            let hint = "you need the right to list pods";
            report.add([not_listed("gateway", "Pods can be listed", &error, hint)]);
        }
    }
    match address {
        Some(address) => report.add([gateway::of_address(address)]),
        None => {
            for gateway in &gateways {
                report.add(edge::reachable(&cluster, gateway));
            }
        }
    }
}

fn not_listed(
    group: &'static str,
    what: &'static str,
    error: &OperateError,
    hint: &'static str,
) -> Check {
    Check::of(group, what, false, Verdict::Failed, error.to_string(), hint)
}

fn connected(target: &Target, report: &mut Report) -> Option<Cluster> {
    let group = "kubernetes";
    let failed = |detail: String| {
        let hint = "is the cluster running, and the kubeconfig's context the right one? Without Kubernetes: --gateway URL";
        Check::of(group, "can be asked", false, Verdict::Failed, detail, hint)
    };
    let cluster = match Cluster::connect(&target.cluster, true) {
        Ok(cluster) => cluster,
        Err(error) => {
            report.add([failed(error.to_string())]);
            return None;
        }
    };
    let version = match cluster.ask("asking for its version", cluster.client().apiserver_version())
    {
        Ok(version) => version,
        Err(error) => {
            report.add([failed(error.to_string())]);
            return None;
        }
    };
    let (major, minor) = OLDEST_KUBERNETES;
    report.add([
        Check::passed(group, "can be asked", Some(cluster.server().to_owned())),
        Check::of(
            group,
            format!("is {major}.{minor} or newer"),
            version_of(&format!("{}.{}", version.major, version.minor)) >= Some(OLDEST_KUBERNETES),
            Verdict::Failed,
            format!("it is {}", version.git_version),
            "the chart needs rules and match conditions that older ones do not have: upgrade the cluster",
        ),
    ]);
    Some(cluster)
}

/// The first two numbers of a version.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text
        .split(|letter: char| !letter.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Requirements of gateways on the nodes.
fn nodes(cluster: &Cluster) -> Vec<Check> {
    let group = "kubernetes";
    let nodes = match cluster.list(&cluster.api_of_cluster::<Node>(), "") {
        Ok(nodes) => nodes,
        Err(error) => {
            let hint = "you need the right to list nodes; an administrator can look at `kubectl get nodes -o wide`";
            return vec![Check::of(
                group,
                "nodes can be listed",
                false,
                Verdict::Warning,
                error.to_string(),
                hint,
            )];
        }
    };
    let old: Vec<String> = nodes
        .iter()
        .filter_map(|node| {
            let kernel = &node.status.as_ref()?.node_info.as_ref()?.kernel_version;
            (version_of(kernel)? < OLDEST_LINUX)
                .then(|| format!("{} has {kernel}", node.name_any()))
        })
        .collect();
    let (major, minor) = OLDEST_LINUX;
    vec![Check::of(
        group,
        format!("nodes have Linux {major}.{minor} or newer"),
        old.is_empty(),
        Verdict::Warning,
        old.join(", "),
        "older ones send and receive datagrams one by one: forwarding costs several times as much",
    )]
}

fn of_pods(cluster: &Cluster, pods: Vec<(Place, Pod)>, report: &mut Report) {
    let (mut envoys, mut routes, mut certificates) = (Vec::new(), Vec::new(), Vec::new());
    let mut networks = Vec::new();
    for (place, pod) in pods {
        let name = place.to_string();
        if !is_ready(&pod) {
            report.add([edge::not_ready(&name, &pod)]);
            continue;
        }
        let asked = forwarded(cluster, place).and_then(|gateway| Ok((gateway.status()?, gateway)));
        let (status, gateway) = match asked {
            Ok(asked) => asked,
            Err(error) => {
                let hint = "can this user create pods/portforward, and do kubelet and gateway run?";
                report.add([gateway::silent(&error, hint).about(&name)]);
                continue;
            }
        };
        report.add_all("gateway", &name, &name, gateway::of_gateway(&status));
        networks.push((name.clone(), network::of_gateway(&status)));
        certificates.extend(envoy::certificates(&gateway).map(|check| check.about(&name)));
        for route in &status.routes {
            routes.push((
                name.clone(),
                format!("{name} {}", route.route),
                gateway::of_route(route),
            ));
        }
        envoys.extend(envoy::version(&gateway).map(|version| (name, version)));
    }
    let (seen, unseen) = network::of_all(networks);
    for (name, checks) in seen {
        report.add_all("network", &name, &format!("the network of {name}"), checks);
    }
    report.add(unseen);
    report.add(certificates);
    report.add(envoy::versions(&envoys));
    for (name, title, checks) in routes {
        report.add_all("routes", &name, &title, checks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_sorts_of_kubernetes_and_linux() {
        for (text, version) in [
            ("1.34", (1, 34)),
            ("1.30+", (1, 30)),
            ("6.18.0-cloud-amd64", (6, 18)),
            ("5.4.17-2136.el8uek", (5, 4)),
        ] {
            assert_eq!(version_of(text), Some(version), "{text}");
        }
        assert_eq!(version_of("unknown"), None);
    }
}
