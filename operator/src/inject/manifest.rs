//! Manifests with Pods inside, as users write them.

use serde_json::Value;

use super::pod::{InjectError, Outcome, Sidecar, inject_pod};

/// The outcome for the Pods of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// Kind and name, for messages.
    pub object: String,
    /// The outcome.
    pub outcome: Result<Outcome, InjectError>,
}

/// Adds the sidecar to the Pods in an object: a Pod, or an object with a Pod template
/// (Deployment, DaemonSet, StatefulSet, Job, CronJob, …), or a list of such objects.
pub fn inject_manifest(object: &mut Value, sidecar: &Sidecar) -> Vec<Injected> {
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        return items.iter_mut().flat_map(|item| inject_manifest(item, sidecar)).collect();
    }
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let name = format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
    let owner = object["metadata"]["name"].clone();
    let path = match object["kind"].as_str() {
        Some("Pod") => "",
        Some("CronJob") => "/spec/jobTemplate/spec/template",
        _ => "/spec/template",
    };
    let Some(pod) = object.pointer_mut(path).filter(|pod| pod["spec"]["containers"].is_array())
    else {
        return Vec::new();
    };
    // A template has no name of its own: the gateway is called like the object.
    let unnamed = !path.is_empty() && pod["metadata"]["name"].is_null();
    if unnamed && owner.is_string() && pod["metadata"].is_object() {
        pod["metadata"]["name"] = owner;
    }
    let outcome = inject_pod(pod, sidecar);
    if unnamed && let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("name");
    }
    vec![Injected { object: name, outcome }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_of_all_kinds_and_lists() {
        let template = json!({
            "metadata": { "annotations": { "packrat.dev/inject": "sidecar" } },
            "spec": { "containers": [{ "name": "a", "ports": [{ "containerPort": 1, "hostPort": 2, "protocol": "UDP" }] }] },
        });
        let mut list = json!({ "kind": "List", "items": [
            { "kind": "DaemonSet", "metadata": { "name": "game" }, "spec": { "template": template } },
            { "kind": "CronJob", "metadata": { "name": "c" }, "spec": { "jobTemplate": { "spec": { "template": template } } } },
            { "kind": "Service", "metadata": { "name": "s" }, "spec": {} },
        ]});
        let sidecar = Sidecar { image: "i".to_owned(), ..Sidecar::default() };
        let injected = inject_manifest(&mut list, &sidecar);
        assert_eq!(
            injected
                .iter()
                .map(|one| (one.object.as_str(), one.outcome.clone()))
                .collect::<Vec<_>>(),
            [
                ("DaemonSet game", Ok(Outcome::Injected(vec![2]))),
                ("CronJob c", Ok(Outcome::Injected(vec![2]))),
            ]
        );
        let pod = &list["items"][0]["spec"]["template"];
        assert!(
            pod["spec"]["initContainers"][0]["args"].as_array().unwrap().contains(&json!("game"))
        );
        assert!(pod["metadata"].get("name").is_none());
        let once = list.clone();
        assert!(
            inject_manifest(&mut list, &sidecar)
                .iter()
                .all(|one| one.outcome == Ok(Outcome::Present))
        );
        assert_eq!(list, once);
    }
}
