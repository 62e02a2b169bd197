//! The platform of gateways: settings from the operator's installer.

use super::patches::Patches;
use crate::envoy::User;

/// The platform of gateways: their settings beside their EdgeGateway's.
#[derive(Debug, Clone, Default)]
pub struct Platform {
    /// The image of gateways, unless their EdgeGateway names another.
    pub image: String,
    /// Pull policy of that image; `None`: Kubernetes chooses.
    pub pull_policy: Option<String>,
    /// Names of pull secrets for that image, unless an EdgeGateway has its own.
    pub pull_secrets: Vec<String>,
    /// User of gateways off the host network.
    pub user: User,
    /// Host name of the operator's discovery service, as it is in the operator's certificate.
    pub discovery_host: String,
    /// Port of the operator's discovery service.
    pub discovery_port: u16,
    /// The namespace of its Pods; `None` when that is not known.
    pub discovery_namespace: Option<String>,
    /// True if NetworkPolicies restrict the destinations of gateways.
    pub egress_policy: bool,
    /// The address that gateways listen on; `::` is also for IPv4.
    pub listen_address: String,
    /// Changes to the objects made, by the platform's own hand.
    pub patches: Patches,
}
