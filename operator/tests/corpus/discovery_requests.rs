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

/// Runs the steps; panics when Envoy would lack a resource in the end, or gets the same one again
/// without having asked.
pub(crate) fn discovery_requests(data: &[u8]) {
    let mut stream = DeltaStream::default();
    let mut resources = Resources::default();
    // Names and versions of Envoy's resources, by type, since it has asked for that.
    let mut has: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let (mut unanswered, mut nonces) = (Vec::new(), BTreeSet::new());
    let mut rest = data;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = step >> 2;
        let request = match step & 3 {
            0 => {
                // A listener or a cluster comes, changes or goes.
                let (name, type_url) = match number & 16 {
                    0 => (format!("udp-{}", number % 4), LISTENER_TYPE),
                    _ => (format!("servers-{}", number % 4), CLUSTER_TYPE),
                };
                if number & 4 == 0 {
                    resources.remove(&name);
                } else {
                    let resource = Any { type_url: type_url.to_owned(), value: vec![number] };
                    resources.insert(name, Versioned { version: number.to_string(), resource });
                }
                None
            }
            1 => DeltaDiscoveryRequest::decode(take(&mut rest)).ok(),
            // Envoy's answer to a response, with its reasons if it refuses.
            2 if !unanswered.is_empty() => {
                let (type_url, response_nonce): (&str, _) =
                    unanswered.remove(usize::from(number) % unanswered.len());
                let message = format!("udp-{}: refused", number % 4);
                let error_detail = (number & 8 != 0).then_some(Status { code: 13, message });
                Some(DeltaDiscoveryRequest {
                    type_url: type_url.to_owned(),
                    response_nonce,
                    error_detail,
                    ..Default::default()
                })
            }
            2 => Some(DeltaDiscoveryRequest {
                type_url: LISTENER_TYPE.to_owned(),
                ..Default::default()
            }),
            _ => {
                stream.release();
                None
            }
        };
        if let Some(request) = request {
            if let Some(type_url) = known(&request.type_url) {
                let before = request.initial_resource_versions.clone().into_iter();
                has.entry(type_url).or_insert_with(|| before.collect());
            }
            if let Heard::Refused(reason) = stream.hear(&request) {
                assert!(!has.is_empty(), "{reason}");
            }
        }
        for _ in 0..4 {
            let Some(response) = stream.next(&resources) else { break };
            let Some(type_url) = known(&response.type_url) else {
                assert!(response.resources.is_empty());
                continue;
            };
            assert!(nonces.insert(response.nonce.clone()), "a nonce again");
            let has = has.get_mut(type_url).expect("nobody has asked");
            unanswered.push((type_url, response.nonce));
            for resource in response.resources {
                let before = has.insert(resource.name, resource.version.clone());
                assert_ne!(before, Some(resource.version), "the same again");
            }
            for name in response.removed_resources {
                assert!(has.remove(&name).is_some(), "{name} was not there");
            }
        }
        assert_eq!(stream.next(&resources), None, "responses without end");
        for (name, resource) in &resources {
            let of_type = known(&resource.resource.type_url).and_then(|type_url| has.get(type_url));
            if let Some(has) = of_type {
                assert_eq!(has.get(name), Some(&resource.version), "{name}");
            }
        }
    }
}

/// A type that is served.
fn known(type_url: &str) -> Option<&'static str> {
    [LISTENER_TYPE, CLUSTER_TYPE].into_iter().find(|known| *known == type_url)
}
