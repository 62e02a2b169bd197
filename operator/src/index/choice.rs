//! The EdgeGateways that Services choose.

use std::sync::LazyLock;

use super::objects::Index;
use crate::annotations::{Annotations, DEFAULT_GATEWAY};
use crate::model::{GatewayModel, ServiceModel};
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};

impl Index {
    /// True if this operator serves a Service, and reports on it: the Service has chosen one of its
    /// EdgeGateways. One operator reports on Services whose choice does not exist.
    pub(super) fn is_concerned(
        &self,
        key: &ObjectKey,
        service: &ServiceModel,
        reports_on_the_rest: bool,
    ) -> bool {
        match self.choice(key, &service.annotations) {
            Ok((_, gateway)) => self.operator.serves(gateway),
            Err(_) => reports_on_the_rest,
        }
    }

    /// The annotations of a Namespace; empty if it is not known.
    pub(super) fn annotations_of(&self, namespace: &str) -> &Annotations {
        static NO_ANNOTATIONS: LazyLock<Annotations> = LazyLock::new(Annotations::default);
        self.namespaces.get(namespace).map_or(&*NO_ANNOTATIONS, |model| &model.annotations)
    }

    /// The EdgeGateway that a Service has chosen, or the reason why it has no gateway; `None` when
    /// the annotation's own message gives that reason.
    fn choice(
        &self,
        service: &ObjectKey,
        own: &Annotations,
    ) -> Result<(&ObjectKey, &GatewayModel), Option<Problem>> {
        let problem = |reason, message| Some(Problem { reason, message });
        let namespace = self.annotations_of(&service.namespace);
        let chosen = match own.gateway.as_ref().or(namespace.gateway.as_ref()) {
            Some(Ok((namespace, name))) => (namespace.as_deref(), name.as_str()),
            Some(Err(())) if own.gateway.is_some() => return Err(None),
            // A wrong annotation of the Namespace is also reported at the Service.
            Some(Err(())) => {
                return Err(problem(
                    Reason::InvalidAnnotation,
                    format!(
                        "Namespace {} names no EdgeGateway that can be understood; correct its annotation packrat.dev/gateway",
                        service.namespace
                    ),
                ));
            }
            None => (None, DEFAULT_GATEWAY),
        };
        let named = ObjectKey::new(chosen.0.unwrap_or(&service.namespace), chosen.1);
        // Each operator has another home: only the default class's counts, or two would take the
        // same Service for their own.
        let at_home = (chosen.0.is_none() && self.operator.is_default())
            .then(|| ObjectKey::new(&self.home, chosen.1))
            .filter(|at_home| *at_home != named);
        let found = self.gateways.get_key_value(&named).or_else(|| {
            let found = self.gateways.get_key_value(at_home.as_ref()?)?;
            self.operator.is_of_class(found.1).then_some(found)
        });
        found.ok_or_else(|| {
            let at_home = at_home.map_or_else(String::new, |at_home| {
                format!(" nor {at_home} of class {}", self.operator.class)
            });
            problem(
                Reason::GatewayNotFound,
                format!(
                    "there is no EdgeGateway {named}{at_home}; make one, or name another with the annotation packrat.dev/gateway"
                ),
            )
        })
    }

    /// The EdgeGateway of this operator that takes a Service which wants one.
    pub(super) fn wanted_gateway(
        &self,
        key: &ObjectKey,
        service: &ServiceModel,
    ) -> Option<(&ObjectKey, &GatewayModel)> {
        if !is_wanted(service, self.annotations_of(&key.namespace)) {
            return None;
        }
        let found = self.gateway_of(key, &service.annotations).ok();
        found.filter(|(_, gateway)| self.operator.serves(gateway))
    }

    /// The EdgeGateway of a Service that takes it, or the reason why it has no gateway.
    pub(super) fn gateway_of(
        &self,
        service: &ObjectKey,
        own: &Annotations,
    ) -> Result<(&ObjectKey, &GatewayModel), Option<Problem>> {
        let (key, gateway) = self.choice(service, own)?;
        let problem = |reason, message| Some(Problem { reason, message });
        if !gateway.spec.routes.admits(&service.namespace, &key.namespace) {
            return Err(problem(
                Reason::NotAllowed,
                format!(
                    "EdgeGateway {key} takes Services of its own namespace only; set its spec.routes.from to All, or use one in {}",
                    service.namespace
                ),
            ));
        }
        Ok((key, gateway))
    }
}

/// True if a Service or its Namespace asks for assistance. A Namespace speaks for Services with UDP ports
/// only.
pub(super) fn is_wanted(service: &ServiceModel, namespace: &Annotations) -> bool {
    let has_ports = !service.ports.is_empty() || service.annotations.terminates();
    service.annotations.assist.unwrap_or(namespace.assist.unwrap_or(false) && has_ports)
}
