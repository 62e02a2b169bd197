//! The parameters of a gateway.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::super::error::DemoError;
use super::super::options::SenderKind;

/// Name of the route in the gateway's configuration.
pub(super) const ROUTE_NAME: &str = "demo";

/// The parameters of a gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GatewaySetup<'a> {
    /// The directory in which `make demo` installed Envoy.
    pub(crate) parts: &'a Path,
    /// The server to which it forwards: the near end of the far segment.
    pub(crate) server: SocketAddr,
    /// The operator's word for the server's congestion control.
    pub(crate) sender: SenderKind,
    /// True if what sparse flows bring is sent twice to clients without a session.
    pub(crate) sparse_copies: bool,
    /// The directory for its configuration and its log.
    pub(crate) work: &'a Path,
}

impl GatewaySetup<'_> {
    /// The route, as both gateways take it.
    pub(super) fn route(&self) -> Value {
        let (endpoints, sender) = ([self.server.to_string()], self.sender.to_string());
        json!({
            "route": ROUTE_NAME,
            "gateway": "demo",
            "endpoints": endpoints,
            "sender": sender,
            "sparse_copies": self.sparse_copies,
        })
    }
}

/// `file` next to this command, where cargo puts all programs of a build.
pub(super) fn built(file: &'static str, package: &'static str) -> Result<PathBuf, DemoError> {
    let folder = std::env::current_exe()
        .ok()
        .and_then(|command| command.parent().map(Path::to_owned))
        .unwrap_or_default();
    let path = folder.join(file);
    if path.is_file() { Ok(path) } else { Err(DemoError::NotBuilt { file, folder, package }) }
}
