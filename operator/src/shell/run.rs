//! The operator's process: log, runtime, tasks, election, end.

use std::time::Duration;

use kube_lease_manager::LeaseManagerError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::arguments::RunOptions;
use super::election::{Candidate, Ending, Standing};
use super::error::RunError;
use super::refusal::{answered, is_silence};
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
    let mut signals = Signals::new()?;
    let candidate = replica.candidate();
    let start = async {
        replica.start(&mut tasks).await?;
        stand(&candidate).await
    };
    let standing = tokio::select! {
        standing = start => standing?,
        () = signals.any() => return Ok(()),
    };
    until_stopped(&candidate, standing, &elected, &mut tasks, &mut signals).await
}

/// The signals that end the operator.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, std::io::Error> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    /// Ends with the first signal.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Stands for election, as soon as the API server answers.
async fn stand(candidate: &Candidate) -> Result<Standing, RunError> {
    let is_silence = |error: &LeaseManagerError| match error {
        LeaseManagerError::KubeError(error) => is_silence(error),
        _ => false,
    };
    let standing = answered(|| candidate.stand(), is_silence).await;
    standing.map_err(|error| RunError::Lease(error.to_string()))
}

/// Stands for election again and again until a signal ends it.
async fn until_stopped(
    candidate: &Candidate,
    (holds, mut lease_task): Standing,
    elected: &watch::Sender<bool>,
    tasks: &mut JoinSet<()>,
    signals: &mut Signals,
) -> Result<(), RunError> {
    let mut election = Box::pin(candidate.follow(holds, elected));
    loop {
        let ending = tokio::select! {
            () = signals.any() => break,
            Some(ended) = tasks.join_next() => {
                return Err(RunError::Task(ended.err().map(|error| error.to_string())));
            }
            ending = &mut election => ending,
        };
        match ending {
            Ending::Task => return Err(RunError::Lease("its task has ended".to_owned())),
            Ending::Silence => {
                let (holds, task) = tokio::select! {
                    standing = stand(candidate) => standing?,
                    () = signals.any() => break,
                };
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
