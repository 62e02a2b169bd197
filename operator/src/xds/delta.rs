//! The server's half of a delta discovery stream, without the stream.
//!
//! Envoy's listeners are known from its first request (`initial_resource_versions`: after a restart
//! of the operator nothing is sent that Envoy has already) and from the responses sent. A refused
//! version is not sent again; a newer one is.
//!
//! Responses carry differences, so that a refusal counts until the listener in question is taken,
//! in a newer version, or removed: that Envoy takes another listener says nothing about it.

use std::collections::{BTreeMap, BTreeSet};

use super::Resources;
use super::wire::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, LISTENER_TYPE, Resource};

/// The meaning of a request of Envoy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It wants something; look at [`Stream::next`].
    Subscription,
    /// It has taken everything that it was sent and has answered.
    Accepted,
    /// It has refused a listener, in this response or an earlier one; Envoy's reasons.
    Refused(String),
    /// About a response that was answered already, or a type that is not served.
    Nothing,
}

/// State of one stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// True if listeners were asked for.
    subscribed: bool,
    /// True if a response is due even when nothing has changed: Envoy waits for the first one.
    owes: bool,
    /// Names and versions of the listeners that Envoy has, or was sent.
    sent: BTreeMap<String, String>,
    sequence: u64,
    /// Types that are asked for and never have anything.
    empty_types: Vec<String>,
    /// Listeners in responses that Envoy has not answered, by the response's number.
    unanswered: BTreeMap<u64, BTreeSet<String>>,
    /// Envoy's reason for each listener that it has refused.
    refused: BTreeMap<String, String>,
    /// Listeners that Envoy had when the stream began, and that have not been wanted since.
    inherited: BTreeSet<String>,
}

impl Stream {
    /// Takes a request.
    pub fn hear(&mut self, request: &DeltaDiscoveryRequest) -> Heard {
        if request.type_url != LISTENER_TYPE {
            if request.response_nonce.is_empty() {
                self.empty_types.push(request.type_url.clone());
                return Heard::Subscription;
            }
            return Heard::Nothing;
        }
        if !self.subscribed {
            self.subscribed = true;
            self.owes = true;
            self.sent = request.initial_resource_versions.clone().into_iter().collect();
            self.inherited = self.sent.keys().cloned().collect();
            return Heard::Subscription;
        }
        if request.response_nonce.is_empty() {
            return Heard::Subscription;
        }
        let answered = request.response_nonce.parse().ok();
        let Some((number, names)) =
            answered.and_then(|number| self.unanswered.remove_entry(&number))
        else {
            return Heard::Nothing;
        };
        for name in &names {
            self.refused.remove(name);
        }
        self.refused.remove("");
        if let Some(error) = &request.error_detail {
            self.refuse(number, &names, &error.message);
        }
        if self.refused.is_empty() {
            return Heard::Accepted;
        }
        let reasons: BTreeSet<&str> =
            self.refused.values().map(|reason| reason.trim_end()).collect();
        Heard::Refused(reasons.into_iter().collect::<Vec<_>>().join("; "))
    }

    /// Remembers which listeners of a response were refused. Envoy's reason names them (`udp-443:
    /// …`) and not those that it has taken.
    fn refuse(&mut self, number: u64, names: &BTreeSet<String>, reason: &str) {
        let named: Vec<&String> =
            names.iter().filter(|name| reason.contains(&format!("{name}:"))).collect();
        let mut meant = if named.is_empty() { names.iter().collect() } else { named };
        if meant.is_empty() {
            // A response without listeners: the next answer of whatever kind takes its place.
            self.refused.insert(String::new(), reason.to_owned());
        }
        // For listeners that were sent again meanwhile, the newer answer counts.
        meant.retain(|name| {
            !self.unanswered.iter().any(|(newer, sent)| *newer > number && sent.contains(*name))
        });
        for name in meant {
            self.refused.insert(name.clone(), reason.to_owned());
        }
    }

    /// True if Envoy has acknowledged all of `resources`, besides those that do not matter.
    pub fn has_taken(&self, resources: &Resources, matters: impl Fn(&str) -> bool) -> bool {
        let is_unanswered =
            |name: &String| self.unanswered.values().any(|names| names.contains(name));
        self.subscribed
            && !self.owes
            && self.refused.is_empty()
            && resources.iter().filter(|(name, _)| matters(name)).all(|(name, resource)| {
                self.sent.get(name) == Some(&resource.version) && !is_unanswered(name)
            })
    }

    /// Lets listeners be removed that Envoy had when the stream began and that no route needs.
    /// Before, they stay: this replica may have missed their removal and does not know how long
    /// their sessions have had to end.
    pub fn release(&mut self) {
        self.inherited.clear();
    }

    /// The next response, if one is needed, so that Envoy has `resources`.
    pub fn next(&mut self, resources: &Resources) -> Option<DeltaDiscoveryResponse> {
        if let Some(type_url) = self.empty_types.pop() {
            self.sequence += 1;
            let nonce = format!("empty-{}", self.sequence);
            self.sequence -= 1;
            return Some(DeltaDiscoveryResponse {
                type_url,
                nonce,
                ..DeltaDiscoveryResponse::default()
            });
        }
        if !self.subscribed {
            return None;
        }
        let changed: Vec<Resource> = resources
            .iter()
            .filter(|(name, resource)| self.sent.get(*name) != Some(&resource.version))
            .map(|(name, resource)| Resource {
                version: resource.version.clone(),
                resource: Some(resource.resource.clone()),
                name: name.clone(),
            })
            .collect();
        self.inherited.retain(|name| !resources.contains_key(name));
        let removed: Vec<String> = self
            .sent
            .keys()
            .filter(|name| !resources.contains_key(*name) && !self.inherited.contains(*name))
            .cloned()
            .collect();
        if changed.is_empty() && removed.is_empty() && !self.owes {
            return None;
        }
        self.owes = false;
        self.sequence += 1;
        for resource in &changed {
            self.sent.insert(resource.name.clone(), resource.version.clone());
        }
        for name in &removed {
            self.sent.remove(name);
            self.refused.remove(name);
        }
        let names = changed.iter().map(|resource| resource.name.clone()).collect();
        self.unanswered.insert(self.sequence, names);
        Some(DeltaDiscoveryResponse {
            system_version_info: String::new(),
            resources: changed,
            type_url: LISTENER_TYPE.to_owned(),
            nonce: self.sequence.to_string(),
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
                let resource = Any { type_url: String::new(), value: vec![*content] };
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
        let mut stream = Stream::default();
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
    /// sessions keep their time to end.
    #[test]
    fn what_envoy_had_before_is_removed_later_and_what_it_has_lost_since_at_once() {
        let mut stream = Stream::default();
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
        let mut stream = Stream::default();
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
        let mut stream = Stream::default();
        stream.hear(&subscribe(&[]));
        assert!(stream.next(&Resources::new()).unwrap().resources.is_empty());
        assert_eq!(stream.next(&Resources::new()), None);
        // Other types as well, or Envoy waits for them.
        let other = DeltaDiscoveryRequest { type_url: "clusters".to_owned(), ..subscribe(&[]) };
        assert_eq!(stream.hear(&other), Heard::Subscription);
        assert_eq!(stream.next(&Resources::new()).unwrap().type_url, "clusters");
        assert_eq!(stream.next(&Resources::new()), None);
    }

    #[test]
    fn a_refused_version_is_not_sent_again_but_a_newer_one_is() {
        let mut stream = Stream::default();
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
            let mut stream = Stream::default();
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
