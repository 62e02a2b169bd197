//! References to Gateways and their listeners, as the Gateway API writes them.

use serde::{Deserialize, Serialize};

use crate::names::API_GROUP;
use crate::object_key::ObjectKey;

/// A reference to a Gateway or to one of its listeners.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ParentReference {
    /// API group; by default the Gateway API's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Kind; absent: Gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Namespace; absent: the route's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Name of a listener; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// Port of listeners; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl ParentReference {
    /// True if it refers to a Gateway.
    pub fn is_gateway(&self) -> bool {
        self.kind.as_deref().unwrap_or("Gateway") == "Gateway"
            && self.group.as_deref().unwrap_or(API_GROUP) == API_GROUP
    }

    /// The Gateway that a route refers to.
    pub fn gateway(&self, route: &ObjectKey) -> ObjectKey {
        ObjectKey::new(self.namespace.as_ref().unwrap_or(&route.namespace), &self.name)
    }

    /// True if it means a listener of this name and port.
    pub fn selects(&self, listener: &str, port: u16) -> bool {
        self.section_name.as_ref().is_none_or(|name| name == listener)
            && self.port.is_none_or(|own| own == port)
    }
}
