//! The ports that Gateways of the Gateway API declare for the EdgeGateways that they own.

use std::collections::{BTreeMap, BTreeSet};

use super::objects::Index;
use crate::gateway_api::{Attachments, Effective, Holders, NamespaceRule, Policies};
use crate::object_key::{ObjectKey, route_key};
use crate::overrides::Overrides;
use crate::problem::{Problem, Reason};

/// The ports of each EdgeGateway of a Gateway.
#[derive(Debug)]
pub(super) struct Declared(BTreeMap<ObjectKey, BTreeMap<u16, DeclaredPort>>);

/// A port of a Gateway.
#[derive(Debug)]
struct DeclaredPort {
    /// Namespaces whose routes it takes.
    namespaces: NamespaceRule,
    /// Settings of its routes.
    settings: Effective,
}

impl Declared {
    fn port(&self, gateway: &ObjectKey, port: u16) -> Option<&DeclaredPort> {
        self.0.get(gateway)?.get(&port)
    }

    /// The settings of an annotated Service at a port of an EdgeGateway: its own settings, and the
    /// settings of policies around them.
    pub(super) fn settings(&self, gateway: &ObjectKey, port: u16, own: &Overrides) -> Overrides {
        match self.port(gateway, port) {
            Some(found) => found.settings.clone().around(own.clone()),
            None => own.clone(),
        }
    }
}

impl Index {
    /// The ports of the EdgeGateways that Gateways own. An EdgeGateway of that name with another
    /// owner has no ports here.
    pub(super) fn declared(&self, attachments: &Attachments, policies: &Policies) -> Declared {
        let owned =
            attachments.gateways.iter().filter(|(_, state)| self.owns(&state.edge, &state.uid));
        let declared = owned.map(|(gateway, state)| {
            let served = state.listeners.iter().filter(|listener| listener.is_served());
            let ports = served.map(|listener| {
                let namespaces = listener.namespaces.clone();
                let settings = policies.of(gateway, &listener.name, None);
                (listener.port, DeclaredPort { namespaces, settings })
            });
            (state.edge.clone(), ports.collect())
        });
        Declared(declared.collect())
    }

    /// True if an EdgeGateway belongs to the Gateway with this identity.
    pub(super) fn owns(&self, edge: &ObjectKey, uid: &str) -> bool {
        self.gateways.get(edge).is_some_and(|model| model.owner.as_deref() == Some(uid))
    }

    /// EdgeGateways of this operator whose Gateways have another controller now.
    pub(super) fn abandoned(&self, attachments: &Attachments) -> BTreeSet<ObjectKey> {
        let is_abandoned = |owner: &String| attachments.foreign.contains(owner);
        let gateways = self.gateways.iter().filter(|(_, model)| self.operator.serves(model));
        let found = gateways.filter(|(_, model)| model.owner.as_ref().is_some_and(is_abandoned));
        found.map(|(key, _)| key.clone()).collect()
    }

    /// The UDPRoutes that are served at the ports of the EdgeGateways that Gateways own, and the
    /// Services that still ask. `claims`: gateway, port and Service of these.
    pub(super) fn holders<'a>(
        &self,
        declared: &Declared,
        claims: impl Iterator<Item = (&'a ObjectKey, u16, &'a ObjectKey)>,
    ) -> Holders {
        let routes = declared.0.keys().flat_map(|edge| {
            let served =
                self.gateways.get(edge).into_iter().flat_map(|model| &model.status.listeners);
            served.filter_map(|listener| {
                let (namespace, name) = listener.service.split_once('/')?;
                let key = ObjectKey::new(namespace, name);
                let port = u16::try_from(listener.port).ok()?;
                route_key(&key).map(|_| ((edge.clone(), port), key))
            })
        });
        let services = claims
            .filter(|(edge, ..)| declared.0.contains_key(edge))
            .map(|(edge, port, service)| ((edge.clone(), port), service.clone()));
        routes.chain(services).collect()
    }

    /// Why a Service may not have a port of the EdgeGateway of a Gateway.
    pub(super) fn refuse_undeclared(
        &self,
        declared: &Declared,
        gateway: &ObjectKey,
        namespace: &str,
        port: u16,
    ) -> Option<Problem> {
        self.gateways.get(gateway)?.owner.as_ref()?;
        let message = match declared.port(gateway, port) {
            None => format!(
                "Gateway {gateway} has no UDP listener at port {port}; add one, or name the port of one with packrat.dev/port"
            ),
            Some(found)
                if !found
                    .namespaces
                    .admits(namespace, self.gateway_api.namespaces.get(namespace)) =>
            {
                format!(
                    "the listener at port {port} of Gateway {gateway} takes no routes of namespace {namespace}: see its allowedRoutes"
                )
            }
            Some(_) => return None,
        };
        Some(Problem { reason: Reason::NotAllowed, message })
    }
}
