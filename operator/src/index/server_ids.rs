//! Connection IDs that name the servers of a Service (QUIC-LB): the configuration that its servers have,
//! from a Secret of their tenant.

use std::collections::{BTreeMap, BTreeSet};

use packrat_api::route::ServerIds;

use super::resolve::is_wanted;
use super::{Index, ServiceModel, set};
use crate::annotations::{Annotations, ObjectKey, Problem, Reason};
use crate::workload::SECRET_LABEL;

/// The entry of the Secret.
const ENTRY: &str = "quic-lb.json";

/// The content of a Secret.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FoundServerIds {
    /// The last configurations that could be read.
    ids: Vec<ServerIds>,
    /// The fault of the Secret as it is now.
    problem: Option<String>,
}

/// Reads a Secret. `labels` and `entries`: its own.
///
/// # Errors
/// Says what is wrong with it, without what it says: it has keys.
pub fn read_server_ids(
    labels: &BTreeMap<String, String>,
    entries: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<ServerIds>, String> {
    if labels.get(SECRET_LABEL).is_none_or(|value| value != "true") {
        return Err(format!("is not for gateways; label it {SECRET_LABEL}: \"true\""));
    }
    let text = entries.get(ENTRY).ok_or_else(|| format!("has no entry {ENTRY}"))?;
    let read: Vec<ServerIds> = serde_json::from_slice(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!(
            "has an entry {ENTRY} that cannot be read at line {line}, column {column}; write a list of objects with config, server_id_bytes, nonce_bytes and key"
        )
    })?;
    ServerIds::check_all(&read).map_err(|error| format!("has an entry {ENTRY}: {error}"))?;
    Ok(read)
}

impl Index {
    /// The Secrets by which connection IDs name the servers of a Service that has chosen an EdgeGateway of
    /// this operator. No other one is looked at.
    pub fn server_id_secrets(&self) -> BTreeSet<ObjectKey> {
        let of_service = |(key, service): (&ObjectKey, &ServiceModel)| {
            let secret = secret_of(key, service)?;
            let nothing = Annotations::default();
            let namespace = self.namespaces.get(&key.namespace);
            let namespace = namespace.map_or(&nothing, |model| &model.annotations);
            let is_ours = is_wanted(service, namespace)
                && self
                    .gateway_of(key, &service.annotations, namespace)
                    .is_ok_and(|(_, gateway)| self.operator.serves(gateway));
            is_ours.then_some(secret)
        };
        self.services.iter().filter_map(of_service).collect()
    }

    /// True if a Secret has been looked for, and could be used.
    pub fn has_server_ids(&self, key: &ObjectKey) -> bool {
        self.server_ids.get(key).is_some_and(|found| found.problem.is_none())
    }

    /// Takes the content of a Secret, or the reason for which it cannot be used: then the former goes on.
    /// Whether anything has changed.
    pub fn set_server_ids(&mut self, key: ObjectKey, read: Result<Vec<ServerIds>, String>) -> bool {
        let found = match read {
            Ok(ids) => FoundServerIds { ids, problem: None },
            Err(problem) => {
                let former = self.server_ids.get(&key).map(|found| found.ids.clone());
                FoundServerIds { ids: former.unwrap_or_default(), problem: Some(problem) }
            }
        };
        set(&mut self.server_ids, key, Some(found))
    }

    /// Forgets Secrets that are not in `keys`.
    pub fn retain_server_ids(&mut self, keys: &BTreeSet<ObjectKey>) {
        self.server_ids.retain(|key, _| keys.contains(key));
    }

    /// The configurations by which connection IDs name the servers of a Service, and what is wrong with
    /// them.
    pub(super) fn server_ids_of(
        &self,
        key: &ObjectKey,
        service: &ServiceModel,
    ) -> (Vec<ServerIds>, Option<Problem>) {
        let Some(secret) = secret_of(key, service) else { return (Vec::new(), None) };
        let found = self.server_ids.get(&secret);
        let problem = match found {
            None => Some("has not been read yet"),
            Some(found) => found.problem.as_deref(),
        };
        let problem = problem.map(|problem| Problem {
            reason: Reason::NoServerIds,
            message: format!("Secret {secret} {problem}"),
        });
        (found.map(|found| found.ids.clone()).unwrap_or_default(), problem)
    }
}

/// The Secret that a Service names; none where connections end at the gateway, which then reads no
/// connection ID of its servers.
fn secret_of(key: &ObjectKey, service: &ServiceModel) -> Option<ObjectKey> {
    let annotations = &service.annotations;
    let name = annotations.quic_lb.as_ref().filter(|_| !annotations.terminates())?;
    Some(ObjectKey::new(key.namespace.clone(), name.clone()))
}
