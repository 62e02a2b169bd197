//! Faults of objects, as Events and conditions report them.

/// Fault of an object; the message describes it, and the text to write instead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// One word in CamelCase, for machines.
    pub reason: Reason,
    /// A sentence.
    pub message: String,
}

/// Kinds of problems; their names are the reasons of Events and conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// An annotation has a value that is not understood.
    InvalidAnnotation,
    /// An annotation that does not exist, or is of no use on this kind of object.
    UnknownAnnotation,
    /// The EdgeGateway does not exist.
    GatewayNotFound,
    /// The EdgeGateway does not take routes of this namespace.
    NotAllowed,
    /// The Service has no such port, or no UDP port.
    NoSuchPort,
    /// Another Service has the port of the gateway.
    PortConflict,
    /// An annotation asks for more than the EdgeGateway allows.
    AboveLimit,
    /// An address is not forwarded to.
    EndpointRefused,
    /// The Service has no endpoint.
    NoEndpoints,
    /// There is no certificate for connections that end at the gateway.
    NoCertificate,
    /// Connection IDs name no server.
    NoServerIds,
    /// A Pod has no sidecar although it asks for one.
    NotInjected,
    /// The operator's installer does not allow the setting.
    NotPermitted,
    /// The object belongs to another operator.
    OtherOperator,
    /// The API server has refused an object of an EdgeGateway.
    ApplyFailed,
    /// A gateway has refused its configuration.
    Refused,
    /// A gateway is not connected to the operator.
    NotConnected,
    /// Gateways that are wanted do not come.
    RolloutStuck,
    /// No gateway is ready to serve a Service.
    NoReadyGateway,
    /// The API server has the resource definitions of an older version.
    DefinitionOutdated,
    /// Assistance of a route has stopped by itself: assisted sessions were slower.
    AssistanceStopped,
    /// A Service's port has another number, and the gateway's port stays as it is.
    PortKept,
}

impl Reason {
    /// Name of the reason in Events and conditions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidAnnotation => "InvalidAnnotation",
            Self::UnknownAnnotation => "UnknownAnnotation",
            Self::GatewayNotFound => "GatewayNotFound",
            Self::NotAllowed => "NotAllowed",
            Self::NoSuchPort => "NoSuchPort",
            Self::PortConflict => "PortConflict",
            Self::AboveLimit => "AboveLimit",
            Self::EndpointRefused => "EndpointRefused",
            Self::NoEndpoints => "NoEndpoints",
            Self::NoCertificate => "NoCertificate",
            Self::NoServerIds => "NoServerIds",
            Self::NotInjected => "NotInjected",
            Self::NotPermitted => "NotPermitted",
            Self::OtherOperator => "OtherOperator",
            Self::ApplyFailed => "ApplyFailed",
            Self::Refused => "Refused",
            Self::NotConnected => "NotConnected",
            Self::RolloutStuck => "RolloutStuck",
            Self::NoReadyGateway => "NoReadyGateway",
            Self::DefinitionOutdated => "DefinitionOutdated",
            Self::AssistanceStopped => "AssistanceStopped",
            Self::PortKept => "PortKept",
        }
    }
}

/// Problems that are listed in one message.
pub(crate) const LISTED_PROBLEMS: usize = 5;
