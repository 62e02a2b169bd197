//! The operator without Kubernetes: its index, its discovery service.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use packrat_operator::certificates::Authority;
use packrat_operator::index::Operator;
use packrat_operator::keys::GatewayKeys;
use packrat_operator::model::{Address, GatewayModel, ServiceModel, ServicePort, SliceModel};
use packrat_operator::object_key::ObjectKey;
use packrat_operator::policy::Policy;
use packrat_operator::resource::EndpointsFrom;
use packrat_operator::shell::{Connections, Discovery, Identities, Snapshots, Surroundings, serve};
use packrat_operator::xds::Resources;
use tokio::runtime::Runtime;

/// The state that outlives a restart: Secrets and objects of the cluster.
pub(crate) struct Cluster {
    pub(crate) authority: Authority,
    pub(crate) keys: GatewayKeys,
    pub(crate) gateway: ObjectKey,
    /// The operator's listener: it stays open while no replica runs, so that no other process gets
    /// the port.
    listener: TcpListener,
    pub(crate) surroundings: Surroundings,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1:0", "0.0.0.0")
    }

    /// The operator listens here, gateways there.
    pub(crate) fn at(operator: &str, gateways: &str) -> Self {
        let now = jiff::Timestamp::now().as_second();
        Self {
            authority: Authority::generate(now).unwrap(),
            keys: GatewayKeys::generate(now).unwrap(),
            gateway: ObjectKey::new("app", "default"),
            listener: TcpListener::bind(operator).unwrap(),
            surroundings: Surroundings::in_pods(gateways),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }
}

/// The identity of the EdgeGateway.
pub(crate) const UID: &str = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";

/// The EdgeGateway, whose Services have servers without Pods.
fn gateway(change: impl FnOnce(&mut GatewayModel)) -> GatewayModel {
    let mut model = GatewayModel { uid: UID.to_owned(), ..GatewayModel::default() };
    model.spec.routes.endpoints = EndpointsFrom::Any;
    change(&mut model);
    model
}

/// A replica of the operator.
pub(crate) struct Replica {
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) connections: Arc<Connections>,
    runtime: Option<Runtime>,
    identities: Arc<Identities>,
    gateway: ObjectKey,
}

impl Replica {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        // Servers and clients of the tests are on the loopback interface.
        let policy = Policy { never: Vec::new(), ..Policy::default() };
        let snapshots = Snapshots::new(
            "packrat-system",
            policy,
            Operator::default(),
            cluster.surroundings.clone(),
            1,
        );
        let connections = Arc::new(Connections::default());
        let now = jiff::Timestamp::now().as_second();
        let identities = Arc::new(
            Identities::new(cluster.authority.clone(), &["localhost".to_owned()], now).unwrap(),
        );
        let kept = Arc::clone(&identities);
        let discovery =
            Discovery::new(Arc::clone(&snapshots), Arc::clone(&connections), Arc::default());
        let listener = cluster.listener.try_clone().unwrap();
        listener.set_nonblocking(true).unwrap();
        let index = Arc::clone(&snapshots);
        runtime.spawn(async move { index.run().await });
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let configuration = identities.discovery();
            tokio::spawn(async move {
                // Its senders have to live as long as the server.
                let _identities = kept;
                serve(listener, configuration, move |request, certificate| {
                    discovery.clone().answer(request, certificate)
                })
                .await;
            });
        });
        snapshots
            .update(|index| index.gateways.set(cluster.gateway.clone(), Some(gateway(|_| {}))));
        snapshots.set_keys(&cluster.gateway, cluster.keys.clone());
        Self {
            snapshots,
            connections,
            runtime: Some(runtime),
            identities,
            gateway: cluster.gateway.clone(),
        }
    }

    /// Reports that everything has been seen from now on.
    pub(crate) fn complete(&self) {
        self.snapshots.complete();
    }

    /// A Service that asks for assistance on `port`, forwarded to `endpoints`. `None`: the Service
    /// is gone.
    pub(crate) fn service(
        &self,
        name: &str,
        port: u16,
        endpoints: &[SocketAddr],
        annotations: &[(&str, &str)],
    ) {
        self.service_with_tcp(name, port, endpoints, None, annotations);
    }

    /// A Service with a TCP port of the same number, and this target at each endpoint.
    pub(crate) fn service_with_tcp(
        &self,
        name: &str,
        port: u16,
        endpoints: &[SocketAddr],
        tcp: Option<u16>,
        annotations: &[(&str, &str)],
    ) {
        let key = ObjectKey::new("app", name);
        let annotations = packrat_operator::annotations::Annotations::read(
            packrat_operator::annotations::Carrier::Service,
            annotations.iter().copied().chain([("packrat.dev/assist", "enabled")]),
        );
        let service = ServiceModel {
            uid: name.to_owned(),
            annotations,
            ports: vec![ServicePort { name: "quic".to_owned(), port }],
            tcp_ports: tcp
                .map(|_| ServicePort { name: "https".to_owned(), port })
                .into_iter()
                .collect(),
            ..ServiceModel::default()
        };
        let slices = endpoints.iter().enumerate().map(|(number, endpoint)| {
            let slice = SliceModel {
                service: name.to_owned(),
                ports: vec![ServicePort { name: "quic".to_owned(), port: endpoint.port() }],
                tcp_ports: tcp
                    .map(|port| ServicePort { name: "https".to_owned(), port })
                    .into_iter()
                    .collect(),
                addresses: vec![Address {
                    ip: endpoint.ip(),
                    pod: None,
                    ready: true,
                    serving: true,
                }],
                is_kubernetes: false,
            };
            (ObjectKey::new("app", format!("{name}-{number}")), slice)
        });
        self.snapshots.update(|index| {
            let prefix = format!("{name}-");
            index.slices.retain(|key| !key.name.starts_with(&prefix));
            for (key, slice) in slices {
                index.set_slice(key, Some(slice));
            }
            index.services.set(key, (!endpoints.is_empty()).then_some(service));
            true
        });
    }

    /// Changes the EdgeGateway.
    pub(crate) fn gateway(&self, change: impl FnOnce(&mut GatewayModel)) {
        self.snapshots
            .update(|index| index.gateways.set(self.gateway.clone(), Some(gateway(change))));
    }

    /// The operator's certificates are replaced.
    pub(crate) fn authority(&self, authority: &Authority) {
        let now = jiff::Timestamp::now().as_second();
        self.identities.replace(authority.clone(), &["localhost".to_owned()], now).unwrap();
    }

    /// The keys of the gateways change.
    pub(crate) fn keys(&self, keys: &GatewayKeys) {
        self.snapshots.set_keys(&self.gateway, keys.clone());
    }

    /// The gateways' resources by the index.
    pub(crate) fn resources(&self) -> Resources {
        let snapshot = self.snapshots.subscribe().borrow().clone();
        let gateways = snapshot.map(|snapshot| snapshot.gateways.clone()).unwrap_or_default();
        let resources = gateways.get(&self.gateway).and_then(|gateway| gateway.resources.clone());
        resources.map(|resources| resources.as_ref().clone()).unwrap_or_default()
    }

    /// The version of the newest configuration, and the version that the connected gateway has
    /// acknowledged.
    pub(crate) fn versions(&self) -> (Option<String>, Option<String>) {
        let snapshot = self.snapshots.subscribe().borrow().clone();
        let newest =
            snapshot.and_then(|snapshot| snapshot.gateways.get(&self.gateway)?.version.clone());
        let connected = self.connections.list().into_values().flatten().next();
        (newest, connected.and_then(|(_, proxy)| proxy.version))
    }

    /// The reasons for which connected gateways have refused their configuration.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.connections
            .list()
            .into_values()
            .flatten()
            .filter_map(|(_, proxy)| proxy.error)
            .collect()
    }

    /// Number of connected gateways.
    pub(crate) fn connected(&self) -> usize {
        self.connections.list().into_values().flatten().count()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
