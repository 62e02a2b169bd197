//! Puts everything together.

use std::sync::Arc;

use crate::inject::Sidecar;
use jiff::Timestamp;
use kube::Client;
use kube_lease_manager::LeaseManagerError;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::arguments::Options;
use super::authority::{self, AuthorityError, Identities};
use super::controller::Controller;
use super::discovery::{Connections, Discovery};
use super::election::{Candidate, Ending};
use super::health::{self, Health};
use super::observations::Observations;
use super::sessions::Sessions;
use super::snapshot::{Snapshots, Surroundings};
use super::{injector, keys, listening, reports, tls, watches};
use crate::workload::Platform;

/// An error that ends the operator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// There is no way to the API server.
    #[error(
        "the API server cannot be reached: {0}; in a Pod the ServiceAccount says how, elsewhere KUBECONFIG"
    )]
    Client(String),
    /// A port.
    #[error("{address} cannot be listened on: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The certificates.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The lease.
    #[error(
        "the lease cannot be used: {0}; check that the operator may get, create and patch Leases in its namespace"
    )]
    Lease(String),
    /// A task that should never end; why, if it has panicked.
    #[error("a part of the operator has ended{}; this is a defect, please report it", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
    Task(Option<String>),
    /// The runtime.
    #[error("the operating system refused: {0}")]
    System(#[from] std::io::Error),
}

/// Runs the operator until SIGTERM or SIGINT.
///
/// # Errors
/// [`RunError`]: what keeps it from starting.
pub fn run(options: Options) -> Result<(), RunError> {
    let filter = tracing_subscriber::EnvFilter::try_new(&options.log).unwrap_or_default();
    tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(operate(options))
}

async fn listen(address: std::net::SocketAddr) -> Result<TcpListener, RunError> {
    let listener =
        listening::listen(address).await.map_err(|source| RunError::Listen { address, source })?;
    tracing::info!(event = "listening", address = %listener.local_addr()?, wanted = %address);
    Ok(listener)
}

async fn operate(options: Options) -> Result<(), RunError> {
    // Connections to the API server use it; it may have been chosen already in a test.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client =
        Client::try_default().await.map_err(|error| RunError::Client(error.to_string()))?;
    let listen_address = options.gateway_listen_address();
    let surroundings = Surroundings::in_pods(&listen_address);
    let policy = options.policy();
    let snapshots = Snapshots::new(&options.namespace, policy, surroundings, watches::ESSENTIAL);
    let observations = Arc::new(Observations::default());
    let connections = Arc::new(Connections::default());
    let (owned, drifted) = mpsc::unbounded_channel();

    let health_listener = listen(options.health_listen).await?;
    let (elected, is_elected) = watch::channel(false);
    let health = Health {
        snapshots: Arc::clone(&snapshots),
        connections: Arc::clone(&connections),
        elected: is_elected.clone(),
    };
    // None of them ends. One that does (a defect) takes the replica along: Kubernetes starts it
    // again, and another one is elected.
    let mut tasks = JoinSet::new();
    tasks.spawn(health::serve(health_listener, health));

    let names = options.server_names();
    let authority =
        authority::obtain(&client, &options.namespace, &options.authority_secret, false, None)
            .await?;
    let identities = Arc::new(Identities::new(authority, &names, Timestamp::now().as_second())?);
    tasks.spawn(authority::keep_current(
        Arc::clone(&identities),
        client.clone(),
        options.namespace.clone(),
        options.authority_secret.clone(),
        names,
        is_elected.clone(),
    ));

    watches::start(&client, &snapshots, &observations, &owned, &mut tasks);
    let index = Arc::clone(&snapshots);
    tasks.spawn(async move { index.run().await });
    tasks.spawn(keys::follow(client.clone(), Arc::clone(&snapshots)));

    let discovery = Discovery::new(Arc::clone(&snapshots), Arc::clone(&connections));
    let discovery_listener = listen(options.discovery_listen).await?;
    tasks.spawn(tls::serve(
        discovery_listener,
        identities.discovery(),
        move |request, certificate| discovery.clone().answer(request, certificate),
    ));
    let sidecar = Arc::new(Sidecar {
        image: options.gateway_image.clone(),
        listen_address: listen_address.clone(),
    });
    let webhook_listener = listen(options.webhook_listen).await?;
    tasks.spawn(tls::serve(webhook_listener, identities.webhook(), move |request, _| {
        injector::answer(request, Arc::clone(&sidecar))
    }));
    tasks.spawn(reports::run(client.clone(), Arc::clone(&connections), options.replica.clone()));

    let sessions = Arc::new(Sessions::default());
    tasks.spawn(Arc::clone(&sessions).count(
        Arc::clone(&snapshots),
        Arc::clone(&observations),
        is_elected.clone(),
    ));
    let candidate = Candidate {
        client: client.clone(),
        namespace: options.namespace.clone(),
        lease: options.lease.clone(),
        replica: options.replica.clone(),
        duration: std::time::Duration::from_secs(options.lease_seconds),
    };
    let unusable = |error: LeaseManagerError| RunError::Lease(error.to_string());
    let (holds, mut lease_task) = candidate.stand().await.map_err(unusable)?;
    let mut election = Box::pin(candidate.follow(holds, &elected));
    let controller = Controller {
        client,
        platform: Platform {
            image: options.gateway_image.clone(),
            discovery_host: options.discovery_host(),
            discovery_port: options.discovery_port,
            discovery_namespace: options.discovery_namespace(),
            egress_policy: options.gateway_egress_policy,
            listen_address,
        },
        snapshots,
        observations,
        identities,
        sessions,
        webhook_configuration: options.webhook_configuration.clone(),
        elected: is_elected,
    };
    tasks.spawn(controller.run(options.replica.clone(), drifted));

    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    loop {
        let ending = tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(ended) = tasks.join_next() => return Err(RunError::Task(ended.err().map(|error| error.to_string()))),
            ending = &mut election => ending,
        };
        match ending {
            Ending::Task => return Err(RunError::Lease("its task has ended".to_owned())),
            Ending::Silence => {
                let (holds, task) = candidate.stand().await.map_err(unusable)?;
                election.set(candidate.follow(holds, &elected));
                lease_task = task;
            }
        }
    }
    // Another replica need not wait for the lease to run out.
    drop(election);
    let _ = tokio::time::timeout(std::time::Duration::from_secs(5), lease_task).await;
    Ok(())
}
