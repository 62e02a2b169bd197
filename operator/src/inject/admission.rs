//! The API server's question, and the answer (admission.k8s.io/v1).

use serde_json::{Value, json};
use thiserror::Error;

use super::pod::{InjectError, Outcome, Sidecar, inject_pod};
use crate::names::REFUSED_ANNOTATION;

/// Failure to answer an AdmissionReview.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// Not an AdmissionReview with a request.
    #[error("this is not an AdmissionReview of admission.k8s.io/v1: {0}")]
    Request(String),
}

/// Answers an AdmissionReview of a Pod. A Pod that cannot have the sidecar is let through, with a
/// warning that users see: to be without assistance is better than not to run.
///
/// # Errors
/// [`ReviewError`] when there is no question to answer.
pub fn review(text: &[u8], sidecar: &Sidecar) -> Result<String, ReviewError> {
    let review: Value =
        serde_json::from_slice(text).map_err(|error| ReviewError::Request(error.to_string()))?;
    let request = &review["request"];
    let uid = request["uid"]
        .as_str()
        .ok_or_else(|| ReviewError::Request("request.uid is missing".to_owned()))?;
    let mut pod = request["object"].clone();
    // The Pod itself does not always name its namespace.
    if pod["metadata"].is_object() && pod["metadata"]["namespace"].is_null() {
        pod["metadata"]["namespace"] = request["namespace"].clone();
    }
    let mut response = json!({ "uid": uid, "allowed": true });
    let outcome = inject_pod(&mut pod, sidecar);
    if let Err(error) = &outcome {
        response["warnings"] = json!([format!("packrat: no sidecar: {error}")]);
    }
    // "add" replaces an existing value (RFC 6902, section 4.1), and a Pod need not have labels.
    let patch = match outcome {
        Ok(Outcome::Injected(_)) => json!([
            { "op": "replace", "path": "/spec", "value": pod["spec"] },
            { "op": "add", "path": "/metadata/labels", "value": pod["metadata"]["labels"] },
        ]),
        // The Pod itself does not tell the reason.
        Err(error @ InjectError::NoRoom(_)) => {
            let path = format!("/metadata/annotations/{}", REFUSED_ANNOTATION.replace('/', "~1"));
            json!([{ "op": "add", "path": path, "value": error.to_string() }])
        }
        _ => Value::Null,
    };
    if !patch.is_null() {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = base64(patch.to_string().as_bytes()).into();
    }
    Ok(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
        .to_string())
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;

    fn ask(pod: Value) -> Value {
        let review = json!({ "request": { "uid": "u", "object": pod } }).to_string();
        let answer = super::review(
            review.as_bytes(),
            &Sidecar { image: "i".to_owned(), ..Sidecar::default() },
        )
        .unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["response"].take()
    }

    #[test]
    fn pods_are_patched_or_let_through() {
        let plain = ask(json!({ "metadata": {}, "spec": { "containers": [] } }));
        assert_eq!(plain, json!({ "uid": "u", "allowed": true }));
        let wrong = ask(
            json!({ "metadata": { "annotations": { "packrat.dev/inject": "x" } }, "spec": {} }),
        );
        assert_eq!(wrong["allowed"], true);
        assert!(wrong["warnings"][0].as_str().unwrap().contains("write sidecar"));
        let injected = ask(json!({
            "metadata": { "annotations": { "packrat.dev/inject": "sidecar" } },
            "spec": { "containers": [{ "name": "a", "ports": [{ "containerPort": 1, "hostPort": 2, "protocol": "UDP" }] }] },
        }));
        let patch = base64::engine::general_purpose::STANDARD
            .decode(injected["patch"].as_str().unwrap())
            .unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[0]["value"]["initContainers"][0]["name"], crate::names::CONTAINER_NAME);
        assert_eq!(patch[1]["value"], json!({ crate::names::SIDECAR_LABEL: "injected" }));
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for text in ["", "{}", "[]", r#"{"request":{}}"#] {
            assert!(super::review(text.as_bytes(), &Sidecar::default()).is_err(), "{text}");
        }
    }
}
