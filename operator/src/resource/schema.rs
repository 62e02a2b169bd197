//! Parts that the schemas of several resources have.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Descriptions are paragraphs: the line breaks of a comment are no part of them.
pub(super) fn join_lines(schema: &mut Schema) {
    if let Some(serde_json::Value::String(text)) = schema.get_mut("description") {
        *text =
            text.split("\n\n").map(|part| part.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
    }
}

/// The schema of metav1.Condition, which k8s-openapi provides only together with all other schemas.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": { "type": "string", "maxLength": 316 },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "reason": { "type": "string", "minLength": 1, "maxLength": 1024 },
                "message": { "type": "string", "maxLength": 32768 },
            },
        },
    })
}
