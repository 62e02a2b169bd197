//! All rights that the operator needs, and their purpose. A test holds them against the chart's
//! rules.

/// Rights on resources, and the feature that needs them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) verbs: &'static [&'static str],
    /// API group.
    pub(super) group: &'static str,
    /// Resources; a subresource after a slash.
    pub(super) resources: &'static [&'static str],
    /// Names of objects, if the right is limited to these.
    pub(super) names: &'static [&'static str],
    /// The part of the operator's work that needs them.
    pub(super) purpose: &'static str,
}

const fn needed(
    verbs: &'static [&'static str],
    group: &'static str,
    resources: &'static [&'static str],
    purpose: &'static str,
) -> Needed {
    Needed { verbs, group, resources, names: &[], purpose }
}

/// The group of the Gateway API, which a cluster need not have: rights are known without it.
const GATEWAY_API: &str = "gateway.networking.k8s.io";

const LOOK: &[&str] = &["list", "watch"];
const OBJECTS: &str = "objects of gateways";
const STATUS: &str = "conditions and statuses";

/// Everywhere.
pub(super) const EVERYWHERE: [Needed; 11] = [
    needed(&["get", "list", "watch"], "", &["services"], "routes"),
    needed(&["patch"], "", &["services/status"], STATUS),
    needed(LOOK, "", &["namespaces", "nodes", "pods"], "routes"),
    needed(LOOK, "discovery.k8s.io", &["endpointslices"], "routes"),
    needed(LOOK, "apps", &["deployments", "daemonsets"], "changes by others"),
    needed(
        LOOK,
        "packrat.dev",
        &["edgegateways", "gatewayparameters", "packratpolicies"],
        "gateways",
    ),
    needed(&["patch"], "packrat.dev", &["edgegateways/status", "packratpolicies/status"], STATUS),
    needed(
        LOOK,
        GATEWAY_API,
        &["gatewayclasses", "gateways", "udproutes", "referencegrants"],
        "the Gateway API",
    ),
    needed(
        &["patch"],
        GATEWAY_API,
        &["gatewayclasses/status", "gateways/status", "udproutes/status"],
        "statuses of the Gateway API",
    ),
    Needed {
        verbs: &["get"],
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        names: &[
            "gatewayclasses.gateway.networking.k8s.io",
            "gateways.gateway.networking.k8s.io",
            "referencegrants.gateway.networking.k8s.io",
            "udproutes.gateway.networking.k8s.io",
        ],
        purpose: "the condition SupportedVersion of GatewayClasses",
    },
    needed(&["create", "patch"], "events.k8s.io", &["events"], "Events about wrong annotations"),
];

/// Rights in the namespaces of EdgeGateways: the ones that the chart's `gateway.namespaces` names,
/// or everywhere.
pub(super) const FOR_GATEWAYS: [Needed; 10] = [
    needed(&["create", "patch", "delete"], "", &["services"], OBJECTS),
    needed(&["create", "patch"], "", &["configmaps", "serviceaccounts"], OBJECTS),
    needed(&["get", "create", "patch"], "", &["secrets"], "keys and certificates of gateways"),
    needed(&["get", "create", "patch", "delete"], "apps", &["deployments", "daemonsets"], OBJECTS),
    needed(
        &["get", "create", "patch", "delete"],
        "autoscaling",
        &["horizontalpodautoscalers"],
        OBJECTS,
    ),
    needed(
        &["get", "create", "patch", "delete"],
        "networking.k8s.io",
        &["networkpolicies"],
        OBJECTS,
    ),
    needed(&["create", "patch"], "policy", &["poddisruptionbudgets"], OBJECTS),
    needed(&["update"], "packrat.dev", &["edgegateways/finalizers"], OBJECTS),
    needed(&["create", "patch", "delete"], "packrat.dev", &["edgegateways"], "Gateways"),
    needed(&["update"], GATEWAY_API, &["gateways/finalizers"], "Gateways"),
];

/// Rights in the operator's own namespace.
pub(super) const FOR_ITSELF: [Needed; 2] = [
    needed(&["get", "create", "patch"], "coordination.k8s.io", &["leases"], "its election"),
    needed(&["get", "create", "patch"], "", &["secrets"], "its certificate authority"),
];
