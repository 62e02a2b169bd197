//! A gateway never amplifies towards an address that is not validated. For every kind of datagram
//! that can come from there it sends no more bytes than came, and no more than one datagram for
//! one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use packrat_client::{Assist, AssistState, ClientConfig, Live, PacketNumber};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Stream, StreamConfig, StreamOutbox};
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;

use crate::ends::hear;

const START: Timestamp = Timestamp::from_millis(1000);
const VICTIM: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7)), 53);

fn name(datagram: &[u8]) -> &'static str {
    match Control::decode(datagram) {
        Ok(Control::Discover { noise: [], .. }) => "Discover",
        Ok(Control::Discover { .. }) => "Discover with Noise message",
        Ok(Control::Offer { .. }) => "Offer",
        Ok(Control::Init { .. }) => "Init",
        Ok(Control::InitAck { .. }) => "InitAck",
        Ok(Control::Refusal { .. }) => "Refusal",
        Ok(Control::Sealed { .. }) => "Sealed",
        Err(_) => "malformed",
    }
}

/// Every datagram of a real handshake and of the session after it, both ways.
fn captured(config: &GatewayConfig, live: Option<Live>) -> Vec<Vec<u8>> {
    let gateway = Gateway::new(*config, [9; 32], [8; 32]);
    let mut flow = Flow::new(Arc::clone(&gateway));
    let mut client = Assist::new(ClientConfig::default().with_live(live), [1; 32], START);
    let (mut captured, mut out) = (Vec::new(), Outbox::new());
    let address = SocketAddr::from(([192, 0, 2, 1], 5000));
    for number in 0..30u64 {
        let mut datagram = vec![0x40; 600];
        datagram[584..592].copy_from_slice(&(number + 1).to_be_bytes());
        datagram[592..].copy_from_slice(&(number + 2).to_be_bytes());
        flow.forward(&datagram, START);
        if number != 20 {
            client.on_datagram(&datagram, START);
            client.on_packet_number(PacketNumber::new(number), START);
        }
        while let Some(said) = client.poll_transmit(START) {
            hear(&gateway, &mut flow, &said, address, [2; 32], START, &mut out);
            captured.push(said);
            for answer in out.datagrams() {
                captured.push(answer.to_vec());
                client.on_datagram(answer, START);
            }
            out.clear();
        }
    }
    assert!(
        live.is_some_and(|live| live.subscribe) || client.stats().state == AssistState::Established
    );
    captured
}

/// Forms of it that an attacker would try: shortened, lengthened, of every type and version, with
/// bent bytes.
fn forms(datagram: &[u8]) -> Vec<Vec<u8>> {
    let mut forms: Vec<Vec<u8>> =
        (5..=datagram.len()).map(|length| datagram[..length].to_vec()).collect();
    for more in [1, 30, 64, 200, 600] {
        forms.push([datagram, &vec![0; more]].concat());
    }
    for fourth in 0..=255u8 {
        let mut form = datagram.to_vec();
        form[4] = fourth;
        forms.push(form.clone());
        form.resize(256.max(form.len()), 0);
        forms.push(form);
    }
    for at in (5..datagram.len()).step_by(3) {
        let mut form = datagram.to_vec();
        form[at] ^= 0x11;
        forms.push(form);
    }
    forms
}

/// Most bytes and datagrams that each kind brought, as a share of the ones sent for them.
#[derive(Default)]
struct Most(BTreeMap<&'static str, (f64, usize)>);

impl Most {
    fn note(&mut self, question: &[u8], answers: &[Vec<u8>]) {
        let bytes: usize = answers.iter().map(Vec::len).sum();
        let kind = name(question);
        assert!(answers.len() <= 1, "{kind}: {} datagrams", answers.len());
        assert!(bytes <= question.len(), "{kind}: {bytes} bytes for {}", question.len());
        let most = self.0.entry(kind).or_default();
        most.0 = most.0.max(bytes as f64 / question.len() as f64);
        most.1 += 1;
    }

    fn print(&self, of: &str) {
        for (kind, (factor, tried)) in &self.0 {
            println!("{of}: {kind}: {factor:.2} at most, of {tried}");
        }
    }
}

fn questions() -> Vec<Vec<u8>> {
    let cookie_always =
        GatewayConfig { handshakes_per_second_without_cookie: 0, ..GatewayConfig::default() };
    let live = Live { selective: true, subscribe: true, ..Live::default() };
    let all = [
        captured(&GatewayConfig::default(), None),
        captured(&cookie_always, None),
        captured(&GatewayConfig::default(), Some(live)),
    ];
    let mut questions: Vec<_> = all.concat().iter().flat_map(|datagram| forms(datagram)).collect();
    questions.push(vec![0x0b, 0x50, 0x6b, 0x72]);
    questions
}

#[test]
fn no_answer_to_an_unproven_address_is_longer() {
    let questions = questions();
    for config in [
        GatewayConfig::default(),
        GatewayConfig {
            handshakes_per_second_without_cookie: u32::MAX,
            ..GatewayConfig::default()
        },
        GatewayConfig { handshakes_per_second_without_cookie: 0, ..GatewayConfig::default() },
        GatewayConfig { assist: false, ..GatewayConfig::default() },
        GatewayConfig { maximum_sessions: 0, ..GatewayConfig::default() },
    ] {
        let gateway = Gateway::new(config, [9; 32], [8; 32]);
        let (mut most, mut now) = (Most::default(), START);
        for question in &questions {
            now = now + std::time::Duration::from_millis(1);
            // As the data plane does: a flow of the victim's address, which is forwarded to
            // meanwhile.
            let mut flow = Flow::new(Arc::clone(&gateway));
            let mut out = Outbox::new();
            hear(&gateway, &mut flow, question, VICTIM, [3; 32], now, &mut out);
            let answers: Vec<_> = out.datagrams().map(<[u8]>::to_vec).collect();
            most.note(question, &answers);
            // No datagram follows by itself.
            out.clear();
            for number in 0..4u8 {
                flow.forward(&[number; 1200], now);
            }
            for _ in 0..4 {
                if let Some(at) = flow.next_timeout() {
                    flow.handle_timeout(at, &mut out);
                }
            }
            flow.close(packrat_wire::message::GoodbyeReason::Draining, &mut out);
            assert!(out.is_empty(), "{}: something was sent later", name(question));
        }
        most.print(&format!("{:?}", config.handshakes_per_second_without_cookie));
        assert_eq!(gateway.sessions(), 0);
        let named: Vec<_> = most.0.keys().copied().collect();
        for kind in [
            "Discover",
            "Discover with Noise message",
            "Init",
            "InitAck",
            "Offer",
            "Sealed",
            "malformed",
        ] {
            assert!(named.contains(&kind), "{kind} was not tried: {named:?}");
        }
    }
}

#[test]
fn a_stream_answers_unproven_addresses_with_no_more_either() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    let mut stream = Stream::new(gateway, StreamConfig::default(), [5; 32]);
    let (mut most, mut now) = (Most::default(), START);
    for question in questions() {
        now = now + std::time::Duration::from_millis(1);
        let mut out = StreamOutbox::new();
        stream.receive(&question, VICTIM, || [3; 32], now, &mut out);
        stream.forward(&question, now);
        stream.handle_timeout(now, &mut out);
        let answers: Vec<_> = out.datagrams().map(|(_, bytes)| bytes.to_vec()).collect();
        most.note(&question, &answers);
    }
    most.print("stream");
    assert_eq!(stream.subscribers().count(), 0);
}

#[test]
fn an_unknown_version_is_answered_with_the_known_ones() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    for version in (0..16u8).filter(|version| *version != packrat_wire::control::PROTOCOL_VERSION) {
        let mut discover = Vec::new();
        Control::Discover { nonce: 5, versions: &[version, 77], noise: &[] }.encode(&mut discover);
        discover[4] = version << 4 | 1;
        let mut out = Outbox::new();
        gateway.receive(&discover, VICTIM, START, &mut out);
        let answer = out.datagrams().next().unwrap();
        let Ok(Control::Refusal { nonce: 5, reason, versions }) = Control::decode(answer) else {
            panic!("{answer:?}")
        };
        assert_eq!(reason, packrat_wire::control::RefusalReason::Version);
        let version = packrat_wire::registry::choose_version(versions);
        assert_eq!(version, Some(packrat_wire::control::PROTOCOL_VERSION));
    }
}
