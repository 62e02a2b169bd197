//! The custom resources, and their definitions as YAML.

mod ceiling;
mod definitions;
mod edge_gateway;
mod edge_gateway_status;
mod exposure;
mod gateway_parameters;
mod limits;
mod lowering;
mod packrat_policy;
mod parent_reference;
mod pod_settings;
mod route;
mod schema;
mod tcp;
mod terminate;

pub use definitions::{DefinitionError, definitions};
pub use edge_gateway::{
    Cache, DEFAULT_CLASS, Drain, EdgeGateway, EdgeGatewaySpec, Envoy, LogLevel, MulticastStreams,
    NamespacesFrom, Otlp, Repair, RouteNamespaces, SecretKey, SecretName, Sessions, Telemetry,
    TokenTls, Tokens,
};
pub use edge_gateway_status::{EdgeGatewayStatus, GatewayProxy, ListenerStatus};
pub use exposure::{
    Exposure, ExposureType, ExternalTrafficPolicy, IpFamily, IpFamilyPolicy, SessionAffinity,
};
pub use gateway_parameters::{GatewayParameters, GatewayParametersSpec};
pub use limits::{EndpointsFrom, Limits, PortGrant, PortRange};
pub use packrat_policy::{
    PackratPolicy, PackratPolicySpec, PackratPolicyStatus, PolicyAncestor, PolicySettings,
    TargetReference,
};
pub use parent_reference::ParentReference;
pub use pod_settings::{
    Autoscaler, Autoscaling, PodSettings, Resources, Toleration, Workload, WorkloadKind,
};
pub use tcp::TcpPolicy;
pub use terminate::TerminatePolicy;
