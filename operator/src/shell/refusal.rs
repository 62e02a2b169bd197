//! The reason for which the API server has refused a request, in a sentence: kube's own text
//! repeats the whole answer.

use std::time::Duration;

use kube::Error;
use kube::runtime::watcher;

/// The reason in an answer's causes when a namespace is being deleted (Kubernetes'
/// `NamespaceTerminatingCause`).
const NAMESPACE_ENDS: &str = "NamespaceTerminating";

/// Message about an error, one sentence.
pub(super) fn told(error: &Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        Error::Api(status) => format!("{} {}", status.code, status.reason),
        other => other.to_string(),
    }
}

/// Message about an error of a watch.
pub(super) fn told_by_watch(error: &watcher::Error) -> String {
    use watcher::Error as Watch;
    match error {
        Watch::InitialListFailed(error) => format!("the list cannot be had: {}", told(error)),
        Watch::WatchStartFailed(error) => format!("the watch does not begin: {}", told(error)),
        Watch::WatchFailed(error) => format!("the watch has broken off: {}", told(error)),
        Watch::WatchError(status) => format!("the watch was ended: {}", status.message),
        other => other.to_string(),
    }
}

/// True if the API server has not answered, or only that it cannot.
pub(super) fn is_silence(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if status.code < 500 && status.code != 429)
}

/// Time between two attempts at an API server that does not answer.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(2);

/// Repeats work until the API server answers. `is_silence`: true for errors without an answer.
pub(super) async fn answered<T, E: std::fmt::Display>(
    mut work: impl AsyncFnMut() -> Result<T, E>,
    is_silence: impl Fn(&E) -> bool,
) -> Result<T, E> {
    loop {
        match work().await {
            Err(error) if is_silence(&error) => {
                tracing::warn!(event = "api_server_awaited", error = %error);
                tokio::time::sleep(ATTEMPT_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// True if the object was refused because its namespace is being deleted: that is no mistake, and a
/// retry cannot help.
pub(super) fn namespace_ends(error: &Error) -> bool {
    let Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == NAMESPACE_ENDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn error(status: Value) -> Error {
        Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_refusal_is_one_sentence_and_a_namespaces_end_is_recognised() {
        let message = "configmaps \"a\" is forbidden: unable to create new content in namespace b because it is being terminated";
        let ends = error(json!({
            "status": "Failure", "code": 403, "reason": "Forbidden", "message": message,
            "details": { "causes": [{ "reason": "NamespaceTerminating", "message": "namespace b is being terminated" }] },
        }));
        assert_eq!(told(&ends), message);
        assert!(namespace_ends(&ends));
        let forbidden = error(
            json!({ "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no" }),
        );
        assert!(!namespace_ends(&forbidden));
        assert_eq!(
            told(&error(json!({ "status": "Failure", "code": 500, "reason": "InternalError" }))),
            "500 InternalError"
        );
    }
}
