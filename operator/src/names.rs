//! Names on objects of the cluster that the operator and its users write: annotations, labels,
//! conditions.

/// The name under which the operator applies its fields (server-side apply), and the value of
/// [`MANAGED_BY`] on the objects that it creates.
pub const FIELD_MANAGER: &str = "packrat-operator";
/// Label with the name of the program that has made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label with the name of the EdgeGateway.
pub const GATEWAY_LABEL: &str = "packrat.dev/edge-gateway";
/// `app.kubernetes.io/name` of gateways.
pub const GATEWAY_APP: &str = "packrat-gateway";
/// Label of Secrets that EdgeGateways may name; its value is `true`.
pub const SECRET_LABEL: &str = "packrat.dev/for-gateways";
/// Annotation with `enabled` or `disabled`, on a Service or on a Namespace for all of its Services.
pub const ASSIST_ANNOTATION: &str = "packrat.dev/assist";
/// Annotation with the EdgeGateway, `name` or `namespace/name`.
pub const GATEWAY_ANNOTATION: &str = "packrat.dev/gateway";
/// Annotation with ports of the Service, for UDP, or for TCP if connections end at the gateway:
/// names or numbers, each with the gateway's port in front if it differs.
pub const PORT_ANNOTATION: &str = "packrat.dev/port";
/// Annotation that makes the Service's UDP port one live stream for all subscribers: the address at
/// which it arrives at the gateway, and after a comma the group that it is sent to, if there is
/// one.
pub const MULTICAST_ANNOTATION: &str = "packrat.dev/multicast";
/// Annotation for TCP connections to the gateway's port of the same number: `passthrough`,
/// `proxy-protocol`, or `off`.
pub const TCP_ANNOTATION: &str = "packrat.dev/tcp";
/// Annotation with the work of the gateway for the Service: `assist`, or `terminate`.
pub const MODE_ANNOTATION: &str = "packrat.dev/mode";
/// Annotation with the Secret that has the certificate of a Service whose connections end at the
/// gateway.
pub const CERTIFICATE_ANNOTATION: &str = "packrat.dev/certificate";
/// The Secret with the configuration by which connection IDs of the Service's servers name them.
pub const QUIC_LB: &str = "packrat.dev/quic-lb";
/// Prefix of the names of overrides.
pub const CONFIG_PREFIX: &str = "packrat.dev/config.";
/// Prefix of all annotations of Packrat.
pub const ANNOTATION_PREFIX: &str = "packrat.dev/";
/// Annotations that people write, and the objects that they are for: the table in
/// operator/README.md.
pub const WRITTEN_ANNOTATIONS: [(&str, &str); 12] = [
    (ASSIST_ANNOTATION, "Service, Namespace"),
    (GATEWAY_ANNOTATION, "Service, Namespace"),
    (PORT_ANNOTATION, "Service"),
    (TCP_ANNOTATION, "Service, UDPRoute"),
    (MODE_ANNOTATION, "Service"),
    (CERTIFICATE_ANNOTATION, "Service"),
    (QUIC_LB, "Service, UDPRoute"),
    (MULTICAST_ANNOTATION, "Service"),
    ("packrat.dev/config.NAME", "Service, Namespace"),
    (INJECT_ANNOTATION, "Pod template"),
    (COLLECTOR_ANNOTATION, "Pod template"),
    (RESOURCES_ANNOTATION, "Pod template"),
];
/// Annotation of a Pod template that asks for the sidecar; its value is `sidecar`.
pub const INJECT_ANNOTATION: &str = "packrat.dev/inject";
/// Annotation of a Pod template that names an OpenTelemetry collector for the sidecar,
/// `http://HOST:PORT`; it is passed on as it is.
pub const COLLECTOR_ANNOTATION: &str = "packrat.dev/otlp-endpoint";
/// Annotation of a Pod template with resources of the sidecar: `requests.cpu=50m,limits.memory=256Mi`.
pub const RESOURCES_ANNOTATION: &str = "packrat.dev/sidecar-resources";
/// Annotation that the injector writes at a Pod which would not be admitted with the sidecar: the reason.
pub const REFUSED_ANNOTATION: &str = "packrat.dev/sidecar-refused";
/// The label of a Pod that has got the sidecar; its value is `injected`.
pub const SIDECAR_LABEL: &str = "packrat.dev/sidecar";
/// Name of the sidecar's container.
pub const CONTAINER_NAME: &str = "packrat-gateway";
/// The condition on a Service that asks for assistance.
pub const SERVICE_CONDITION: &str = "packrat.dev/Assisted";
/// Group of the Gateway API.
pub const API_GROUP: &str = "gateway.networking.k8s.io";
/// Label that the Gateway API wants on the objects made for a Gateway.
pub const GATEWAY_NAME_LABEL: &str = "gateway.networking.k8s.io/gateway-name";
