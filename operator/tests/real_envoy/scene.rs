//! The scene of the tests: an operator, an Envoy that it configures, a server behind it, a client
//! in front of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use packrat_operator::certificates::{Authority, Issued};
use packrat_operator::xds::wire::LISTENER_TYPE;
use packrat_real_envoy::{EVENT_PATIENCE, Envoy, find_envoy, free_port};
use serde_json::Value;

use super::envoy::{self, Entry};
use super::operator::{Cluster, Replica, UID};

/// An operator with an EdgeGateway that has no routes yet.
pub(crate) struct Scene {
    program: PathBuf,
    pub(crate) cluster: Cluster,
    pub(crate) replica: Replica,
    /// The memory limit of a gateway's Pod, in bytes.
    pub(crate) memory: u64,
}

impl Scene {
    /// A scene; `None` without an Envoy.
    pub(crate) fn begin() -> Option<Self> {
        Self::of(Cluster::new)
    }

    /// A scene in a cluster that is made by `make`.
    pub(crate) fn of(make: impl FnOnce() -> Cluster) -> Option<Self> {
        let program = find_envoy()?;
        let cluster = make();
        let replica = Replica::start(&cluster);
        Some(Self { program, cluster, replica, memory: 4 << 30 })
    }

    /// Starts a gateway.
    pub(crate) fn envoy(&self) -> Envoy {
        self.envoy_of(&self.cluster)
    }

    /// Starts a gateway with a certificate of the EdgeGateway and the authority of `identity`.
    pub(crate) fn envoy_of(&self, identity: &Cluster) -> Envoy {
        let now = jiff::Timestamp::now().as_second();
        self.start(
            &identity.authority.issue_gateway(&identity.gateway, UID, now).unwrap(),
            &identity.authority,
            None,
        )
    }

    /// Starts a gateway as its Pod does.
    pub(crate) fn envoy_by(&self, entry: &Entry) -> Envoy {
        let (now, cluster) = (jiff::Timestamp::now().as_second(), &self.cluster);
        let issued = cluster.authority.issue_gateway(&cluster.gateway, UID, now).unwrap();
        self.start(&issued, &cluster.authority, Some(entry))
    }

    /// Starts a gateway with this certificate.
    pub(crate) fn envoy_with(&self, certificate: &Issued) -> Envoy {
        self.start(certificate, &self.cluster.authority, None)
    }

    fn start(&self, certificate: &Issued, authority: &Authority, entry: Option<&Entry>) -> Envoy {
        let bundle = authority.bundle();
        envoy::start(
            &self.program,
            &self.cluster.gateway,
            certificate,
            &bundle,
            self.cluster.address(),
            self.memory,
            entry,
        )
    }

    /// The operator ends, and another one begins, which has no knowledge yet.
    pub(crate) fn restart(mut self, meanwhile: impl FnOnce()) -> Self {
        drop(self.replica);
        meanwhile();
        self.replica = Replica::start(&self.cluster);
        self
    }
}

/// A gateway with one route, "web", and a session through it.
pub(crate) struct OneRoute {
    pub(crate) scene: Scene,
    pub(crate) envoy: Envoy,
    pub(crate) server: UdpSocket,
    pub(crate) port: u16,
    pub(crate) client: UdpSocket,
    /// The gateway as the server sees it.
    pub(crate) source: SocketAddr,
}

impl OneRoute {
    /// A scene with these annotations on the Service; `None` without an Envoy.
    pub(crate) fn begin(annotations: &[(&str, &str)]) -> Option<Self> {
        Self::of(
            Scene::begin()?,
            annotations,
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::LOCALHOST.into(),
        )
    }

    /// A client and a server of these addresses, in this scene.
    pub(crate) fn of(
        scene: Scene,
        annotations: &[(&str, &str)],
        server: IpAddr,
        client: IpAddr,
    ) -> Option<Self> {
        let (server, port) = (socket_at(server), free_port());
        scene.replica.service("web", port, &[server.local_addr().unwrap()], annotations);
        scene.replica.complete();
        let envoy = scene.envoy();
        agree(&envoy, &scene.replica, 1);
        let gateway = SocketAddr::new(client, port);
        let client = socket_at(client);
        client.connect(gateway).unwrap();
        let source = exchange(&client, &server);
        Some(Self { scene, envoy, server, port, client, source })
    }
}

/// A socket of this machine.
pub(crate) fn socket() -> UdpSocket {
    socket_at(Ipv4Addr::LOCALHOST.into())
}

pub(crate) fn socket_at(address: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.set_read_timeout(Some(EVENT_PATIENCE)).unwrap();
    socket
}

/// True if this machine has IPv6; prints a line if it has not.
pub(crate) fn has_ipv6() -> bool {
    let has = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if !has {
        println!("SKIPPED: this machine has no IPv6");
    }
    has
}

/// Waits until Envoy has exactly the index's resources, `count` listeners, and has accepted all of
/// them.
pub(crate) fn agree(envoy: &Envoy, replica: &Replica, count: usize) -> Vec<Value> {
    let mut listeners = Vec::new();
    envoy.wait_until("Envoy to have what the index says", |envoy| {
        let mut wanted = replica.resources();
        wanted.retain(|_, found| found.resource.type_url == LISTENER_TYPE);
        listeners = envoy::listeners(envoy);
        listeners.len() == count
            && wanted.len() == count
            && replica.refusals().is_empty()
            && listeners.iter().all(|(name, version, listener)| {
                wanted.get(name).is_some_and(|wanted| {
                    wanted.version == *version
                        || is_updated_in_place(listener, &wanted.resource.value)
                })
            })
    });
    listeners.into_iter().map(|(_, _, listener)| listener).collect()
}

/// A TCP listener of which only the filters change is updated in place, and Envoy still shows its
/// former version: its filter must have the wanted configuration.
fn is_updated_in_place(listener: &Value, wanted: &[u8]) -> bool {
    let filter = "/filter_chains/0/filters/1/typed_config/http_filters/0/typed_config/config/configuration/value";
    let told = listener.pointer(filter).and_then(Value::as_str).unwrap_or_default().as_bytes();
    !told.is_empty() && wanted.windows(told.len()).any(|part| part == told)
}

/// One datagram to the server and one back; the gateway's address as the server sees it. Repeated,
/// as a listener may just be coming or changing.
pub(crate) fn exchange(client: &UdpSocket, server: &UdpSocket) -> SocketAddr {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let question = format!("question {}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let start = Instant::now();
    let mut buffer = [0; 2048];
    for socket in [client, server] {
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    }
    loop {
        assert!(start.elapsed() < EVENT_PATIENCE, "no answer to {question}");
        // The listener may not be there yet: then the system refuses.
        let _ = client.send(question.as_bytes());
        let Ok((length, gateway)) = server.recv_from(&mut buffer) else { continue };
        // The datagram may be an older one, whose answer was lost.
        server.send_to(&buffer[..length], gateway).unwrap();
        while let Ok(length) = client.recv(&mut buffer) {
            if &buffer[..length] == question.as_bytes() {
                return gateway;
            }
        }
    }
}
