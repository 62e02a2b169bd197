//! Connections that end at the gateways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Permission for connections of clients to end at the gateways.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TerminatePolicy {
    /// They do not.
    #[default]
    Off,
    /// They do for Services that ask with packrat.dev/mode, with the certificate that these name.
    Allowed,
}
