//! A route where assisted sessions are slower than those held out: assistance stops by itself, and is
//! tried again. In virtual time.
#![cfg(feature = "virtual-time")]

use std::net::SocketAddr;
use std::time::Duration;

use packrat_api::route::{Hidden, RouteConfig};
use packrat_api::status::Stage;
use packrat_client::{AssistState, ClientConfig, RefusalReason, Shim};
use packrat_dataplane::metrics::definitions;
use packrat_dataplane::virtual_time::{Sent, VirtualGateway};
use packrat_wire::estimate::Timestamp;

/// Datagrams of a session, more than it needs to be counted.
const DATAGRAMS: u8 = 230;

struct Scene {
    gateway: VirtualGateway,
    now: Timestamp,
    clients: u32,
}

/// The listener of a client's family.
fn listener_of(client: SocketAddr) -> usize {
    usize::from(client.is_ipv6())
}

struct Client {
    shim: Shim<()>,
    address: SocketAddr,
    /// To the server, a socket of the gateway.
    session: u64,
}

impl Client {
    fn is_assisted(&self) -> bool {
        self.shim.assistance().state == AssistState::Established
    }
}

impl Scene {
    fn new() -> Self {
        let mut config = RouteConfig::new("web", ["127.0.0.1:443".parse().unwrap()]).unwrap();
        config.holdout = 0.4;
        config.idle_timeout_seconds = 5;
        // The choice follows from the key.
        config.static_key = Some(Hidden::new("11".repeat(32)));
        let listeners = ["192.0.2.2:443", "[2001:db8::2]:443"].map(|text| text.parse().unwrap());
        let gateway = VirtualGateway::new(config, &listeners, 1000, 1).unwrap();
        let mut scene = Self { gateway, now: Timestamp::from_millis(1000), clients: 0 };
        scene.pass(Duration::ZERO);
        scene
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.gateway.next_timeout().filter(|next| *next <= end) {
            self.gateway.handle_timeout(next.max(self.now));
        }
        self.now = end;
        self.gateway.handle_timeout(end);
    }

    /// A client in a network of its own that has sent its hello, asked for assistance and heard the
    /// answer.
    fn client(&mut self) -> Client {
        let [_, a, b, c] = (self.clients + 1).to_be_bytes();
        let mut client = self.client_at(SocketAddr::from(([10 + a, b, c, 1], 5000)));
        self.converse(&mut client);
        client
    }

    /// A client at this address that has sent its hello, and has not asked.
    fn client_at(&mut self, address: SocketAddr) -> Client {
        self.clients += 1;
        self.gateway.take_sent();
        // A long header: a datagram with a short one waits for a moment, as its client may have
        // moved.
        self.gateway.receive_from_client(address, listener_of(address), b"\xc3hello");
        let session = self.gateway.take_sent().into_iter().find_map(|sent| match sent {
            Sent::ToServer { session, .. } => Some(session),
            Sent::ToClient { .. } => None,
        });
        let session = session.expect("forwarded");
        let mut seed = [9; 32];
        seed[..4].copy_from_slice(&self.clients.to_be_bytes());
        Client { shim: Shim::new(ClientConfig::default(), seed, self.now), address, session }
    }

    /// The client asks, and hears the answers.
    fn converse(&mut self, client: &mut Client) {
        let listener = listener_of(client.address);
        while let Some(said) = client.shim.poll_transmit(self.now) {
            self.gateway.receive_from_client(client.address, listener, &said);
            for sent in self.gateway.take_sent() {
                if let Sent::ToClient { datagram, .. } = sent {
                    let _ = client.shim.on_datagram(&datagram, (), self.now);
                }
            }
        }
    }

    /// The server sends a datagram each time this duration has passed; the session ends.
    fn transfer(&mut self, client: &Client, interval: Duration) {
        for number in 0..DATAGRAMS {
            self.pass(interval);
            let datagram: Vec<u8> = (0..1200).map(|at| at as u8 ^ number | 0x40).collect();
            assert!(self.gateway.receive_from_server(client.session, &datagram));
            let arrived = self.gateway.take_sent().iter().any(|sent| {
                matches!(sent, Sent::ToClient { path, datagram: got }
                    if path.client == client.address && got.ends_with(&datagram))
            });
            assert!(arrived, "forwarding goes on whatever is decided");
        }
        self.pass(Duration::from_secs(15));
    }

    /// Clients come until the stage is another one; how many of them were assisted and held out.
    fn clients_until_not(&mut self, stage: Stage, assisted: Duration, other: Duration) -> [u32; 2] {
        let mut counts = [0, 0];
        while self.stage() == stage {
            let client = self.client();
            counts[usize::from(!client.is_assisted())] += 1;
            self.transfer(&client, if client.is_assisted() { assisted } else { other });
            assert!(counts.iter().sum::<u32>() < 400, "{counts:?}: {:?}", self.stage());
        }
        counts
    }

    fn stage(&self) -> Stage {
        self.gateway.route().comparison().expect("a holdout is configured").stage
    }

    fn metric(&self, name: &str) -> u64 {
        let name = format!("packrat_{name}");
        let index =
            definitions().iter().position(|definition| definition.series() == name).expect(&name);
        self.gateway.route().metrics().values().nth(index).unwrap()
    }
}

#[test]
fn assistance_that_slows_sessions_stops_and_is_tried_again() {
    let mut scene = Scene::new();
    let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(2));
    let [assisted, held_out] = scene.clients_until_not(Stage::Assisting, slow, fast);
    assert_eq!(scene.metric("sessions_assisted"), 0, "those that are assisted are told Goodbye");
    assert!(assisted >= 40 && held_out >= 40, "{assisted} and {held_out} are too few to be sure");
    assert_eq!(scene.stage(), Stage::Stopped);
    assert_eq!(scene.metric("assistance_stopped"), 1);
    assert_eq!(scene.metric("assist_enabled"), 0);

    // Clients are refused, and served.
    let client = scene.client();
    assert_eq!(client.shim.assistance().refusal, Some(RefusalReason::Disabled));
    scene.transfer(&client, fast);
    let pause = scene.gateway.route().comparison().unwrap().retry_seconds.unwrap();
    assert!((3000..=3600).contains(&pause), "{pause}");
    scene.pass(Duration::from_secs(pause + 1));

    // Assistance pays now: a trial shows it.
    let client = scene.client();
    assert_ne!(client.shim.assistance().refusal, Some(RefusalReason::Disabled));
    assert_eq!((scene.stage(), scene.metric("assistance_stopped")), (Stage::Trial, 0));
    let [assisted, held_out] = scene.clients_until_not(Stage::Trial, fast, slow);
    assert!(assisted >= 29 && held_out >= 29, "{assisted} {held_out}");
    assert_eq!((scene.stage(), scene.metric("assist_enabled")), (Stage::Assisting, 1));
    let speedup = scene.metric("transfer_speedup_ppm{bound=\"estimate\"}");
    assert!((1_900_000..2_100_000).contains(&speedup), "{speedup}");
}

/// The sessions of either arm that people are shown, assisted first.
fn shown(scene: &Scene) -> [u64; 2] {
    let sizes = scene.gateway.route().comparison().unwrap().sizes;
    let count = |of: &std::collections::BTreeMap<u16, u64>| of.values().sum::<u64>();
    sizes.iter().fold([0, 0], |[assisted, holdout], size| {
        [assisted + count(&size.assisted), holdout + count(&size.holdout)]
    })
}

/// All addresses of one network stop no route; harm to honest clients beside it does.
#[test]
fn a_single_network_stops_no_route_but_honest_harm_does() {
    let mut scene = Scene::new();
    let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(4));
    let honest = |scene: &mut Scene, count, assisted: Duration| {
        for _ in 0..count {
            let client = scene.client();
            scene.transfer(&client, if client.is_assisted() { assisted } else { fast });
        }
    };
    honest(&mut scene, 90, fast);
    let [assisted, held_out] = shown(&scene);
    assert!(assisted >= 30 && held_out >= 30, "{assisted} and {held_out} say something");
    // One host has a /48: a client in each /64, slow if it is assisted. Now and then an honest
    // client comes, so that both arms grow.
    for link in 0..240u16 {
        let address = [0x2001, 0xdb8, 0xbad, link, 0, 0, 0, 1];
        let mut attacker = scene.client_at(SocketAddr::from((address, 5000)));
        scene.converse(&mut attacker);
        scene.transfer(&attacker, if attacker.is_assisted() { slow } else { fast });
        if link % 4 == 0 {
            honest(&mut scene, 1, fast);
        }
        assert_eq!(scene.stage(), Stage::Assisting, "after {link} links");
    }
    let [all, _] = shown(&scene);
    assert!(all > 2 * (assisted + 60), "most of {all} assisted sessions are lies");
    // Clients that are harmed count beside them.
    scene.clients_until_not(Stage::Assisting, slow, fast);
    assert_eq!(scene.stage(), Stage::Stopped);
}

#[test]
fn questions_in_forged_names_are_in_no_arm_of_the_comparison() {
    let mut scene = Scene::new();
    for number in 0..20 {
        // The server streams to an address without asking it, and the gateway's answers also go
        // there.
        let mut client = scene.client_at(SocketAddr::from(([10, 0, number, 1], 5000)));
        let question = client.shim.poll_transmit(scene.now).expect("a question");
        scene.gateway.receive_from_client(client.address, 0, &question);
        scene.gateway.take_sent();
        scene.transfer(&client, Duration::from_millis(1));
    }
    let transfers = |scene: &Scene| {
        ["yes", "holdout", "no"]
            .map(|arm| scene.metric(&format!("transfers_total{{assisted=\"{arm}\"}}")))
    };
    assert_eq!((transfers(&scene), shown(&scene)), ([0, 0, 20], [0, 0]));
    // Their owners are.
    for _ in 0..20 {
        let client = scene.client();
        scene.transfer(&client, Duration::from_millis(1));
    }
    let [assisted, held_out, plain] = transfers(&scene);
    assert!(assisted >= 5 && held_out >= 5 && plain == 20, "{assisted} {held_out} {plain}");
    assert_eq!(shown(&scene), [assisted, held_out]);
}
