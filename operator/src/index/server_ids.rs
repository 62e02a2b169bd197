//! Connection IDs that name the servers of a Service (QUIC-LB): the configuration that its servers have,
//! from a Secret of their tenant.

use std::collections::{BTreeMap, BTreeSet};

use packrat_api::route::ServerIds;

use super::tenant_secrets::check_label;
use super::{Index, ServiceModel};
use crate::annotations::{ObjectKey, Problem, Reason};

/// The entry of the Secret.
const ENTRY: &str = "quic-lb.json";

/// Reads a Secret. `labels` and `entries`: its own.
///
/// # Errors
/// Says what is wrong with it, without what it says: it has keys.
pub fn read_server_ids(
    labels: &BTreeMap<String, String>,
    entries: &BTreeMap<String, Vec<u8>>,
) -> Result<Vec<ServerIds>, String> {
    check_label(labels)?;
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
            self.wanted_gateway(key, service).map(|_| secret)
        };
        self.services.iter().filter_map(of_service).collect()
    }

    /// True if a Secret has been looked for, and could be used.
    pub fn has_server_ids(&self, key: &ObjectKey) -> bool {
        self.server_ids.is_usable(key)
    }

    /// Takes the content of a Secret, or the reason for which it cannot be used: then the former goes on.
    /// Whether anything has changed.
    pub fn set_server_ids(&mut self, key: ObjectKey, read: Result<Vec<ServerIds>, String>) -> bool {
        self.server_ids.set(key, read)
    }

    /// Forgets Secrets that are not in `keys`.
    pub fn retain_server_ids(&mut self, keys: &BTreeSet<ObjectKey>) {
        self.server_ids.retain(keys);
    }

    /// The configurations by which connection IDs name the servers of a Service, and what is wrong with
    /// them.
    pub(super) fn server_ids_of(
        &self,
        key: &ObjectKey,
        service: &ServiceModel,
    ) -> (Vec<ServerIds>, Option<Problem>) {
        let Some(secret) = secret_of(key, service) else { return (Vec::new(), None) };
        let (found, problem) = self.server_ids.get(&secret);
        let problem = problem.map(|message| Problem { reason: Reason::NoServerIds, message });
        (found.cloned().unwrap_or_default(), problem)
    }
}

/// The Secret that a Service names; none where connections end at the gateway, which then reads no
/// connection ID of its servers.
fn secret_of(key: &ObjectKey, service: &ServiceModel) -> Option<ObjectKey> {
    let annotations = &service.annotations;
    let name = annotations.quic_lb.as_ref().filter(|_| !annotations.terminates())?;
    Some(ObjectKey::new(key.namespace.clone(), name.clone()))
}
