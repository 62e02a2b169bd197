//! From objects to listeners, in phases. A Service is [`Chosen`](super::chosen::Chosen) an EdgeGateway
//! and ports, claims these ([`Claim`]), and is granted them unless another one has them.

use super::chosen::Facts;
use super::claims::Claim;
use super::endpoints::Endpoints;
use super::objects::Index;
use super::quotas::Held;
use super::resolution::{GatewayView, Resolution};
use crate::gateway_api::{self, controller_name};
use crate::model::GatewayModel;
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};

impl Index {
    /// The state that follows from all objects of the index.
    pub fn resolve(&self) -> Resolution {
        let mut resolution = Resolution::default();
        for (key, gateway) in self.gateways.iter() {
            self.sort(key, gateway, &mut resolution);
        }
        self.add_pods(&mut resolution);
        let reports_on_the_rest = self.reports_on_the_rest();
        if reports_on_the_rest {
            self.report_the_rest(&mut resolution);
        }
        resolution.attachments = gateway_api::gateways(&self.gateway_api, &self.operator.class);
        resolution.policies = gateway_api::policies(
            &self.gateway_api,
            &resolution.attachments,
            &controller_name(&self.operator.class),
            reports_on_the_rest,
        );
        resolution.abandoned = self.abandoned(&resolution.attachments);
        let services = self
            .services
            .iter()
            .filter(|(key, of)| self.is_concerned(key, of, reports_on_the_rest));
        let held = Held::of(self);
        let facts = Facts {
            endpoints: Endpoints::of(self),
            declared: self.declared(&resolution.attachments, &resolution.policies),
            allowances: self.allowances(services.clone(), &held),
            held,
        };
        let mut claims = Vec::new();
        for (key, service) in services {
            let mut view = self.view(key, service);
            if let Some(chosen) = self.choose((key, service), &facts, &mut view) {
                claims.append(&mut self.claims(chosen, &facts, &mut view));
            }
            if view.wanted || !view.problems.is_empty() || view.condition.is_some() {
                resolution.services.insert(key.clone(), view);
            }
        }
        // Of a free port of a Gateway a UDPRoute comes before Services.
        self.attach_routes(&mut resolution, &facts, &claims);
        resolution.grant(claims);
        resolution.report_at_gateways();
        resolution
    }

    /// Finds the place of an EdgeGateway: served, another operator's, or no longer this one's.
    fn sort(&self, key: &ObjectKey, gateway: &GatewayModel, resolution: &mut Resolution) {
        let holder = gateway.status.operator.as_ref();
        if self.operator.serves(gateway) {
            if !gateway.deleting {
                let refusal = self.policy.refusal(&gateway.spec);
                let view = GatewayView { refusal, ..GatewayView::default() };
                resolution.gateways.insert(key.clone(), view);
            }
        } else if self.operator.is_of_class(gateway) {
            let problem = foreign(holder, &self.operator.identity, key);
            resolution.foreign.insert(key.clone(), (gateway.uid.clone(), problem));
        } else if holder == Some(&self.operator.identity) {
            resolution.released.insert(key.clone());
        }
    }

    /// Adds the Pods of gateways.
    fn add_pods(&self, resolution: &mut Resolution) {
        for (key, pod) in self.pods.iter() {
            let Some(gateway) = &pod.gateway else { continue };
            let gateway = ObjectKey::new(key.namespace.clone(), gateway.clone());
            if let Some(view) = resolution.gateways.get_mut(&gateway) {
                view.pods.extend(pod.addresses.first());
            }
        }
    }

    /// Adds the problems of objects that belong to no EdgeGateway.
    fn report_the_rest(&self, resolution: &mut Resolution) {
        for (key, pod) in self.pods.iter() {
            if let Some(problem) = &pod.problem {
                let report = (pod.uid.clone(), vec![problem.clone()]);
                resolution.pods.insert(key.clone(), report);
            }
        }
        for (name, namespace) in self.namespaces.iter() {
            let problems = &namespace.annotations.problems;
            if !problems.is_empty() {
                let report = (namespace.uid.clone(), problems.clone());
                resolution.namespaces.insert(name.clone(), report);
            }
        }
    }

    /// Gives UDPRoutes the ports of Gateways that no Service holds.
    fn attach_routes(&self, resolution: &mut Resolution, facts: &Facts<'_>, claims: &[Claim<'_>]) {
        let held = claims.iter().flat_map(|claim| {
            claim.held_ports().map(|port| (claim.gateway, port, &claim.listener.service))
        });
        gateway_api::attach_routes(
            &self.gateway_api,
            &self.operator.class,
            &mut resolution.attachments,
            |key| self.services.get(key).filter(|service| !service.ports.is_empty()),
            &self.holders(&facts.declared, held),
        );
        let Resolution { attachments, policies, gateways, .. } = resolution;
        self.serve_routes(attachments, policies, gateways, &facts.endpoints);
    }
}

impl Resolution {
    /// Adds the problems of Services to the EdgeGateways that they have chosen.
    fn report_at_gateways(&mut self) {
        for (key, view) in &self.services {
            let gateway = view.gateway.as_ref().and_then(|key| self.gateways.get_mut(key));
            if let Some(gateway) = gateway {
                let problems = view.problems.iter().map(|problem| (key.clone(), problem.clone()));
                gateway.problems.extend(problems);
            }
        }
    }
}

/// The message about an EdgeGateway of this operator's class that is another operator's.
fn foreign(holder: Option<&String>, own: &str, gateway: &ObjectKey) -> Problem {
    let holder = holder.map_or("another", String::as_str);
    let message = format!(
        "operator {own} leaves it alone: it is that of operator {holder}. Two releases of the chart need two classes (value class, spec.class). If {holder} is gone for good, hand it over: kubectl patch edgegateway {} -n {} --subresource status --type merge -p '{{\"status\":{{\"operator\":null}}}}'",
        gateway.name, gateway.namespace
    );
    Problem { reason: Reason::OtherOperator, message }
}
