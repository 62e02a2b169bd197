//! Token policies, with a real client in virtual time: which clients are assisted, and that
//! forwarding never asks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_assist_token::{Binding, Claims, Key, Keys, RouteHash};
use packrat_client::{Assist, AssistState, ClientConfig, Datagram};
use packrat_engine::{
    Flow, Gateway, GatewayConfig, HandshakeOutcome, Outbox, Received, TokenAdmission, TokenCheck,
};
use packrat_wire::control::{Control, RefusalReason};
use packrat_wire::estimate::Timestamp;

/// The calendar's time when the virtual clock starts, in seconds since 1970.
const ORIGIN: u64 = 1_800_000_000;

fn key(id: u8) -> Key {
    Key::new(id.into(), [id; 32])
}

fn check(current: u8, previous: Option<u8>) -> TokenCheck {
    TokenCheck {
        keys: Keys { current: key(current), previous: previous.map(key) },
        route: RouteHash::of("web"),
    }
}

fn claims() -> Claims {
    Claims { expires: ORIGIN + 300, route: RouteHash::of("web"), binding: None, nonce: 5 }
}

fn address() -> SocketAddr {
    "192.0.2.1:4433".parse().unwrap()
}

fn gateway(admission: TokenAdmission) -> Arc<Gateway> {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    gateway.set_unix_origin(Duration::from_secs(ORIGIN));
    gateway.set_tokens(admission);
    gateway
}

/// One client on a path without delay or loss.
struct Meeting {
    gateway: Arc<Gateway>,
    flow: Flow,
    client: Assist,
    now: Timestamp,
    outcomes: Vec<HandshakeOutcome>,
    refusals: Vec<RefusalReason>,
    random: u8,
}

impl Meeting {
    fn new(gateway: &Arc<Gateway>, token: Vec<u8>, now: Timestamp) -> Self {
        let token = packrat_client::Token::new(token).unwrap();
        let client = Assist::new(ClientConfig::default().with_token(token), [7; 32], now);
        Self {
            gateway: Arc::clone(gateway),
            flow: Flow::new(Arc::clone(gateway)),
            client,
            now,
            outcomes: Vec::new(),
            refusals: Vec::new(),
            random: 0,
        }
    }

    fn exchange(&mut self) {
        let mut out = Outbox::new();
        while let Some(question) = self.client.poll_transmit(self.now) {
            let was_assisted = self.flow.is_assisted();
            match self.gateway.receive(&question, address(), self.now, &mut out) {
                Received::Done(outcome) => self.outcomes.push(outcome),
                Received::Begin(begin) => {
                    self.random += 1;
                    self.outcomes.push(self.flow.begin(
                        begin,
                        [self.random; 32],
                        self.now,
                        &mut out,
                    ));
                }
                Received::ForFlow => self.flow.control(&question, self.now, &mut out),
            }
            let has_proven = was_assisted || self.flow.is_assisted();
            for answer in out.datagrams() {
                // Until the client has shown that it is there.
                assert!(has_proven || answer.len() <= question.len(), "amplification");
                if let Ok(Control::Refusal { reason, .. }) = Control::decode(answer) {
                    self.refusals.push(reason);
                }
                self.client.on_datagram(answer, self.now);
            }
            out.clear();
        }
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.client.next_timeout().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.client.handle_timeout(self.now);
            self.exchange();
        }
        self.now = end;
    }

    fn run(gateway: &Arc<Gateway>, token: &[u8], now: Timestamp) -> Self {
        let mut meeting = Self::new(gateway, token.to_vec(), now);
        meeting.exchange();
        meeting.wait(Duration::from_millis(100));
        meeting
    }

    /// The datagrams of the base connection pass in any case, and no datagram of Packrat reaches
    /// the transport.
    fn forwards(&mut self) {
        for number in 0..50u64 {
            let mut datagram = vec![0x40; 1200];
            datagram[1..9].copy_from_slice(&number.to_be_bytes());
            self.flow.forward(&datagram, self.now);
            assert_eq!(self.client.on_datagram(&datagram, self.now), Datagram::Base);
        }
    }

    fn state(&self) -> AssistState {
        self.client.stats().state
    }
}

fn assisted(gateway: &Arc<Gateway>, token: &[u8], now: Timestamp) {
    let mut meeting = Meeting::run(gateway, token, now);
    assert_eq!(meeting.state(), AssistState::Established, "{:?}", meeting.outcomes);
    assert!(meeting.flow.is_assisted() && meeting.refusals.is_empty());
    meeting.forwards();
}

fn refused(gateway: &Arc<Gateway>, token: &[u8], now: Timestamp, outcome: HandshakeOutcome) {
    let before = gateway.sessions();
    let mut meeting = Meeting::run(gateway, token, now);
    assert_eq!(meeting.state(), AssistState::Refused, "{:?}", meeting.outcomes);
    // A client shows its token only to a gateway that has sent an Offer.
    let steps: &[_] =
        if token.is_empty() { &[outcome] } else { &[HandshakeOutcome::Offered, outcome] };
    assert_eq!(meeting.outcomes, steps);
    assert_eq!(meeting.refusals, [RefusalReason::Token]);
    assert!(!meeting.flow.is_assisted());
    assert_eq!(gateway.sessions(), before);
    meeting.forwards();
}

#[test]
fn without_a_policy_tokens_are_not_looked_at() {
    let gateway = gateway(TokenAdmission::Off);
    for token in [vec![], vec![1, 2, 3], key(9).issue(&claims())] {
        assisted(&gateway, &token, Timestamp::ZERO);
    }
}

#[test]
fn a_required_token_must_be_there_and_right() {
    let gateway = gateway(TokenAdmission::Required(check(2, Some(1))));
    let good = key(2).issue(&claims());
    assisted(&gateway, &good, Timestamp::ZERO);
    assisted(&gateway, &key(1).issue(&claims()), Timestamp::ZERO);
    refused(&gateway, &[], Timestamp::ZERO, HandshakeOutcome::RefusedTokenMissing);
    wrong_tokens_are_refused(&gateway, &good);
}

#[test]
fn an_optional_token_may_be_missing_but_not_wrong() {
    let gateway = gateway(TokenAdmission::Optional(check(2, Some(1))));
    let good = key(2).issue(&claims());
    assisted(&gateway, &good, Timestamp::ZERO);
    assisted(&gateway, &[], Timestamp::ZERO);
    wrong_tokens_are_refused(&gateway, &good);
}

fn wrong_tokens_are_refused(gateway: &Arc<Gateway>, good: &[u8]) {
    let mut bent = good.to_vec();
    *bent.last_mut().unwrap() ^= 1;
    let other_network = Binding::new("198.51.100.0".parse().unwrap(), 24).unwrap();
    for (token, outcome) in [
        (bent, HandshakeOutcome::RefusedTokenForged),
        (vec![1, 2, 3], HandshakeOutcome::RefusedTokenForged),
        (key(3).issue(&claims()), HandshakeOutcome::RefusedTokenForged),
        (
            key(2).issue(&Claims { route: RouteHash::of("video"), ..claims() }),
            HandshakeOutcome::RefusedTokenElsewhere,
        ),
        (
            key(2).issue(&Claims { binding: Some(other_network), ..claims() }),
            HandshakeOutcome::RefusedTokenElsewhere,
        ),
    ] {
        refused(gateway, &token, Timestamp::ZERO, outcome);
    }
}

#[test]
fn tokens_expire_by_the_calendar() {
    let gateway = gateway(TokenAdmission::Required(check(2, None)));
    let token = key(2).issue(&claims());
    assisted(&gateway, &token, Timestamp::from_millis(299_000));
    refused(
        &gateway,
        &token,
        Timestamp::from_millis(302_000),
        HandshakeOutcome::RefusedTokenExpired,
    );
    // The clock has been corrected: it was ten minutes fast.
    gateway.set_unix_origin(Duration::from_secs(ORIGIN - 600));
    assisted(&gateway, &token, Timestamp::from_millis(302_000));
}

#[test]
fn without_a_calendar_no_token_is_good() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    gateway.set_tokens(TokenAdmission::Required(check(2, None)));
    let token = key(2).issue(&claims());
    refused(&gateway, &token, Timestamp::ZERO, HandshakeOutcome::RefusedTokenExpired);
}

#[test]
fn a_session_outlives_its_token_and_its_key() {
    let gateway = gateway(TokenAdmission::Required(check(1, None)));
    let token = key(1).issue(&claims());
    let mut meeting = Meeting::run(&gateway, &token, Timestamp::ZERO);
    assert_eq!(meeting.state(), AssistState::Established);
    gateway.set_tokens(TokenAdmission::Required(check(2, Some(1))));
    assisted(&gateway, &token, Timestamp::ZERO);
    gateway.set_tokens(TokenAdmission::Required(check(3, Some(2))));
    refused(&gateway, &token, Timestamp::ZERO, HandshakeOutcome::RefusedTokenForged);
    for _ in 0..4 {
        meeting.wait(Duration::from_secs(100));
        meeting.forwards();
        meeting.wait(Duration::from_secs(1));
        assert_eq!(meeting.state(), AssistState::Established);
    }
    assert_eq!(meeting.client.stats().sessions, 1);
    assert!(meeting.flow.take_counters().eacks_decoded > 0);
}

#[test]
fn a_refused_client_asks_seldom() {
    let gateway = gateway(TokenAdmission::Required(check(1, None)));
    let mut meeting = Meeting::run(&gateway, &[], Timestamp::ZERO);
    meeting.wait(Duration::from_secs(20));
    assert_eq!(meeting.refusals.len(), 1);
    meeting.wait(Duration::from_secs(200));
    assert!(meeting.refusals.len() < 10, "{}", meeting.refusals.len());
}
