//! One transfer through a network of its own: server, paths and gateway are fresh, so that earlier
//! transfers leave no trace.

use std::fs;
use std::io;
use std::time::Duration;

use super::client::{Job, Outcome, RunningAgent, Transfer};
use super::error::DemoError;
use super::flood::RunningFlood;
use super::neighbour::Neighbour;
use super::options::{ArmName, ClientKind, DemoOptions};
use super::payload;
use super::qlog::DeclaredLost;
use super::report::{ArmReport, AssistanceReport, GatewayFigures, LossFigures, PathFigures};
use super::scene::{Finished, Scene};
use super::stage::{FILE_NAME, Stage};
use crate::http3::Report;

/// Longest time of a transfer: a stalled one would never end by itself.
const LONGEST_TRANSFER: Duration = Duration::from_secs(600);

/// Runs one arm; calls `progress` with the number of bytes that have arrived.
pub(crate) async fn run(
    stage: &Stage<'_>,
    name: ArmName,
    progress: impl Fn(u64),
) -> Result<ArmReport, DemoError> {
    let (options, network) = (stage.options, stage.network_of(name));
    let (work, uploads) = (stage.work_of(name), stage.uploads_of(name));
    fs::create_dir_all(&uploads).map_err(|error| DemoError::write(&uploads, error))?;
    let mut scene = Scene::build_patiently(stage, name).await?;
    let last_mile = scene.last_mile.address();
    let needs_agent = name.is_assisted() && options.program.client != ClientKind::Packrat;
    let agent = needs_agent.then(|| RunningAgent::start(options, last_mile)).transpose()?;
    let job = Job {
        stage,
        transfer: Transfer {
            server: agent.as_ref().and_then(|agent| agent.address).unwrap_or(last_mile),
            file: FILE_NAME,
            authority: &stage.certificate.authority,
            assist: name.is_assisted(),
            patience: patience(name, options),
        },
        proxy: agent.as_ref().and_then(|agent| agent.proxy),
        turn: agent.as_ref().and_then(|agent| agent.turn),
        work: &work,
        answers: scene.server.echo(),
    };
    let memory = scene.gateway.resident_bytes();
    let flood = (name == ArmName::PackratFlooded)
        .then(|| RunningFlood::start(stage.payload.size, options.seed, scene.gateway.address));
    let neighbour = match stage.neighbour {
        true => Some(Neighbour::start(stage, network, &mut scene.last_mile, &work).await?),
        false => None,
    };
    let move_after = options.rebind_after.filter(|_| name == ArmName::PackratMoved);
    let watched = scene.watch(job.run(name.tunnel(), progress), move_after);
    let watched = match &neighbour {
        Some(neighbour) => neighbour.beside(watched).await,
        None => watched.await,
    };
    let neighbour_mbps = neighbour.as_ref().map(Neighbour::mbps);
    drop(neighbour);
    // The flood stops even if the transfer failed.
    let flood_datagrams = flood.map_or(0, RunningFlood::stop);
    let (outcome, cache_high_water) = watched?;
    let grown = scene.gateway.resident_bytes().zip(memory).map(|(after, before)| after - before);
    let finished = scene.finish(network.round_trip()).await?;

    let mut report = report_on(stage, name, &outcome.report, cache_high_water, &finished);
    if options.upload {
        account_for_upload(stage, &mut report, &outcome.report, &finished)?;
    }
    account_for_program(&mut report, options.program.client, outcome, agent.as_ref());
    report.gateway.flood_datagrams = flood_datagrams;
    report.gateway.gateway_memory_growth_bytes = grown;
    report.neighbour_mbps = neighbour_mbps;
    Ok(report)
}

fn patience(name: ArmName, options: &DemoOptions) -> Duration {
    match name.may_be_stopped() {
        true => Duration::from_secs(options.patience),
        false => LONGEST_TRANSFER,
    }
}

fn report_on(
    stage: &Stage<'_>,
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
    let complete = !downloaded.partial && downloaded.bytes == stage.payload.size;
    let expected = stage.payload.sha256_of_first(downloaded.bytes);
    ArmReport {
        name,
        goodput_mbps: downloaded.bytes as f64 * 8e-6 / seconds.max(1e-9),
        seconds,
        transfer_seconds: downloaded.transfer_time.as_secs_f64(),
        sha256_ok: downloaded.sha256 == expected && (complete || downloaded.partial),
        losses: LossFigures {
            lost_last_mile: down.lost + down.queue_dropped,
            repairs: metrics.get("repairs_total"),
            repairs_late: assist.filled_late,
            spurious: lost
                .map(|lost| lost.count_within(&downloaded.connection.received_packet_numbers)),
        },
        // The client learns the gateway's totals from Reports, which may come before the last
        // event; the metrics are flushed by a timer.
        gateway: GatewayFigures {
            paths_moved: metrics.get("paths_moved_total"),
            flood_datagrams: 0,
            control_received: metrics.get("control_received_total"),
            gateway_memory_growth_bytes: None,
            resets: metrics.sum_of("resets_").max(assist.gateway.resets.into()),
            cache_high_water_bytes: cache_high_water.max(assist.gateway.cache_high_water.into()),
        },
        eack_bytes: assist.eack_bytes,
        complete,
        bytes: downloaded.bytes,
        neighbour_mbps: None,
        declared_lost: lost.map(DeclaredLost::count),
        times: None,
        assistance: downloaded.assist.map(AssistanceReport::from),
        path: PathFigures {
            on_time: far.is_on_time() && last_mile.is_on_time(),
            far: *far,
            last_mile: *last_mile,
        },
    }
}

/// Corrects the report on a download to one on an upload, by the server's copy.
fn account_for_upload(
    stage: &Stage<'_>,
    report: &mut ArmReport,
    uploaded: &Report,
    finished: &Finished,
) -> Result<(), DemoError> {
    let kept = stage.uploads_of(report.name).join(FILE_NAME);
    let failed = |error| DemoError::read(&kept, error);
    let (bytes, sha256) = match fs::File::open(&kept) {
        Ok(file) => payload::hash(file).map_err(failed)?,
        // Stopped before the server had anything.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            payload::hash(io::empty()).map_err(failed)?
        }
        Err(error) => return Err(failed(error)),
    };
    let up = finished.last_mile.upward.link;
    let assist = uploaded.assist.unwrap_or_default().assist;
    report.bytes = bytes;
    report.goodput_mbps = bytes as f64 * 8e-6 / report.seconds.max(1e-9);
    report.complete = !uploaded.partial && bytes == stage.payload.size;
    report.sha256_ok =
        sha256 == stage.payload.sha256_of_first(bytes) && (report.complete || uploaded.partial);
    report.losses = LossFigures {
        lost_last_mile: up.lost + up.queue_dropped,
        repairs: assist.upward_repairs,
        repairs_late: 0,
        // The client has no account of what the server has received.
        spurious: None,
    };
    report.declared_lost = Some(uploaded.connection.declared_lost);
    Ok(())
}

/// Adds the measurements of a program, and of its agent.
fn account_for_program(
    report: &mut ArmReport,
    client: ClientKind,
    outcome: Outcome,
    agent: Option<&RunningAgent>,
) {
    if client != ClientKind::Packrat {
        report.losses.spurious = None;
    }
    if let Some(verified) = outcome.verified {
        (report.sha256_ok, report.complete) = (verified, verified);
    }
    report.times = outcome.times;
    if let Some(counters) = agent.map(RunningAgent::counters) {
        report.losses.repairs_late = counters.repaired_late;
        report.eack_bytes = counters.eack_bytes;
        report.assistance = Some(counters.into());
    }
}
