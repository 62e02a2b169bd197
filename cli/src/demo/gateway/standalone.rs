//! The data plane without Envoy.

use std::fs;
use std::net::SocketAddr;

use super::super::error::DemoError;
use super::super::metrics::http_get;
use super::super::process::Process;
use super::setup::{GatewaySetup, built};

/// The path at which the gateway serves metrics.
pub(super) const METRICS_PATH: &str = "/metrics";

pub(super) async fn start(
    setup: GatewaySetup<'_>,
    address: SocketAddr,
    metrics: SocketAddr,
) -> Result<Process, DemoError> {
    let program = built("packrat-gateway", "packrat-gateway")?;
    let configuration = setup.work.join("gateway.json");
    fs::write(&configuration, setup.route().to_string())
        .map_err(|error| DemoError::write(&configuration, error))?;
    let mut process =
        Process::start("packrat-gateway", &program, &setup.work.join("gateway.log"), |command| {
            command.arg("--config").arg(&configuration);
            command.arg("--listen").arg(address.to_string());
            command.arg("--metrics").arg(metrics.to_string());
            // The clients have finished when the demo ends the gateway.
            command.args(["--drain-seconds", "0"]);
        })?;
    process.wait_until_ready(|| http_get(metrics, METRICS_PATH).is_ok()).await?;
    Ok(process)
}
