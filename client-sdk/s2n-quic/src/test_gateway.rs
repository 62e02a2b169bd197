//! A real gateway at the other end of a path, on a host whose clock stands still until a test moves
//! it.
#![allow(clippy::unwrap_used)] // a test: clippy only excuses its #[test] functions

use crate::host::{Host, Sleep};
use crate::path::{AssistedPath, Guarded, Metadata};
use crate::released::ReleasedDatagrams;
use packrat_client::{AssistState, ClientConfig, Shim};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Received};
use packrat_wire::estimate::Timestamp;
use s2n_quic_core::inet::{ExplicitCongestionNotification, SocketAddress};
use s2n_quic_core::path::{Handle as _, RemoteAddress, Tuple};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Address of the server, with the gateway in front of it.
pub(crate) const SERVER_ADDRESS: &str = "127.0.0.1:9";

/// A host in virtual time that records the sent datagrams.
#[derive(Debug)]
pub(crate) struct TestHost {
    now: Mutex<Timestamp>,
    sent: Mutex<Vec<(Vec<u8>, ExplicitCongestionNotification)>>,
    /// Source address of datagrams; `None`: there is no route.
    pub(crate) source: Mutex<Option<IpAddr>>,
}

impl TestHost {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            now: Mutex::new(Timestamp::from_millis(1000)),
            sent: Mutex::default(),
            source: Mutex::new(Some(Ipv4Addr::new(192, 0, 2, 1).into())),
        })
    }

    pub(crate) fn pass(&self, time: Duration) {
        let mut now = self.now.lock().unwrap();
        *now = *now + time;
    }

    /// Datagrams sent since the last call.
    pub(crate) fn sent(&self) -> Vec<Vec<u8>> {
        self.sent_marked().into_iter().map(|(datagram, _)| datagram).collect()
    }

    /// The sent datagrams with their ECN codepoints.
    pub(crate) fn sent_marked(&self) -> Vec<(Vec<u8>, ExplicitCongestionNotification)> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

impl Host for TestHost {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    fn send(
        &self,
        datagram: &[u8],
        _: SocketAddr,
        ecn: ExplicitCongestionNotification,
    ) -> io::Result<()> {
        self.sent.lock().unwrap().push((datagram.to_vec(), ecn));
        Ok(())
    }

    fn source(&self, _: SocketAddr) -> Option<IpAddr> {
        *self.source.lock().unwrap()
    }

    fn sleep_until(&self, _: Timestamp) -> Sleep {
        Box::pin(std::future::pending())
    }
}

/// A path without an answer so far.
pub(crate) fn new_path(
    assisted: bool,
    released: ReleasedDatagrams,
) -> (AssistedPath, Arc<TestHost>) {
    let host = TestHost::new();
    (new_path_on(&host, assisted, released), host)
}

/// A new path on an existing host.
pub(crate) fn new_path_on(
    host: &Arc<TestHost>,
    assisted: bool,
    released: ReleasedDatagrams,
) -> AssistedPath {
    let shim = || Box::new(Shim::new(ClientConfig::default(), [1; 32], host.now()));
    let shim = Guarded::new(assisted.then(shim));
    AssistedPath::new(SERVER_ADDRESS.parse().unwrap(), host.clone(), shim, released, Arc::default())
}

/// Metadata of a datagram from this address.
pub(crate) fn metadata(from: SocketAddr) -> Metadata {
    let remote = RemoteAddress::from(SocketAddress::from(from));
    let path = Tuple::from_remote_address(remote);
    Metadata { path, ecn: ExplicitCongestionNotification::Ect0 }
}

/// A gateway, and its session with the path.
pub(crate) struct TestGateway {
    gateway: Arc<Gateway>,
    flow: Flow,
}

impl TestGateway {
    /// Assists the path.
    pub(crate) fn meet(path: &AssistedPath, host: &TestHost) -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let mut new = Self { flow: Flow::new(Arc::clone(&gateway)), gateway };
        path.step();
        new.talk(path, host);
        assert_eq!(path.stats().0.state, AssistState::Established);
        new
    }

    /// Forwards a datagram of the server; returns the client's copy, with its number.
    pub(crate) fn forward(&mut self, datagram: &[u8], host: &TestHost) -> Vec<u8> {
        match self.flow.forward(datagram, host.now()) {
            Some(number) => [&number[..], datagram].concat(),
            None => datagram.to_vec(),
        }
    }

    /// Ends the session.
    #[cfg(test)]
    pub(crate) fn goodbye(&mut self) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        self.flow.close(packrat_wire::message::GoodbyeReason::Draining, &mut out);
        out.datagrams().map(<[u8]>::to_vec).collect()
    }

    /// Processes the client's messages; returns answers and repairs.
    pub(crate) fn hear(&mut self, said: &[u8], host: &TestHost) -> Vec<Vec<u8>> {
        let (client, mut out) = ("192.0.2.1:5000".parse().unwrap(), Outbox::new());
        match self.gateway.receive(said, client, host.now(), &mut out) {
            Received::Done(_) => {}
            Received::Begin(begin) => {
                self.flow.begin(begin, [5; 32], host.now(), &mut out);
            }
            Received::ForFlow => self.flow.control(said, host.now(), &mut out),
        }
        out.datagrams().map(<[u8]>::to_vec).collect()
    }

    /// Processes the sent messages, and answers until both sides are finished.
    pub(crate) fn talk(&mut self, path: &AssistedPath, host: &TestHost) {
        loop {
            let sent = host.sent();
            if sent.is_empty() {
                return;
            }
            for answer in sent.iter().flat_map(|said| self.hear(said, host)) {
                path.arrive(&answer, metadata(SERVER_ADDRESS.parse().unwrap()));
            }
        }
    }
}
