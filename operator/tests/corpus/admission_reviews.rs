//! AdmissionReviews, as the API server might send them: the answer is a valid one, its patch fits
//! the object, does what it should and is the only one that is ever needed.
//!
//! Input: JSON.

use base64::Engine as _;
use json_patch::Patch;
use serde_json::{Value, json};

use super::inject::{Sidecar, inject_pod, review};
use super::names::{CONTAINER_NAME, INJECT_ANNOTATION, SIDECAR_LABEL};

/// Answers a review; panics when the answer breaks a promise.
pub(crate) fn admission_reviews(data: &[u8]) {
    let sidecar = Sidecar {
        image: "gateway:1".to_owned(),
        listen_address: "::".to_owned(),
        ..Sidecar::default()
    };
    let answer = review(data, &sidecar);
    let question: Value = match serde_json::from_slice(data) {
        Ok(question) => question,
        Err(_) => {
            let error = answer.expect_err("this is no JSON").to_string();
            assert!(error.contains("AdmissionReview"), "{error}");
            return;
        }
    };
    let request = &question["request"];
    let Some(uid) = request["uid"].as_str() else {
        let error = answer.expect_err("there is no question").to_string();
        assert!(error.contains("request.uid"), "{error}");
        return;
    };
    let answer: Value = serde_json::from_str(&answer.expect("an answer")).expect("JSON");
    let response = &answer["response"];
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!((&response["uid"], &response["allowed"]), (&json!(uid), &json!(true)));
    let before = &request["object"];
    let wanted = &before["metadata"]["annotations"][INJECT_ANNOTATION];
    if !wanted.is_string() || wanted == "disabled" {
        assert_eq!(*response, json!({ "uid": uid, "allowed": true }), "nobody has asked");
    }
    if let Some(warning) = response.get("warnings") {
        let warning = warning[0].as_str().expect("a sentence");
        let names = ["packrat.dev/", "hostNetwork", "hostPort", "spec with containers"];
        assert!(names.iter().any(|name| warning.contains(name)), "{warning} names no field");
        assert!(response.get("patch").is_none(), "{warning}, and a patch");
        let mut after = before.clone();
        assert!(inject_pod(&mut after, &sidecar).is_err());
        assert_eq!(after, *before, "not injected, and changed");
    }
    let Some(patch) = response.get("patch") else { return };
    assert_eq!((&response["patchType"], wanted), (&json!("JSONPatch"), &json!("sidecar")));
    let patch = base64::engine::general_purpose::STANDARD.decode(patch.as_str().expect("a text"));
    let patch: Patch = serde_json::from_slice(&patch.expect("base64")).expect("RFC 6902");
    let mut after = before.clone();
    json_patch::patch(&mut after, &patch).expect("it fits the object");
    check(before, &after);

    let mut again = question.clone();
    again["request"]["object"] = after;
    let answer = review(again.to_string().as_bytes(), &sidecar).expect("an answer");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let nothing = json!({ "uid": uid, "allowed": true });
    assert_eq!(answer["response"], nothing, "a second time changes something");
}

fn containers(pod: &Value) -> &[Value] {
    pod["spec"]["containers"].as_array().map_or(&[], Vec::as_slice)
}

/// The UDP ports of the node that lead to a container: port, address.
fn published(pod: &Value) -> Vec<(u64, String)> {
    let ports = containers(pod)
        .iter()
        .flat_map(|container| container["ports"].as_array().map_or(&[][..], Vec::as_slice).iter());
    let is_port = |value: &Value| value.as_u64().filter(|port| (1..=65_535).contains(port));
    let mut published: Vec<_> = ports
        .filter(|port| port["protocol"] == "UDP" && is_port(&port["containerPort"]).is_some())
        .filter_map(|port| {
            let ip = port["hostIP"].as_str().unwrap_or_default().to_owned();
            Some((is_port(&port["hostPort"])?, ip))
        })
        .collect();
    published.sort();
    published
}

/// The sidecar is there and has the ports; all other fields are unchanged.
fn check(before: &Value, after: &Value) {
    let sidecar = &after["spec"]["initContainers"][0];
    assert_eq!(sidecar["name"], CONTAINER_NAME);
    assert_eq!(after["metadata"]["labels"][SIDECAR_LABEL], "injected");
    let ports = published(after);
    assert_eq!(ports, published(before), "other ports of the node");
    let listens: Vec<&Value> = sidecar["ports"].as_array().expect("a list").iter().collect();
    assert!(listens.len() > 1 && listens.len() <= ports.len() + 1, "{listens:?} for {ports:?}");
    for (at, listen) in listens.iter().enumerate() {
        let number = &listen["containerPort"];
        assert!(listens[..at].iter().all(|other| other["containerPort"] != *number));
    }
    let rest = |pod: &Value| {
        let mut pod = pod.clone();
        let metadata = pod["metadata"].as_object_mut().expect("there are annotations");
        metadata.remove("labels");
        let spec = pod["spec"].as_object_mut().expect("there are containers");
        for changed in ["initContainers", "volumes"] {
            spec.remove(changed);
        }
        for container in spec["containers"].as_array_mut().expect("there are some") {
            if let Some(container) = container.as_object_mut() {
                container.remove("ports");
            }
        }
        pod
    };
    assert_eq!(rest(after), rest(before), "something else has changed");
}
