//! A client that uses all its knowledge cannot have its session moved to an address at which it
//! does not receive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_eack::SketchLimits;
use packrat_engine::{
    Flow, Gateway, GatewayConfig, NetworkPath, Outbox, PathEvent, PathUse, Received,
};
use packrat_wire::control::{Control, PROTOCOL_VERSION};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, Established, Initiator};
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::Message;
use sha2::{Digest, Sha256};

const NONCE: u64 = 7;

/// An attacker with a session of its own, and the gateway's end of it.
struct Attacker {
    flow: Flow,
    session: Established,
    now: Timestamp,
    /// The use of the addresses that the attacker proves to be at.
    path_use: PathUse,
}

impl Attacker {
    fn new() -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let mut flow = Flow::new(Arc::clone(&gateway));
        let (now, own) = (Timestamp::from_millis(1000), "198.51.100.1:5000".parse().unwrap());
        let client_params = ClientParams {
            scheme: IdentifierScheme::Trailer,
            limits: SketchLimits { coded_symbols: 0, power_sums: 129 },
            maximum_hold: Duration::from_secs(1),
            token: Vec::new(),
            live: None,
            numbered: None,
            ticket: None,
            bundles: false,
        };
        let initiator = Initiator::new([1; 32], NONCE, client_params, None);
        let noise = initiator.message().unwrap();
        let (mut question, mut out) = (Vec::new(), Outbox::new());
        Control::Discover { nonce: NONCE, versions: &[PROTOCOL_VERSION], noise: &noise }
            .encode(&mut question);
        let Received::Begin(begin) = gateway.receive(&question, own, now, &mut out) else {
            panic!("the gateway asks for a cookie")
        };
        flow.begin(begin, [0x5a; 32], now, &mut out);
        let answer = out.datagrams().next().unwrap();
        let Ok(Control::InitAck { noise, .. }) = Control::decode(answer) else {
            panic!("no InitAck")
        };
        let session = initiator.finish(noise).unwrap();
        let mut attacker = Self { flow, session, now, path_use: PathUse::Free };
        // The session begins with the first sealed message from its own address.
        let hello = attacker.seal(&Message::PathResponse { data: 0 });
        attacker.flow.control(&hello, now, &mut Outbox::new());
        assert!(attacker.flow.is_assisted());
        attacker
    }

    fn seal(&mut self, message: &Message<'_>) -> Vec<u8> {
        let (mut plaintext, mut datagram) = (Vec::new(), Vec::new());
        message.encode(&mut plaintext);
        self.session.sealer.seal(&plaintext, &mut datagram).unwrap();
        datagram
    }

    /// Sends a sealed PathResponse under the source address of `victim`; the gateway's answers go
    /// there, unseen by the attacker.
    fn answer(
        &mut self,
        data: u64,
        victim: SocketAddr,
        random: [u8; 8],
    ) -> (PathEvent, usize, usize) {
        let datagram = self.seal(&Message::PathResponse { data });
        let mut out = Outbox::new();
        let path = NetworkPath { client: victim, gateway: "192.0.2.1:443".parse().unwrap() };
        let decide = || self.path_use;
        let now = self.now;
        let event =
            self.flow.control_on_new_path(&datagram, path, || random, decide, now, &mut out);
        (event, datagram.len(), out.datagrams().map(<[u8]>::len).sum())
    }

    /// Values that follow from the secrets of the session, in all the ways the protocol derives
    /// anything.
    fn guesses(&self) -> Vec<u64> {
        let gateway_params = &self.session.gateway_params;
        let labels = ["packrat/2 path", "packrat/2 sketch", "packrat/2 identifier", ""];
        let words = |digest: &[u8]| -> Vec<u64> {
            digest
                .chunks_exact(8)
                .map(|word| u64::from_be_bytes(word.try_into().unwrap()))
                .collect()
        };
        let mut guesses = vec![0, NONCE, u64::from(gateway_params.session.get())];
        for label in labels {
            guesses.extend(words(
                &Sha256::new_with_prefix(*gateway_params.secret).chain_update(label).finalize(),
            ));
            for number in 0..16u64 {
                let digest = Sha256::new_with_prefix(*gateway_params.secret)
                    .chain_update(label)
                    .chain_update(number.to_be_bytes())
                    .finalize();
                guesses.extend(words(&digest));
            }
        }
        guesses
    }
}

#[test]
fn a_challenges_answer_is_unknown_before_it_arrives() {
    let mut attacker = Attacker::new();
    let victim = "203.0.113.9:53".parse().unwrap();
    let (mut spoofed, mut reflected) = (0, 0);
    for round in 0..8u8 {
        // Every guess meets the same outstanding challenges; the next round meets one more.
        for guess in attacker.guesses() {
            let random = Sha256::digest([round])[..8].try_into().unwrap();
            let (event, sent, answered) = attacker.answer(guess, victim, random);
            assert_ne!(
                event,
                PathEvent::Validated,
                "round {round}: a guess moved the session to the victim"
            );
            assert!(answered <= sent);
            spoofed += sent;
            reflected += answered;
        }
        attacker.now = attacker.now + Duration::from_millis(20);
    }
    assert!(reflected > 0, "the victim was never challenged");
    assert!(reflected <= spoofed / 2, "{reflected} bytes reflected for {spoofed} spoofed");
    // The session is where it was.
    assert!(attacker.flow.is_assisted());
}

#[test]
fn a_challenge_answered_at_one_address_is_of_no_use_at_another() {
    let mut attacker = Attacker::new();
    let (own, victim) = ("198.51.100.1:6000".parse().unwrap(), "203.0.113.9:53".parse().unwrap());
    assert_eq!(attacker.answer(0, victim, [1; 8]).0, PathEvent::Challenged);
    // The attacker is challenged at another address of its own, and repeats that challenge's data
    // in the victim's name.
    assert_eq!(attacker.answer(0, own, [2; 8]).0, PathEvent::Challenged);
    assert_eq!(
        attacker.answer(u64::from_be_bytes([2; 8]), victim, [3; 8]).0,
        PathEvent::Challenged
    );
    assert_eq!(attacker.answer(u64::from_be_bytes([2; 8]), own, [3; 8]).0, PathEvent::Validated);
    // Used once: the same data does not move the session a second time, from any address.
    let (event, ..) = attacker.answer(u64::from_be_bytes([2; 8]), victim, [4; 8]);
    assert_eq!(event, PathEvent::Challenged);
}

#[test]
fn a_path_that_is_another_sessions_is_not_given_away() {
    let mut attacker = Attacker::new();
    let taken: SocketAddr = "203.0.113.9:53".parse().unwrap();
    let data = |byte: u8| u64::from_be_bytes([byte; 8]);
    assert_eq!(attacker.answer(0, taken, [1; 8]).0, PathEvent::Challenged);
    // Its client is being asked: the attacker has to prove itself again.
    attacker.path_use = PathUse::Asked;
    assert_eq!(attacker.answer(data(1), taken, [2; 8]), (PathEvent::Held, 38, 0));
    assert_eq!(attacker.answer(data(1), taken, [2; 8]).0, PathEvent::Challenged);
    // It has answered.
    attacker.path_use = PathUse::InUse;
    assert_eq!(attacker.answer(data(2), taken, [3; 8]), (PathEvent::Refused, 38, 0));
    // No other datagram is sent there.
    attacker.path_use = PathUse::Free;
    assert_eq!(attacker.answer(data(2), taken, [3; 8]), (PathEvent::Refused, 38, 0));
    attacker.now = attacker.now + Duration::from_millis(3001);
    assert_eq!(attacker.answer(0, taken, [4; 8]).0, PathEvent::Challenged);
    assert_eq!(attacker.answer(data(4), taken, [5; 8]).0, PathEvent::Validated);
}
