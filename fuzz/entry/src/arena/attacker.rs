//! The attackers, and the steps that an input makes them take.
//!
//! A step is one byte, the kind in its lower four bits and a small number in the upper four, and
//! the bytes that the kind takes; an input that ends too soon is extended with zeros.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::SocketAddr;

use packrat_eack::Encoding;
use packrat_wire::Epoch;
use packrat_wire::control::{Control, PROTOCOL_VERSION, RefusalReason};
use packrat_wire::handshake::{ClientParams, GatewayParams, Initiator, Numbered};
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::{Eack, GoodbyeReason, Message, ResetReason};
use packrat_wire::number::split;
use packrat_wire::seal::MAXIMUM_PLAINTEXT_BYTES;
use sha2::{Digest, Sha256};

use super::base::{
    ATTACKERS_FIRST, PLAIN_CONNECTION, Packet, STRANGERS_FIRST, connection_ids, long_header,
    scatter, stun_header,
};
use super::places::{OWN, PLACES, nowhere, place};
use super::steps::Steps;
use super::vectors;
use super::verdict::Kept;
use super::world::World;
use crate::claims::{Claims, plain_params};

/// Waits, in milliseconds.
const WAITS: [u64; 16] = [1, 1, 2, 3, 5, 8, 13, 20, 21, 35, 50, 80, 130, 250, 500, 1000];
/// Sessions of attackers.
const MOST_SESSIONS: usize = 12;
/// Answers to challenges in one move.
const MOST_ANSWERS: usize = 4;
/// Numbered datagrams in one step.
const IN_A_ROW: usize = 8;
/// Datagrams that an attacker has its server send, so that their pace is one at which the gateway codes.
const GREED: [u64; 4] = [20, 60, 120, 250];
/// Times until an attacker reports its datagrams, in milliseconds: round trips that are worth
/// symbols.
const PATIENCE: [u64; 4] = [8, 21, 34, 55];
/// Steps of kind 10 from which more than the base connection is attacked, if there is more.
const FIRST_OF_MORE: usize = 12;
/// Time until forged sources may crowd in.
const CROWDS_AFTER: Duration = Duration::from_millis(100);
/// Labels of all that the protocol's documents, of this version and the one before, derive from a session's
/// secret.
const LABELS: [&str; 6] = [
    "packrat/1 path",
    "packrat/2 path",
    "packrat/2 sketch",
    "packrat/2 identifier",
    "packrat/2 name 1",
    "packrat/2 mask",
];

/// A session that an attacker has.
struct Held {
    claims: Claims,
    /// Place at which the session began.
    place: usize,
    connection: u16,
    /// Numbers of its base connection, either way.
    next_up: u64,
    /// The place of its next numbered datagram.
    next_place: u64,
    /// Datagrams that it has sealed.
    sealed: Vec<Vec<u8>>,
    /// Datagrams that the attacker has received, and the number of them that it has decided about.
    received: usize,
    decided: usize,
    /// The connection ID that its server has chosen.
    server_id: Vec<u8>,
}

/// All attackers, who share all their knowledge.
#[derive(Default)]
pub(super) struct Attacker {
    sessions: Vec<Held>,
    begun: u16,
    /// Challenges that have come to addresses of their own.
    challenges: VecDeque<(SocketAddr, u64)>,
    /// Cookies that have come to them.
    cookies: Vec<(u64, u32, [u8; 16])>,
    random: u64,
}

impl Attacker {
    fn random(&mut self) -> u64 {
        self.random += 1;
        scatter(self.random)
    }

    /// Begins sessions at addresses of their own.
    pub(super) fn arrive(&mut self, world: &mut World, sessions: usize) -> Kept {
        for place in 0..sessions.min(OWN) {
            self.begin(world, place)?;
        }
        Ok(())
    }

    /// Takes a step.
    pub(super) fn step(&mut self, world: &mut World, steps: &mut Steps<'_>) -> Kept {
        let step = steps.byte();
        let number = step >> 4;
        match step & 15 {
            0 => world.pass(Duration::from_millis(WAITS[number]))?,
            1 => self.begin(world, number % OWN)?,
            2 => self.ask_in_a_name(world, number % PLACES.len(), steps.byte())?,
            3 => self.have_the_server_send(world, number, steps.byte())?,
            4 => self.claim(world, number, steps)?,
            5 => self.invent(world, number, steps)?,
            6 => self.fail(world, number, steps)?,
            7 => {
                let (session, guess) = (steps.byte(), steps.byte());
                self.answer_challenge(world, number, session, guess)?;
            }
            8 => {
                let (session, plaintext) = (steps.byte(), steps.bytes());
                self.say(
                    world,
                    session,
                    number,
                    &plaintext[..plaintext.len().min(MAXIMUM_PLAINTEXT_BYTES)],
                )?;
            }
            9 => self.replay(world, number, steps.byte(), steps.byte())?,
            10 if number >= FIRST_OF_MORE && world.conditions.has_more() => {
                self.do_more(world, number, steps.byte(), steps.byte())?;
            }
            10 => self.speak_base(world, number, steps.byte(), steps.byte())?,
            11 => self.forge_base(world, number, steps)?,
            12 => self.forge_control(world, number, steps)?,
            13 => {
                let datagram = match steps.byte() {
                    0 => [&[0x0b, 0x50, 0x6b, 0x72], steps.bytes()].concat(),
                    vector => vectors::datagram(vector),
                };
                self.send(world, number, steps.byte(), &datagram)?;
            }
            14 => self.move_to(world, number % OWN, steps.byte())?,
            _ => self.end(world, number, steps)?,
        }
        self.listen(world);
        Ok(())
    }

    /// Reads the datagrams at the attackers' addresses.
    fn listen(&mut self, world: &mut World) {
        let mut plaintext = Vec::new();
        while let Some((to, datagram)) = world.overheard.pop_front() {
            let base = split(&datagram).map_or(&datagram[..], |(_, base)| base);
            if let Some(packet) = Packet::decode(base) {
                let own = |held: &&mut Held| held.connection == packet.connection;
                if let Some(held) = self.sessions.iter_mut().find(own) {
                    held.claims.forwarded(base);
                    held.received += 1;
                    if let Some((_, server_id)) = connection_ids(base) {
                        held.server_id = server_id.to_vec();
                    }
                }
            }
            if let Ok(Control::Offer { nonce, cookie_time, cookie, .. }) =
                Control::decode(&datagram)
            {
                self.cookies.push((nonce, cookie_time, cookie));
            }
            for held in &mut self.sessions {
                if held.claims.client.opener.open(&datagram, &mut plaintext).is_err() {
                    continue;
                }
                match Message::decode(&plaintext) {
                    Ok(Message::PathChallenge { data }) => self.challenges.push_back((to, data)),
                    Ok(Message::Reset { epoch, .. }) => held.claims.enter(epoch),
                    Ok(Message::Coded(_)) => world.margins.symbols += 1,
                    _ => {}
                }
            }
        }
    }

    /// Sends from a place; the sender is there if the place is one of the attackers' own.
    fn send(&mut self, world: &mut World, from: usize, listener: usize, datagram: &[u8]) -> Kept {
        let from = from % PLACES.len();
        world.margins.attacks += 1;
        world.arrive(place(from), listener, datagram, from < OWN)?;
        self.listen(world);
        Ok(())
    }

    fn session(&mut self, number: usize) -> Option<&mut Held> {
        let count = self.sessions.len();
        self.sessions.get_mut(number.checked_rem(count)?)
    }

    /// Begins a handshake. `codes`: with numbers and symbols.
    fn initiator(&mut self, codes: bool) -> Initiator {
        let numbered = Numbered { to_client: codes, to_server: true, coded: codes, largest: 1400 };
        let params = ClientParams {
            numbered: Some(numbered),
            ..plain_params(IdentifierScheme::Trailer, Duration::from_millis(120))
        };
        let mut seed = [0xa7; 32];
        seed[..8].copy_from_slice(&self.random().to_be_bytes());
        Initiator::new(seed, 7, params, None)
    }

    /// Begins a session, with a base connection, at an address of its own.
    fn begin(&mut self, world: &mut World, from: usize) -> Kept {
        if self.sessions.len() == MOST_SESSIONS {
            self.sessions.remove(0);
        }
        let connection = ATTACKERS_FIRST + self.begun;
        self.begun += 1;
        let mut broken = None;
        let initiator = self.initiator(world.conditions.codes);
        let claims = Claims::try_begin(initiator, 7, |question| {
            broken = world.arrive(place(from), 0, question, true).err();
            let mine = world.overheard.iter().position(|(to, _)| *to == place(from));
            let answers: Vec<_> = world.overheard.drain(mine?..).collect();
            answers.into_iter().map(|(_, answer)| answer).find(|answer| {
                matches!(
                    Control::decode(answer),
                    Ok(Control::Offer { .. } | Control::InitAck { .. })
                )
            })
        });
        if let Some(violation) = broken {
            return Err(violation);
        }
        world.margins.attacks += 2;
        let Some(claims) = claims else { return Ok(()) };
        world.margins.sessions += 1;
        let held = Held {
            claims,
            place: from,
            connection,
            next_up: 0,
            next_place: 0,
            sealed: Vec::new(),
            received: 0,
            decided: 0,
            server_id: Vec::new(),
        };
        self.sessions.push(held);
        // It proves that it has the session, and asks its server for something.
        let last = self.sessions.len() - 1;
        self.say_message(world, last, from, &Message::PathResponse { data: 0 })?;
        self.speak_base(world, from, last, 0)
    }

    /// A question, with a key exchange or a cookie of another address, in the name of a place.
    fn ask_in_a_name(&mut self, world: &mut World, from: usize, kind: usize) -> Kept {
        let noise = self.initiator(world.conditions.codes).message().expect("a first message");
        let mut datagram = Vec::new();
        match (kind & 1, self.cookies.get(kind >> 1)) {
            (1, Some(&(nonce, cookie_time, cookie))) => {
                Control::Init { nonce, cookie_time, cookie, noise: &noise }.encode(&mut datagram);
            }
            _ => {
                let noise = if kind & 2 == 0 { &noise[..] } else { &[] };
                let nonce = self.random();
                Control::Discover { nonce, versions: &[PROTOCOL_VERSION], noise }
                    .encode(&mut datagram);
            }
        }
        world.note_question(from);
        self.send(world, from, kind >> 7, &datagram)
    }

    fn have_the_server_send(&mut self, world: &mut World, number: usize, session: usize) -> Kept {
        if let Some(held) = self.session(session) {
            let connection = held.connection;
            world.server.ask(connection, 4 * number as u64 + 1);
            world.pass(Duration::from_millis(1))?;
        }
        Ok(())
    }

    /// Seals a message in a session, and sends it from a place.
    fn say(&mut self, world: &mut World, session: usize, from: usize, plaintext: &[u8]) -> Kept {
        let Some(held) = self.session(session) else { return Ok(()) };
        let datagram = held.claims.seal(plaintext);
        held.sealed.push(datagram.clone());
        self.send(world, from, 0, &datagram)
    }

    fn say_message(
        &mut self,
        world: &mut World,
        session: usize,
        from: usize,
        message: &Message<'_>,
    ) -> Kept {
        let mut plaintext = Vec::new();
        message.encode(&mut plaintext);
        self.say(world, session, from, &plaintext)
    }

    /// An eACK of the datagrams that the attacker claims to have. See [`Claims::eack`].
    fn claim(&mut self, world: &mut World, number: usize, steps: &mut Steps<'_>) -> Kept {
        let (session, claimed, details) = (steps.byte(), steps.byte(), steps.bytes());
        let Some(held) = self.session(session) else { return Ok(()) };
        (0..claimed & 63).for_each(|back| held.claims.claim(back * (1 + (claimed >> 6))));
        let encoding = |count| match number & 1 {
            0 => Encoding::PowerSums { count },
            _ => Encoding::CodedSymbols { count },
        };
        let from = held.place;
        let Some(eack) = held.claims.eack(number, details, encoding) else { return Ok(()) };
        self.say(world, session, from, &eack)
    }

    /// An eACK that names datagrams which were never forwarded.
    fn invent(&mut self, world: &mut World, number: usize, steps: &mut Steps<'_>) -> Kept {
        let (session, count) = (steps.byte(), 1 + number * 8);
        let hashes: Vec<u64> = (0..count).map(|_| self.random()).collect();
        let Some(held) = self.session(session) else { return Ok(()) };
        hashes.into_iter().for_each(|hash| held.claims.invent(hash));
        let from = held.place;
        let eack =
            held.claims.eack(4, &[0, 0, count as u8 + 1], |count| Encoding::PowerSums { count });
        let Some(eack) = eack else { return Ok(()) };
        self.say(world, session, from, &eack)
    }

    /// An eACK that can't be decoded.
    fn fail(&mut self, world: &mut World, number: usize, steps: &mut Steps<'_>) -> Kept {
        let session = steps.byte();
        let encoding = Encoding::PowerSums { count: 2 + number as u8 * 8 };
        let mut prefix: Vec<u8> =
            (0..encoding.encoded_len()).map(|_| (self.random() >> 57) as u8).collect();
        // As many as it can decode, at most.
        prefix[..2].copy_from_slice(&(number as u16).to_be_bytes());
        let Some(held) = self.session(session) else { return Ok(()) };
        let (epoch, from) = (held.claims.epoch, held.place);
        let eack = Eack {
            epoch,
            echo: number & 1 != 0,
            newest: None,
            newest_age: Duration::ZERO,
            holes: 0,
            anchor: None,
            encoding,
            prefix: &prefix,
        };
        self.say_message(world, session, from, &Message::Eack(eack))
    }

    /// A guess of the answer to a challenge that was not seen.
    fn guess(&self, params: &GatewayParams, guess: usize) -> u64 {
        let derived = |label: &[u8]| {
            let digest = Sha256::new_with_prefix(*params.secret).chain_update(label).finalize();
            digest.iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        let last = self.challenges.back().map_or(0, |(_, data)| *data);
        match guess % 32 {
            0 => 0,
            1 => u64::MAX,
            2 => last,
            3 => last.wrapping_add(1),
            4 => params.session.get().into(),
            5 => scatter(last),
            other @ 6..=11 => derived(LABELS[other - 6].as_bytes()),
            // With a number behind the label, as eight bytes.
            other => {
                let label = LABELS[(other - 12) % 2].as_bytes();
                derived(&[label, &((other as u64 - 12) / 2).to_be_bytes()].concat())
            }
        }
    }

    /// Answers a challenge that was sent to a place, or is sent there now.
    fn answer_challenge(
        &mut self,
        world: &mut World,
        from: usize,
        session: usize,
        guess: usize,
    ) -> Kept {
        let count = self.sessions.len();
        let Some(held) = session.checked_rem(count).and_then(|at| self.sessions.get(at)) else {
            return Ok(());
        };
        let data = self.guess(&held.claims.client.gateway_params, guess);
        self.say_message(world, session, from, &Message::PathResponse { data })
    }

    /// Sends an earlier sealed datagram again.
    fn replay(&mut self, world: &mut World, from: usize, session: usize, back: usize) -> Kept {
        let Some(held) = self.session(session) else { return Ok(()) };
        let Some(sealed) = held.sealed.iter().rev().nth(back).cloned() else { return Ok(()) };
        self.send(world, from, back, &sealed)
    }

    /// A datagram of a base connection from a place: of its own, or with another's number. Or several,
    /// at places of their order that begin anywhere.
    fn speak_base(&mut self, world: &mut World, from: usize, session: usize, kind: usize) -> Kept {
        if from >= PLACES.len() {
            return self.crowd_in(world, kind);
        }
        let Some(held) = self.session(session) else { return Ok(()) };
        let (connection, is_authentic) = match kind & 7 {
            0..=3 => (held.connection, true),
            4 | 5 => ((kind & 1) as u16, false),
            _ => (PLAIN_CONNECTION, false),
        };
        let packet = Packet {
            connection,
            number: held.next_up,
            to_server: true,
            is_reachable: from < OWN,
            is_authentic,
        };
        held.next_up += 1;
        let header = if kind & 1 == 0 { 0x41 } else { 0xc1 };
        let mut datagram = packet.encode(&[&[header][..], &held.server_id].concat());
        let Some(leap) = (kind >> 3 & 15).checked_sub(1) else {
            return self.send(world, from, kind >> 7, &datagram);
        };
        held.next_place += 4u64.pow(leap as u32) - 1;
        for _ in 0..IN_A_ROW {
            let Some(held) = self.session(session) else { break };
            let params = &held.claims.client.gateway_params;
            // Each one is another datagram.
            datagram.push(held.next_place as u8);
            let identifier = params.identifier_key().identify(params.scheme, &datagram);
            let number = params.upward_number_key().header(held.next_place, identifier);
            held.next_place += 1;
            self.send(world, from, kind >> 7, &[&number[..], &datagram].concat())?;
        }
        Ok(())
    }

    /// Attacks where sessions code, where sparse flows have copies, and where clients are held out.
    fn do_more(&mut self, world: &mut World, number: usize, first: usize, second: usize) -> Kept {
        match number {
            12 => self.wish_symbols(world, first, second),
            13 => {
                let total = (second as u32).pow(4).wrapping_sub((first & 1) as u32);
                let from = self.session(first).map_or(0, |held| held.place);
                self.say_message(world, first, from, &Message::Recovered { total })
            }
            _ => self.ask_as_a_stranger(world, first % PLACES.len(), second),
        }
    }

    /// An eACK of a client that has lost its datagrams, some or all of them, after its server has
    /// sent many: so that the gateway codes for it.
    fn wish_symbols(&mut self, world: &mut World, session: usize, how: usize) -> Kept {
        let Some(held) = self.session(session) else { return Ok(()) };
        world.server.ask(held.connection, GREED[how & 3]);
        world.pass(Duration::from_millis(PATIENCE[how >> 2 & 3]))?;
        self.listen(world);
        let Some(held) = self.session(session) else { return Ok(()) };
        let keeps = 2 + (how >> 4);
        let mut missing = 0;
        for back in (0..held.received - held.decided).rev() {
            match back % keeps {
                1 => missing += 1,
                _ => held.claims.claim(back),
            }
        }
        held.decided = held.received;
        let (from, count) = (held.place, (missing + 2).min(129) as u8);
        let eack = held.claims.eack(2, &[0, 0, count], |count| Encoding::PowerSums { count });
        let Some(eack) = eack else { return Ok(()) };
        self.say(world, session, from, &eack)
    }

    /// A connection that begins in the name of a place, with a server that answers: QUIC's, or an
    /// agent of ICE's, which sends a question of the client's back. Then the datagram that would
    /// prove the place, if the server had chosen it.
    fn ask_as_a_stranger(&mut self, world: &mut World, from: usize, kind: usize) -> Kept {
        let own = self.random().to_be_bytes();
        let transaction: [u8; 12] = *[own, own].concat().first_chunk().expect("sixteen bytes");
        let known = self.session(kind >> 4).map_or_else(Vec::new, |held| held.server_id.clone());
        let (question, proof) = match kind & 3 {
            0 => (long_header(&own, &[]), [&[0x41][..], &own].concat()),
            1 => (long_header(&own, &own), [&[0x41][..], &known].concat()),
            2 => (stun_header(0x001, &transaction), stun_header(0x101, &transaction)),
            _ => (vec![0xc1], vec![0x41]),
        };
        let proofs = if kind & 4 == 0 { 0 } else { 1 + (kind as u64 >> 4 & 3) };
        for step in 0..=proofs {
            let packet = Packet {
                connection: STRANGERS_FIRST + from as u16,
                number: step + (kind as u64 >> 3 & 1),
                to_server: true,
                is_reachable: false,
                is_authentic: true,
            };
            let header = if step == 0 { &question } else { &proof };
            world.note_stranger(from);
            self.send(world, from, kind >> 7, &packet.encode(header))?;
            world.pass(Duration::from_millis(WAITS[kind >> 4 & 7]))?;
        }
        Ok(())
    }

    /// Datagrams that begin connections, from unused addresses.
    ///
    /// Only after the first clients are assured: a connection that begins while there is no room
    /// has to exchange two datagrams before as many others come as there are places.
    fn crowd_in(&mut self, world: &mut World, kind: usize) -> Kept {
        if world.elapsed() < CROWDS_AFTER {
            return Ok(());
        }
        for _ in 0..=kind & 15 {
            let from = nowhere(self.random());
            world.margins.attacks += 1;
            world.arrive(from, kind >> 7, &[0xc1; 60], false)?;
        }
        Ok(())
    }

    /// Forged datagrams of a base connection, to its client in the gateway's name.
    fn forge_base(&mut self, world: &mut World, number: usize, steps: &mut Steps<'_>) -> Kept {
        let (client, offset) = (steps.byte(), steps.byte() as u64);
        let count = world.honest.len();
        let client = client % count;
        let connection = world.honest[client].connection;
        let next = world.honest[client].delivered.last_key_value().map_or(0, |(last, _)| *last);
        for forged in 0..=number as u64 * 4 {
            let packet = Packet {
                connection: if offset & 1 == 0 { connection } else { self.random() as u16 },
                number: (next + offset * (1 + forged)).saturating_sub(64),
                to_server: false,
                is_reachable: true,
                is_authentic: false,
            };
            let mut datagram = packet.encode(&[0x41]);
            let length = datagram.len();
            datagram[length - 8..].copy_from_slice(&self.random().to_be_bytes());
            world.margins.attacks += 1;
            world.arrive_at_client(client, &datagram)?;
        }
        Ok(())
    }

    /// Forged control datagrams, to a client in the gateway's name.
    fn forge_control(&mut self, world: &mut World, number: usize, steps: &mut Steps<'_>) -> Kept {
        let (client, nonce) = (steps.byte(), steps.byte() as u64);
        let mut datagram = Vec::new();
        match number {
            0..=6 => {
                let reason = match world.conditions.holds_out && number & 1 == 1 {
                    true => RefusalReason::Holdout,
                    false => RefusalReason::Session,
                };
                let nonce = if nonce == 0 { self.random() } else { nonce << 32 | nonce };
                Control::Refusal { nonce, reason, versions: &[PROTOCOL_VERSION] }
                    .encode(&mut datagram);
            }
            7..=9 => datagram = vectors::datagram(nonce as usize),
            // A message of a session of its own, in the gateway's place.
            _ => match self.session(number) {
                Some(held) => datagram = held.claims.seal(&[6; 9]),
                None => return Ok(()),
            },
        }
        world.margins.attacks += 1;
        world.arrive_at_client(client, &datagram)
    }

    /// Moves a session to another address of its own, as a client does.
    fn move_to(&mut self, world: &mut World, to: usize, session: usize) -> Kept {
        self.challenges.clear();
        self.say_message(world, session, to, &Message::PathResponse { data: 0 })?;
        self.listen(world);
        // Two sessions at one address are each asked when the other one answers.
        for _ in 0..MOST_ANSWERS {
            let Some((at, data)) = self.challenges.pop_front() else { break };
            if at == place(to) {
                self.say_message(world, session, to, &Message::PathResponse { data })?;
                if let Some(held) = self.session(session) {
                    held.place = to;
                }
            }
        }
        Ok(())
    }

    /// Ends a session or an epoch.
    fn end(&mut self, world: &mut World, number: usize, steps: &mut Steps<'_>) -> Kept {
        let (session, from) = (steps.byte(), steps.byte());
        let reason = GoodbyeReason::Done;
        if number == 0 {
            return self.say_message(world, session, from, &Message::Goodbye { reason });
        }
        let Some(held) = self.session(session) else { return Ok(()) };
        let epoch = Epoch::new(held.claims.epoch.get().wrapping_add(number as u16));
        held.claims.enter(epoch);
        let reset = Message::Reset { epoch, reason: ResetReason::ClientOverflow };
        self.say_message(world, session, from, &reset)
    }
}
