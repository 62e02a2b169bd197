//! The discovery service that gateways are connected to: delta ADS.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::contact::Contact;
use super::snapshot::{Snapshot, Snapshots};
use crate::certificates::uid_in;
use crate::object_key::ObjectKey;
use crate::xds::delta::{DeltaStream, Heard};
use crate::xds::wire::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node};
use crate::xds::{Resources, matters};

/// Path of the method of the discovery service.
const STREAM_METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// Longest reason of Envoy's that is repeated.
const MAXIMUM_REASON_CHARACTERS: usize = 1000;

/// Gateways that are connected to this replica: EdgeGateway, Pod, and the reason for which the
/// newest configuration was refused.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<BTreeMap<(ObjectKey, String), Connection>>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Clone, Default)]
struct Connection {
    /// Number of the stream: the newest of a Pod's streams counts.
    stream: u64,
    proxy: Proxy,
}

/// The state of a connected gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxy {
    /// The version of the configuration that the gateway has acknowledged as a whole.
    pub version: Option<String>,
    /// Envoy's reason for a refusal.
    pub error: Option<String>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, BTreeMap<(ObjectKey, String), Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receiver that is notified of changes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The connected gateways of each EdgeGateway, with the names of their Pods.
    pub fn list(&self) -> BTreeMap<ObjectKey, Vec<(String, Proxy)>> {
        let mut list: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((gateway, name), connection) in self.open().iter() {
            list.entry(gateway.clone()).or_default().push((name.clone(), connection.proxy.clone()));
        }
        list
    }

    fn changed(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// An entry in [`Connections`] that is removed when the stream ends.
struct Registration {
    connections: Arc<Connections>,
    key: (ObjectKey, String),
    stream: u64,
}

impl Registration {
    fn new(connections: Arc<Connections>, key: (ObjectKey, String)) -> Self {
        let stream = {
            let mut open = connections.open();
            let connection = open.entry(key.clone()).or_default();
            let stream = connection.stream.wrapping_add(1);
            *connection = Connection { stream, proxy: Proxy::default() };
            connection.stream
        };
        connections.changed();
        Self { connections, key, stream }
    }

    fn set_error(&self, error: Option<String>) {
        self.change(|proxy| proxy.error = error);
    }

    /// The gateway has acknowledged this version of its configuration.
    fn set_version(&self, version: Option<&String>) {
        self.change(|proxy| proxy.version = version.cloned());
    }

    fn change(&self, change: impl FnOnce(&mut Proxy)) {
        let differs = match self.connections.open().get_mut(&self.key) {
            Some(connection) if connection.stream == self.stream => {
                let before = connection.proxy.clone();
                change(&mut connection.proxy);
                connection.proxy != before
            }
            _ => false,
        };
        if differs {
            self.connections.changed();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let removed = {
            let mut open = self.connections.open();
            let ours =
                open.get(&self.key).is_some_and(|connection| connection.stream == self.stream);
            if ours {
                open.remove(&self.key);
            }
            ours
        };
        if removed {
            self.connections.changed();
        }
    }
}

/// The discovery service.
#[derive(Debug, Clone)]
pub struct Discovery {
    snapshots: Arc<Snapshots>,
    connections: Arc<Connections>,
    contact: Arc<Contact>,
}

type Responses = Pin<Box<dyn Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Send>>;

impl Discovery {
    /// Serves the newest snapshot, and keeps `connections`.
    pub const fn new(
        snapshots: Arc<Snapshots>,
        connections: Arc<Connections>,
        contact: Arc<Contact>,
    ) -> Self {
        Self { snapshots, connections, contact }
    }

    /// Answers a request of a gateway with this certificate.
    pub async fn answer(
        self,
        request: http::Request<Incoming>,
        certificate: Option<CertificateDer<'static>>,
    ) -> http::Response<tonic::body::Body> {
        if request.uri().path() != STREAM_METHOD {
            return Status::unimplemented("only delta ADS is served; set api_type: DELTA_GRPC")
                .into_http();
        }
        let Some(certificate) = certificate else {
            return Status::unauthenticated("a gateway needs a certificate").into_http();
        };
        let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
        grpc.streaming(Method { discovery: self, certificate }, request).await
    }

    /// Reads the identity of the client from the first request: the EdgeGateway, its identity, the
    /// Pod.
    fn identify(
        &self,
        node: Option<&Node>,
        certificate: &CertificateDer<'_>,
    ) -> Result<(ObjectKey, String, String), Status> {
        let node = node.ok_or_else(|| Status::invalid_argument("the first request has no node"))?;
        let (namespace, name) = node.cluster.split_once('/').ok_or_else(|| {
            Status::invalid_argument("node.cluster is not the namespace/name of an EdgeGateway")
        })?;
        let key = ObjectKey::new(namespace, name);
        let certificate = webpki::EndEntityCert::try_from(certificate).map_err(|_| denied(&key))?;
        let uid = certificate.valid_dns_names().find_map(|name| uid_in(name, &key));
        let uid = uid.ok_or_else(|| denied(&key))?.to_owned();
        Ok((key, uid, node.id.clone()))
    }
}

fn denied(gateway: &ObjectKey) -> Status {
    Status::permission_denied(format!(
        "the certificate is not that of a gateway of EdgeGateway {gateway}"
    ))
}

struct Method {
    discovery: Discovery,
    certificate: CertificateDer<'static>,
}

impl tonic::server::StreamingService<DeltaDiscoveryRequest> for Method {
    type Response = DeltaDiscoveryResponse;
    type ResponseStream = Responses;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Responses>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<DeltaDiscoveryRequest>>) -> Self::Future {
        let (discovery, certificate) = (self.discovery.clone(), self.certificate.clone());
        Box::pin(async move {
            let (sender, receiver) = mpsc::channel(4);
            let requests = request.into_inner();
            tokio::spawn(async move {
                if let Err(status) = discovery.converse(requests, &certificate, &sender).await {
                    tracing::warn!(event = "gateway_refused", error = status.message());
                    // The receiver may be gone.
                    let _ = sender.send(Err(status)).await;
                }
            });
            let responses: Responses = Box::pin(ReceiverStream::new(receiver));
            Ok(Response::new(responses))
        })
    }
}

impl Discovery {
    async fn converse(
        &self,
        mut requests: Streaming<DeltaDiscoveryRequest>,
        certificate: &CertificateDer<'_>,
        sender: &mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
    ) -> Result<(), Status> {
        let Some(first) = requests.message().await? else { return Ok(()) };
        let (gateway, uid, pod) = self.identify(first.node.as_ref(), certificate)?;
        let key = (gateway, pod);
        tracing::info!(event = "gateway_connected", gateway = %key.0, pod = key.1);
        let registration = Registration::new(Arc::clone(&self.connections), key.clone());
        let mut snapshots = self.snapshots.subscribe();
        let mut stream = DeltaStream::default();
        stream.hear(&first);
        // The time until which listeners stay that Envoy has and this replica does not know.
        let (mut began, mut release_at, mut released) = (None, None, false);
        let mut left = std::pin::pin!(self.contact.until_left());
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let current = snapshot.as_deref().and_then(|snapshot| snapshot.gateways.get(&key.0));
            // Another EdgeGateway has taken the name: its keys are not for the gateways of the
            // former one.
            if current.is_some_and(|current| current.model.uid != uid) {
                return Err(denied(&key.0));
            }
            let (resources, drain) = resources_of(snapshot.as_deref(), &key.0).unzip();
            if let Some(drain) = drain {
                release_at = Some(*began.get_or_insert_with(Instant::now) + drain);
            }
            // A gateway whose EdgeGateway is gone keeps its listeners: it is about to be drained.
            if let Some(resources) = resources {
                if !deliver(&mut stream, &resources, sender, &key).await {
                    return Ok(());
                }
                if let Some(current) = current
                    && stream.has_taken(&resources, |name| matters(&current.view, name))
                {
                    registration.set_version(current.version.as_ref());
                }
            }
            tokio::select! {
                () = &mut left => {
                    return Err(Status::unavailable("this replica has lost the API server"));
                }
                () = until(release_at), if !released => {
                    released = true;
                    stream.release();
                }
                changed = snapshots.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                request = requests.message() => {
                    let Ok(Some(request)) = request else {
                        tracing::info!(event = "gateway_disconnected", gateway = %key.0, pod = key.1);
                        return Ok(());
                    };
                    note(stream.hear(&request), &registration, &key);
                }
            }
        }
    }
}

/// Sends a gateway the resources that it lacks; false if the connection has ended.
async fn deliver(
    stream: &mut DeltaStream,
    resources: &Resources,
    sender: &mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
    (gateway, pod): &(ObjectKey, String),
) -> bool {
    while let Some(response) = stream.next(resources) {
        let (changed, removed) = (response.resources.len(), response.removed_resources.len());
        tracing::debug!(event = "gateway_told", gateway = %gateway, pod, changed, removed);
        if sender.send(Ok(response)).await.is_err() {
            return false;
        }
    }
    true
}

/// Notes a gateway's answer about its configuration.
fn note(heard: Heard, registration: &Registration, (gateway, pod): &(ObjectKey, String)) {
    match heard {
        Heard::Accepted => registration.set_error(None),
        Heard::Refused(reason) => {
            let reason: String = reason.chars().take(MAXIMUM_REASON_CHARACTERS).collect();
            tracing::warn!(event = "configuration_refused", gateway = %gateway, pod, reason);
            registration.set_error(Some(reason));
        }
        Heard::Subscription | Heard::Nothing => {}
    }
}

/// The resources that a gateway has to have, and the time for which removed listeners drain.
fn resources_of(
    snapshot: Option<&Snapshot>,
    gateway: &ObjectKey,
) -> Option<(Arc<Resources>, Duration)> {
    let gateway = snapshot?.gateways.get(gateway)?;
    let drain = u64::try_from(gateway.model.spec.drain.seconds).unwrap_or_default();
    Some((gateway.resources.clone()?, Duration::from_secs(drain)))
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
