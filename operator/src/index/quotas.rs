//! The quotas of tenants: each listener costs the gateways memory and their Service a port, so that no
//! tenant has more of an EdgeGateway's than its share.

use std::collections::HashMap;

use super::choice::is_wanted;
use super::objects::Index;
use super::ports::ports_of;
use crate::model::{GatewayModel, ServiceModel};
use crate::names::PORT_ANNOTATION;
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};
use crate::resource::ListenerStatus;

/// The listeners that the statuses of EdgeGateways name, by EdgeGateway and Service.
pub(super) struct Held<'a>(HashMap<&'a ObjectKey, HashMap<&'a str, Vec<&'a ListenerStatus>>>);

impl<'a> Held<'a> {
    pub(super) fn of(index: &'a Index) -> Self {
        let of_gateway = |gateway: &'a GatewayModel| {
            let mut held = HashMap::<_, Vec<_>>::new();
            for listener in &gateway.status.listeners {
                held.entry(listener.service.as_str()).or_default().push(listener);
            }
            held
        };
        Self(index.gateways.iter().map(|(key, gateway)| (key, of_gateway(gateway))).collect())
    }

    /// The listeners of a Service.
    pub(super) fn by(&self, gateway: &ObjectKey, service: &ObjectKey) -> &[&'a ListenerStatus] {
        let of_gateway = self.0.get(gateway);
        let held = of_gateway.and_then(|held| held.get(service.to_string().as_str()));
        held.map_or(&[], Vec::as_slice)
    }
}

/// The number of listeners that each Service may have at its EdgeGateway.
pub(super) type Allowances<'a> = HashMap<&'a ObjectKey, usize>;

/// The ports that a Service asks for.
pub(super) fn asked(service: &ServiceModel) -> usize {
    match &service.annotations.ports {
        Some(choices) => choices.as_ref().map_or(0, Vec::len),
        None => ports_of(service).1.len(),
    }
}

impl Index {
    /// The allowances of these Services. Existing listeners come first, then the oldest Service's.
    pub(super) fn allowances<'a>(
        &'a self,
        services: impl Iterator<Item = (&'a ObjectKey, &'a ServiceModel)>,
        held: &Held<'_>,
    ) -> Allowances<'a> {
        let quotas = self.policy.quotas;
        let mut turns = Vec::new();
        for (key, service) in services {
            if !is_wanted(service, self.annotations_of(&key.namespace)) {
                continue;
            }
            let Ok((gateway, _)) = self.gateway_of(key, &service.annotations) else { continue };
            let asked = asked(service).min(quotas.per_service);
            let kept = held.by(gateway, key).len().min(asked);
            turns.push((false, service.created, key, gateway, kept));
            turns.push((true, service.created, key, gateway, asked - kept));
        }
        turns.sort_unstable();
        let mut of_namespace = HashMap::<(&ObjectKey, &str), usize>::new();
        let mut of_gateway = HashMap::<&ObjectKey, usize>::new();
        let mut allowances = Allowances::new();
        for (_, _, key, gateway, asked) in turns {
            let namespace = of_namespace.entry((gateway, &key.namespace)).or_default();
            let all = of_gateway.entry(gateway).or_default();
            let granted =
                asked.min(quotas.per_namespace - *namespace).min(quotas.per_gateway - *all);
            *namespace += granted;
            *all += granted;
            *allowances.entry(key).or_default() += granted;
        }
        allowances
    }

    /// The problem of a Service that asks for more listeners than it may have.
    pub(super) fn above_quota(
        &self,
        (gateway, asked, allowed): (&ObjectKey, usize, usize),
    ) -> Option<Problem> {
        let quotas = self.policy.quotas;
        (asked > allowed).then(|| Problem {
            reason: Reason::AboveLimit,
            message: format!(
                "the Service asks for {asked} ports of EdgeGateway {gateway} and gets {allowed}: the operator allows {} per Service, {} per namespace and {} per EdgeGateway; name fewer with {PORT_ANNOTATION}, or have the operator installed with other values of gateway.listeners",
                quotas.per_service, quotas.per_namespace, quotas.per_gateway
            ),
        })
    }
}
