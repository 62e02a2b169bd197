//! Clients that move to another address, and with it from one of several gateways to another. In
//! virtual time.
#![cfg(feature = "virtual-time")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_api::affinity::Affinity;
use packrat_api::route::{Hidden, ServerIds};
use packrat_client::ClientConfig;

use crate::client::{self, PATIENCE, Socket as _, transfer};
use crate::gateway::config;
use crate::network::{Gateway, Network, Socket};

type Client = client::Client<Socket>;

/// Servers behind every gateway.
const SERVERS: usize = 4;

fn servers(network: &Network) -> Vec<Socket> {
    (0..SERVERS).map(|_| network.server()).collect()
}

fn gateway(network: &Network, servers: &[Socket], key: &str) -> Gateway {
    let mut config = config(&servers.iter().collect::<Vec<_>>());
    config.static_key = Some(Hidden::new(key.repeat(32)));
    network.gateway(config)
}

/// The server that the next datagram comes to, and from where; it has this content.
fn first(servers: &[Socket], content: &[u8]) -> (usize, SocketAddr) {
    let start = servers[0].now();
    loop {
        for (number, server) in servers.iter().enumerate() {
            if let Some((datagram, from)) = server.hear(Duration::ZERO) {
                assert_eq!(datagram, content);
                return (number, from);
            }
        }
        let waited = servers[0].now().saturating_since(start);
        assert!(waited < PATIENCE, "no server has received it");
        servers[0].pause(Duration::from_millis(1));
    }
}

/// An address whose clients get another server than `server`, at gateways that do not know them.
fn address_of_another_server(servers: &[Socket], gateway: &Gateway, server: usize) -> String {
    for host in 2..100 {
        let local = format!("127.0.0.{host}");
        gateway.client_from(&local).say(b"who");
        if first(servers, b"who").0 != server {
            return local;
        }
    }
    panic!("all addresses have the same server");
}

/// An assisted client, the number of the server that its gateway has given it, and the address that
/// the server sees it at.
fn assisted(servers: &[Socket], gateway: &Gateway) -> (Client, usize, SocketAddr) {
    let mut client = Client::on(gateway.client(), ClientConfig::default());
    client.socket.say(b"hello");
    let (server, upstream) = first(servers, b"hello");
    client.establish();
    transfer(&mut client, &servers[server], upstream, 0..200);
    (client, server, upstream)
}

/// The client continues from another socket. Returns the servers that its datagrams come to.
fn moves(servers: &[Socket], client: &mut Client, gateway: &Gateway, to: Socket) -> Vec<usize> {
    let sessions = gateway.metric("sessions_begun_total");
    client.go_on_from(to);
    // Its transport continues before it knows that anything has changed.
    let datagrams: [_; 10] =
        std::array::from_fn(|number| [0x41, 0xff, number as u8, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    datagrams.iter().for_each(|datagram| client.socket.say(datagram));
    client.take_part_until("a session with the other gateway", |client| {
        client.is_established() && gateway.metric("sessions_begun_total") > sessions
    });
    datagrams.iter().map(|datagram| first(servers, datagram).0).collect()
}

/// The client's connection with this server continues: datagrams from this number on, with losses.
fn goes_on(servers: &[Socket], client: &mut Client, server: usize, from: usize) {
    client.socket.say(b"anything");
    let (reached, upstream) = first(servers, b"anything");
    assert_eq!(reached, server);
    transfer(client, &servers[server], upstream, from..from + 200);
}

#[test]
fn after_a_move_another_gateway_finds_the_clients_server() {
    let network = Network::new();
    let servers = servers(&network);
    let gateways = ["0f", "0f", "0f"].map(|key| gateway(&network, &servers, key));
    let (mut client, server, _) = assisted(&servers, &gateways[0]);
    let another = address_of_another_server(&servers, &gateways[0], server);
    for moved in 1..8 {
        // The third gateway's answer is the second one's: the ticket belongs to its session.
        let gateway = &gateways[moved % 3];
        let reached = moves(&servers, &mut client, gateway, gateway.client_from(&another));
        assert_eq!(reached, [server; 10], "datagrams do not wait for the ticket");
        let repairs = gateway.metric("repairs_total");
        goes_on(&servers, &mut client, server, 1000 * moved);
        assert!(gateway.metric("repairs_total") >= repairs + 5, "no repairs after the move");
    }
    assert!(gateways.iter().all(|gateway| gateway.metric("sessions_taken_over_total") > 0));
    // Without a ticket that it can read a gateway goes by the address.
    let stranger = self::gateway(&network, &servers, "aa");
    let reached = moves(&servers, &mut client, &stranger, stranger.client_from(&another));
    assert!(reached.iter().all(|reached| *reached != server), "{reached:?}");
    assert_eq!(stranger.metric("sessions_taken_over_total"), 0);
}

/// The messages that say so are lost, or late: its datagrams have begun a session with another server.
#[test]
fn a_late_ticket_gives_a_client_its_server_back() {
    let network = Network::new();
    let servers = servers(&network);
    let gateways = ["0f"; 2].map(|key| gateway(&network, &servers, key));
    let (mut client, server, _) = assisted(&servers, &gateways[0]);
    let another = address_of_another_server(&servers, &gateways[0], server);
    client.go_on_from(gateways[1].client_from(&another));
    let datagram = [0x41, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    client.socket.say(&datagram);
    assert_ne!(first(&servers, &datagram).0, server, "nothing is known of it yet");
    client.take_part_until("a session with the other gateway", |_| {
        gateways[1].metric("sessions_begun_total") > 0
    });
    assert_eq!(gateways[1].metric("sessions_taken_over_total"), 1);
    goes_on(&servers, &mut client, server, 1000);
}

/// Another client has a ticket, and can write this one's address. Its messages are copied in this one's name.
#[test]
fn a_ticket_in_somebodys_name_moves_no_session() {
    let network = Network::new();
    let servers = servers(&network);
    let gateways = ["0f"; 2].map(|key| gateway(&network, &servers, key));
    let (mut attacker, server, _) = assisted(&servers, &gateways[0]);
    let another = address_of_another_server(&servers, &gateways[0], server);
    let victim = gateways[1].client_from(&another);
    victim.say(b"hello");
    let (own, _) = first(&servers, b"hello");
    assert_ne!(own, server);
    attacker.go_on_from(gateways[1].client_from("127.0.0.250"));
    let begun = victim.now();
    while gateways[1].metric("sessions_begun_total") == 0 {
        while let Some(message) = attacker.poll() {
            victim.say(&message);
            attacker.socket.say(&message);
        }
        if let Some((answer, _)) = attacker.socket.hear(Duration::from_millis(1)) {
            attacker.assist.on_datagram(&answer, attacker.now());
        }
        let waited = victim.now().saturating_since(begun);
        assert!(waited < PATIENCE, "waited in vain: {:?}", attacker.assist.stats());
    }
    assert_eq!(gateways[1].metric("sessions_taken_over_total"), 1, "the attacker's own");
    victim.say(b"anything");
    assert_eq!(first(&servers, b"anything").0, own);
}

/// A NAT gives it the port of a client whose session the gateway still has.
#[test]
fn a_client_on_an_assisted_clients_path_gets_its_server_back() {
    let network = Network::new();
    let servers = servers(&network);
    let gateways = ["0f"; 2].map(|key| gateway(&network, &servers, key));
    let (mut client, server, _) = assisted(&servers, &gateways[0]);
    let another = address_of_another_server(&servers, &gateways[0], server);
    let mut former = Client::on(gateways[1].client_from(&another), ClientConfig::default());
    former.socket.say(b"hello");
    assert_ne!(first(&servers, b"hello").0, server);
    former.establish();
    moves(&servers, &mut client, &gateways[1], former.socket);
    assert_eq!(gateways[1].metric("sessions_taken_over_total"), 1);
    goes_on(&servers, &mut client, server, 1000);
}

#[test]
fn a_client_of_a_server_that_is_gone_gets_one_that_is_there() {
    let network = Network::new();
    let servers = servers(&network);
    let before = gateway(&network, &servers, "0f");
    let (mut client, server, _) = assisted(&servers, &before);
    let left: Vec<Socket> = servers
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != server)
        .map(|(_, server)| server.again())
        .collect();
    let after = gateway(&network, &left, "0f");
    assert_eq!(moves(&left, &mut client, &after, after.client_from("127.0.0.9")).len(), 10);
    assert_eq!(after.metric("sessions_taken_over_total"), 0);
}

/// Servers that send each datagram back, with their number behind it.
fn echo(servers: &[Socket]) {
    for (number, server) in (0..).zip(servers) {
        while let Some((datagram, from)) = server.hear(Duration::ZERO) {
            server.say_to(&[&datagram[..], &[number]].concat(), from);
        }
    }
}

/// A client that asks, and is answered by the server with this number.
struct Asking {
    client: Client,
    server: Option<u8>,
    asked: u32,
}

impl Asking {
    /// The server that answers now.
    fn ask(&mut self, servers: &[Socket]) -> u8 {
        self.asked += 1;
        let question = [&[0x41, 0xff][..], &self.asked.to_be_bytes(), &[7; 10]].concat();
        self.client.socket.say(&question);
        let mut answer = None;
        self.client.turn_until("an answer", |client, received| {
            echo(servers);
            if let Some(datagram) = received {
                client.assist.on_datagram(&datagram, client.now());
                if let Some((server, asked)) = datagram.split_last()
                    && asked == question
                {
                    answer = Some(*server);
                }
            }
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Continues from another port behind this gateway, until that assists it.
    fn go_to(&mut self, gateway: &Gateway) {
        self.client.go_on_from(gateway.client());
        let sessions = self.client.assist.stats().sessions;
        self.client.socket.say(&[0x41, 0xff, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        self.client.take_part_until("a session", |client| {
            client.is_established() && client.assist.stats().sessions > sessions
        });
    }
}

/// Ten servers, chosen by port; four gateways, then two of them, then four again. All clients change
/// port and gateway eight times.
#[test]
fn clients_keep_their_servers_while_gateways_come_and_go() {
    let network = Network::new();
    let servers: Vec<Socket> = (0..10).map(|_| network.server()).collect();
    let gateway = || {
        let mut config = config(&servers.iter().collect::<Vec<_>>());
        config.affinity = Affinity::Port;
        config.static_key = Some(Hidden::new("0f".repeat(32)));
        network.gateway(config)
    };
    let mut fleet: Vec<Gateway> = (0..4).map(|_| gateway()).collect();
    let start = |number: usize| Asking {
        client: Client::on(fleet[number % 4].client(), ClientConfig::default()),
        server: None,
        asked: 0,
    };
    let mut clients: Vec<Asking> = (0..20).map(start).collect();
    let mut taken_over = 0;
    for step in 0..=8 {
        match step {
            3 => {
                for gateway in fleet.drain(2..) {
                    taken_over += gateway.metric("sessions_taken_over_total");
                    gateway.shutdown();
                }
            }
            6 => fleet.extend((0..2).map(|_| gateway())),
            _ => {}
        }
        for (number, asking) in clients.iter_mut().enumerate() {
            if let Some(server) = asking.server {
                asking.go_to(&fleet[(number + step) % fleet.len()]);
                assert_eq!(asking.ask(&servers), server, "client {number} at step {step}");
            } else {
                asking.server = Some(asking.ask(&servers));
                asking.client.establish();
            }
        }
    }
    let used: HashSet<_> = clients.iter().map(|asking| asking.server).collect();
    assert!(used.len() > 4, "{used:?}");
    taken_over += fleet.iter().map(|each| each.metric("sessions_taken_over_total")).sum::<u64>();
    assert!(taken_over >= 80, "{taken_over} of 160 moves");
}

/// A connection ID of the first server, as QUIC-LB (draft-ietf-quic-load-balancers-21) encrypts it with a key:
/// a vector of the draft.
const KEY: &str = "8f95f09245765f80256934e50c66207f";
const CONNECTION_ID: [u8; 8] = [0x07, 0x20, 0xb1, 0xd0, 0x7b, 0x35, 0x9d, 0x3c];
const SERVER_ID: &str = "ed793a";

/// A gateway whose first server has the number that [`CONNECTION_ID`] names.
fn gateway_with_names(network: &Network, servers: &[Socket], key: &str) -> Gateway {
    let mut config = config(&servers.iter().collect::<Vec<_>>());
    config.static_key = Some(Hidden::new(key.repeat(32)));
    let ids = servers.iter().enumerate().map(|(number, server)| {
        let id = if number == 0 { SERVER_ID.to_owned() } else { format!("00000{number}") };
        (server.address(), id)
    });
    config.quic_lb = vec![ServerIds {
        config: 0,
        server_id_bytes: 3,
        nonce_bytes: 4,
        key: Some(Hidden::new(KEY)),
        server_ids: ids.collect(),
    }];
    network.gateway(config)
}

/// A datagram with a short header, to the first server.
fn to_the_first_server() -> Vec<u8> {
    [&[0x41][..], &CONNECTION_ID, b"payload"].concat()
}

#[test]
fn an_unassisted_client_finds_its_server_by_the_connection_id() {
    let network = Network::new();
    let servers = servers(&network);
    let gateway = gateway_with_names(&network, &servers, "0f");
    let other = address_of_another_server(&servers, &gateway, 0);
    assert_eq!(gateway.metric("sessions_named_total"), 0);
    // It has had the first server through another gateway, from another address.
    let client = gateway.client_from(&other);
    client.say(&to_the_first_server());
    let (reached, upstream) = first(&servers, &to_the_first_server());
    assert_eq!(reached, 0);
    assert_eq!(gateway.metric("sessions_named_total"), 1);
    // From now on the session belongs to that server, whatever comes.
    client.say(b"anything");
    assert_eq!(first(&servers, b"anything"), (0, upstream));
    // A connection ID that names no server that is there goes by the address.
    let client = gateway.client_from(&other);
    let datagram = [0x41, 0x07, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    client.say(&datagram);
    assert_ne!(first(&servers, &datagram).0, 0);
    assert_eq!(gateway.metric("sessions_named_total"), 1);
}

/// While the gateway assists a client, datagrams of unknown paths wait for a word of their client.
#[test]
fn a_connection_id_is_read_when_a_client_has_waited_in_vain() {
    let network = Network::new();
    let servers = servers(&network);
    let gateway = gateway_with_names(&network, &servers, "0f");
    let other = address_of_another_server(&servers, &gateway, 0);
    let (client, ..) = assisted(&servers, &gateway);
    let waited = gateway.metric("datagrams_waited_in_vain_total");
    gateway.client_from(&other).say(&to_the_first_server());
    assert_eq!(first(&servers, &to_the_first_server()).0, 0);
    assert_eq!(gateway.metric("sessions_named_total"), 1);
    assert_eq!(gateway.metric("datagrams_waited_in_vain_total"), waited + 1);
    drop(client);
}
