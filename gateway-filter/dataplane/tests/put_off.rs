//! Handshakes that come at once, in virtual time: a thread forwards between them.
#![cfg(feature = "virtual-time")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_api::route::RouteConfig;
use packrat_client::{AssistState, ClientConfig, Shim};
use packrat_dataplane::virtual_time::{Sent, VirtualGateway};
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;

/// More than the work of all handshakes that come at once, in the gateway's units.
const MILLISECOND: u64 = 1_000_000;

struct Client {
    shim: Shim<()>,
    address: SocketAddr,
    /// The client's answer to a cookie.
    init: Vec<u8>,
}

struct Scene {
    gateway: VirtualGateway,
    now: Timestamp,
}

impl Scene {
    fn new() -> Self {
        let mut config = RouteConfig::new("web", ["127.0.0.1:443".parse().unwrap()]).unwrap();
        // Every client has to echo a cookie.
        config.handshakes_per_second_without_cookie = 0;
        let listeners = ["192.0.2.2:443".parse().unwrap()];
        let mut gateway = VirtualGateway::new(config, &listeners, 1000, 1).unwrap();
        let now = Timestamp::from_millis(1000);
        gateway.handle_timeout(now);
        Self { gateway, now }
    }

    /// Datagrams that the gateway has sent to clients since the last call.
    fn take_sent(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let to_client = |sent| match sent {
            Sent::ToClient { path, datagram } => Some((path.client, datagram)),
            Sent::ToServer { .. } => None,
        };
        self.gateway.take_sent().into_iter().filter_map(to_client).collect()
    }

    /// A client that has got a cookie.
    fn client(&mut self, address: SocketAddr) -> Client {
        let mut seed = [9; 32];
        seed[..2].copy_from_slice(&address.port().to_be_bytes());
        let mut shim = Shim::new(ClientConfig::default(), seed, self.now);
        let question = shim.poll_transmit(self.now).expect("a question");
        self.gateway.receive_from_client(address, 0, &question);
        for (_, datagram) in self.take_sent() {
            let _ = shim.on_datagram(&datagram, (), self.now);
        }
        let init = shim.poll_transmit(self.now).expect("an Init");
        assert!(matches!(Control::decode(&init), Ok(Control::Init { .. })));
        Client { shim, address, init }
    }

    /// Clients that get cookies one after the other, at these hosts.
    fn clients(&mut self, hosts: impl Iterator<Item = [u8; 4]>) -> Vec<Client> {
        (1000..).zip(hosts).map(|(port, host)| self.client((host, port).into())).collect()
    }

    /// Clients that have got an answer in this time, and the most work at one moment.
    fn answered_within(&mut self, time: Duration) -> (HashSet<SocketAddr>, u64) {
        let end = self.now + time;
        let mut answered: HashSet<_> = self.take_sent().into_iter().map(|sent| sent.0).collect();
        let mut most = 0;
        while let Some(next) = self.gateway.next_timeout().filter(|next| *next <= end) {
            assert!(next > self.now, "the thread does nothing else");
            self.now = next;
            let before = self.gateway.work();
            self.gateway.handle_timeout(next);
            most = most.max(self.gateway.work() - before);
            answered.extend(self.take_sent().into_iter().map(|sent| sent.0));
        }
        self.now = end;
        self.gateway.handle_timeout(end);
        (answered, most)
    }
}

#[test]
fn a_thread_answers_simultaneous_handshakes_one_by_one() {
    let mut scene = Scene::new();
    let mut clients = scene.clients((0..60).map(|n| [10, n, 0, 1]));
    let before = scene.gateway.work();
    for Client { address, init, .. } in &clients {
        scene.gateway.receive_from_client(*address, 0, init);
    }
    let at_once = scene.gateway.work() - before;
    assert!(at_once < MILLISECOND, "{at_once}");
    let sent = scene.take_sent();
    assert!((1..10).contains(&sent.len()), "{} answers at once", sent.len());
    // No client asks again.
    let (answered, most) = scene.answered_within(Duration::from_millis(25));
    assert!(most < MILLISECOND, "{most}");
    assert_eq!(answered.len() + sent.len(), clients.len());
    // The answer is whole.
    let last = clients.last_mut().unwrap();
    scene.gateway.receive_from_client(last.address, 0, &last.init);
    let (_, datagram) = scene.take_sent().pop().expect("the same answer again");
    let _ = last.shim.on_datagram(&datagram, (), scene.now);
    assert_eq!(last.shim.assistance().state, AssistState::Established);
}

#[test]
fn waiting_handshakes_of_one_network_leave_room_for_others() {
    let mut scene = Scene::new();
    let many = scene.clients((0..250).map(|n| [10, 0, 0, n]));
    let other = scene.client("198.51.100.1:5000".parse().unwrap());
    for Client { address, init, .. } in many.iter().chain([&other]) {
        // Asked twice: it waits once.
        scene.gateway.receive_from_client(*address, 0, init);
        scene.gateway.receive_from_client(*address, 0, init);
    }
    let sent = scene.take_sent();
    assert!(sent.iter().all(|(client, _)| *client != other.address));
    let (answered, _) = scene.answered_within(Duration::from_millis(100));
    assert!(answered.contains(&other.address));
    assert!((100..=130).contains(&answered.len()), "{} of one network waited", answered.len());
}

#[test]
fn a_waiting_handshake_does_not_outlive_its_gateway() {
    let mut scene = Scene::new();
    let clients = scene.clients((0..20).map(|n| [10, n, 0, 1]));
    for Client { address, init, .. } in &clients {
        scene.gateway.receive_from_client(*address, 0, init);
    }
    // No answers are sent for longer than clients wait: they have asked again, or gone.
    scene.take_sent();
    scene.now = scene.now + Duration::from_secs(1);
    scene.gateway.handle_timeout(scene.now);
    assert!(scene.take_sent().is_empty());
    let (answered, _) = scene.answered_within(Duration::from_secs(1));
    assert!(answered.is_empty());
}
