//! The Gateway API (gateway.networking.k8s.io) for UDP. Pure: its objects go in, the EdgeGateways
//! that Gateways own, the routes of their listeners, and statuses come out.
//!
//! [`objects`] has the fields that the operator needs, [`attach`] decides which UDPRoute a listener
//! has, and why others have none, [`bundle`] whether the definitions are known, [`policy`] which
//! settings it has, [`translate`] makes a Gateway an EdgeGateway, [`status`] writes statuses.

pub mod attach;
pub mod bundle;
pub mod objects;
pub mod policy;
pub mod status;
pub mod translate;

use std::collections::BTreeMap;

use crate::annotations::ObjectKey;
use crate::resource::DEFAULT_CLASS;

pub use attach::{
    Attached, Attachments, GatewayState, Holders, ListenerState, NamespaceRule, attach_routes,
    gateways,
};
pub use bundle::Bundles;
pub use objects::{Gateway, GatewayClass, Parameters, PolicyModel, ReferenceGrant, UdpRoute};
pub use policy::{Effective, Policies, policies};
pub use status::Finding;

/// Group of the Gateway API.
pub const API_GROUP: &str = "gateway.networking.k8s.io";
/// Controller name of GatewayClasses of the default class.
const CONTROLLER_NAME: &str = "packrat.dev/gateway-controller";
/// Label that the Gateway API wants on the objects made for a Gateway.
pub const GATEWAY_NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";

/// The controller name of GatewayClasses that operators of a class serve.
pub fn controller_name(class: &str) -> String {
    if class == DEFAULT_CLASS {
        CONTROLLER_NAME.to_owned()
    } else {
        format!("{CONTROLLER_NAME}/{class}")
    }
}

/// True for the controller name of a Packrat operator of any class.
pub fn is_packrat(controller: &str) -> bool {
    controller
        .strip_prefix(CONTROLLER_NAME)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The objects of the Gateway API, and the objects that they refer to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects {
    /// GatewayClasses by name.
    pub classes: BTreeMap<String, GatewayClass>,
    /// Gateways.
    pub gateways: BTreeMap<ObjectKey, Gateway>,
    /// UDPRoutes.
    pub routes: BTreeMap<ObjectKey, UdpRoute>,
    /// ReferenceGrants.
    pub grants: BTreeMap<ObjectKey, ReferenceGrant>,
    /// GatewayParameters.
    pub parameters: BTreeMap<ObjectKey, Parameters>,
    /// PackratPolicies.
    pub policies: BTreeMap<ObjectKey, PolicyModel>,
    /// The releases that the definitions are of; `None` while they are not known.
    pub bundles: Option<Bundles>,
    /// Labels of Namespaces.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Objects {
    /// True if routes of a kind may refer to a Service from a namespace: it is the Service's own, or that
    /// has a ReferenceGrant for them.
    pub(crate) fn permit(&self, kind: &str, namespace: &str, service: &ObjectKey) -> bool {
        service.namespace == namespace
            || self.grants.iter().any(|(grant, content)| {
                grant.namespace == service.namespace
                    && content.permits(kind, namespace, &service.name)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_of_operators_has_a_controller_name_of_its_own() {
        assert_eq!(controller_name("packrat"), "packrat.dev/gateway-controller");
        assert_eq!(controller_name("blue"), "packrat.dev/gateway-controller/blue");
        for (name, expected) in [
            ("packrat.dev/gateway-controller", true),
            ("packrat.dev/gateway-controller/blue", true),
            ("packrat.dev/gateway-controllers", false),
            ("example.org/gateway-controller", false),
        ] {
            assert_eq!(is_packrat(name), expected, "{name}");
        }
    }
}
