//! One replica of the operator: its state, and the tasks that share it.
//!
//! ```text
//!   every replica   health, certificate, watches -> index -> snapshots, discovery, webhook, reports
//!   the elected one the same, and: session counts, controller
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::arguments::RunOptions;
use super::authority::{self, AuthorityError, Identities};
use super::contact::Contact;
use super::controller::Controller;
use super::discovery::{Connections, Discovery};
use super::election::Candidate;
use super::error::RunError;
use super::gateway_api::Served;
use super::gateway_objects::GatewayObjects;
use super::health::{self, Health};
use super::injector::Injector;
use super::observations::Observations;
use super::readings::Readings;
use super::refusal::answered;
use super::snapshot::{Snapshots, Surroundings};
use super::{gateway_api, keys, listening, reports, tenant_secrets, tls, watches};
use crate::inject::{Room, Sidecar};
use crate::object_key::ObjectKey;
use crate::workload::Platform;

/// State that the tasks of a replica share.
pub(super) struct Replica<'a> {
    options: &'a RunOptions,
    client: Client,
    /// The address that gateways listen on.
    listen_address: String,
    snapshots: Arc<Snapshots>,
    observations: Arc<Observations>,
    connections: Arc<Connections>,
    contact: Arc<Contact>,
    is_elected: watch::Receiver<bool>,
    /// Certificates for the page with metrics, which is served before they exist.
    identities: Arc<OnceLock<Arc<Identities>>>,
}

impl<'a> Replica<'a> {
    /// Creates a replica without tasks. `is_elected`: true while it is the writing one.
    pub(super) async fn new(
        options: &'a RunOptions,
        is_elected: watch::Receiver<bool>,
    ) -> Result<Self, RunError> {
        // Connections to the API server use it; it may have been chosen already in a test.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client =
            Client::try_default().await.map_err(|error| RunError::Client(error.to_string()))?;
        let listen_address = options.gateway_listen_address();
        let surroundings = Surroundings::in_pods(&listen_address);
        Ok(Self {
            options,
            client,
            listen_address,
            snapshots: Snapshots::new(
                &options.namespace,
                options.policy(),
                options.operator(),
                surroundings,
                watches::ESSENTIAL_WATCHES,
            ),
            observations: Arc::default(),
            connections: Arc::default(),
            contact: Arc::default(),
            is_elected,
            identities: Arc::default(),
        })
    }

    /// The replica as a candidate for the lease.
    pub(super) fn candidate(&self) -> Candidate {
        Candidate {
            client: self.client.clone(),
            namespace: self.options.namespace.clone(),
            lease: self.options.lease.clone(),
            replica: self.options.replica.clone(),
            duration: Duration::from_secs(self.options.lease_seconds),
            contact: Arc::clone(&self.contact),
        }
    }

    /// Starts all tasks.
    pub(super) async fn start(&self, tasks: &mut JoinSet<()>) -> Result<(), RunError> {
        self.start_health(tasks).await?;
        let identities = self.start_identities(tasks).await?;
        let _ = self.identities.set(Arc::clone(&identities));
        let (drifted, served) = self.start_watches(tasks);
        self.start_discovery(&identities, tasks).await?;
        self.start_webhook(&identities, tasks).await?;
        self.start_controller(identities, drifted, served, tasks);
        Ok(())
    }

    async fn start_health(&self, tasks: &mut JoinSet<()>) -> Result<(), RunError> {
        let listener = listen(self.options.listen.health_listen).await?;
        let health = Health {
            snapshots: Arc::clone(&self.snapshots),
            connections: Arc::clone(&self.connections),
            contact: Arc::clone(&self.contact),
            elected: self.is_elected.clone(),
            identities: Arc::clone(&self.identities),
        };
        tasks.spawn(health::serve(listener, health));
        Ok(())
    }

    /// The certificates by which gateways and the API server know this operator.
    async fn start_identities(&self, tasks: &mut JoinSet<()>) -> Result<Arc<Identities>, RunError> {
        let RunOptions { namespace, authority_secret, .. } = self.options;
        let names = self.options.server_names();
        // The API server may be away: then it is waited for, and not again and again by another process.
        let obtain = || authority::obtain(&self.client, namespace, authority_secret, false, None);
        let authority = answered(obtain, AuthorityError::is_silence).await?;
        let now = Timestamp::now().as_second();
        let identities = Arc::new(Identities::new(authority, &names, now)?);
        tasks.spawn(authority::keep_current(
            Arc::clone(&identities),
            self.client.clone(),
            namespace.clone(),
            authority_secret.clone(),
            names,
            self.is_elected.clone(),
        ));
        Ok(identities)
    }

    /// Starts the watches and the index of the observed objects. Returns the EdgeGateways whose
    /// objects have changed, and the kinds of the Gateway API that the cluster has.
    fn start_watches(
        &self,
        tasks: &mut JoinSet<()>,
    ) -> (mpsc::UnboundedReceiver<ObjectKey>, watch::Receiver<Served>) {
        let (owned, drifted) = mpsc::unbounded_channel();
        watches::start(&self.client, &self.snapshots, &self.observations, &owned, tasks);
        let (serves, served) = watch::channel(Served::new());
        let snapshots = Arc::clone(&self.snapshots);
        tasks.spawn(gateway_api::run(self.client.clone(), snapshots, serves));
        let index = Arc::clone(&self.snapshots);
        tasks.spawn(async move { index.run().await });
        tasks.spawn(keys::follow(self.client.clone(), Arc::clone(&self.snapshots)));
        let snapshots = Arc::clone(&self.snapshots);
        tasks.spawn(tenant_secrets::follow(self.client.clone(), snapshots));
        (drifted, served)
    }

    /// The configuration of gateways, and the reports about connected ones.
    async fn start_discovery(
        &self,
        identities: &Identities,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), RunError> {
        let discovery = Discovery::new(
            Arc::clone(&self.snapshots),
            Arc::clone(&self.connections),
            Arc::clone(&self.contact),
        );
        let listener = listen(self.options.listen.discovery_listen).await?;
        tasks.spawn(tls::serve(listener, identities.discovery(), move |request, certificate| {
            discovery.clone().answer(request, certificate)
        }));
        let (client, replica) = (self.client.clone(), self.options.replica.clone());
        tasks.spawn(reports::run(client, Arc::clone(&self.connections), replica));
        Ok(())
    }

    /// The injector of sidecars.
    async fn start_webhook(
        &self,
        identities: &Identities,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), RunError> {
        let gateway = &self.options.gateway;
        let injector = Arc::new(Injector {
            client: self.client.clone(),
            sidecar: Sidecar {
                image: gateway.gateway_image.clone(),
                pull_policy: gateway.gateway_image_pull_policy.clone(),
                pull_secrets: gateway.gateway_image_pull_secrets.clone(),
                user: gateway.gateway_user,
                listen_address: self.listen_address.clone(),
                resources: gateway.sidecar_resources.clone(),
                room: Room::default(),
            },
        });
        let listener = listen(self.options.listen.webhook_listen).await?;
        tasks.spawn(tls::serve(listener, identities.webhook(), move |request, _| {
            Arc::clone(&injector).answer(request)
        }));
        Ok(())
    }

    /// The work of the elected replica: session counts and objects.
    fn start_controller(
        &self,
        identities: Arc<Identities>,
        drifted: mpsc::UnboundedReceiver<ObjectKey>,
        served: watch::Receiver<Served>,
        tasks: &mut JoinSet<()>,
    ) {
        let readings = Arc::new(Readings::default());
        tasks.spawn(Arc::clone(&readings).run(
            Arc::clone(&self.snapshots),
            Arc::clone(&self.observations),
            self.is_elected.clone(),
        ));
        let class = &self.options.operator().class;
        let controller = Controller {
            gateway_objects: GatewayObjects::new(self.client.clone(), class, served),
            client: self.client.clone(),
            operator: self.options.operator(),
            platform: Platform {
                image: self.options.gateway.gateway_image.clone(),
                pull_policy: self.options.gateway.gateway_image_pull_policy.clone(),
                pull_secrets: self.options.gateway.gateway_image_pull_secrets.clone(),
                user: self.options.gateway.gateway_user,
                discovery_host: self.options.discovery_host(),
                discovery_port: self.options.service.discovery_port,
                discovery_namespace: self.options.discovery_namespace(),
                egress_policy: self.options.gateway_egress_policy,
                listen_address: self.listen_address.clone(),
                patches: self.options.gateway_patches.clone(),
            },
            snapshots: Arc::clone(&self.snapshots),
            observations: Arc::clone(&self.observations),
            identities,
            readings,
            webhook_configuration: self.options.webhook_configuration.clone(),
            elected: self.is_elected.clone(),
            began: Instant::now(),
        };
        tasks.spawn(controller.run(self.options.replica.clone(), drifted));
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, RunError> {
    let listener =
        listening::listen(address).await.map_err(|source| RunError::Listen { address, source })?;
    tracing::info!(event = "listening", address = %listener.local_addr()?, wanted = %address);
    Ok(listener)
}
