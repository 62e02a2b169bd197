//! Events on objects with problems: each problem once, when it begins.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use packrat_wire::hexadecimal;
use sha2::{Digest as _, Sha256};

use super::refusal::{namespace_ends, told};
use super::snapshot::{GatewaySnapshot, Snapshot};
use crate::FIELD_MANAGER;
use crate::annotations::{ObjectKey, Problem, Reason};

/// Longest note of an Event.
const MAXIMUM_NOTE_BYTES: usize = 1000;
/// Events that are written in one go; further ones follow with the next change.
const AT_ONCE: usize = 50;

/// Writes Events.
pub(super) struct Events {
    recorder: Recorder,
    /// The problems reported of each object: kind, key, identity.
    told: BTreeMap<(&'static str, ObjectKey, String), Vec<Problem>>,
}

impl Events {
    pub(super) fn new(client: Client, replica: &str) -> Self {
        let reporter =
            Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(replica.to_owned()) };
        Self { recorder: Recorder::new(client, reporter), told: BTreeMap::new() }
    }

    /// Writes an Event for each new problem in a snapshot.
    pub(super) async fn tell(&mut self, snapshot: &Snapshot) {
        let mut current = BTreeMap::new();
        for (key, service) in &snapshot.resolution.services {
            current.insert(("Service", key.clone(), service.uid.clone()), service.problems.clone());
        }
        for (name, (uid, problems)) in &snapshot.resolution.namespaces {
            current.insert(("Namespace", ObjectKey::new("", name), uid.clone()), problems.clone());
        }
        for (key, (uid, problems)) in &snapshot.resolution.pods {
            current.insert(("Pod", key.clone(), uid.clone()), problems.clone());
        }
        for (key, gateway) in &snapshot.gateways {
            let conflicts = gateway.view.problems.iter().map(|(_, problem)| problem);
            let conflicts = conflicts.filter(|problem| problem.reason == Reason::PortConflict);
            let refusal = gateway
                .view
                .refusal
                .iter()
                .map(|message| Problem { reason: Reason::NotPermitted, message: message.clone() });
            let problems = conflicts.cloned().chain(refusal).chain(failures(gateway)).collect();
            current.insert(("EdgeGateway", key.clone(), gateway.model.uid.clone()), problems);
        }
        for (key, (uid, problem)) in &snapshot.resolution.foreign {
            let told = vec![problem.clone()];
            current.insert(("EdgeGateway", key.clone(), uid.clone()), told);
        }
        self.told.retain(|key, _| current.contains_key(key));
        let mut left = AT_ONCE;
        for (key, problems) in current {
            let before = self.told.get(&key).cloned().unwrap_or_default();
            let mut complete = true;
            for problem in problems.iter().filter(|problem| !before.contains(problem)) {
                if left == 0 {
                    complete = false;
                    break;
                }
                left -= 1;
                self.write(&key, problem).await;
            }
            if complete {
                self.told.insert(key, problems);
            }
        }
    }

    async fn write(&self, (kind, key, uid): &(&'static str, ObjectKey, String), problem: &Problem) {
        let mut note = problem.message.clone();
        if note.len() > MAXIMUM_NOTE_BYTES {
            let mut end = MAXIMUM_NOTE_BYTES;
            while !note.is_char_boundary(end) {
                end -= 1;
            }
            note.truncate(end);
        }
        let event = Event {
            type_: EventType::Warning,
            reason: problem.reason.name().to_owned(),
            note: Some(note),
            // Events that agree in everything but the note are made one by the recorder, with the note
            // of the first.
            action: action(&problem.message),
            secondary: None,
        };
        let reference = ObjectReference {
            api_version: Some(api_version(kind).to_owned()),
            kind: Some((*kind).to_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        match self.recorder.publish(&event, &reference).await {
            Err(error) if !namespace_ends(&error) => {
                tracing::warn!(event = "event_failed", kind, object = %key, error = told(&error));
            }
            _ => {}
        }
    }
}

/// Conditions of an EdgeGateway that need an answer of the people who run it.
fn failures(gateway: &GatewaySnapshot) -> impl Iterator<Item = Problem> {
    gateway
        .model
        .status
        .conditions
        .iter()
        .filter(|condition| condition.status == "False")
        .filter_map(|condition| {
            let reason = match condition.reason.as_str() {
                "ApplyFailed" => Reason::ApplyFailed,
                "Refused" => Reason::Refused,
                "NotConnected" => Reason::NotConnected,
                "DefinitionOutdated" => Reason::DefinitionOutdated,
                _ => return None,
            };
            Some(Problem { reason, message: condition.message.clone() })
        })
}

/// The action of an Event: another word for each problem.
fn action(message: &str) -> String {
    format!("Resolve-{}", hexadecimal::encode(&Sha256::digest(message)[..4]))
}

const fn api_version(kind: &str) -> &'static str {
    match kind.as_bytes() {
        b"EdgeGateway" => "packrat.dev/v1alpha1",
        _ => "v1",
    }
}
