//! The Gateway API (gateway.networking.k8s.io) for UDP. Pure: its objects go in, the EdgeGateways
//! that Gateways own, the routes of their listeners, and statuses come out.
//!
//! [`objects`] has the fields that the operator needs, [`attach`] decides which UDPRoute a listener
//! has, and why others have none, [`bundle`] whether the definitions are known, [`policy`] which
//! settings it has, [`translate`] makes a Gateway an EdgeGateway.

pub mod attach;
pub mod bundle;
mod controller;
mod finding;
mod namespace_rule;
pub mod objects;
pub mod policy;
pub mod translate;

pub use attach::{
    Attached, Attachments, Destination, GatewayState, Holders, ListenerState, ParentState,
    RouteState, attach_routes, gateways,
};
pub use bundle::Bundles;
pub use controller::{controller_name, is_packrat};
pub use finding::Finding;
pub use namespace_rule::NamespaceRule;
pub use objects::{
    Gateway, GatewayClass, Objects, Parameters, PolicyModel, ReferenceGrant, UdpRoute,
};
pub use policy::{Effective, Policies, policies};
