//! Numbers in front of the datagrams towards the client (docs/PROTOCOL.md, section 11, "Numbers").
//!
//! ```text
//!   history   0  1  2  3  4  5  6  7      4 is too long, 5 has a SCONE packet: plain, without a place
//!   place     0  1  2  3  -  -  4  5
//! ```
//!
//! A number makes a datagram eight bytes longer. If a path does not carry such a length, numbered
//! datagrams are missing, and their repairs, which go plain, arrive.
//!
//! ```text
//!                    a datagram arrives
//!   unproven: 256 ---------------------------> proven: all of this length
//!      |       ^  \
//!      |       |   +-- 8 arrive after a plain repair: not this length, until the client moves
//!      v       |
//!   plain, but for one of 64
//! ```

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::config::{GatewayConfig, SenderAnswer};
use packrat_eack::Identifier;
use packrat_wire::handshake::{GatewayParams, Numbered};
use packrat_wire::number::{NUMBER_LENGTH, NumberHeader, NumberKey};
use packrat_wire::scone;

/// Bytes of the headers of IPv4 and UDP.
const IPV4_HEADER_BYTES: u16 = 20 + 8;
/// Bytes of the headers of IPv6 and UDP.
const IPV6_HEADER_BYTES: u16 = 40 + 8;
/// Changes between numbered and plain that are remembered: older datagrams are repaired plain.
const MAXIMUM_RUNS: usize = 256;
/// Datagrams longer than any that has arrived with a number, which get one nevertheless.
const UNPROVEN_DATAGRAMS: u32 = 256;
/// Number of later datagrams of unproven length of which one gets a number.
const UNPROVEN_INTERVAL: u32 = 64;
/// Datagrams that were missing with a number and arrived without it, until such lengths go plain.
const VANISHED_DATAGRAMS: u32 = 8;

/// The numbers that this gateway grants to a client at this address: not towards the client if the
/// sender is shown all losses, and not towards the server if no datagram is repaired.
pub(crate) fn granted(
    wish: Option<Numbered>,
    client: IpAddr,
    config: &GatewayConfig,
) -> Option<Numbered> {
    let to_client = config.sender != SenderAnswer::Never;
    let to_server = config.repair_budget > 0.0;
    let headers =
        if client.to_canonical().is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
    let largest = config.longest_packet.saturating_sub(headers + NUMBER_LENGTH as u16);
    wish?.within(Numbered { to_client, to_server, coded: true, largest })
}

/// Consecutive datagrams that are all numbered, or all plain.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Sequence number of the first one.
    first: u64,
    /// Place of the first one; `None`: the datagrams are plain.
    place: Option<u64>,
}

/// Datagrams longer than any that has arrived with a number, which only arrived plain.
#[derive(Debug, Clone, Copy)]
struct Vanished {
    count: u32,
    shortest: usize,
}

impl Vanished {
    const NONE: Self = Self { count: 0, shortest: usize::MAX };
}

/// Places of datagrams, and the lengths that get a number.
#[derive(Debug)]
pub(crate) struct Numbering {
    key: NumberKey,
    /// The longest base datagram that gets a number: as agreed, and now.
    agreed: usize,
    largest: usize,
    /// The longest numbered datagram that has arrived by this path.
    proven: usize,
    /// Number of longer datagrams since then.
    unproven: u32,
    vanished: Vanished,
    /// The next place.
    next: u64,
    /// Runs in order.
    runs: VecDeque<Run>,
}

impl Numbering {
    /// `None`: datagrams towards the client are not numbered.
    pub(crate) fn new(params: &GatewayParams) -> Option<Box<Self>> {
        let numbered = params.numbered.filter(|numbered| numbered.to_client)?;
        let agreed = usize::from(numbered.largest);
        Some(Box::new(Self {
            key: params.number_key(),
            agreed,
            largest: agreed,
            proven: 0,
            unproven: 0,
            vanished: Vanished::NONE,
            next: 0,
            runs: VecDeque::new(),
        }))
    }

    /// Number to put in front of a datagram that is forwarded for the first time.
    #[inline]
    pub(crate) fn number(
        &mut self,
        sequence: u64,
        identifier: Identifier,
        datagram: &[u8],
    ) -> Option<NumberHeader> {
        let length = datagram.len();
        let fits =
            length <= self.proven.min(self.largest) || length <= self.largest && self.may_try();
        // Networks on the path look for a SCONE packet at the very beginning.
        let numbered = fits && !scone::leads(datagram);
        let goes_on = self.runs.back().is_some_and(|run| run.place.is_some() == numbered);
        if !goes_on {
            self.begin_run(sequence, numbered);
        }
        if !numbered {
            return None;
        }
        let place = self.next;
        self.next += 1;
        Some(self.key.header(place, identifier))
    }

    /// True if a datagram longer than any that has arrived with a number gets one.
    fn may_try(&mut self) -> bool {
        self.unproven = self.unproven.saturating_add(1);
        self.unproven <= UNPROVEN_DATAGRAMS || self.unproven.is_multiple_of(UNPROVEN_INTERVAL)
    }

    #[cold]
    fn begin_run(&mut self, first: u64, numbered: bool) {
        self.runs.push_back(Run { first, place: numbered.then_some(self.next) });
        if self.runs.len() > MAXIMUM_RUNS {
            self.runs.pop_front();
        }
    }

    /// Number to put in front of a datagram that is sent again; `None` if it went plain before, or
    /// if it is unknown whether the path carries its length.
    pub(crate) fn again(
        &self,
        sequence: u64,
        identifier: Identifier,
        length: usize,
    ) -> Option<NumberHeader> {
        if length > self.proven.min(self.largest) {
            return None;
        }
        self.place(sequence).map(|place| self.key.header(place, identifier))
    }

    /// Number to put in front of a copy that is sent before anything is known of the original: the
    /// original's, if it had one.
    pub(crate) fn copy(&self, sequence: u64, identifier: Identifier) -> Option<NumberHeader> {
        self.place(sequence).map(|place| self.key.header(place, identifier))
    }

    fn place(&self, sequence: u64) -> Option<u64> {
        let after = self.runs.partition_point(|run| run.first <= sequence);
        let run = self.runs.get(after.checked_sub(1)?)?;
        run.place.map(|place| place + (sequence - run.first))
    }

    /// Place of the newest numbered datagram.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Sequence number of the datagram at a place, unless it is long ago.
    pub(crate) fn sequence(&self, place: u64) -> Option<u64> {
        let begins = |run: &&Run| run.place.is_some_and(|first| first <= place);
        let run = self.runs.iter().rev().find(begins)?;
        Some(run.first + (place - run.place?))
    }

    /// Records that a datagram that was sent once has arrived.
    pub(crate) fn on_arrived(&mut self, sequence: u64, length: usize) {
        if length > self.proven && self.place(sequence).is_some() {
            self.proven = length;
            self.unproven = 0;
            if length >= self.vanished.shortest {
                self.vanished = Vanished::NONE;
            }
        }
    }

    /// Records that a missing datagram has arrived after its repair.
    pub(crate) fn on_repaired(&mut self, sequence: u64, length: usize) {
        if length <= self.proven || length > self.largest || self.place(sequence).is_none() {
            return;
        }
        self.vanished.count += 1;
        self.vanished.shortest = self.vanished.shortest.min(length);
        if self.vanished.count >= VANISHED_DATAGRAMS {
            self.refuse(self.vanished.shortest);
        }
    }

    /// Makes datagrams of this length and longer go plain: the link does not carry their numbers.
    pub(crate) fn refuse(&mut self, length: usize) {
        self.largest = self.largest.min(length.saturating_sub(1));
        self.unproven = 0;
        self.vanished = Vanished::NONE;
    }

    /// Forgets the lengths of the old path when the client has moved: another path may carry more,
    /// or less.
    pub(crate) fn move_to_new_path(&mut self) {
        self.largest = self.agreed;
        self.proven = 0;
        self.unproven = 0;
        self.vanished = Vanished::NONE;
    }
}

#[cfg(test)]
mod tests {
    use packrat_eack::SketchLimits;
    use packrat_wire::SessionId;
    use packrat_wire::identifier::IdentifierScheme;
    use packrat_wire::number::split;

    use super::*;
    use crate::history::identifier;

    const DATAGRAM: [u8; 1400] = [0x40; 1400];

    fn numbering(largest: u16) -> Box<Numbering> {
        let params = GatewayParams {
            session: SessionId::new(1),
            scheme: IdentifierScheme::Trailer,
            limits: SketchLimits::LARGEST,
            cache_bytes: 0,
            secret: [7; 32].into(),
            stream: None,
            symbols: None,
            numbered: Some(Numbered { to_client: true, to_server: false, coded: true, largest }),
            hint: Default::default(),
            ticket: None,
            bundles: false,
            distinct: true,
        };
        Numbering::new(&params).unwrap()
    }

    fn place_of(numbering: &Numbering, header: NumberHeader, sequence: u64) -> u64 {
        let (number, _) = split(&header).unwrap();
        numbering.key.place(number, identifier(sequence), sequence)
    }

    #[test]
    fn plain_datagrams_take_no_place_and_repairs_the_originals() {
        let mut numbering = numbering(1000);
        numbering.proven = 1000;
        let mut headers = Vec::new();
        // The session has recorded ten datagrams before it was proven.
        for sequence in 10..40 {
            let length = if sequence % 7 < 2 { 1001 } else { 1000 };
            headers.push((
                sequence,
                numbering.number(sequence, identifier(sequence), &DATAGRAM[..length]),
            ));
        }
        let mut expected = 0;
        for (sequence, header) in headers {
            assert_eq!(header.is_none(), sequence % 7 < 2, "{sequence}");
            assert_eq!(numbering.again(sequence, identifier(sequence), 1000), header, "{sequence}");
            if let Some(header) = header {
                assert_eq!(place_of(&numbering, header, sequence), expected);
                expected += 1;
            }
        }
        assert_eq!(numbering.again(9, identifier(9), 1000), None, "before the first number");
    }

    #[test]
    fn a_path_that_does_not_carry_numbers_gets_none_of_that_length() {
        let mut numbering = numbering(1464);
        let mut numbered = Vec::new();
        for sequence in 0..400 {
            if numbering.number(sequence, identifier(sequence), &DATAGRAM[..1400]).is_some() {
                numbered.push(sequence);
            }
            assert_eq!(numbering.again(sequence, identifier(sequence), 1400), None, "unproven");
        }
        assert!(numbered.iter().copied().eq((0..256).chain([319, 383])), "{numbered:?}");
        for sequence in 0..u64::from(VANISHED_DATAGRAMS) {
            numbering.on_repaired(sequence, 1400);
        }
        assert_eq!(numbering.number(500, identifier(500), &DATAGRAM[..1400]), None);
        assert!(numbering.number(501, identifier(501), &DATAGRAM[..1399]).is_some());
        // The next path may carry them.
        numbering.move_to_new_path();
        assert!(numbering.number(502, identifier(502), &DATAGRAM[..1400]).is_some());
        numbering.on_arrived(502, 1400);
        assert!(numbering.again(502, identifier(502), 1400).is_some());
        for sequence in 503..550 {
            assert!(numbering.number(sequence, identifier(sequence), &DATAGRAM[..1400]).is_some());
            numbering.on_repaired(sequence, 1400);
        }
        assert!(
            numbering.number(550, identifier(550), &DATAGRAM[..1400]).is_some(),
            "these are only lost"
        );
        numbering.refuse(1400);
        assert_eq!(
            numbering.number(551, identifier(551), &DATAGRAM[..1400]),
            None,
            "the link says so"
        );
    }

    #[test]
    fn what_is_granted_fits_the_paths_that_most_clients_have() {
        let wish =
            Some(Numbered { to_client: true, to_server: true, coded: true, largest: u16::MAX });
        let config = GatewayConfig { longest_packet: 1500, ..GatewayConfig::default() };
        let grant = |address: &str| granted(wish, address.parse().unwrap(), &config).unwrap();
        assert_eq!((grant("192.0.2.1").largest, grant("2001:db8::1").largest), (1464, 1444));
        assert_eq!(grant("::ffff:192.0.2.1").largest, 1464);
        let ways = |config: &GatewayConfig| {
            granted(wish, [192, 0, 2, 1].into(), config).map(|it| (it.to_client, it.to_server))
        };
        assert_eq!(ways(&config), Some((true, true)));
        assert_eq!(granted(None, [192, 0, 2, 1].into(), &config), None);
        let never = GatewayConfig { sender: SenderAnswer::Never, ..config };
        assert_eq!(ways(&never), Some((false, true)), "nothing is hidden from the server");
        let unrepaired = GatewayConfig { repair_budget: 0.0, ..config };
        assert_eq!(ways(&unrepaired), Some((true, false)));
    }
}
