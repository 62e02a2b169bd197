//! Pods that ask for a sidecar but lack it: the API server starts them without one while no
//! operator answers it.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::pod::{Outcome, Sidecar, inject_pod};
use crate::names::INJECT_ANNOTATION;
use crate::problem::{Problem, Reason};

/// The reason for which a Pod has no sidecar although it asks for one, and what to do about it.
/// Its containers prove that it has one, a label would not.
pub fn missing_sidecar(pod: &Pod) -> Option<Problem> {
    if !pod.annotations().contains_key(INJECT_ANNOTATION)
        || pod.metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let mut pod = serde_json::to_value(pod).ok()?;
    let sidecar =
        Sidecar { image: String::new(), listen_address: String::new(), pull_policy: None };
    let message = match inject_pod(&mut pod, &sidecar) {
        Ok(Outcome::NotWanted | Outcome::Present) => return None,
        Ok(Outcome::Injected(_)) => {
            "the Pod has no sidecar although it asks for one: the injector was not reached when the Pod was made, or does not serve its namespace; delete the Pod to have another one made".to_owned()
        }
        Err(error) => format!("the Pod has no sidecar: {error}"),
    };
    Some(Problem { reason: Reason::NotInjected, message })
}
