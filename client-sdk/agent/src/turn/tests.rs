use super::client::{Attributes, Client, Heard, in_channel, received, send};
use super::*;

use turn_types::AddressFamily;
use turn_types::attribute::{DontFragment, RequestedAddressFamily, RequestedTransport};
use turn_types::message::REFRESH;
use turn_types::stun::attribute::ErrorCode as Code;

const UNIX_SECONDS: u64 = 1_800_000_000;

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn second(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn program(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn server() -> Server {
    let users = [("alice", "wonderland"), ("bob", "builder")];
    let credentials = TurnCredentials {
        users: users.map(|(name, password)| (name.to_owned(), password.to_owned())).into(),
        secret: Some("north".to_owned()),
    };
    Server::new(credentials, Destinations::default(), [7; 32])
}

fn alice() -> Client {
    Client::new("alice", "wonderland")
}

/// The server's answer; a wanted socket is there.
fn ask(
    server: &mut Server,
    client: &mut Client,
    from: SocketAddr,
    request: &[u8],
    now: Timestamp,
) -> Heard {
    let answer = match server.on_datagram(from, request, now, || UNIX_SECONDS) {
        Step::Answer(answer) => answer,
        Step::Open(opening) => {
            let ip = if opening.is_ipv6 { "2001:db8::1" } else { "198.51.100.1" };
            let relayed = SocketAddr::new(ip.parse().unwrap(), from.port());
            server.opened(opening, Some(relayed), now).unwrap()
        }
        Step::End(number, answer) => {
            server.end(number);
            answer
        }
        Step::Relay(..) | Step::Refused => panic!("no answer"),
    };
    client.hear(&answer)
}

/// Allocates as browsers do: the first request fetches the nonce.
fn allocated(server: &mut Server, client: &mut Client, port: u16, now: Timestamp) -> Heard {
    let from = program(port);
    let request = client.allocate();
    let challenge = ask(server, client, from, &request, now);
    assert_eq!(challenge.code, Some(Code::UNAUTHORIZED));
    let request = client.allocate();
    ask(server, client, from, &request, now)
}

/// A server whose client at the port 1 may send to 192.0.2.7 and has the channel 0x4000 for its port 9.
fn with_channel(now: Timestamp) -> (Server, Client, SocketAddr) {
    let (mut server, mut client) = (server(), alice());
    allocated(&mut server, &mut client, 1, now);
    let peer = at("192.0.2.7:9");
    let request = client.bind(0x4000, peer);
    assert_eq!(ask(&mut server, &mut client, program(1), &request, now).code, None);
    (server, client, peer)
}

/// The destination and payload of a datagram, if it may leave.
fn relayed(server: &mut Server, datagram: &[u8], now: Timestamp) -> Option<(SocketAddr, Vec<u8>)> {
    match server.on_datagram(program(1), datagram, now, || UNIX_SECONDS) {
        Step::Relay(0, to, payload) => Some((to, payload.to_vec())),
        Step::Refused => None,
        _ => panic!("an answer to data"),
    }
}

#[test]
fn an_allocation_names_its_addresses_and_lives_ten_minutes() {
    let (mut server, mut client) = (server(), alice());
    let heard = allocated(&mut server, &mut client, 1, second(1));
    let expected = Heard {
        code: None,
        is_signed: true,
        relayed: Some(at("198.51.100.1:1")),
        mapped: Some(program(1)),
        lifetime: Some(600),
    };
    assert_eq!(heard, expected);
    assert_eq!(server.expire(second(600)), [] as [usize; 0]);
    assert_eq!(server.expire(second(601)), [0]);
    server.end(0);
    let request = client.refresh(600);
    let heard = ask(&mut server, &mut client, program(1), &request, second(601));
    assert_eq!(heard.code, Some(Code::ALLOCATION_MISMATCH));
}

#[test]
fn a_repeated_request_gets_the_same_allocation_another_none() {
    let (mut server, mut client) = (server(), alice());
    allocated(&mut server, &mut client, 1, second(1));
    let transport =
        |_| -> Attributes { vec![Box::new(RequestedTransport::new(RequestedTransport::UDP))] };
    let again = client.again(ALLOCATE, transport);
    let heard = ask(&mut server, &mut client, program(1), &again, second(2));
    assert_eq!((heard.relayed, heard.lifetime), (Some(at("198.51.100.1:1")), Some(599)));
    let other = client.allocate();
    let heard = ask(&mut server, &mut client, program(1), &other, second(2));
    assert_eq!((heard.code, heard.is_signed), (Some(Code::ALLOCATION_MISMATCH), true));
    assert_eq!(server.programs.len(), 1);
}

#[test]
fn a_refresh_prolongs_within_limits_or_ends() {
    let (mut server, mut client) = (server(), alice());
    allocated(&mut server, &mut client, 1, second(1));
    for (wished, granted) in [(1, 600), (1200, 1200), (100_000, 3600), (0, 0)] {
        let request = client.refresh(wished);
        let heard = ask(&mut server, &mut client, program(1), &request, second(2));
        assert_eq!((heard.code, heard.lifetime), (None, Some(granted)));
    }
    assert!(server.allocations.is_empty() && server.programs.is_empty());
    allocated(&mut server, &mut alice(), 1, second(2));
}

#[test]
fn data_leaves_only_with_a_permission_of_five_minutes() {
    let (mut server, mut client) = (server(), alice());
    allocated(&mut server, &mut client, 1, second(1));
    let (peer, other) = (at("192.0.2.7:9"), at("192.0.2.8:9"));
    assert_eq!(relayed(&mut server, &send(peer, b"early"), second(1)), None);
    let request = client.permit(&[peer]);
    assert_eq!(ask(&mut server, &mut client, program(1), &request, second(1)).code, None);
    // A permission is for all ports of an address.
    let other_port = at("192.0.2.7:10");
    for to in [peer, other_port] {
        let sent = relayed(&mut server, &send(to, b"payload"), second(300));
        assert_eq!(sent, Some((to, b"payload".to_vec())));
    }
    assert!(server.permits(0, peer.ip(), second(300)) && !server.permits(0, other.ip(), second(2)));
    assert_eq!(relayed(&mut server, &send(other, b"stranger"), second(300)), None);
    assert_eq!(relayed(&mut server, &send(peer, b"late"), second(301)), None);
    assert!(!server.permits(0, peer.ip(), second(301)));
}

#[test]
fn a_channel_carries_data_while_its_permission_lasts() {
    let (mut server, mut client, peer) = with_channel(second(1));
    assert_eq!(server.channel(0, peer), Some(0x4000));
    let datagram = in_channel(0x4000, b"payload");
    let sent = relayed(&mut server, &datagram, second(300));
    assert_eq!(sent, Some((peer, b"payload".to_vec())));
    assert_eq!(relayed(&mut server, &in_channel(0x4001, b"none"), second(2)), None);
    assert_eq!(relayed(&mut server, &datagram, second(301)), None, "no permission");
    let request = client.permit(&[peer]);
    ask(&mut server, &mut client, program(1), &request, second(400));
    assert!(relayed(&mut server, &datagram, second(600)).is_some());
    let request = client.refresh(3600);
    ask(&mut server, &mut client, program(1), &request, second(600));
    assert_eq!(relayed(&mut server, &datagram, second(601)), None, "no channel");
    server.expire(second(601));
    assert_eq!(server.channel(0, peer), None);
    let request = client.bind(0x4001, peer);
    assert_eq!(ask(&mut server, &mut client, program(1), &request, second(601)).code, None);
}

#[test]
fn an_allocation_of_ipv6_has_peers_of_ipv6() {
    let (mut server, mut client) = (server(), alice());
    let family = |family| -> Attributes {
        let transport = RequestedTransport::new(RequestedTransport::UDP);
        vec![Box::new(transport), Box::new(RequestedAddressFamily::new(family))]
    };
    let request = client.allocate();
    ask(&mut server, &mut client, program(1), &request, second(1));
    let request = client.request(ALLOCATE, |_| family(AddressFamily::IPV6));
    let heard = ask(&mut server, &mut client, program(1), &request, second(1));
    assert_eq!(heard.relayed, Some(at("[2001:db8::1]:1")));
    for (peer, code) in [
        ("[2001:db8::7]:9", None),
        ("192.0.2.7:9", Some(Code::PEER_ADDRESS_FAMILY_MISMATCH)),
        ("[::ffff:192.0.2.7]:9", Some(Code::PEER_ADDRESS_FAMILY_MISMATCH)),
        ("[fe80::1]:9", Some(Code::FORBIDDEN)),
    ] {
        let request = client.permit(&[at(peer)]);
        let heard = ask(&mut server, &mut client, program(1), &request, second(1));
        assert_eq!(heard.code, code, "{peer}");
    }
    for (of, code) in [
        (AddressFamily::IPV4, Some(Code::PEER_ADDRESS_FAMILY_MISMATCH)),
        (AddressFamily::IPV6, None),
    ] {
        let request = client.request(REFRESH, |_| family(of));
        let heard = ask(&mut server, &mut client, program(1), &request, second(1));
        assert_eq!(heard.code, code);
    }
}

#[test]
fn a_channel_has_one_peer_and_a_peer_one_channel() {
    let (mut server, mut client, peer) = with_channel(second(1));
    for (channel, peer, code) in [
        (0x4000, peer, None),
        (0x4001, peer, Some(Code::BAD_REQUEST)),
        (0x4000, at("192.0.2.7:10"), Some(Code::BAD_REQUEST)),
        (0x3fff, at("192.0.2.7:10"), Some(Code::BAD_REQUEST)),
        (0x7fff, at("192.0.2.7:10"), Some(Code::BAD_REQUEST)),
        (0x4001, at("[2001:db8::1]:9"), Some(Code::PEER_ADDRESS_FAMILY_MISMATCH)),
        (0x4001, at("[::ffff:192.0.2.9]:9"), Some(Code::PEER_ADDRESS_FAMILY_MISMATCH)),
        (0x4001, at("127.0.0.1:9"), Some(Code::FORBIDDEN)),
        (0x4001, at("224.0.0.1:9"), Some(Code::FORBIDDEN)),
    ] {
        let request = client.bind(channel, peer);
        let heard = ask(&mut server, &mut client, program(1), &request, second(1));
        assert_eq!(heard.code, code, "{channel:#x} {peer}");
    }
}

#[test]
fn forged_credentials_get_the_answer_of_the_standard() {
    let (mut server, mut client) = (server(), alice());
    allocated(&mut server, &mut client, 1, second(1));
    for (user, password, code) in [
        ("alice", "wrong", Code::UNAUTHORIZED),
        ("carol", "wonderland", Code::UNAUTHORIZED),
        ("bob", "builder", Code::WRONG_CREDENTIALS),
    ] {
        let mut other =
            Client { user: user.to_owned(), password: password.to_owned(), ..client.clone() };
        let request = other.refresh(0);
        assert_eq!(ask(&mut server, &mut other, program(1), &request, second(2)).code, Some(code));
    }
    // A changed message, and one cut short.
    let request = client.refresh(0);
    let mut forged = request.clone();
    forged[27] ^= 1;
    let heard = ask(&mut server, &mut client, program(1), &forged, second(2));
    assert_eq!(heard.code, Some(Code::UNAUTHORIZED));
    for length in 0..request.len() {
        let step = server.on_datagram(program(1), &request[..length], second(2), || UNIX_SECONDS);
        assert!(matches!(step, Step::Refused), "{length} bytes");
    }
    let long = [&request[..], b"\0\0\0\0"].concat();
    let step = server.on_datagram(program(1), &long, second(2), || UNIX_SECONDS);
    assert!(matches!(step, Step::Refused));
    assert_eq!(server.allocations.len(), 1);
}

#[test]
fn a_nonce_is_of_one_program_and_stale_after_an_hour() {
    let (mut server, mut client) = (server(), alice());
    allocated(&mut server, &mut client, 1, second(1));
    let mut stolen = client.clone();
    for now in [second(2), second(3600)] {
        let request = client.refresh(3600);
        assert_eq!(ask(&mut server, &mut client, program(1), &request, now).code, None);
    }
    let request = client.refresh(600);
    let heard = ask(&mut server, &mut client, program(1), &request, second(3601));
    assert_eq!(heard.code, Some(Code::STALE_NONCE));
    let request = client.refresh(600);
    let heard = ask(&mut server, &mut client, program(1), &request, second(3601));
    assert_eq!(heard.code, None, "with the new nonce");
    let request = stolen.allocate();
    let heard = ask(&mut server, &mut stolen, program(2), &request, second(2));
    assert_eq!(heard.code, Some(Code::STALE_NONCE), "another program's");
}

#[test]
fn time_limited_names_allocate_until_their_time() {
    // printf 1800000001:page | openssl dgst -sha1 -hmac north -binary | base64
    let password = "YXlAs2tSI9wKsm+DDlKMFKzolEY=";
    let (mut server, mut client) = (server(), Client::new("1800000001:page", password));
    assert_eq!(allocated(&mut server, &mut client, 1, second(1)).code, None);
    let request = client.refresh(600);
    let Step::Answer(answer) =
        server.on_datagram(program(1), &request, second(2), || UNIX_SECONDS + 9)
    else {
        panic!("no answer");
    };
    assert_eq!(client.hear(&answer).code, None, "the allocation stays");
    let mut late = Client::new("1800000000:page", "xwWp/nka9j3IvFagBGyWTSc5nJs=");
    assert_eq!(allocated(&mut server, &mut late, 2, second(1)).code, Some(Code::UNAUTHORIZED));
}

#[test]
fn a_user_and_an_allocation_have_a_limit() {
    let (mut server, mut client, _) = with_channel(second(1));
    for port in 2..=USER_ALLOCATIONS as u16 {
        assert_eq!(allocated(&mut server, &mut alice(), port, second(1)).code, None);
    }
    let heard = allocated(&mut server, &mut alice(), 9999, second(1));
    assert_eq!(heard.code, Some(Code::ALLOCATION_QUOTA_REACHED));
    let mut bob = Client::new("bob", "builder");
    assert_eq!(allocated(&mut server, &mut bob, 10_000, second(1)).code, None);

    let peer = |number: u16| SocketAddr::from(([192, 0, 2, number as u8], 1));
    let all: Vec<_> = (0..allocation::MOST_PEERS as u16).map(peer).collect();
    let mut permit = |peers: &[SocketAddr], now| {
        let request = client.permit(peers);
        ask(&mut server, &mut client, program(1), &request, now).code
    };
    assert_eq!(permit(&all, second(1)), None, "the channel's is one of them");
    assert_eq!(permit(&[peer(200)], second(1)), Some(Code::INSUFFICIENT_CAPACITY));
    assert_eq!(permit(&[], second(1)), Some(Code::BAD_REQUEST));
    assert_eq!(permit(&[peer(200)], second(301)), None, "the others are over");
    for number in 1..=allocation::MOST_PEERS as u16 {
        let request = client.bind(0x4000 + number, SocketAddr::from(([192, 0, 2, 9], number)));
        let heard = ask(&mut server, &mut client, program(1), &request, second(301));
        let is_last = usize::from(number) == allocation::MOST_PEERS;
        assert_eq!(heard.code, is_last.then_some(Code::INSUFFICIENT_CAPACITY), "{number}");
    }
}

#[test]
fn what_is_not_served_is_said_plainly() {
    let (mut server, mut client) = (server(), alice());
    let request = client.allocate();
    ask(&mut server, &mut client, program(1), &request, second(1));
    let mut ask = |request: &[u8]| {
        let heard = ask(&mut server, &mut client.clone(), program(1), request, second(1));
        (heard.code, heard.is_signed)
    };
    let mut other = client.clone();
    let tcp = other.request(ALLOCATE, |_| vec![Box::new(RequestedTransport::new(6))]);
    assert_eq!(ask(&tcp), (Some(Code::UNSUPPORTED_TRANSPORT_PROTOCOL), true));
    let none = other.request(ALLOCATE, |_| vec![]);
    assert_eq!(ask(&none), (Some(Code::BAD_REQUEST), true));
    let unknown = other.request(ALLOCATE, |_| vec![Box::new(DontFragment::new())]);
    assert_eq!(ask(&unknown), (Some(Code::UNKNOWN_ATTRIBUTE), true));
    let connect = other.request(turn_types::message::CONNECT, |_| vec![]);
    assert_eq!(ask(&connect), (Some(Code::BAD_REQUEST), true));
    assert!(server.allocations.is_empty());
}

#[test]
fn without_a_socket_there_is_no_allocation() {
    let (mut server, mut client) = (server(), alice());
    let request = client.allocate();
    ask(&mut server, &mut client, program(1), &request, second(1));
    let request = client.allocate();
    let Step::Open(opening) = server.on_datagram(program(1), &request, second(1), || 0) else {
        panic!("nothing to open");
    };
    let answer = server.opened(opening, None, second(1)).unwrap();
    assert_eq!(client.hear(&answer).code, Some(Code::INSUFFICIENT_CAPACITY));
    assert!(server.allocations.is_empty() && server.programs.is_empty());
}

#[test]
fn peers_data_names_its_peer() {
    let peer = at("192.0.2.7:9");
    let bytes = indication(peer, b"payload", 5).unwrap();
    assert_eq!(received(&bytes), Some((peer, b"payload".to_vec())));
    assert_eq!(channel_header(0x4001, b"payload"), Some([0x40, 1, 0, 7]));
    assert_eq!(channel_header(0x4001, &[0; 70_000]), None);
}

#[test]
fn anyone_may_ask_for_its_address() {
    let (mut server, mut client) = (server(), alice());
    let request = client.request(BINDING, |_| vec![]);
    let heard = ask(&mut server, &mut client, program(9), &request, second(1));
    assert_eq!((heard.code, heard.mapped), (None, Some(program(9))));
}
