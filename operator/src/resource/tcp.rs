//! TCP connections to the ports of routes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Treatment of TCP connections to the ports of routes.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TcpPolicy {
    /// TCP connections are not passed through.
    #[default]
    Off,
    /// TCP connections are passed through for routes that ask with packrat.dev/tcp.
    Allowed,
    /// TCP connections are passed through for every route with a TCP port of that number, unless
    /// packrat.dev/tcp is off.
    Passthrough,
}
