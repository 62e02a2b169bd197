//! Connection IDs that name the servers of a Service or UDPRoute (QUIC-LB): the configuration that its
//! servers have, from a Secret of their tenant.

use std::collections::{BTreeMap, BTreeSet};

use packrat_api::route::ServerIds;

use super::objects::Index;
use super::tenant_secrets::check_label;
use crate::annotations::is_name;
use crate::gateway_api::gateways;
use crate::gateway_api::objects::UdpRoute;
use crate::model::ServiceModel;
use crate::names::QUIC_LB;
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};

/// Entry of the Secret.
const KEY_ENTRY: &str = "quic-lb.json";

/// Reads a Secret. `labels` and `entries`: its own.
///
/// # Errors
/// The fault of the text, without quoting it: it has keys.
pub fn read_server_ids(
    labels: &BTreeMap<String, String>,
    entries: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<ServerIds>, String> {
    check_label(labels)?;
    let text = entries.get(KEY_ENTRY).ok_or_else(|| format!("has no entry {KEY_ENTRY}"))?;
    let read: Vec<ServerIds> = serde_json::from_slice(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!(
            "has an entry {KEY_ENTRY} that cannot be read at line {line}, column {column}; write a list of objects with config, server_id_bytes, nonce_bytes and key"
        )
    })?;
    ServerIds::check_all(&read).map_err(|error| format!("has an entry {KEY_ENTRY}: {error}"))?;
    Ok(read)
}

impl Index {
    /// The Secrets by which connection IDs name the servers of a Service that has chosen an EdgeGateway of
    /// this operator, or of a UDPRoute that refers to a Gateway of it. No other one is looked at.
    pub fn server_id_secrets(&self) -> BTreeSet<ObjectKey> {
        let of_service = |(key, service): (&ObjectKey, &ServiceModel)| {
            let secret = secret_of(key, service)?;
            self.wanted_gateway(key, service).map(|_| secret)
        };
        let attachments = gateways(&self.gateway_api, &self.operator.class);
        let of_route = |(key, route): (&ObjectKey, &UdpRoute)| {
            let secret = secret_of_route(key, route)?.ok()?;
            let mut gateways = route.spec.parent_refs.iter().filter(|parent| parent.is_gateway());
            let is_ours = gateways.any(|parent| {
                let state = attachments.gateways.get(&parent.gateway(key));
                state.is_some_and(|state| self.owns(&state.edge, &state.uid))
            });
            is_ours.then_some(secret)
        };
        let of_routes = self.gateway_api.routes.iter().filter_map(of_route);
        self.services.iter().filter_map(of_service).chain(of_routes).collect()
    }

    /// True if a Secret has been looked for, and could be used.
    pub fn has_server_ids(&self, key: &ObjectKey) -> bool {
        self.server_ids.is_usable(key)
    }

    /// Takes the content of a Secret, or the reason why it cannot be used: then the former one
    /// stays in use. Returns whether anything has changed.
    pub fn set_server_ids(&mut self, key: ObjectKey, read: Result<Vec<ServerIds>, String>) -> bool {
        self.server_ids.set(key, read)
    }

    /// Forgets Secrets that are not in `keys`.
    pub fn retain_server_ids(&mut self, keys: &BTreeSet<ObjectKey>) {
        self.server_ids.retain(keys);
    }

    /// The configurations by which connection IDs name the servers of a Service, and their faults.
    pub(super) fn server_ids_of(
        &self,
        key: &ObjectKey,
        service: &ServiceModel,
    ) -> (Vec<ServerIds>, Option<Problem>) {
        match secret_of(key, service) {
            Some(secret) => self.server_ids_in(&secret),
            None => (Vec::new(), None),
        }
    }

    /// The configurations by which connection IDs name the servers of a UDPRoute, and their faults.
    pub(super) fn server_ids_of_route(&self, key: &ObjectKey) -> (Vec<ServerIds>, Option<Problem>) {
        let route = self.gateway_api.routes.get(key);
        match route.and_then(|route| secret_of_route(key, route)) {
            Some(Ok(secret)) => self.server_ids_in(&secret),
            Some(Err(problem)) => (Vec::new(), Some(problem)),
            None => (Vec::new(), None),
        }
    }

    fn server_ids_in(&self, secret: &ObjectKey) -> (Vec<ServerIds>, Option<Problem>) {
        let (found, problem) = self.server_ids.get(secret);
        let problem = problem.map(|message| Problem { reason: Reason::NoServerIds, message });
        (found.cloned().unwrap_or_default(), problem)
    }
}

/// The Secret that a Service names; `None` if connections end at the gateway, which then reads no
/// connection ID of its servers.
fn secret_of(key: &ObjectKey, service: &ServiceModel) -> Option<ObjectKey> {
    let annotations = &service.annotations;
    let name = annotations.quic_lb.as_ref().filter(|_| !annotations.terminates())?;
    Some(ObjectKey::new(key.namespace.clone(), name.clone()))
}

/// The Secret that a UDPRoute names.
fn secret_of_route(key: &ObjectKey, route: &UdpRoute) -> Option<Result<ObjectKey, Problem>> {
    let name = route.quic_lb.as_ref()?;
    if !is_name(name) {
        let message = format!(
            "{QUIC_LB} is not understood; write the name of a Secret of the UDPRoute's namespace"
        );
        return Some(Err(Problem { reason: Reason::InvalidAnnotation, message }));
    }
    Some(Ok(ObjectKey::new(&key.namespace, name)))
}
