//! Removes values that may be secret, and fields for machines only, from objects before they go
//! into a bundle.

use serde_json::{Value, json};

/// Variables whose values are known to be no secret.
const HARMLESS_VARIABLES: [&str; 3] =
    ["ENVOY_DYNAMIC_MODULES_SEARCH_PATH", "POD_NAME", "POD_NAMESPACE"];
const LEFT_OUT: &str = "(left out)";
/// Annotation that repeats the removed values.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object without values of environment variables, which people use for passwords, and without
/// fields for machines only.
pub(super) fn redacted(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    walk(&mut object);
    object
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(variables) = map.get_mut("env").and_then(Value::as_array_mut) {
                for variable in variables {
                    let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
                    if !HARMLESS_VARIABLES.contains(&name) && variable.get("value").is_some() {
                        variable["value"] = json!(LEFT_OUT);
                    }
                }
            }
            map.values_mut().for_each(walk);
        }
        Value::Array(values) => values.iter_mut().for_each(walk),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_the_environment_are_left_out_wherever_they_are() {
        let container = json!({ "name": "envoy", "env": [
            { "name": "PASSWORD", "value": "sesame" },
            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "ENVOY_DYNAMIC_MODULES_SEARCH_PATH", "value": "/usr/lib/packrat" },
        ]});
        let object = json!({
            "kind": "Deployment",
            "metadata": {
                "name": "a", "managedFields": [{}],
                "annotations": { "packrat.dev/assist": "enabled", LAST_APPLIED: "{\"value\":\"sesame\"}" },
            },
            "spec": { "template": { "spec": { "containers": [container], "initContainers": [container] } } },
        });
        let text = redacted(object).to_string();
        assert!(!text.contains("sesame") && !text.contains("managedFields"), "{text}");
        assert!(text.contains("/usr/lib/packrat") && text.contains("packrat.dev/assist"), "{text}");
        assert_eq!(text.matches(LEFT_OUT).count(), 2, "{text}");
    }
}
