//! A receiver of a stream with many.

use super::latencies::Latencies;
use super::trial::{MulticastArm, MulticastTrial};
use crate::simulation::randomness::bytes;
use packrat_client::{Assist, ClientConfig, Datagram, Live, PacketNumber};
use packrat_emulation::path::{LinkConfig, LossProcess};
use packrat_media::{Receiver, ReceiverConfig};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;
use rand_chacha::ChaCha8Rng;
use std::net::SocketAddr;
use std::time::Duration;

/// Address of the first receiver, 10.0.0.1; the others follow.
const FIRST_MEMBER: u32 = 0x0a00_0001;
/// Time within which receivers begin to look for the gateway.
const JOINING_TIME: Duration = Duration::from_secs(1);

/// A receiver.
pub(super) struct Member {
    pub(super) address: SocketAddr,
    /// Time at which the receiver begins: receivers do not begin in the same millisecond.
    pub(super) begins: Timestamp,
    /// Packets that it has.
    pub(super) has: Vec<bool>,
    pub(super) assist: Option<Assist>,
    pub(super) receiver: Receiver,
    pub(super) down: LossProcess,
    pub(super) up: LossProcess,
    pub(super) asked: Vec<u64>,
}

/// A message of a receiver.
pub(super) enum Upward {
    Control(Vec<u8>),
    Request(Vec<u64>),
}

impl Member {
    /// The receiver with this index.
    pub(super) fn new(trial: &MulticastTrial, index: usize, random: &mut ChaCha8Rng) -> Self {
        let links = trial.scenario.constant_links(trial.seed);
        // Losses of their own for each, and the same ones in every arm.
        let process = |link: LinkConfig, direction: u64| {
            LossProcess::new(
                link.loss,
                trial.seed.wrapping_mul(1_000_003) + index as u64 * 2 + direction,
            )
        };
        let config =
            ReceiverConfig { latency: Duration::from_millis(400), ..ReceiverConfig::default() };
        let live = Live {
            selective: true,
            subscribe: true,
            window: config.latency,
            tolerance: Duration::ZERO,
            symbols: trial.arm == MulticastArm::PackratSymbols,
        };
        let client = ClientConfig::default().with_live(live).with_scheme(IdentifierScheme::Payload);
        let seed = bytes(random);
        let assisted = trial.arm != MulticastArm::EndToEnd;
        let address = std::net::Ipv4Addr::from(FIRST_MEMBER + index as u32);
        Self {
            address: (address, 10_000).into(),
            begins: Timestamp::ZERO + JOINING_TIME * index as u32 / trial.receivers.max(1) as u32,
            has: Vec::new(),
            assist: assisted.then(|| Assist::new(client, seed, Timestamp::ZERO)),
            receiver: Receiver::new(config),
            down: process(links.last_mile_down, 0),
            up: process(links.last_mile_up, 1),
            asked: Vec::new(),
        }
    }

    /// Processes a packet that the gateway forwarded at this millisecond.
    pub(super) fn gets(
        &mut self,
        number: u64,
        forwarded: u64,
        now: Timestamp,
        latencies: &mut Latencies,
    ) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if self.has.len() <= at {
            self.has.resize(at + 1, false);
        }
        if !core::mem::replace(&mut self.has[at], true) {
            latencies.add((now.as_micros() / 1000).saturating_sub(forwarded));
        }
    }

    /// Processes a datagram.
    pub(super) fn receive(&mut self, datagram: &[u8], now: Timestamp, latencies: &mut Latencies) {
        let is_control = self
            .assist
            .as_mut()
            .is_some_and(|assist| assist.on_datagram(datagram, now) == Datagram::Control);
        if !is_control {
            self.take(datagram, now, latencies);
        }
        while let Some(datagram) = self.assist.as_mut().and_then(Assist::poll_recovered) {
            if let Some(assist) = &mut self.assist {
                assist.on_datagram(&datagram, now);
            }
            self.take(&datagram, now, latencies);
        }
    }

    fn take(&mut self, datagram: &[u8], now: Timestamp, latencies: &mut Latencies) {
        let Some((_, rest)) = datagram.split_first() else { return };
        let (Some(number), Some(sent)) = (word(rest, 0), word(rest, 8)) else { return };
        self.receiver.on_packet(number, sent, &[], None, now);
        self.gets(number, sent / 1000, now, latencies);
        let first = self.receiver.first().unwrap_or(number);
        if let (Some(assist), Some(index)) = (&mut self.assist, number.checked_sub(first)) {
            assist.on_packet_number(PacketNumber::new(index), now);
        }
    }

    /// A millisecond has passed.
    pub(super) fn step(&mut self, now: Timestamp, mut send: impl FnMut(Upward)) {
        if now < self.begins {
            return;
        }
        while self.receiver.poll_unit(now).is_some() {}
        let first = self.receiver.first().unwrap_or_default();
        if let Some(assist) = &mut self.assist {
            assist.handle_timeout(now);
            while let Some(datagram) = assist.poll_transmit(now) {
                if !self.up.next_is_lost() {
                    send(Upward::Control(datagram));
                }
            }
        }
        let assist = &self.assist;
        let awaited = |number: u64| {
            let number = PacketNumber::new(number.wrapping_sub(first));
            assist.as_ref().is_some_and(|assist| assist.is_awaited(number))
        };
        self.receiver.poll_asked(now, awaited, &mut self.asked);
        if !self.asked.is_empty() && !self.up.next_is_lost() {
            send(Upward::Request(self.asked.clone()));
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
