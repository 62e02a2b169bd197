//! Names that Pods with a sidecar have.

/// Annotation of a Pod template that asks for the sidecar; its value is `sidecar`.
pub const INJECT_ANNOTATION: &str = "packrat.dev/inject";
/// Annotation of a Pod template that names an OpenTelemetry collector for the sidecar,
/// `http://HOST:PORT`; it is passed on as it is.
pub const COLLECTOR_ANNOTATION: &str = "packrat.dev/otlp-endpoint";
/// The label of a Pod that has got the sidecar; its value is `injected`.
pub const SIDECAR_LABEL: &str = "packrat.dev/sidecar";
/// Name of the sidecar's container.
pub const CONTAINER_NAME: &str = "packrat-gateway";
