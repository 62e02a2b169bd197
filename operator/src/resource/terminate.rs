//! Connections that end at the gateways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Permission for connections of clients to end at the gateways.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TerminatePolicy {
    /// Connections do not end at the gateways.
    #[default]
    Off,
    /// Connections end at the gateways for Services that ask with packrat.dev/mode, with the
    /// certificate that these name.
    Allowed,
}
