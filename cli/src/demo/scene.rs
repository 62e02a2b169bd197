//! The parts of an arm between the server and the client.

use std::fs;
use std::time::Duration;

use packrat_emulation::path::{PathConfig, PathReport, UdpPath};

use super::client::Outcome;
use super::error::DemoError;
use super::gateway::{Edge, GatewaySetup, RunningGateway};
use super::metrics::Metrics;
use super::options::ArmName;
use super::qlog::DeclaredLost;
use super::server::{Server, ServerSetup};
use super::stage::Stage;

/// Name of the file with every datagram that the server sent, in a directory that is kept.
const CAPTURE_NAME: &str = "datagrams.capture";
/// Interval of reading the gateway's gauges.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Longest age of a gateway's metrics when they are read (Envoy flushes them by a timer).
const METRICS_SETTLE: Duration = Duration::from_millis(1200);
/// Attempts to start an arm's processes.
const START_ATTEMPTS: usize = 3;
/// A period longer than any demo.
const ENDLESS_PERIOD: Duration = Duration::from_secs(86_400);

/// The parts of a running arm, from the server to the client; dropped from the client's end.
pub(crate) struct Scene {
    pub(crate) last_mile: UdpPath,
    pub(crate) gateway: RunningGateway,
    far: UdpPath,
    pub(crate) server: Server,
}

/// The results of an arm's parts.
pub(crate) struct Finished {
    pub(crate) far: PathReport,
    pub(crate) last_mile: PathReport,
    pub(crate) metrics: Metrics,
    pub(crate) declared_lost: Option<DeclaredLost>,
}

impl Scene {
    /// Builds the arm, again if a process could not start: between the choice of a free port and
    /// its use another program may take it.
    pub(crate) async fn build_patiently(
        stage: &Stage<'_>,
        name: ArmName,
    ) -> Result<Self, DemoError> {
        let mut left = START_ATTEMPTS;
        loop {
            left -= 1;
            match Self::build(stage, name).await {
                Err(DemoError::Ended { .. }) if left > 0 => {}
                outcome => return outcome,
            }
        }
    }

    async fn build(stage: &Stage<'_>, name: ArmName) -> Result<Self, DemoError> {
        let (options, network) = (stage.options, stage.network_of(name));
        let (work, uploads) = (&*stage.work_of(name), &*stage.uploads_of(name));
        let setup = ServerSetup {
            parts: &options.parts,
            certificate: &stage.certificate,
            files: &stage.files,
            uploads,
            takes_uploads: options.upload,
            work,
        };
        let server = Server::start(options, name.server(options.server), setup).await?;
        let far = UdpPath::start(PathConfig {
            server: server.address,
            upward: network.links().far_up,
            downward: network.links().far_down,
        })?;
        if options.keep.is_some() {
            let path = work.join(CAPTURE_NAME);
            far.capture(fs::File::create(&path).map_err(|error| DemoError::write(&path, error))?);
        }
        let setup = GatewaySetup {
            parts: &options.parts,
            server: far.address(),
            sender: options.policy.sender,
            sparse_copies: options.policy.sparse_copies,
            work,
        };
        let gateway = match Edge::of(name) {
            Some(edge) => RunningGateway::start_edge(edge, setup, &stage.certificate).await?,
            None => RunningGateway::start(options.gateway, setup).await?,
        };
        let last_mile = UdpPath::start(PathConfig {
            server: gateway.address,
            upward: network.links().last_mile_up,
            downward: network.links().last_mile_down,
        })?;
        Ok(Self { last_mile, gateway, far, server })
    }

    /// Waits for the transfer, and gives the client another address and port `move_after` its
    /// beginning. Also checks the processes, and the level of the gateway's cache.
    pub(crate) async fn watch(
        &mut self,
        transferring: impl Future<Output = Result<Outcome, DemoError>>,
        move_after: Option<Duration>,
    ) -> Result<(Outcome, u64), DemoError> {
        let mut transferring = std::pin::pin!(transferring);
        let mut ticks = tokio::time::interval(SAMPLE_EVERY);
        let mut high_water = 0;
        let mut departure =
            std::pin::pin!(tokio::time::sleep(move_after.unwrap_or(ENDLESS_PERIOD)));
        let mut has_moved = false;
        loop {
            tokio::select! {
                transferred = &mut transferring => return Ok((transferred?, high_water)),
                () = &mut departure, if !has_moved => {
                    has_moved = true;
                    self.last_mile.roam();
                }
                _ = ticks.tick() => {
                    self.server.check()?;
                    self.gateway.check()?;
                    let metrics = self.gateway.metrics()?;
                    high_water = high_water.max(metrics.get("cache_high_water_bytes"));
                }
            }
        }
    }

    /// Ends the parts in an order in which each can write its logs and counters.
    pub(crate) async fn finish(self, round_trip: Duration) -> Result<Finished, DemoError> {
        // The end of the connection is still on its way to the server, and the last counters to the
        // metrics.
        tokio::time::sleep(METRICS_SETTLE.max(2 * round_trip)).await;
        let metrics = self.gateway.metrics()?;
        let qlogs = self.server.stop().await;
        self.gateway.stop().await;
        let declared_lost = DeclaredLost::read(&qlogs)?;
        Ok(Finished {
            far: self.far.report(),
            last_mile: self.last_mile.report(),
            metrics,
            declared_lost,
        })
    }
}
