//! Attributes of messages: their names and values, and the sender's.

use serde_json::Value;

use crate::messages::{Any, AnyValue, InstrumentationScope, KeyValue, Resource};

pub(crate) fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Any::Text(value.to_owned()))
}

/// The attribute for a field of a log line.
pub(crate) fn field(key: &str, value: &Value) -> KeyValue {
    let any = match value {
        Value::Bool(value) => Any::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Any::Int(whole),
            None => Any::Double(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Any::Text(text.clone()),
        other => Any::Text(other.to_string()),
    };
    attribute(key, any)
}

/// The resource that stands for the gateway. `instance` identifies it among others, such as the
/// name of its Pod.
pub(crate) fn resource(instance: &str) -> Option<Resource> {
    let attributes = vec![
        text("service.name", "packrat-gateway"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", instance),
    ];
    Some(Resource { attributes })
}

pub(crate) fn scope() -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: "packrat".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}
