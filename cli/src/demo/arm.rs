//! One transfer through a network of its own: server, paths and gateway are fresh, so that earlier
//! transfers leave no trace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use packrat_emulation::path::{PathConfig, PathReport, UdpPath};

use super::certificate::Certificate;
use super::client::Transfer;
use super::error::DemoError;
use super::flood::RunningFlood;
use super::gateway::{Edge, Gateway, GatewaySetup};
use super::metrics::Metrics;
use super::neighbour::Neighbour;
use super::options::{ArmName, ClientKind, Options};
use super::payload::{self, Payload};
use super::profile::Network;
use super::program::{self, Outcome, RunningAgent};
use super::qlog::DeclaredLost;
use super::report::{ArmReport, AssistanceReport};
use super::server::{Server, ServerSetup};
use crate::http3::Report;

/// Name of the file that is transferred.
pub(crate) const FILE_NAME: &str = "payload.bin";
/// Name of a file that shows a server to be there.
pub(crate) const SMALL_FILE: &str = "ready";
/// Name of the file with every datagram that the server sent, in a directory that is kept.
const CAPTURE_NAME: &str = "datagrams.capture";
/// Interval of reading the gateway's gauges.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Longest age of a gateway's metrics when they are read (Envoy flushes them by a timer).
const METRICS_SETTLE: Duration = Duration::from_millis(1200);
/// Longest time of a transfer: a stalled one would never end by itself.
const LONGEST_TRANSFER: Duration = Duration::from_secs(600);
/// Attempts to start an arm's processes.
const START_ATTEMPTS: usize = 3;
/// A period longer than any demo.
const ENDLESS_PERIOD: Duration = Duration::from_secs(86_400);

/// The environment that all arms share.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// The user's options.
    pub(crate) options: &'a Options,
    /// The network with its loss.
    pub(crate) network: Network,
    /// The file to transfer.
    pub(crate) payload: Payload,
    /// The directory that servers serve.
    pub(crate) files: PathBuf,
    /// The certificate that servers show and clients trust.
    pub(crate) certificate: Certificate,
    /// The directory for everything that arms write.
    pub(crate) work: PathBuf,
    /// True if an unassisted download shares the last mile.
    pub(crate) neighbour: bool,
}

impl Stage<'_> {
    /// Runs one arm; calls `progress` with the number of bytes that have arrived.
    pub(crate) async fn run(
        &self,
        name: ArmName,
        progress: impl Fn(u64),
    ) -> Result<ArmReport, DemoError> {
        let work = self.work.join(name.to_string());
        fs::create_dir_all(&work).map_err(|error| DemoError::write(&work, error))?;
        let network = match name {
            ArmName::Lossless => self.network.without_loss(),
            _ => self.network,
        };
        let uploads = work.join("uploads");
        fs::create_dir_all(&uploads).map_err(|error| DemoError::write(&uploads, error))?;
        let mut scene = Scene::build_patiently(self, name, network, &work, &uploads).await?;
        let patience = match name.may_be_stopped() {
            true => Duration::from_secs(self.options.patience),
            false => LONGEST_TRANSFER,
        };
        let last_mile = scene.last_mile.address();
        let client = self.options.client;
        let needs_agent = name.is_assisted() && client != ClientKind::Packrat;
        let agent =
            needs_agent.then(|| RunningAgent::start(self.options, last_mile)).transpose()?;
        let transfer = Transfer {
            server: agent.as_ref().and_then(|agent| agent.address).unwrap_or(last_mile),
            file: FILE_NAME,
            authority: &self.certificate.authority,
            assist: name.is_assisted(),
            patience,
        };
        let move_after = self.options.rebind_after.filter(|_| name == ArmName::PackratMoved);
        let memory = scene.gateway.resident_bytes();
        let flood = (name == ArmName::PackratFlooded).then(|| {
            RunningFlood::start(self.payload.size, self.options.seed, scene.gateway.address)
        });
        let echo = scene.server.echo();
        let neighbour = match self.neighbour {
            true => Some(Neighbour::start(self, network, &mut scene.last_mile, &work).await?),
            false => None,
        };
        let transferring = async {
            if let Some(tunnel) = name.tunnel() {
                let rate = network.links().last_mile_down.rate;
                return program::through_tunnel(tunnel, rate, self, &transfer, &work, progress)
                    .await;
            }
            match client {
                ClientKind::Packrat if self.options.upload => {
                    transfer.upload(&self.files.join(FILE_NAME), progress).await.map(Outcome::from)
                }
                ClientKind::Packrat => transfer.download(progress).await.map(Outcome::from),
                _ => {
                    let proxy = agent.as_ref().and_then(|agent| agent.proxy);
                    program::run(self, &transfer, proxy, &work, echo, progress).await
                }
            }
        };
        let watched = match &neighbour {
            Some(neighbour) => neighbour.beside(scene.watch(transferring, move_after)).await,
            None => scene.watch(transferring, move_after).await,
        };
        let neighbour_mbps = neighbour.as_ref().map(Neighbour::mbps);
        drop(neighbour);
        // The flood stops even if the transfer failed.
        let flood_datagrams = flood.map_or(0, RunningFlood::stop);
        let (Outcome { report: transferred, times, verified }, cache_high_water) = watched?;
        let grown =
            scene.gateway.resident_bytes().zip(memory).map(|(after, before)| after - before);
        let finished = scene.finish(network.round_trip()).await?;
        let mut report = self.report(name, &transferred, cache_high_water, &finished);
        if self.options.upload {
            self.account_for_upload(
                &mut report,
                &transferred,
                &uploads.join(FILE_NAME),
                &finished,
            )?;
        }
        if client != ClientKind::Packrat {
            report.spurious = None;
        }
        if let Some(verified) = verified {
            (report.sha256_ok, report.complete) = (verified, verified);
        }
        report.times = times;
        if let Some(counters) = agent.map(|agent| agent.counters()) {
            (report.repairs_late, report.eack_bytes) =
                (counters.repaired_late, counters.eack_bytes);
            report.assistance = Some(counters.into());
        }
        report.flood_datagrams = flood_datagrams;
        report.neighbour_mbps = neighbour_mbps;
        report.gateway_memory_growth_bytes = grown;
        Ok(report)
    }

    fn report(
        &self,
        name: ArmName,
        downloaded: &Report,
        cache_high_water: u64,
        finished: &Finished,
    ) -> ArmReport {
        let Finished { far, last_mile, metrics, declared_lost } = finished;
        let down = last_mile.downward.link;
        let lost = declared_lost.as_ref();
        let assist = downloaded.assist.unwrap_or_default().assist;
        // Connecting is part of the user's waiting time.
        let seconds = (downloaded.connect_time + downloaded.transfer_time).as_secs_f64();
        let complete = !downloaded.partial && downloaded.bytes == self.payload.size;
        let expected = self.payload.sha256_of_first(downloaded.bytes);
        ArmReport {
            name,
            goodput_mbps: downloaded.bytes as f64 * 8e-6 / seconds.max(1e-9),
            seconds,
            transfer_seconds: downloaded.transfer_time.as_secs_f64(),
            sha256_ok: downloaded.sha256 == expected && (complete || downloaded.partial),
            lost_last_mile: down.lost + down.queue_dropped,
            repairs: metrics.get("repairs_total"),
            repairs_late: assist.filled_late,
            spurious: lost.map(|lost| lost.count_within(&downloaded.received_packet_numbers)),
            // The client learns the gateway's totals from Reports, which may come before the last
            // event; the metrics are flushed by a timer.
            paths_moved: metrics.get("paths_moved_total"),
            flood_datagrams: 0,
            control_received: metrics.get("control_received_total"),
            gateway_memory_growth_bytes: None,
            resets: metrics.sum_of("resets_").max(assist.gateway.resets.into()),
            cache_high_water_bytes: cache_high_water.max(assist.gateway.cache_high_water.into()),
            eack_bytes: assist.eack_bytes,
            complete,
            bytes: downloaded.bytes,
            neighbour_mbps: None,
            declared_lost: lost.map(DeclaredLost::count),
            times: None,
            assistance: downloaded.assist.map(AssistanceReport::from),
            on_time: far.is_on_time() && last_mile.is_on_time(),
            far: *far,
            last_mile: *last_mile,
        }
    }

    /// Corrects the report on a download to one on an upload: `kept` is the server's copy.
    fn account_for_upload(
        &self,
        report: &mut ArmReport,
        uploaded: &Report,
        kept: &Path,
        finished: &Finished,
    ) -> Result<(), DemoError> {
        let (bytes, sha256) = match fs::File::open(kept) {
            Ok(file) => payload::hash(file).map_err(|error| DemoError::read(kept, error))?,
            // Stopped before the server had anything.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                payload::hash(io::empty()).map_err(|error| DemoError::read(kept, error))?
            }
            Err(error) => return Err(DemoError::read(kept, error)),
        };
        let up = finished.last_mile.upward.link;
        let assist = uploaded.assist.unwrap_or_default().assist;
        report.bytes = bytes;
        report.goodput_mbps = bytes as f64 * 8e-6 / report.seconds.max(1e-9);
        report.complete = !uploaded.partial && bytes == self.payload.size;
        report.sha256_ok =
            sha256 == self.payload.sha256_of_first(bytes) && (report.complete || uploaded.partial);
        report.lost_last_mile = up.lost + up.queue_dropped;
        report.repairs = assist.upward_repairs;
        report.repairs_late = 0;
        // The client has no account of what the server has received.
        (report.declared_lost, report.spurious) = (Some(uploaded.declared_lost), None);
        Ok(())
    }
}

/// The parts of a running arm, from the server to the client; dropped from the client's end.
struct Scene {
    last_mile: UdpPath,
    gateway: Gateway,
    far: UdpPath,
    server: Server,
}

/// The results of an arm's parts.
struct Finished {
    far: PathReport,
    last_mile: PathReport,
    metrics: Metrics,
    declared_lost: Option<DeclaredLost>,
}

impl Scene {
    /// Builds the arm, again if a process could not start: between the choice of a free port and
    /// its use another program may take it.
    async fn build_patiently(
        stage: &Stage<'_>,
        name: ArmName,
        network: Network,
        work: &Path,
        uploads: &Path,
    ) -> Result<Self, DemoError> {
        for _ in 0..START_ATTEMPTS - 1 {
            match Self::build(stage, name, network, work, uploads).await {
                Err(DemoError::Ended { .. }) => {}
                outcome => return outcome,
            }
        }
        Self::build(stage, name, network, work, uploads).await
    }

    async fn build(
        stage: &Stage<'_>,
        name: ArmName,
        network: Network,
        work: &Path,
        uploads: &Path,
    ) -> Result<Self, DemoError> {
        let options = stage.options;
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
            sender: options.sender,
            sparse_copies: options.sparse_copies,
            work,
        };
        let gateway = match Edge::of(name) {
            Some(edge) => Gateway::start_edge(edge, setup, &stage.certificate).await?,
            None => Gateway::start(options.gateway, setup).await?,
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
    async fn watch(
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
    async fn finish(self, round_trip: Duration) -> Result<Finished, DemoError> {
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
