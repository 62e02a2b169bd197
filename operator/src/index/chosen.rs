//! The first phase of a Service: the EdgeGateway and the ports that it has chosen and may have.

use super::choice::is_wanted;
use super::declared::Declared;
use super::endpoints::Endpoints;
use super::objects::Index;
use super::ports::{ChosenPort, choose_ports, keep_ports};
use super::quotas::{Allowances, Held, asked};
use super::resolution::ServiceView;
use super::terminate;
use crate::envoy::METRICS_PORT;
use crate::model::{GatewayModel, ServiceModel};
use crate::names::PORT_ANNOTATION;
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};
use crate::resource::ListenerStatus;

/// Facts about the cluster that all Services share.
pub(super) struct Facts<'a> {
    pub(super) endpoints: Endpoints<'a>,
    pub(super) declared: Declared,
    pub(super) held: Held<'a>,
    pub(super) allowances: Allowances<'a>,
}

/// A Service with its EdgeGateway, and the ports that it may claim there.
pub(super) struct Chosen<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) service: &'a ServiceModel,
    pub(super) gateway_key: &'a ObjectKey,
    pub(super) gateway: &'a GatewayModel,
    /// The listeners that the EdgeGateway's status names for the Service.
    pub(super) held: &'a [&'a ListenerStatus],
    pub(super) ports: Vec<ChosenPort>,
}

impl Chosen<'_> {
    /// The listener that the Service has at a port already.
    pub(super) fn held_at(&self, port: u16) -> Option<&ListenerStatus> {
        self.held.iter().copied().find(|listener| listener.port == i32::from(port))
    }

    /// Why the Service may not have a port of the gateway.
    fn refuse_port(&self, port: u16) -> Option<Problem> {
        let Self { gateway_key, gateway, .. } = self;
        let namespace = &self.key.namespace;
        let message = if port == METRICS_PORT {
            format!("port {port} is the gateways' own; choose another one with {PORT_ANNOTATION}")
        } else if !gateway.spec.routes.grants(namespace, port) {
            format!(
                "EdgeGateway {gateway_key} does not give port {port} to Services of namespace {namespace}; choose one that its spec.routes.ports names, or add it there"
            )
        } else if gateway.spec.multicast.enabled
            && gateway.spec.multicast.ports.contains(port)
            && self.held_at(port).is_none()
        {
            format!(
                "port {port} of EdgeGateway {gateway_key} is for live streams (spec.multicast.ports: {}); choose another one with {PORT_ANNOTATION}",
                gateway.spec.multicast.ports
            )
        } else {
            return None;
        };
        Some(Problem { reason: Reason::NotAllowed, message })
    }
}

impl Index {
    /// The view of a Service before it has any port.
    pub(super) fn view(&self, key: &ObjectKey, service: &ServiceModel) -> ServiceView {
        ServiceView {
            wanted: is_wanted(service, self.annotations_of(&key.namespace)),
            problems: service.annotations.problems.clone(),
            terminates: service.annotations.terminates(),
            condition: service.condition.clone(),
            uid: service.uid.clone(),
            ..ServiceView::default()
        }
    }

    /// The EdgeGateway and the ports of a Service. `None`: it can have no port; `view` has the reason.
    pub(super) fn choose<'a>(
        &'a self,
        (key, service): (&'a ObjectKey, &'a ServiceModel),
        facts: &'a Facts<'a>,
        view: &mut ServiceView,
    ) -> Option<Chosen<'a>> {
        if !view.wanted {
            return None;
        }
        let found = self.gateway_of(key, &service.annotations);
        let (gateway_key, gateway) = found.map_err(|problem| view.problems.extend(problem)).ok()?;
        view.gateway = Some(gateway_key.clone());
        // Connections are left alone unless the Service has asked.
        if service.annotations.mode == Some(Err(())) {
            return None;
        }
        if let Some(problem) = terminate::refusal(service, gateway_key, &gateway.spec) {
            view.problems.push(problem);
            return None;
        }
        let held = facts.held.by(gateway_key, key);
        let allowed = facts.allowances.get(key).copied().unwrap_or_default();
        view.problems.extend(self.above_quota((gateway_key, asked(service), allowed)));
        let from = gateway.spec.routes.endpoints;
        let (mut ports, problems) =
            choose_ports((key, service), allowed, held, &facts.endpoints, from);
        view.problems.extend(problems);
        view.problems.extend(keep_ports(&mut ports, service, gateway_key, held));
        if gateway.deleting {
            return None;
        }
        let mut chosen = Chosen { key, service, gateway_key, gateway, held, ports: Vec::new() };
        for port in ports {
            let refusal = chosen.refuse_port(port.listener).or_else(|| {
                self.refuse_undeclared(&facts.declared, gateway_key, &key.namespace, port.listener)
            });
            match refusal {
                Some(problem) => view.problems.push(problem),
                None => chosen.ports.push(port),
            }
        }
        Some(chosen)
    }
}
