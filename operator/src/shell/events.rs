//! Events on objects: each problem once, when it begins, and the service of objects of the Gateway API.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use packrat_wire::hexadecimal;
use sha2::{Digest as _, Sha256};

use super::refusal::{namespace_ends, told};
use super::snapshot::{GatewaySnapshot, Snapshot};
use crate::gateway_api::Finding;
use crate::names::FIELD_MANAGER;
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};
use crate::status::gateway_api::{assisting, route_assisting};

/// Longest note of an Event.
const MAXIMUM_NOTE_BYTES: usize = 1000;
/// Events that are written in one go; further ones follow with the next change.
const AT_ONCE: usize = 50;

/// Writes Events.
pub(super) struct Events {
    recorder: Recorder,
    /// The problems reported of each object: kind, key, identity.
    told: BTreeMap<Subject, Vec<Note>>,
}

/// Kind, key and identity of an object.
type Subject = (&'static str, ObjectKey, String);

/// The text of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    is_problem: bool,
    reason: &'static str,
    message: String,
}

impl From<Problem> for Note {
    fn from(problem: Problem) -> Self {
        Self { is_problem: true, reason: problem.reason.name(), message: problem.message }
    }
}

impl From<&Finding> for Note {
    fn from(finding: &Finding) -> Self {
        Self {
            is_problem: finding.status != Some(true),
            reason: finding.reason,
            message: finding.message.clone(),
        }
    }
}

impl Events {
    pub(super) fn new(client: Client, replica: &str) -> Self {
        let reporter =
            Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(replica.to_owned()) };
        Self { recorder: Recorder::new(client, reporter), told: BTreeMap::new() }
    }

    /// Writes an Event for each new problem in a snapshot.
    pub(super) async fn tell(&mut self, snapshot: &Snapshot) {
        let mut current: BTreeMap<Subject, Vec<Problem>> = BTreeMap::new();
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
        let problems = |problems: Vec<Problem>| problems.into_iter().map(Note::from).collect();
        let mut current: BTreeMap<Subject, Vec<Note>> =
            current.into_iter().map(|(subject, all)| (subject, problems(all))).collect();
        current.extend(of_gateway_api(snapshot));
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

    async fn write(&self, (kind, key, uid): &Subject, problem: &Note) {
        let mut note = problem.message.clone();
        if note.len() > MAXIMUM_NOTE_BYTES {
            let mut end = MAXIMUM_NOTE_BYTES;
            while !note.is_char_boundary(end) {
                end -= 1;
            }
            note.truncate(end);
        }
        let event = Event {
            type_: if problem.is_problem { EventType::Warning } else { EventType::Normal },
            reason: problem.reason.to_owned(),
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

/// Events about the conditions of the Gateway API's objects, so that `kubectl describe` shows when
/// each began.
fn of_gateway_api(snapshot: &Snapshot) -> BTreeMap<Subject, Vec<Note>> {
    let attachments = &snapshot.resolution.attachments;
    let objects = &snapshot.gateway_api;
    let mut all = BTreeMap::new();
    for (name, [accepted, supported]) in &attachments.classes {
        let Some(class) = objects.classes.get(name) else { continue };
        let subject = ("GatewayClass", ObjectKey::new("", name), class.metadata.uid.clone());
        let mut notes = vec![Note::from(accepted)];
        notes.extend((supported.status == Some(false)).then(|| Note::from(supported)));
        all.insert(subject, notes);
    }
    for (key, state) in &attachments.gateways {
        let mut notes = vec![Note::from(&state.accepted)];
        for listener in &state.listeners {
            let findings = [&listener.accepted, &listener.resolved];
            let refused = findings.into_iter().filter(|finding| finding.status != Some(true));
            notes.extend(refused.map(|finding| {
                let message = format!("listener {}: {}", listener.name, finding.message);
                Note { message, ..Note::from(finding) }
            }));
        }
        let edge = snapshot.edge_gateways.get(&state.edge);
        notes.extend(edge.and_then(assisting).as_ref().and_then(stopped));
        all.insert(("Gateway", key.clone(), state.uid.clone()), notes);
    }
    for (key, state) in &attachments.routes {
        let Some(route) = objects.routes.get(key) else { continue };
        let mut notes: Vec<Note> = Vec::new();
        for parent in &state.parents {
            let of_parent = |finding: &Finding| {
                let message = format!("Gateway {}: {}", parent.reference.name, finding.message);
                Note { message, ..Note::from(finding) }
            };
            let mut accepted = of_parent(&parent.accepted);
            if parent.waits_for.is_some() {
                (accepted.is_problem, accepted.reason) = (true, "Conflicted");
            }
            notes.push(accepted);
            if parent.resolved.status != Some(true) {
                notes.push(of_parent(&parent.resolved));
            }
            let assisting = route_assisting(key, parent, attachments, &snapshot.edge_gateways);
            notes.extend(assisting.as_ref().and_then(stopped));
        }
        all.insert(("UDPRoute", key.clone(), route.metadata.uid.clone()), notes);
    }
    for (key, ancestors) in &snapshot.resolution.policies.ancestors {
        let Some(policy) = objects.policies.get(key) else { continue };
        let notes = ancestors.iter().map(|(_, finding)| Note::from(finding)).collect();
        all.insert(("PackratPolicy", key.clone(), policy.metadata.uid.clone()), notes);
    }
    all
}

/// The note about assistance that has stopped by itself; the result of a trial shows later.
fn stopped(assisting: &Finding) -> Option<Note> {
    (assisting.reason == Reason::AssistanceStopped.name()).then(|| Note::from(assisting))
}

/// Conditions of an EdgeGateway that its operators have to react to.
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
                "RolloutStuck" => Reason::RolloutStuck,
                "DefinitionOutdated" => Reason::DefinitionOutdated,
                "AssistanceStopped" => Reason::AssistanceStopped,
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
        b"EdgeGateway" | b"PackratPolicy" => "packrat.dev/v1alpha1",
        b"GatewayClass" | b"Gateway" | b"UDPRoute" => "gateway.networking.k8s.io/v1",
        _ => "v1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_api::attach::{ParentState, RouteState};
    use crate::gateway_api::objects::Metadata;
    use crate::gateway_api::{GatewayClass, UdpRoute};
    use crate::resource::ParentReference;

    #[test]
    fn objects_of_the_gateway_api_are_told_what_becomes_of_them() {
        let mut snapshot = Snapshot::default();
        let metadata = |uid: &str| Metadata { uid: uid.to_owned(), ..Metadata::default() };
        let class = GatewayClass { metadata: metadata("1"), ..GatewayClass::default() };
        snapshot.gateway_api.classes.insert("packrat".to_owned(), class);
        let route = UdpRoute { metadata: metadata("2"), ..UdpRoute::default() };
        let key = ObjectKey::new("shop", "web");
        snapshot.gateway_api.routes.insert(key.clone(), route);
        let attachments = &mut snapshot.resolution.attachments;
        let accepted = Finding::yes("Accepted", "Accepted", "it is served");
        let supported = Finding::no("SupportedVersion", "UnsupportedVersion", "it is newer");
        attachments.classes.insert("packrat".to_owned(), [accepted.clone(), supported]);
        let reference = ParentReference { name: "edge".to_owned(), ..ParentReference::default() };
        let resolved = Finding::no("ResolvedRefs", "BackendNotFound", "there is no Service web");
        let parents = vec![ParentState { reference, accepted, resolved, waits_for: None }];
        attachments.routes.insert(key.clone(), RouteState { parents });
        let told = of_gateway_api(&snapshot);
        let of_class = &told[&("GatewayClass", ObjectKey::new("", "packrat"), "1".to_owned())];
        assert!(!of_class[0].is_problem && of_class[0].reason == "Accepted");
        assert!(of_class[1].is_problem && of_class[1].reason == "UnsupportedVersion");
        let of_route = &told[&("UDPRoute", key, "2".to_owned())];
        assert_eq!(of_route.len(), 2);
        assert_eq!(of_route[0].message, "Gateway edge: it is served");
        assert!(of_route[1].is_problem && of_route[1].reason == "BackendNotFound");
        assert_eq!(of_route[1].message, "Gateway edge: there is no Service web");
    }
}
