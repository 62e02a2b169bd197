//! The state that follows from all objects of the index.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::listener::Listener;
use crate::gateway_api::{Attachments, Policies};
use crate::object_key::ObjectKey;
use crate::problem::Problem;

/// The state that follows from all objects of the index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// Each EdgeGateway with its listeners.
    pub gateways: BTreeMap<ObjectKey, GatewayView>,
    /// Each Service that asks for assistance or has something wrong with it.
    pub services: BTreeMap<ObjectKey, ServiceView>,
    /// Namespaces with something wrong: identity of the object, and what.
    pub namespaces: BTreeMap<String, (String, Vec<Problem>)>,
    /// Pods with something wrong: identity of the object, and what.
    pub pods: BTreeMap<ObjectKey, (String, Vec<Problem>)>,
    /// EdgeGateways of this operator's class that belong to another operator: identity of the
    /// object, and the message about it.
    pub foreign: BTreeMap<ObjectKey, (String, Problem)>,
    /// EdgeGateways that were this operator's, and are of another class now.
    pub released: BTreeSet<ObjectKey>,
    /// The objects of the Gateway API that are this operator's.
    pub attachments: Attachments,
    /// The PackratPolicies that are in force.
    pub policies: Policies,
    /// EdgeGateways whose Gateways have another controller now, which is not a Packrat operator.
    pub abandoned: BTreeSet<ObjectKey>,
}

/// The routes of an EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayView {
    /// Listeners by their UDP port.
    pub listeners: BTreeMap<u16, Listener>,
    /// UDP ports that the gateway has even without a route, from its Gateway.
    pub ports: BTreeSet<u16>,
    /// Addresses of the gateway's Pods, also of Pods that are ending.
    pub pods: BTreeSet<IpAddr>,
    /// Problems of Services that have chosen this gateway.
    pub problems: BTreeSet<(ObjectKey, Problem)>,
    /// The reason for which the operator's installer does not let it be set up or changed.
    pub refusal: Option<String>,
}

/// Result for a Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceView {
    /// True if the Service or its Namespace asks for assistance.
    pub wanted: bool,
    /// True if assistance is switched off: the gateway only forwards.
    pub is_off: bool,
    /// True if clients' connections end at the gateway.
    pub terminates: bool,
    /// The gateway that it has.
    pub gateway: Option<ObjectKey>,
    /// The gateway's ports that it has.
    pub listeners: Vec<u16>,
    /// Problems of the Service.
    pub problems: Vec<Problem>,
    /// The condition of ours that is on it.
    pub condition: Option<Condition>,
    /// Identity of the object.
    pub uid: String,
}
