//! The reason for which an EdgeGateway cannot be set up.

use std::time::Duration;

use super::refusal::{namespace_ends, told};
use crate::workload::Kind;

/// Longest time for the objects of one EdgeGateway, for its status, and for the objects without an
/// EdgeGateway.
pub(super) const OBJECTS_PATIENCE: Duration = Duration::from_secs(30);

/// The reason for which an EdgeGateway cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{kind}: {}", told(.source))]
    Object { kind: &'static str, source: Box<kube::Error> },
    #[error("Secret: {}", told(.0))]
    Secret(kube::Error),
    #[error("{0}")]
    Text(String),
    #[error("the API server did not answer within {} s; is an admission webhook slow?", OBJECTS_PATIENCE.as_secs())]
    Slow,
}

impl Failure {
    pub(super) fn object(kind: Kind, source: kube::Error) -> Self {
        Self::Object { kind: kind.names()[2], source: Box::new(source) }
    }

    pub(super) fn namespace_ends(&self) -> bool {
        match self {
            Self::Object { source, .. } => namespace_ends(source),
            Self::Secret(source) => namespace_ends(source),
            Self::Text(_) | Self::Slow => false,
        }
    }

    pub(super) fn text(error: &dyn std::error::Error) -> Self {
        Self::Text(error.to_string())
    }
}
