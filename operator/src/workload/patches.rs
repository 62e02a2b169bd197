//! Changes of the platform's to what the operator makes: what no setting is there for, such as a
//! runtime class, a volume or a label that an admission policy demands.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::object::{Kind, Object};

/// Changes to objects of all EdgeGateways, by kind. They are merged strategically: objects field by
/// field, `null` takes a field away, and lists of things that have a key (containers by name, mounts
/// by path) entry by entry, where `$patch: delete` takes one away. Other lists are replaced.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patches(BTreeMap<Kind, Value>);

/// Why changes cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The text is no JSON object.
    #[error("the patches are not an object with a patch for each kind: {0}")]
    Malformed(String),
    /// There is no object of this kind.
    #[error("there is no {0} to patch; there are {known}", known = known())]
    UnknownKind(String),
    /// A field that the operator finds its objects by.
    #[error("{0} of a gateway's object cannot be patched: the operator finds it by that")]
    Fixed(&'static str),
}

fn known() -> String {
    Kind::ALL.map(|kind| kind.names()[2]).join(", ")
}

/// Fields that objects are found by, and that another owner or namespace would take away.
const FIXED_FIELDS: [&str; 6] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/ownerReferences",
    "/spec/selector",
];

/// Key of the entries of a list, by its field, as Kubernetes' own types have it
/// (`x-kubernetes-patch-merge-key`).
const MERGE_KEYS: [(&str, &[&str]); 9] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    // Of a container, or of a Service; one port can have two protocols.
    ("ports", &["containerPort", "protocol"]),
    ("sysctls", &["name"]),
];

impl std::str::FromStr for Patches {
    type Err = PatchError;

    /// An object with a patch for each kind: `{"Deployment": {"spec": {…}}}`.
    fn from_str(text: &str) -> Result<Self, PatchError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let all: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| PatchError::Malformed(error.to_string()))?;
        let mut patches = BTreeMap::new();
        for (name, patch) in all {
            let kind = Kind::ALL.into_iter().find(|kind| kind.names()[2] == name);
            let kind = kind.ok_or(PatchError::UnknownKind(name))?;
            if !patch.is_object() {
                return Err(PatchError::Malformed(format!("{} is none", kind.names()[2])));
            }
            if let Some(fixed) = FIXED_FIELDS.into_iter().find(|path| patch.pointer(path).is_some())
            {
                return Err(PatchError::Fixed(fixed));
            }
            patches.insert(kind, patch);
        }
        Ok(Self(patches))
    }
}

impl Patches {
    /// Changes the objects.
    pub(super) fn apply(&self, objects: &mut [Object]) {
        for object in objects {
            if let Some(patch) = self.0.get(&object.kind) {
                merge(&mut object.content, patch, "");
            }
        }
    }
}

/// Merges a patch into a value. `field`: the value's field.
fn merge(target: &mut Value, patch: &Value, field: &str) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (name, change) in patch {
                match (target.get_mut(name), change) {
                    (_, Value::Null) => {
                        target.remove(name);
                    }
                    (Some(before), change) => merge(before, change, name),
                    (None, change) => {
                        target.insert(name.clone(), change.clone());
                    }
                }
            }
        }
        (Value::Array(target), Value::Array(patch)) => {
            match MERGE_KEYS.iter().find(|(name, _)| *name == field) {
                Some((_, keys)) => merge_lists(target, patch, keys),
                None => target.clone_from(patch),
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

fn merge_lists(target: &mut Vec<Value>, patch: &[Value], keys: &[&str]) {
    for change in patch {
        // Of a Service, a port's number has another name.
        let same = |entry: &Value| {
            keys.iter().all(|key| {
                let key = if *key == "containerPort" && change.get(*key).is_none() {
                    "port"
                } else {
                    *key
                };
                entry.get(key) == change.get(key)
            })
        };
        let place = target.iter().position(same);
        let is_removed = change.get("$patch").and_then(Value::as_str) == Some("delete");
        match place {
            Some(place) if is_removed => {
                target.remove(place);
            }
            Some(place) => {
                if let Some(entry) = target.get_mut(place) {
                    merge(entry, change, "");
                }
            }
            None if is_removed => {}
            None => target.push(change.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(mut content: Value, patches: Value) -> Value {
        let patches: Patches = json!({ "Deployment": patches }).to_string().parse().unwrap();
        let mut objects = [Object { kind: Kind::Deployment, content: content.take() }];
        patches.apply(&mut objects);
        let [object] = objects;
        object.content
    }

    #[test]
    fn entries_of_lists_are_changed_by_their_key() {
        let before = json!({ "spec": { "replicas": 2, "template": { "spec": {
            "containers": [{ "name": "envoy", "image": "a", "args": ["x", "y"],
                "env": [{ "name": "A", "value": "1" }],
                "volumeMounts": [{ "name": "run", "mountPath": "/run" }] }],
            "volumes": [{ "name": "run", "emptyDir": {} }],
            "securityContext": { "runAsUser": 65532, "fsGroup": 65532 },
        }}}});
        let patch = json!({ "spec": { "minReadySeconds": 5, "template": {
            "metadata": { "labels": { "team": "edge" } },
            "spec": {
                "runtimeClassName": "gvisor",
                "containers": [
                    { "name": "envoy", "args": ["z"], "env": [{ "name": "B", "value": "2" }, { "name": "A", "$patch": "delete" }] },
                    { "name": "helper", "image": "b" },
                ],
                "volumes": [{ "name": "more", "emptyDir": {} }],
                "securityContext": { "runAsUser": null },
            },
        }}});
        let expected = json!({ "spec": { "replicas": 2, "minReadySeconds": 5, "template": {
            "metadata": { "labels": { "team": "edge" } },
            "spec": {
                "runtimeClassName": "gvisor",
                "containers": [
                    { "name": "envoy", "image": "a", "args": ["z"], "env": [{ "name": "B", "value": "2" }],
                        "volumeMounts": [{ "name": "run", "mountPath": "/run" }] },
                    { "name": "helper", "image": "b" },
                ],
                "volumes": [{ "name": "run", "emptyDir": {} }, { "name": "more", "emptyDir": {} }],
                "securityContext": { "fsGroup": 65532 },
            },
        }}});
        assert_eq!(patched(before, patch), expected);
    }

    #[test]
    fn a_port_is_known_by_number_and_protocol() {
        let before = json!({ "spec": { "ports": [
            { "port": 443, "protocol": "UDP" }, { "port": 443, "protocol": "TCP" },
        ]}});
        let patch =
            json!({ "spec": { "ports": [{ "port": 443, "protocol": "TCP", "nodePort": 30443 }] } });
        let after = patched(before, patch);
        assert_eq!(after["spec"]["ports"][0].get("nodePort"), None);
        assert_eq!(after["spec"]["ports"][1]["nodePort"], 30443);
    }

    #[test]
    fn patches_of_selectors_and_of_uncreated_objects_are_refused() {
        let refused = |text: &str| text.parse::<Patches>().unwrap_err().to_string();
        for text in [
            r#"{"Deployment":{"spec":{"selector":{"matchLabels":{"a":"b"}}}}}"#,
            r#"{"Service":{"metadata":{"namespace":"other"}}}"#,
            r#"{"Service":{"metadata":{"ownerReferences":[]}}}"#,
        ] {
            assert!(refused(text).contains("cannot be patched"), "{}", refused(text));
        }
        assert!(
            refused(r#"{"Pod":{}}"#)
                .starts_with("there is no Pod to patch; there are ServiceAccount, ")
        );
        assert!(refused("[]").starts_with("the patches are not an object"));
        assert!(refused(r#"{"Service":[]}"#).contains("Service is none"));
        assert_eq!("".parse(), Ok(Patches::default()));
    }
}
