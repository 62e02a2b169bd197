//! The TURN server on real sockets: a TURN client, the agent, a gateway, and a last mile that loses
//! datagrams.

#[path = "../src/turn/client.rs"]
#[allow(dead_code)]
mod client;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use packrat_agent::{
    Access, Choosing, DontFragment, Limits, Service, Target, TurnCredentials, TurnListener,
};
use packrat_path::{ANY_PORT, Datagrams, LossyPath, STEP_PATIENCE, Trials, datagram, most_copies};

use crate::running::{Running, next, udp};
use client::{Client, Heard, in_channel, received, send};

impl Running {
    /// An agent with a TURN server alone.
    fn with_turn(allow: &str) -> Self {
        let socket = UdpSocket::bind(ANY_PORT).unwrap();
        let address = socket.local_addr().unwrap();
        let users = [("alice".to_owned(), "wonderland".to_owned())].into();
        let listener = TurnListener {
            name: "turn".to_owned(),
            socket,
            config: TurnListener::config(Access::default()),
            dont_fragment: DontFragment::default(),
            credentials: TurnCredentials { users, secret: None },
            allow: vec![allow.parse().unwrap()],
        };
        let choosing = Choosing { socks: None, turn: Some(listener) };
        Self::of(address, Vec::new(), choosing, Limits::default())
    }
}

/// A page's socket with an allocation.
struct Page {
    socket: UdpSocket,
    client: Client,
    relayed: SocketAddr,
    mapped: Option<SocketAddr>,
}

impl Page {
    fn start(agent: &Running) -> Self {
        let page = Self::waiting(agent, STEP_PATIENCE);
        assert_eq!(page.mapped, page.socket.local_addr().ok());
        page
    }

    /// One that repeats requests after this time without an answer.
    fn waiting(agent: &Running, wait: Duration) -> Self {
        let socket = udp();
        socket.connect(agent.address).unwrap();
        socket.set_read_timeout(Some(wait)).unwrap();
        let client = Client::new("alice", "wonderland");
        let mut page = Self { socket, client, relayed: ANY_PORT, mapped: None };
        let request = page.client.allocate();
        assert_eq!(page.ask(&request).code, Some(401));
        let request = page.client.allocate();
        let Heard { code, relayed, mapped, .. } = page.ask(&request);
        assert_eq!(code, None);
        (page.relayed, page.mapped) = (relayed.unwrap(), mapped);
        page
    }

    /// The answer; the request or the answer may be lost.
    fn ask(&mut self, request: &[u8]) -> Heard {
        let (begun, mut buffer) = (Instant::now(), [0; 2048]);
        loop {
            assert!(begun.elapsed() < STEP_PATIENCE, "there is no answer");
            self.socket.send(request).unwrap();
            while let Ok(length) = self.socket.recv(&mut buffer) {
                // An answer has its request's transaction.
                if buffer[8..20] == request[8..20] {
                    return self.client.hear(&buffer[..length]);
                }
            }
        }
    }

    fn permit(&mut self, peers: &[SocketAddr]) -> Option<u16> {
        let request = self.client.permit(peers);
        self.ask(&request).code
    }

    fn bind(&mut self, channel: u16, peer: SocketAddr) -> Option<u16> {
        let request = self.client.bind(channel, peer);
        self.ask(&request).code
    }

    fn next(&self) -> Vec<u8> {
        let mut buffer = [0; 2048];
        let length = self.socket.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    }
}

/// A stream of a gateway's server: each datagram once, in its order, most losses repaired.
#[test]
fn a_stream_to_a_turn_client_is_repaired_and_in_order() {
    const COUNT: u32 = 1500;
    let server = Datagrams::start();
    let mut trials = Trials::of("repairs of a stream through TURN");
    while trials.go_on() {
        let path = LossyPath::start(server.address(), 0.04);
        let capture = concat!(env!("CARGO_TARGET_TMPDIR"), "/towards_the_turn_server");
        path.near.capture(File::create(capture).unwrap());
        let agent = Running::with_turn("127.0.0.0/8:*");
        let mut page = Page::start(&agent);
        assert_eq!(page.bind(0x4000, path.address()), None);
        let numbers: HashMap<_, _> = (0..COUNT).map(|number| (datagram(number), number)).collect();
        let (mut came, mut buffer) = (Vec::new(), [0; 2048]);
        loop {
            // The question may be lost; a busy host may be silent for a while.
            let is_over = came.last() == Some(&(COUNT - 1));
            let wait = Duration::from_secs(if came.is_empty() || is_over { 1 } else { 10 });
            page.socket.set_read_timeout(Some(wait)).unwrap();
            match page.socket.recv(&mut buffer) {
                Ok(length) => {
                    let [0x40, 0, high, low, payload @ ..] = &buffer[..length] else {
                        panic!("no channel data: {:?}", &buffer[..length]);
                    };
                    assert_eq!(payload.len(), usize::from(u16::from_be_bytes([*high, *low])));
                    came.push(numbers[payload]);
                }
                Err(_) if came.is_empty() => {
                    let question = in_channel(0x4000, format!("get {COUNT}").as_bytes());
                    page.socket.send(&question).unwrap();
                }
                Err(_) => break,
            }
        }
        let (lost, total, is_on_time) = (path.lost(), agent.status().total(), path.is_on_time());
        drop(path);
        let most = most_copies(&std::fs::read(capture).unwrap());
        let mut copies = HashMap::<u32, usize>::new();
        came.iter().for_each(|number| *copies.entry(*number).or_default() += 1);
        let too_often = copies.iter().filter(|(number, count)| **count > most[&datagram(**number)]);
        assert_eq!(too_often.count(), 0, "{lost} were lost: {total:?}");
        assert!(lost > 20 && total.sessions == 1, "{lost} were lost: {total:?}");
        if trials.may_judge(is_on_time) {
            let late = came.windows(2).filter(|pair| pair[1] < pair[0]).count();
            println!("{} came of {COUNT}, {late} late; {lost} were lost: {total:?}", copies.len());
            assert!(total.repaired_in_time * 3 >= lost, "{lost} were lost: {total:?}");
            assert!(late as u64 <= total.repaired_late + 2, "{late} late: {total:?}");
            assert!(copies.len() as u32 + 10 >= COUNT, "{} came: {total:?}", copies.len());
        }
    }
}

/// A TURN server in a cluster, such as STUNner: the agent forwards TURN to the gateway before it.
#[test]
fn turn_passes_through_an_agent_to_a_turn_server_behind_a_gateway() {
    const COUNT: u32 = 400;
    let media = Datagrams::start();
    let cluster = Running::with_turn("127.0.0.0/8:*");
    let path = LossyPath::start(cluster.address, 0.04);
    let socket = UdpSocket::bind(ANY_PORT).unwrap();
    let address = socket.local_addr().unwrap();
    let service = Service {
        name: "stunner".to_owned(),
        socket,
        to: Target::Service(path.address()),
        config: TurnListener::config(Access::default()),
        dont_fragment: DontFragment::default(),
    };
    let agent = Running::of(address, vec![service], Choosing::default(), Limits::default());
    let mut page = Page::waiting(&agent, Duration::from_secs(1));
    let channel = page.client.bind(0x4000, media.address());
    assert_eq!(page.ask(&channel).code, None);
    let question = in_channel(0x4000, format!("get {COUNT}").as_bytes());
    let (mut came, begun) = (HashSet::new(), Instant::now());
    while came.len() < COUNT as usize * 9 / 10 {
        assert!(begun.elapsed() < STEP_PATIENCE, "it does not end: {:?}", agent.status());
        let mut buffer = [0; 2048];
        match page.socket.recv(&mut buffer) {
            Ok(length) if buffer[0] == 0x40 => drop(came.insert(buffer[4..length].to_vec())),
            Ok(_) => {}
            // The question was lost, or too much else.
            Err(_) => drop(page.socket.send(&question).unwrap()),
        }
    }
    assert_eq!((0..COUNT).filter(|number| came.contains(&datagram(*number))).count(), came.len());
    let (lost, total) = (path.lost(), agent.status().total());
    let repaired = total.repaired_in_time + total.repaired_late;
    assert!(total.sessions >= 1 && repaired > 0, "{lost} were lost: {total:?}");
    assert_eq!(cluster.status().total().sessions, 0, "the media server has no gateway");
}

/// All peers of an allocation see its relayed address, and only permitted ones are heard.
#[test]
fn peers_share_the_relayed_address_and_need_a_permission() {
    let agent = Running::with_turn("127.0.0.0/8:*");
    let mut page = Page::start(&agent);
    let (first, second) = (udp(), udp());
    let stranger = UdpSocket::bind("127.0.0.2:0").unwrap();
    let [one, two] = [&first, &second].map(|socket| socket.local_addr().unwrap());
    let relayed = SocketAddr::from(([127, 0, 0, 1], page.relayed.port()));
    page.socket.send(&send(one, b"early")).unwrap();
    agent.wait_for("a refusal", |status| status.services[0].refused_datagrams == 1);
    assert_eq!(page.permit(&[one]), None);
    assert_eq!(page.bind(0x4001, two), None);
    page.socket.send(&send(one, b"to one")).unwrap();
    assert_eq!(next(&first), (b"to one".to_vec(), relayed));
    page.socket.send(&in_channel(0x4001, b"to two")).unwrap();
    assert_eq!(next(&second), (b"to two".to_vec(), relayed));
    stranger.send_to(b"let me in", relayed).unwrap();
    agent.wait_for("a stranger", |status| status.services[0].foreign_datagrams == 1);
    first.send_to(b"of one", relayed).unwrap();
    assert_eq!(received(&page.next()), Some((one, b"of one".to_vec())));
    second.send_to(b"of two", relayed).unwrap();
    assert_eq!(page.next(), in_channel(0x4001, b"of two"));
    // A permitted address speaks first from another port.
    let unasked = udp();
    unasked.send_to(b"unasked", relayed).unwrap();
    let expected = Some((unasked.local_addr().unwrap(), b"unasked".to_vec()));
    assert_eq!(received(&page.next()), expected);
    let flows = agent.status().flows;
    assert_eq!(flows.len(), 2, "{flows:?}");
    assert!(flows.iter().any(|flow| flow.destination == Some(two)), "{flows:?}");
}

#[test]
fn an_allocation_ends_with_its_flows_and_its_socket() {
    let agent = Running::with_turn("127.0.0.0/8:*");
    let (mut first, mut second) = (Page::start(&agent), Page::start(&agent));
    let peer = udp();
    let address = peer.local_addr().unwrap();
    for page in [&mut first, &mut second] {
        assert_eq!(page.bind(0x4000, address), None);
        page.socket.send(&in_channel(0x4000, b"hello")).unwrap();
        assert_eq!(next(&peer).0, b"hello");
    }
    let request = first.client.refresh(0);
    assert_eq!(first.ask(&request).lifetime, Some(0));
    assert_eq!(agent.status().flows.len(), 1);
    // The socket is closed, which the system reports to a connected one.
    peer.connect(("127.0.0.1", first.relayed.port())).unwrap();
    let begun = Instant::now();
    while peer.send(b"x").err().map(|error| error.kind()) != Some(ErrorKind::ConnectionRefused) {
        assert!(begun.elapsed() < STEP_PATIENCE, "the relayed address is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    let other = udp();
    assert_eq!(second.bind(0x4001, other.local_addr().unwrap()), None);
    second.socket.send(&in_channel(0x4001, b"again")).unwrap();
    assert_eq!(next(&other).0, b"again");
}

/// Pages know the credentials of their site, not what this host offers to itself.
#[test]
fn peers_are_those_that_the_user_allows() {
    let allowed = udp();
    let address = allowed.local_addr().unwrap();
    let agent = Running::with_turn(&address.to_string());
    let mut page = Page::start(&agent);
    let other = udp().local_addr().unwrap();
    for (peer, code) in [
        (other, Some(403)),
        (SocketAddr::from(([192, 0, 2, 7], address.port())), Some(403)),
        (agent.address, Some(403)),
        (address, None),
    ] {
        assert_eq!(page.bind(0x4000, peer), code, "{peer}");
    }
    // The permission is for the address, the rule for the port.
    page.socket.send(&send(other, b"no")).unwrap();
    page.socket.send(&send(address, b"yes")).unwrap();
    assert_eq!(next(&allowed).0, b"yes");
    assert_eq!(agent.status().services[0].refused_datagrams, 1);

    // A rule may lead to the agent itself.
    let agent = Running::with_turn("127.0.0.1:*");
    let mut page = Page::start(&agent);
    assert_eq!(page.bind(0x4000, agent.address), None);
    page.socket.send(&in_channel(0x4000, b"round and round")).unwrap();
    agent.wait_for("a refusal", |status| status.services[0].refused_datagrams >= 1);
    assert_eq!(agent.status().flows.len(), 0);
}
