//! The gateway between the far segment and the last mile.

mod edge;
mod envoy;
mod setup;
mod standalone;

use std::net::SocketAddr;

use super::certificate::Certificate;
use super::error::DemoError;
use super::metrics::{Metrics, http_get};
use super::options::GatewayKind;
use super::process::{Process, free_address};

pub(crate) use edge::Edge;
pub(crate) use setup::GatewaySetup;

/// A running gateway.
#[derive(Debug)]
pub(crate) struct RunningGateway {
    process: Process,
    /// The Envoy behind the end of a tunnel.
    behind: Option<Process>,
    /// The UDP address at which it listens.
    pub(crate) address: SocketAddr,
    metrics: SocketAddr,
    metrics_path: &'static str,
}

impl RunningGateway {
    /// Starts a gateway of this kind and waits until it forwards.
    pub(crate) async fn start(
        kind: GatewayKind,
        setup: GatewaySetup<'_>,
    ) -> Result<Self, DemoError> {
        let address = free_address()?;
        let metrics = free_address()?;
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
        let address = free_address()?;
        let metrics = free_address()?;
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
