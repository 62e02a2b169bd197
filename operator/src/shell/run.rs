//! The operator's process: log, runtime, tasks, election, end.

use std::time::Duration;

use kube_lease_manager::LeaseManagerError;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::arguments::RunOptions;
use super::election::{Candidate, Ending};
use super::error::RunError;
use super::replica::Replica;

/// Longest time that the task which renews the lease may take to release it.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
/// [`RunError`]: the reason why it cannot start.
pub fn run(options: RunOptions) -> Result<(), RunError> {
    let filter = tracing_subscriber::EnvFilter::try_new(&options.log).unwrap_or_default();
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(operate(options))
}

async fn operate(options: RunOptions) -> Result<(), RunError> {
    let (elected, is_elected) = watch::channel(false);
    let replica = Replica::new(&options, is_elected).await?;
    // The tasks do not end. If one does (a defect), it ends the replica: Kubernetes starts it
    // again, and another one is elected.
    let mut tasks = JoinSet::new();
    replica.start(&mut tasks).await?;
    let candidate = replica.candidate();
    until_stopped(&candidate, &elected, &mut tasks).await
}

/// Stands for election again and again until a signal ends it.
async fn until_stopped(
    candidate: &Candidate,
    elected: &watch::Sender<bool>,
    tasks: &mut JoinSet<()>,
) -> Result<(), RunError> {
    let unusable = |error: LeaseManagerError| RunError::Lease(error.to_string());
    let (holds, mut lease_task) = candidate.stand().await.map_err(unusable)?;
    let mut election = Box::pin(candidate.follow(holds, elected));
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    loop {
        let ending = tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(ended) = tasks.join_next() => {
                return Err(RunError::Task(ended.err().map(|error| error.to_string())));
            }
            ending = &mut election => ending,
        };
        match ending {
            Ending::Task => return Err(RunError::Lease("its task has ended".to_owned())),
            Ending::Silence => {
                let (holds, task) = candidate.stand().await.map_err(unusable)?;
                election.set(candidate.follow(holds, elected));
                lease_task = task;
            }
        }
    }
    // Another replica need not wait for the lease to run out.
    drop(election);
    let _ = tokio::time::timeout(RELEASE_TIME, lease_task).await;
    Ok(())
}
