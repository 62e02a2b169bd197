//! Assistance for an unmodified RTP stack, such as a WebRTC peer: sits between its socket and the
//! stack.
//!
//! A stack asks its sender for missing packets (generic NACK, RFC 4585 section 6.2.1); the request
//! is encrypted, so that it cannot be taken back. With this assistance, a packet is missing only
//! after the gateway had its chance: packets above a hole wait until the hole is filled, or until
//! the hold is over. The numbers that reveal a hole are in the clear in SRTP (RFC 3711 section
//! 3.1). STUN, DTLS and RTCP carry no such number and pass at once; the gateway also repairs them.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_client::{
    Access, AssistStats, ClientConfig, Input, Live, Order, PacketNumber, Shim, Verdict,
};
use packrat_wire::estimate::Timestamp;

use crate::credibility::{Belief, Credibility};
use crate::rtp::{RtpHeader, header_extension};

/// The numbers that show that a packet is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketNumbers {
    /// Numbers of transport-wide congestion control, which count all packets of a WebRTC session,
    /// across streams: an extension of the RTP header. The session description names it;
    /// [`crate::rtp::transport_wide_extension`] finds it there.
    TransportWide {
        /// The negotiated number of the extension.
        extension: u8,
    },
    /// RTP's own, for a session of one stream. Packets of others pass at once.
    Stream,
}

/// An application's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpAssistConfig {
    /// The numbers that show that a packet is missing.
    pub numbers: PacketNumbers,
    /// The lateness up to which a packet is of use: the receiver's jitter buffer. Packets wait for
    /// a repair no longer than this.
    pub latency: Duration,
    /// The streams (SSRC) of the session, if its signalling names them. Otherwise the first stream
    /// that sends packets in sequence is followed, until it is silent; an attacker who has guessed
    /// the addresses may be earlier, and prevent the assistance of the session.
    pub sources: Vec<u32>,
    /// The gateway's key, the token, the longest hold.
    pub access: Access,
}

impl RtpAssistConfig {
    /// A configuration for a jitter buffer of 200 ms.
    pub fn new(numbers: PacketNumbers) -> Self {
        Self {
            numbers,
            latency: Duration::from_millis(200),
            sources: Vec::new(),
            access: Access::default(),
        }
    }
}

/// A stack's helper, sans-IO: datagrams of the socket in, datagrams for the stack out.
///
/// After every call, poll [`Self::poll_deliver`] and [`Self::poll_transmit`] until they are empty,
/// and call [`Self::handle_timeout`] at [`Self::next_timeout`]. The stack's own datagrams go to the
/// socket unchanged.
///
/// ```
/// use packrat_media::{PacketNumbers, RtpAssist, RtpAssistConfig, Timestamp};
///
/// // An application takes the seed from the operating system.
/// let (now, seed) = (Timestamp::from_millis(1000), [1; 32]);
/// let config = RtpAssistConfig::new(PacketNumbers::TransportWide { extension: 3 });
/// let mut helper = RtpAssist::new(config, seed, now);
/// assert!(helper.poll_transmit(now).is_some(), "a question for a gateway");
///
/// // Without a gateway everything passes at once.
/// helper.on_datagram(b"a datagram from the peer", now);
/// assert_eq!(helper.poll_deliver(), Some(b"a datagram from the peer".to_vec()));
/// ```
#[derive(Debug)]
pub struct RtpAssist {
    numbers: PacketNumbers,
    shim: Shim<()>,
    credibility: Credibility,
    /// Datagrams for the stack that did not wait.
    passed: VecDeque<Vec<u8>>,
}

impl RtpAssist {
    /// Creates the assistance of a session. `seed`: 32 fresh random bytes from the operating
    /// system. The first [`Self::poll_transmit`] asks for a gateway.
    pub fn new(config: RtpAssistConfig, seed: [u8; 32], now: Timestamp) -> Self {
        let live = Live {
            selective: true,
            subscribe: false,
            window: config.latency,
            tolerance: config.latency,
            symbols: false,
        };
        let hold = config.access.maximum_hold.min(config.latency);
        let client = ClientConfig::from(config.access.with_maximum_hold(hold)).with_live(live);
        Self {
            numbers: config.numbers,
            shim: Shim::with_own_numbers(client, seed, now),
            credibility: Credibility::new(
                config.sources,
                config.numbers == PacketNumbers::Stream,
                now,
            ),
            passed: VecDeque::new(),
        }
    }

    /// A datagram arrived from the peer.
    pub fn on_datagram(&mut self, datagram: &[u8], now: Timestamp) {
        let was_in_doubt = self.credibility.is_in_doubt();
        if self.credibility.ends_doubt(now) {
            // Packets that have passed in the doubt are in no set.
            self.shim.handle(Input::DatagramsDropped, now);
        }
        let Self { numbers, shim, credibility, passed } = self;
        let verdict = shim.on_ordered(datagram, (), now, |datagram| {
            match credibility.judge(datagram, packet(*numbers, datagram), now) {
                Belief::Numbered(number) => Order::Number(PacketNumber::new(number)),
                Belief::Recorded => Order::Unnumbered,
                Belief::Ignored => Order::Unproven,
            }
        });
        if let Verdict::Now { .. } = verdict {
            passed.push_back(datagram.to_vec());
        }
        if self.credibility.is_in_doubt() && !was_in_doubt {
            self.shim.handle(Input::Crowded { most: 0 }, now);
        }
        self.pass_released();
    }

    fn pass_released(&mut self) {
        let released = std::iter::from_fn(|| self.shim.poll_deliver());
        self.passed.extend(released.map(|released| released.datagram));
    }

    /// The next datagram for the stack.
    pub fn poll_deliver(&mut self) -> Option<Vec<u8>> {
        self.passed.pop_front()
    }

    /// The next datagram to send to the source of the packets, from the stack's own socket.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.shim.poll_transmit(now)
    }

    /// The time at which to call [`Self::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.shim.next_timeout()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.shim.handle(Input::Timeout, now);
        self.pass_released();
    }

    /// Ends the session: [`Self::poll_transmit`] then returns a last message for the gateway, and
    /// no datagram waits any more.
    pub fn close(&mut self, now: Timestamp) {
        self.shim.handle(Input::Close, now);
        self.pass_released();
    }

    /// Counters of the assistance.
    pub fn assistance(&self) -> AssistStats {
        self.shim.assistance()
    }

    /// Packets that have waited above a hole.
    pub fn waited(&self) -> u64 {
        self.shim.stats().kept
    }
}

/// The header of an RTP packet and the number that shows holes.
fn packet(numbers: PacketNumbers, datagram: &[u8]) -> Option<(RtpHeader, u16)> {
    let header = RtpHeader::decode(datagram)?;
    let sequence = match numbers {
        PacketNumbers::TransportWide { extension } => {
            let value = header_extension(datagram, extension)?;
            u16::from_be_bytes(*value.first_chunk()?)
        }
        PacketNumbers::Stream => header.sequence,
    };
    Some((header, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXTENSION: u8 = 3;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1000 + millis)
    }

    fn packet(number: u16) -> Vec<u8> {
        let mut bytes =
            vec![0x90, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xbe, 0xde, 0, 1, (EXTENSION << 4) | 1];
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&[0, 7, 7, 7]);
        bytes
    }

    fn helper() -> RtpAssist {
        let numbers = PacketNumbers::TransportWide { extension: EXTENSION };
        RtpAssist::new(RtpAssistConfig::new(numbers), [1; 32], at(0))
    }

    fn deliver(helper: &mut RtpAssist, datagram: &[u8], now: Timestamp) -> Vec<Vec<u8>> {
        helper.on_datagram(datagram, now);
        std::iter::from_fn(|| helper.poll_deliver()).collect()
    }

    #[test]
    fn without_a_gateway_nothing_waits() {
        let mut helper = helper();
        for number in [65_530, 65_531, 65_533, 2, 65_534] {
            assert_eq!(deliver(&mut helper, &packet(number), at(5)), [packet(number)]);
        }
        assert_eq!(helper.waited(), 0);
    }

    proptest! {
        /// Every arriving datagram comes out again, in some order, and once, without a panic.
        #[test]
        fn everything_comes_out(datagrams in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..60),
                any::<u16>().prop_map(packet),
                (0u16..40).prop_map(packet),
                proptest::collection::vec(any::<u8>(), 0..40).prop_map(|tail| [&packet(7)[..12], &tail].concat()),
            ], 0..60))
        {
            let mut helper = helper();
            let mut out = Vec::new();
            let mut expected: Vec<Vec<u8>> = Vec::new();
            for datagram in datagrams {
                if !packrat_wire::is_control(&datagram) {
                    expected.push(datagram.clone());
                }
                out.extend(deliver(&mut helper, &datagram, at(5)));
            }
            helper.close(at(6));
            out.extend(std::iter::from_fn(|| helper.poll_deliver()));
            out.sort();
            expected.sort();
            prop_assert_eq!(out, expected);
        }
    }
}
