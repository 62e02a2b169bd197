//! An Envoy's requests to the operator in the delta discovery protocol, as bytes, while its
//! listeners change.
//!
//! Input: steps of one byte, the kind in the lower two bits and a number in the upper six; requests
//! follow as a length byte and as many bytes.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use crate::xds::delta::{Heard, Stream};
use crate::xds::proto::Any;
use crate::xds::wire::{DeltaDiscoveryRequest, LISTENER_TYPE, Status};
use crate::xds::{Resources, Versioned};

use packrat_fuzz_entry::take;

/// Runs the steps; panics when Envoy would lack a resource in the end, or gets the same one again
/// without having asked.
pub(crate) fn discovery_requests(data: &[u8]) {
    let mut stream = Stream::default();
    let mut resources = Resources::default();
    // Names and versions of Envoy's resources.
    let mut has: BTreeMap<String, String> = BTreeMap::new();
    let (mut subscribed, mut unanswered, mut nonces) = (false, Vec::new(), BTreeSet::new());
    let mut rest = data;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = step >> 2;
        let request = match step & 3 {
            0 => {
                // A listener comes, changes or goes.
                let name = format!("udp-{}", number % 4);
                if number & 4 == 0 {
                    resources.remove(&name);
                } else {
                    let resource = Any { type_url: String::new(), value: vec![number] };
                    resources.insert(name, Versioned { version: number.to_string(), resource });
                }
                None
            }
            1 => DeltaDiscoveryRequest::decode(take(&mut rest)).ok(),
            // Envoy's answer to a response, and its reasons where it refuses.
            2 if !unanswered.is_empty() => {
                let response_nonce = unanswered.remove(usize::from(number) % unanswered.len());
                let message = format!("udp-{}: refused", number % 4);
                let error_detail = (number & 8 != 0).then_some(Status { code: 13, message });
                let type_url = LISTENER_TYPE.to_owned();
                Some(DeltaDiscoveryRequest {
                    type_url,
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
            if !subscribed && request.type_url == LISTENER_TYPE {
                subscribed = true;
                has = request.initial_resource_versions.clone().into_iter().collect();
            }
            if let Heard::Refused(reason) = stream.hear(&request) {
                assert!(subscribed, "{reason}");
            }
        }
        for _ in 0..4 {
            let Some(response) = stream.next(&resources) else { break };
            assert!(
                nonces.insert(response.nonce.clone()) || response.type_url != LISTENER_TYPE,
                "a nonce again"
            );
            if response.type_url != LISTENER_TYPE {
                assert!(response.resources.is_empty());
                continue;
            }
            assert!(subscribed, "nobody has asked");
            unanswered.push(response.nonce);
            for resource in response.resources {
                let before = has.insert(resource.name, resource.version.clone());
                assert_ne!(before, Some(resource.version), "the same again");
            }
            for name in response.removed_resources {
                assert!(has.remove(&name).is_some(), "{name} was not there");
            }
        }
        assert_eq!(stream.next(&resources), None, "responses without end");
        if subscribed {
            for (name, resource) in &resources {
                assert_eq!(has.get(name), Some(&resource.version), "{name}");
            }
        }
    }
}
