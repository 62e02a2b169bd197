//! An Envoy's requests to the operator in the delta discovery protocol, as bytes, while its
//! listeners and clusters change.
//!
//! Input: steps of one byte, the kind in the lower two bits and a number in the upper six; requests
//! follow as a length byte and as many bytes.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use super::xds::delta::{DeltaStream, Heard};
use super::xds::proto::Any;
use super::xds::wire::{CLUSTER_TYPE, DeltaDiscoveryRequest, LISTENER_TYPE, Status};
use super::xds::{Resources, Versioned};

use packrat_fuzz_entry::take;

/// An Envoy and the stream of its requests.
#[derive(Default)]
struct Session {
    stream: DeltaStream,
    resources: Resources,
    /// Names and versions of Envoy's resources, by type, since it has asked for that.
    has: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// Type and nonce of each response that Envoy has not answered.
    unanswered: Vec<(&'static str, String)>,
    nonces: BTreeSet<String>,
}

/// Runs the steps; panics when Envoy would lack a resource in the end, or gets the same one again
/// without having asked.
pub(crate) fn discovery_requests(data: &[u8]) {
    let mut session = Session::default();
    let mut rest = data;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = step >> 2;
        let request = match step & 3 {
            0 => session.change(number),
            1 => DeltaDiscoveryRequest::decode(take(&mut rest)).ok(),
            2 => Some(session.answer(number)),
            _ => {
                session.stream.release();
                None
            }
        };
        if let Some(request) = request {
            session.hear(&request);
        }
        session.take_responses();
    }
}

impl Session {
    /// A listener or a cluster comes, changes or goes.
    fn change(&mut self, number: u8) -> Option<DeltaDiscoveryRequest> {
        let (name, type_url) = match number & 16 {
            0 => (format!("udp-{}", number % 4), LISTENER_TYPE),
            _ => (format!("servers-{}", number % 4), CLUSTER_TYPE),
        };
        if number & 4 == 0 {
            self.resources.remove(&name);
        } else {
            let resource = Any { type_url: type_url.to_owned(), value: vec![number] };
            self.resources.insert(name, Versioned { version: number.to_string(), resource });
        }
        None
    }

    /// Envoy's answer to a response, with its reasons if it refuses; or its first request.
    fn answer(&mut self, number: u8) -> DeltaDiscoveryRequest {
        if self.unanswered.is_empty() {
            return DeltaDiscoveryRequest {
                type_url: LISTENER_TYPE.to_owned(),
                ..Default::default()
            };
        }
        let at = usize::from(number) % self.unanswered.len();
        let (type_url, response_nonce) = self.unanswered.remove(at);
        let message = format!("udp-{}: refused", number % 4);
        let error_detail = (number & 8 != 0).then_some(Status { code: 13, message });
        let type_url = type_url.to_owned();
        DeltaDiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() }
    }

    fn hear(&mut self, request: &DeltaDiscoveryRequest) {
        if let Some(type_url) = known(&request.type_url) {
            let before = request.initial_resource_versions.clone().into_iter();
            self.has.entry(type_url).or_insert_with(|| before.collect());
        }
        if let Heard::Refused(reason) = self.stream.hear(request) {
            assert!(!self.has.is_empty(), "{reason}");
        }
    }

    fn take_responses(&mut self) {
        for _ in 0..4 {
            let Some(response) = self.stream.next(&self.resources) else { break };
            let Some(type_url) = known(&response.type_url) else {
                assert!(response.resources.is_empty());
                continue;
            };
            assert!(self.nonces.insert(response.nonce.clone()), "a nonce again");
            let has = self.has.get_mut(type_url).expect("nobody has asked");
            self.unanswered.push((type_url, response.nonce));
            for resource in response.resources {
                let before = has.insert(resource.name, resource.version.clone());
                assert_ne!(before, Some(resource.version), "the same again");
            }
            for name in response.removed_resources {
                assert!(has.remove(&name).is_some(), "{name} was not there");
            }
        }
        assert_eq!(self.stream.next(&self.resources), None, "responses without end");
        for (name, resource) in &self.resources {
            let type_url = known(&resource.resource.type_url);
            if let Some(has) = type_url.and_then(|type_url| self.has.get(type_url)) {
                assert_eq!(has.get(name), Some(&resource.version), "{name}");
            }
        }
    }
}

/// A type that is served.
fn known(type_url: &str) -> Option<&'static str> {
    [LISTENER_TYPE, CLUSTER_TYPE].into_iter().find(|known| *known == type_url)
}
