//! The state machines of the handshake, client and gateway, with a path between them that is
//! controlled by the bytes.
//!
//! Input: byte 0 sets the gateway (bit 0: a cookie is always demanded; bit 1: a token is required;
//! bit 2: the client has one). Then steps of one byte, the kind in the lower three bits and a
//! number in the upper five. After the last step the path is a good one, and client and
//! gateway must come together, unless a token is lacking.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use packrat_assist_token::{Claims, Key, Keys, RouteHash};
use packrat_client::{Assist, AssistState, ClientConfig, Datagram};
use packrat_engine::{
    Flow, Gateway, GatewayConfig, HandshakeOutcome, NetworkPath, Outbox, PathEvent, PathUse,
    Received, TokenAdmission, TokenCheck, public_key,
};
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;

const STATIC_KEY: [u8; 32] = [3; 32];
/// Longer than any wait of a client, the longest of which follows a corrupted token.
const CALM: Duration = Duration::from_secs(400);
/// Most datagrams in flight, each direction.
const MOST_ON_THE_WAY: usize = 64;

struct World {
    gateway: std::sync::Arc<Gateway>,
    flow: Flow,
    client: Assist,
    client_address: SocketAddr,
    now: Timestamp,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    random: u8,
    /// Bytes from and to the address since the flow was unassisted.
    unproven: [usize; 2],
}

/// Runs the steps; panics when an end breaks a promise.
pub fn meeting(data: &[u8]) {
    let (&settings, steps) = data.split_first().unwrap_or((&0, &[]));
    let (is_required, has_token) = (settings & 2 != 0, settings & 4 != 0);
    let mut world = World::new(settings & 1 != 0, is_required, has_token);
    for step in steps.iter().take(2000) {
        world.step(step & 7, usize::from(step >> 3));
    }
    world.calm();
    let state = world.client.stats().state;
    if is_required && !has_token {
        assert_ne!(state, AssistState::Established);
        assert!(!world.flow.is_assisted());
    } else {
        assert_eq!(state, AssistState::Established, "they do not come together");
        assert!(world.flow.is_assisted());
        assert_eq!(world.client.stats().gateway_key, public_key(&STATIC_KEY).ok());
    }
}

impl World {
    fn new(cookie_always: bool, is_required: bool, has_token: bool) -> Self {
        let without_cookie = if cookie_always {
            0
        } else {
            GatewayConfig::default().handshakes_per_second_without_cookie
        };
        let config = GatewayConfig {
            handshakes_per_second_without_cookie: without_cookie,
            ..GatewayConfig::default()
        };
        let gateway = Gateway::new(config, STATIC_KEY, [4; 32]);
        let key = Key::new(1, [5; 32]);
        let route = RouteHash::of("web");
        let token = key.issue(&Claims { expires: 2_000_000_000, route, binding: None, nonce: 1 });
        gateway.set_unix_origin(Duration::from_secs(1_800_000_000));
        if is_required {
            gateway.set_tokens(TokenAdmission::Required(TokenCheck {
                keys: Keys { current: key, previous: None },
                route,
            }));
        }
        let now = Timestamp::from_millis(1000);
        let token = if has_token { token } else { Vec::new() };
        let token = packrat_client::Token::new(token).expect("an issued token is short");
        Self {
            flow: Flow::new(gateway.clone()),
            gateway,
            client: Assist::new(ClientConfig::default().with_token(token), [1; 32], now),
            client_address: SocketAddr::from(([192, 0, 2, 1], 5000)),
            now,
            up: VecDeque::new(),
            down: VecDeque::new(),
            random: 0,
            unproven: [0; 2],
        }
    }

    fn step(&mut self, kind: u8, number: usize) {
        match kind {
            0 => (0..=number).for_each(|_| self.deliver_up()),
            1 => (0..=number).for_each(|_| self.deliver_down()),
            2 => self.pass(Duration::from_millis(1 << (number % 16))),
            3 if number & 1 == 0 => drop(self.up.pop_front()),
            3 => drop(self.down.pop_front()),
            // Duplicated, or late.
            4 => {
                let queue = if number & 1 == 0 { &mut self.up } else { &mut self.down };
                if let Some(first) = queue.front().cloned() {
                    if number & 2 == 0 { queue.push_front(first) } else { queue.rotate_left(1) }
                }
            }
            5 => {
                let queue = if number & 1 == 0 { &mut self.up } else { &mut self.down };
                if let Some(first) = queue.front_mut() {
                    let at = (number >> 1) * 17 % first.len();
                    first[at] ^= 1 << (number % 8);
                }
            }
            6 => self.forward(number),
            // A refusal by an attacker who sees the client's request.
            _ => {
                if let Some(Ok(Control::Discover { nonce, .. } | Control::Init { nonce, .. })) =
                    self.up.front().map(|question| Control::decode(question))
                {
                    use packrat_wire::control::RefusalReason::{
                        Cookie, Disabled, Full, Session, Version,
                    };
                    let reason = [Version, Disabled, Full, Cookie, Session][number % 5];
                    let mut refusal = Vec::new();
                    Control::Refusal { nonce, reason, versions: &[1] }.encode(&mut refusal);
                    self.down.push_front(refusal);
                }
            }
        }
    }

    /// Takes the client's messages, as its shell does after every event.
    fn speak(&mut self) {
        while let Some(question) = self.client.poll_transmit(self.now) {
            self.up.push_back(question);
            if self.up.len() > MOST_ON_THE_WAY {
                self.up.pop_front();
            }
        }
    }

    fn deliver_up(&mut self) {
        self.speak();
        let Some(question) = self.up.pop_front() else { return };
        let mut out = Outbox::new();
        let was_assisted = self.flow.is_assisted();
        self.unproven[0] += question.len();
        let mut outcome = None;
        match self.gateway.receive(&question, self.client_address, self.now, &mut out) {
            Received::Done(done) => outcome = Some(done),
            Received::Begin(begin) => {
                self.random = self.random.wrapping_add(1);
                outcome = Some(self.flow.begin(begin, [self.random; 32], self.now, &mut out));
            }
            Received::ForFlow => self.flow.control(&question, self.now, &mut out),
        }
        if outcome == Some(HandshakeOutcome::AcceptedWithoutCookie) {
            assert!(!was_assisted, "a session was displaced");
        }
        self.answer(&out);
    }

    /// Takes the gateway's messages. An address without proof gets no more bytes than it sent.
    fn answer(&mut self, out: &Outbox) {
        for answer in out.datagrams() {
            self.unproven[1] += answer.len();
            assert!(
                self.flow.is_assisted() || Control::decode(answer).is_ok(),
                "a repair to an unproven address"
            );
            self.down.push_back(answer.to_vec());
            if self.down.len() > MOST_ON_THE_WAY {
                self.down.pop_front();
            }
        }
        if self.flow.is_assisted() {
            // Proven. After the end of this session the count restarts.
            self.unproven = [0; 2];
        } else {
            assert!(self.unproven[1] <= self.unproven[0], "amplified: {:?}", self.unproven);
        }
    }

    fn deliver_down(&mut self) {
        if let Some(answer) = self.down.pop_front() {
            if self.client.on_datagram(&answer, self.now) == Datagram::Base {
                self.client.on_authentic(self.now);
            }
            self.speak();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        if self.client.next_timeout().is_some_and(|at| at <= self.now) {
            self.client.handle_timeout(self.now);
        }
        self.speak();
        if self.flow.next_timeout().is_some_and(|at| at <= self.now) {
            let mut out = Outbox::new();
            self.flow.handle_timeout(self.now, &mut out);
            self.answer(&out);
        }
    }

    fn forward(&mut self, number: usize) {
        let mut datagram = vec![0x40; 100 + number];
        let length = datagram.len();
        datagram[length - 8..].copy_from_slice(&self.now.as_micros().to_le_bytes()[..8]);
        self.flow.forward(&datagram, self.now);
        let mut out = Outbox::new();
        // An attacker sends a datagram in flight from another address; the session must not move.
        if let Some(sealed) = self
            .up
            .front()
            .filter(|datagram| matches!(Control::decode(datagram), Ok(Control::Sealed { .. })))
        {
            let from = NetworkPath {
                client: SocketAddr::from(([198, 51, 100, number as u8], 1)),
                gateway: SocketAddr::from(([192, 0, 2, 1], 443)),
            };
            let (random, decide) = (|| [number as u8; 8], || PathUse::Free);
            let event =
                self.flow.control_on_new_path(sealed, from, random, decide, self.now, &mut out);
            assert_ne!(event, PathEvent::Validated);
            assert!(
                out.datagrams().map(<[u8]>::len).sum::<usize>() <= sealed.len(),
                "amplified elsewhere"
            );
        }
    }

    fn calm(&mut self) {
        let end = self.now + CALM;
        while self.now < end {
            self.speak();
            while !self.up.is_empty() || !self.down.is_empty() {
                self.deliver_up();
                self.deliver_down();
            }
            let next =
                [self.client.next_timeout(), self.flow.next_timeout()].into_iter().flatten().min();
            let step =
                next.map_or(CALM, |at| at.saturating_since(self.now)).max(Duration::from_millis(1));
            self.pass(step);
        }
    }
}
