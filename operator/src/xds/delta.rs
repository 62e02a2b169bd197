//! The server's half of a delta discovery stream, without the stream.
//!
//! Envoy's resources are known from its first request (`initial_resource_versions`: after a restart
//! of the operator, resources that Envoy has already are not sent) and from the responses sent. A
//! refused version is not sent again; a newer one is.
//!
//! Responses carry differences, so that a refusal counts until the listener or cluster in question
//! is taken, in a newer version, or removed: another one that Envoy takes does not end it.

use std::collections::{BTreeMap, BTreeSet};

use super::wire::{
    CLUSTER_TYPE, DeltaDiscoveryRequest, DeltaDiscoveryResponse, LISTENER_TYPE, Resource,
};
use super::{Resources, Versioned};
use crate::message::shortened;

/// The meaning of a request of Envoy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Envoy wants resources; look at [`DeltaStream::next`].
    Subscription,
    /// Envoy has taken everything that it was sent and has answered.
    Accepted,
    /// Envoy has refused a listener, in this response or an earlier one; Envoy's reasons.
    Refused(String),
    /// Answer to a response that was answered already, or request for a type that is not served.
    Nothing,
}

/// State of one stream: listeners, and the clusters that some of them lead to.
#[derive(Debug)]
pub struct DeltaStream {
    clusters: Half,
    listeners: Half,
    sequence: u64,
    /// Types that are asked for and never have anything.
    empty_types: Vec<String>,
}

/// State of one type of resources.
#[derive(Debug)]
struct Half {
    type_url: &'static str,
    /// True if they were asked for.
    subscribed: bool,
    /// True if a response is due even without a change: Envoy waits for the first one.
    owes: bool,
    /// Names and versions of the resources that Envoy has, or was sent.
    sent: BTreeMap<String, String>,
    /// Resources in responses that Envoy has not answered, by the response's number.
    unanswered: BTreeMap<u64, BTreeSet<String>>,
    /// Envoy's reason for each resource that it has refused.
    refused: BTreeMap<String, String>,
    /// Resources that Envoy had when the stream began, and that have not been wanted since.
    inherited: BTreeSet<String>,
}

impl Default for DeltaStream {
    fn default() -> Self {
        Self {
            clusters: Half::new(CLUSTER_TYPE),
            listeners: Half::new(LISTENER_TYPE),
            sequence: 0,
            empty_types: Vec::new(),
        }
    }
}

impl DeltaStream {
    /// Takes a request.
    pub fn hear(&mut self, request: &DeltaDiscoveryRequest) -> Heard {
        let half = match request.type_url.as_str() {
            LISTENER_TYPE => &mut self.listeners,
            CLUSTER_TYPE => &mut self.clusters,
            _ if request.response_nonce.is_empty() => {
                self.empty_types.push(request.type_url.clone());
                return Heard::Subscription;
            }
            _ => return Heard::Nothing,
        };
        if let Some(heard) = half.hear(request) {
            return heard;
        }
        let reasons: BTreeSet<&str> = [&self.clusters, &self.listeners]
            .into_iter()
            .flat_map(|half| half.refused.values())
            .map(|reason| reason.trim_end())
            .collect();
        if reasons.is_empty() {
            return Heard::Accepted;
        }
        // It becomes a part of a status.
        Heard::Refused(shortened(reasons.into_iter().collect::<Vec<_>>().join("; ")))
    }

    /// True if Envoy has acknowledged all of `resources` that matter.
    pub fn has_taken(&self, resources: &Resources, matters: impl Fn(&str) -> bool) -> bool {
        // An Envoy of a former version does not ask for clusters, and needs none while the list is
        // empty.
        let clusters = &self.clusters;
        let needs_none =
            !clusters.subscribed && !resources.values().any(|found| clusters.has(found));
        self.listeners.has_taken(resources, &matters)
            && (needs_none || clusters.has_taken(resources, &matters))
    }

    /// Lets resources be removed that Envoy had when the stream began and that no route needs.
    /// Before, they stay: this replica may have missed their removal and does not know how long
    /// their sessions have had to end.
    pub fn release(&mut self) {
        self.listeners.inherited.clear();
        self.clusters.inherited.clear();
    }

    /// The next response, if one is needed, so that Envoy has `resources`.
    pub fn next(&mut self, resources: &Resources) -> Option<DeltaDiscoveryResponse> {
        if let Some(type_url) = self.empty_types.pop() {
            let nonce = format!("empty-{}", self.sequence + 1);
            return Some(DeltaDiscoveryResponse {
                type_url,
                nonce,
                ..DeltaDiscoveryResponse::default()
            });
        }
        // Clusters come before the listeners that lead to them, and go after these.
        let number = self.sequence + 1;
        let response = self
            .clusters
            .next(resources, number, false)
            .or_else(|| self.listeners.next(resources, number, true))
            .or_else(|| self.clusters.next(resources, number, true))?;
        self.sequence = number;
        Some(response)
    }
}

impl Half {
    fn new(type_url: &'static str) -> Self {
        Self {
            type_url,
            subscribed: false,
            owes: false,
            sent: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            refused: BTreeMap::new(),
            inherited: BTreeSet::new(),
        }
    }

    /// True if a resource is of this type.
    fn has(&self, resource: &Versioned) -> bool {
        resource.resource.type_url == self.type_url
    }

    /// Takes a request. `None`: it is an answer.
    fn hear(&mut self, request: &DeltaDiscoveryRequest) -> Option<Heard> {
        if !self.subscribed {
            self.subscribed = true;
            self.owes = true;
            self.sent = request.initial_resource_versions.clone().into_iter().collect();
            self.inherited = self.sent.keys().cloned().collect();
            return Some(Heard::Subscription);
        }
        if request.response_nonce.is_empty() {
            return Some(Heard::Subscription);
        }
        let answered = request.response_nonce.parse().ok();
        let Some((number, names)) =
            answered.and_then(|number| self.unanswered.remove_entry(&number))
        else {
            return Some(Heard::Nothing);
        };
        for name in &names {
            self.refused.remove(name);
        }
        self.refused.remove("");
        if let Some(error) = &request.error_detail {
            self.refuse(number, &names, &error.message);
        }
        None
    }

    /// Remembers the resources of a response that were refused. Envoy's reason names them
    /// (`udp-443: …`) but not the accepted ones.
    fn refuse(&mut self, number: u64, names: &BTreeSet<String>, reason: &str) {
        let named: Vec<&String> =
            names.iter().filter(|name| reason.contains(&format!("{name}:"))).collect();
        let mut meant = if named.is_empty() { names.iter().collect() } else { named };
        if meant.is_empty() {
            // A response without resources: the next answer of whatever kind takes its place.
            self.refused.insert(String::new(), reason.to_owned());
        }
        // For resources that have been sent again since, the newer answer counts.
        meant.retain(|name| {
            !self.unanswered.iter().any(|(newer, sent)| *newer > number && sent.contains(*name))
        });
        for name in meant {
            self.refused.insert(name.clone(), reason.to_owned());
        }
    }

    fn has_taken(&self, resources: &Resources, matters: impl Fn(&str) -> bool) -> bool {
        let is_unanswered =
            |name: &String| self.unanswered.values().any(|names| names.contains(name));
        let wanted = resources.iter().filter(|(name, found)| self.has(found) && matters(name));
        self.subscribed
            && !self.owes
            && self.refused.is_empty()
            && wanted.into_iter().all(|(name, resource)| {
                self.sent.get(name) == Some(&resource.version) && !is_unanswered(name)
            })
    }

    /// The next response, with this number. `removes`: unwanted resources may go.
    fn next(
        &mut self,
        resources: &Resources,
        number: u64,
        removes: bool,
    ) -> Option<DeltaDiscoveryResponse> {
        if !self.subscribed {
            return None;
        }
        let is_wanted = |name: &String| resources.get(name).is_some_and(|found| self.has(found));
        let changed: Vec<Resource> = resources
            .iter()
            .filter(|(name, found)| self.has(found) && self.sent.get(*name) != Some(&found.version))
            .map(|(name, resource)| Resource {
                version: resource.version.clone(),
                resource: Some(resource.resource.clone()),
                name: name.clone(),
            })
            .collect();
        let wanted_again: Vec<String> =
            self.inherited.iter().filter(|name| is_wanted(name)).cloned().collect();
        let mut removed: Vec<String> = Vec::new();
        if removes {
            let is_kept = |name: &String| is_wanted(name) || self.inherited.contains(name);
            removed.extend(self.sent.keys().filter(|name| !is_kept(name)).cloned());
        }
        for name in wanted_again {
            self.inherited.remove(&name);
        }
        if changed.is_empty() && removed.is_empty() && !self.owes {
            return None;
        }
        self.owes = false;
        for resource in &changed {
            self.sent.insert(resource.name.clone(), resource.version.clone());
        }
        for name in &removed {
            self.sent.remove(name);
            self.refused.remove(name);
        }
        let names = changed.iter().map(|resource| resource.name.clone()).collect();
        self.unanswered.insert(number, names);
        Some(DeltaDiscoveryResponse {
            system_version_info: String::new(),
            resources: changed,
            type_url: self.type_url.to_owned(),
            nonce: number.to_string(),
            removed_resources: removed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::proto::Any;
    use crate::xds::resources::Versioned;
    use crate::xds::wire::Status;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn resources(of: &[(&str, u8)]) -> Resources {
        of.iter()
            .map(|(name, content)| {
                let resource = Any { type_url: LISTENER_TYPE.to_owned(), value: vec![*content] };
                ((*name).to_owned(), Versioned { version: content.to_string(), resource })
            })
            .collect()
    }

    fn subscribe(initial: &[(&str, &str)]) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            type_url: LISTENER_TYPE.to_owned(),
            initial_resource_versions: initial
                .iter()
                .map(|(name, version)| ((*name).to_owned(), (*version).to_owned()))
                .collect(),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn answer(nonce: &str, error: Option<&str>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            type_url: LISTENER_TYPE.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail: error.map(|message| Status { code: 13, message: message.to_owned() }),
            ..DeltaDiscoveryRequest::default()
        }
    }

    #[test]
    fn a_reconnecting_envoy_is_sent_the_difference_only() {
        let mut stream = DeltaStream::default();
        assert_eq!(stream.next(&resources(&[("a", 1)])), None, "nobody has asked");
        assert_eq!(
            stream.hear(&subscribe(&[("a", "1"), ("b", "1"), ("c", "1")])),
            Heard::Subscription
        );
        let response = stream.next(&resources(&[("a", 1), ("b", 2)])).unwrap();
        assert_eq!(
            response.resources.iter().map(|resource| resource.name.as_str()).collect::<Vec<_>>(),
            ["b"]
        );
        assert_eq!(stream.next(&resources(&[("a", 1), ("b", 2)])), None);
    }

    /// A replica that has just started does not know that a route was removed a moment ago: its
    /// sessions keep their time to end. Listeners that the replica itself had are removed at once.
    #[test]
    fn unknown_listeners_are_removed_late_and_known_ones_at_once() {
        let mut stream = DeltaStream::default();
        stream.hear(&subscribe(&[("a", "1"), ("b", "1"), ("c", "1")]));
        let first = stream.next(&resources(&[("a", 1), ("b", 1)])).unwrap();
        assert_eq!(
            (first.resources.len(), first.removed_resources.len()),
            (0, 0),
            "only the owed answer"
        );
        assert_eq!(stream.next(&resources(&[("a", 1)])).unwrap().removed_resources, ["b"]);
        stream.release();
        assert_eq!(stream.next(&resources(&[("a", 1)])).unwrap().removed_resources, ["c"]);
        assert_eq!(stream.next(&resources(&[("a", 1)])), None);
    }

    /// Otherwise Programmed would be true as soon as any other Service changes.
    #[test]
    fn a_refusal_counts_until_that_listener_is_taken_or_removed() {
        let mut stream = DeltaStream::default();
        stream.hear(&subscribe(&[]));
        let first = stream.next(&resources(&[("a", 1), ("b", 1)])).unwrap();
        let no_a = Heard::Refused("Error adding/updating listener(s) a: no".to_owned());
        let reason = "Error adding/updating listener(s) a: no\n";
        assert_eq!(stream.hear(&answer(&first.nonce, Some(reason))), no_a);
        let other = stream.next(&resources(&[("a", 1), ("b", 2)])).unwrap();
        assert_eq!(stream.hear(&answer(&other.nonce, None)), no_a, "b was taken, a was not");
        let removal = stream.next(&resources(&[("b", 2)])).unwrap();
        assert_eq!(stream.hear(&answer(&removal.nonce, None)), Heard::Accepted);

        // A refusal that arrives after the next response was sent counts as well, for what that one
        // does not repeat.
        let third = stream.next(&resources(&[("b", 3), ("c", 3)])).unwrap();
        let fourth = stream.next(&resources(&[("b", 4), ("c", 3)])).unwrap();
        assert_eq!(stream.hear(&answer(&third.nonce, Some("no"))), Heard::Refused("no".to_owned()));
        assert_eq!(stream.hear(&answer(&fourth.nonce, None)), Heard::Refused("no".to_owned()));
        let fifth = stream.next(&resources(&[("b", 4), ("c", 5)])).unwrap();
        assert_eq!(stream.hear(&answer(&fifth.nonce, None)), Heard::Accepted);
    }

    #[test]
    fn the_first_request_is_answered_even_with_nothing() {
        let mut stream = DeltaStream::default();
        stream.hear(&subscribe(&[]));
        assert!(stream.next(&Resources::new()).unwrap().resources.is_empty());
        assert_eq!(stream.next(&Resources::new()), None);
        // Other types as well, or Envoy waits for them.
        let other = DeltaDiscoveryRequest { type_url: "clusters".to_owned(), ..subscribe(&[]) };
        assert_eq!(stream.hear(&other), Heard::Subscription);
        assert_eq!(stream.next(&Resources::new()).unwrap().type_url, "clusters");
        assert_eq!(stream.next(&Resources::new()), None);
    }

    /// A connection that finds no cluster is closed.
    #[test]
    fn clusters_come_before_their_listeners_and_go_after_them() {
        let ask = |type_url: &str| DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            ..subscribe(&[])
        };
        let with = |listener: bool| {
            let mut all = resources(if listener { &[("tcp-1", 1)] } else { &[] });
            if listener {
                let resource = Any { type_url: CLUSTER_TYPE.to_owned(), value: vec![1] };
                let cluster = Versioned { version: "1".to_owned(), resource };
                all.insert("servers-1".to_owned(), cluster);
            }
            all
        };
        let mut stream = DeltaStream::default();
        stream.hear(&ask(LISTENER_TYPE));
        assert!(!stream.has_taken(&with(true), |_| true));
        stream.hear(&ask(CLUSTER_TYPE));
        let mut types = Vec::new();
        for there in [true, false] {
            while let Some(response) = stream.next(&with(there)) {
                let names = response.resources.into_iter().map(|resource| resource.name);
                types.push(names.chain(response.removed_resources).collect::<Vec<_>>());
                let request = DeltaDiscoveryRequest {
                    type_url: response.type_url,
                    ..answer(&response.nonce, None)
                };
                assert_eq!(stream.hear(&request), Heard::Accepted);
            }
            assert!(stream.has_taken(&with(there), |_| true));
        }
        assert_eq!(types, [["servers-1"], ["tcp-1"], ["tcp-1"], ["servers-1"]]);
    }

    #[test]
    fn a_refused_version_is_not_sent_again_but_a_newer_one_is() {
        let mut stream = DeltaStream::default();
        stream.hear(&subscribe(&[]));
        let response = stream.next(&resources(&[("a", 1)])).unwrap();
        assert_eq!(
            stream.hear(&answer(&response.nonce, Some("no"))),
            Heard::Refused("no".to_owned())
        );
        assert_eq!(stream.next(&resources(&[("a", 1)])), None);
        let second = stream.next(&resources(&[("a", 2)])).unwrap();
        assert_eq!(stream.hear(&answer(&response.nonce, Some("late"))), Heard::Nothing);
        assert_eq!(stream.hear(&answer(&second.nonce, None)), Heard::Accepted);
    }

    proptest! {
        /// Whatever happens in between, Envoy ends up with the index's listeners.
        #[test]
        fn envoy_ends_up_with_the_resources(
            initial in prop::collection::hash_map("[a-e]", "[0-3]", 0..5),
            steps in prop::collection::vec(prop::collection::btree_map("[a-e]", 0u8..4, 0..5), 1..12),
            refuse in prop::collection::vec(any::<bool>(), 12),
        ) {
            let mut envoy: HashMap<String, String> = initial.clone();
            let mut stream = DeltaStream::default();
            stream.hear(&DeltaDiscoveryRequest { initial_resource_versions: initial, ..subscribe(&[]) });
            stream.release();
            for (step, refuse) in steps.iter().zip(refuse) {
                let wanted: Vec<_> = step.iter().map(|(name, content)| (name.as_str(), *content)).collect();
                let wanted = resources(&wanted);
                if let Some(response) = stream.next(&wanted) {
                    // A refusal is of the whole response here; the real Envoy's names the listeners in question.
                    for resource in response.resources {
                        envoy.insert(resource.name, resource.version);
                    }
                    for name in response.removed_resources {
                        envoy.remove(&name);
                    }
                    stream.hear(&answer(&response.nonce, refuse.then_some("no")));
                }
                let versions: HashMap<_, _> = wanted.iter().map(|(name, resource)| (name.clone(), resource.version.clone())).collect();
                prop_assert_eq!(&envoy, &versions);
                prop_assert_eq!(stream.next(&wanted), None);
            }
        }
    }
}
