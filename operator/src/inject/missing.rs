//! Pods that ask for a sidecar but lack it: the API server starts them without one while no
//! operator answers it.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::pod::{Outcome, Sidecar, inject_pod};
use crate::names::{INJECT_ANNOTATION, REFUSED_ANNOTATION};
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
    let refused = pod["metadata"]["annotations"][REFUSED_ANNOTATION].as_str().map(str::to_owned);
    let message = match (inject_pod(&mut pod, &Sidecar::default()), refused) {
        (Ok(Outcome::NotWanted | Outcome::Present), _) => return None,
        (Ok(Outcome::Injected(_)), Some(refused)) => format!("the Pod has no sidecar: {refused}"),
        (Ok(Outcome::Injected(_)), None) => {
            "the Pod has no sidecar although it asks for one: the injector was not reached when the Pod was made, or does not serve its namespace; delete the Pod to have another one made".to_owned()
        }
        (Err(error), _) => format!("the Pod has no sidecar: {error}"),
    };
    Some(Problem { reason: Reason::NotInjected, message })
}
