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

/// Verbs of looking at objects.
const LOOK_VERBS: &[&str] = &["list", "watch"];
/// Part of the operator's work on the objects of gateways.
const OBJECTS_WORK: &str = "objects of gateways";
/// Part of the operator's work on conditions and statuses.
const STATUS_WORK: &str = "conditions and statuses";

/// Rights in all namespaces.
pub(super) const CLUSTER_RIGHTS: [Needed; 12] = [
    needed(&["get", "list", "watch"], "", &["services"], "routes"),
    needed(&["patch"], "", &["services/status"], STATUS_WORK),
    needed(LOOK_VERBS, "", &["namespaces", "nodes", "pods"], "routes"),
    needed(LOOK_VERBS, "discovery.k8s.io", &["endpointslices"], "routes"),
    needed(LOOK_VERBS, "apps", &["deployments", "daemonsets"], "changes by others"),
    needed(
        LOOK_VERBS,
        "packrat.dev",
        &["edgegateways", "gatewayparameters", "packratpolicies"],
        "gateways",
    ),
    needed(
        &["patch"],
        "packrat.dev",
        &["edgegateways/status", "packratpolicies/status"],
        STATUS_WORK,
    ),
    needed(
        LOOK_VERBS,
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
    needed(&["list"], "", &["limitranges", "resourcequotas"], "sidecars"),
];

/// Rights in the namespaces of EdgeGateways: the ones that the chart's `gateway.namespaces` names,
/// or everywhere.
pub(super) const FOR_GATEWAYS: [Needed; 10] = [
    needed(&["create", "patch", "delete"], "", &["services"], OBJECTS_WORK),
    needed(&["create", "patch"], "", &["configmaps", "serviceaccounts"], OBJECTS_WORK),
    needed(&["get", "create", "patch"], "", &["secrets"], "keys and certificates of gateways"),
    needed(
        &["get", "create", "patch", "delete"],
        "apps",
        &["deployments", "daemonsets"],
        OBJECTS_WORK,
    ),
    needed(
        &["get", "create", "patch", "delete"],
        "autoscaling",
        &["horizontalpodautoscalers"],
        OBJECTS_WORK,
    ),
    needed(
        &["get", "create", "patch", "delete"],
        "networking.k8s.io",
        &["networkpolicies"],
        OBJECTS_WORK,
    ),
    needed(&["create", "patch"], "policy", &["poddisruptionbudgets"], OBJECTS_WORK),
    needed(&["update"], "packrat.dev", &["edgegateways/finalizers"], OBJECTS_WORK),
    needed(&["create", "patch", "delete"], "packrat.dev", &["edgegateways"], "Gateways"),
    needed(&["update"], GATEWAY_API, &["gateways/finalizers"], "Gateways"),
];

/// Rights in the operator's own namespace.
pub(super) const FOR_ITSELF: [Needed; 2] = [
    needed(&["get", "create", "patch"], "coordination.k8s.io", &["leases"], "its election"),
    needed(&["get", "create", "patch"], "", &["secrets"], "its certificate authority"),
];
