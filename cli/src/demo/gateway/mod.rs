//! The gateway between the far segment and the last mile.

mod edge;
mod envoy;
mod standalone;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::certificate::Certificate;
use super::error::DemoError;
use super::metrics::{Metrics, http_get};
use super::options::{GatewayKind, SenderKind};
use super::process::Process;

pub(crate) use edge::Edge;

/// Name of the route in the gateway's configuration.
const ROUTE_NAME: &str = "demo";

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
    fn route(&self) -> Value {
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

/// A running gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    process: Process,
    /// The Envoy behind the end of a tunnel.
    behind: Option<Process>,
    /// The UDP address at which it listens.
    pub(crate) address: SocketAddr,
    metrics: SocketAddr,
    metrics_path: &'static str,
}

impl Gateway {
    /// Starts a gateway of this kind and waits until it forwards.
    pub(crate) async fn start(
        kind: GatewayKind,
        setup: GatewaySetup<'_>,
    ) -> Result<Self, DemoError> {
        let address = super::process::free_address()?;
        let metrics = super::process::free_address()?;
        let (process, metrics_path) = match kind {
            GatewayKind::Envoy => {
                (envoy::start(setup, address, metrics).await?, envoy::METRICS_PATH)
            }
            GatewayKind::Standalone => {
                (standalone::start(setup, address, metrics).await?, standalone::METRICS_PATH)
            }
        };
        Ok(Self { process, behind: None, address, metrics, metrics_path })
    }

    /// Starts a server that ends connections in the gateway's place, and waits until it serves.
    pub(crate) async fn start_edge(
        edge: Edge,
        setup: GatewaySetup<'_>,
        certificate: &Certificate,
    ) -> Result<Self, DemoError> {
        let address = super::process::free_address()?;
        let metrics = super::process::free_address()?;
        let (process, behind) = edge::start(edge, setup, certificate, address, metrics).await?;
        Ok(Self { process, behind, address, metrics, metrics_path: envoy::METRICS_PATH })
    }

    /// The gateway's metrics now.
    pub(crate) fn metrics(&self) -> Result<Metrics, DemoError> {
        let text = http_get(self.metrics, self.metrics_path)
            .map_err(|source| DemoError::Metrics { address: self.metrics, source })?;
        Ok(Metrics::parse(&text))
    }

    /// Fails when the gateway has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        self.behind.as_mut().map_or(Ok(()), Process::check)?;
        self.process.check()
    }

    /// Resident memory of its process, if the system reports it (Linux).
    pub(crate) fn resident_bytes(&self) -> Option<i64> {
        self.process.resident_bytes()
    }

    /// Ends the gateway.
    pub(crate) async fn stop(self) {
        self.process.stop().await;
        if let Some(behind) = self.behind {
            behind.stop().await;
        }
    }
}

/// `file` next to this command, where cargo puts all programs of a build.
fn built(file: &'static str, package: &'static str) -> Result<PathBuf, DemoError> {
    let folder = std::env::current_exe()
        .ok()
        .and_then(|command| command.parent().map(Path::to_owned))
        .unwrap_or_default();
    let path = folder.join(file);
    if path.is_file() { Ok(path) } else { Err(DemoError::NotBuilt { file, folder, package }) }
}
