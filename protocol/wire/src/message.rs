//! The messages inside sealed datagrams.
//!
//! Types are a registry; unknown ones are ignored after authentication, so that later messages do
//! not break this version.

use core::time::Duration;

use packrat_code::{Half, Repair, Window};
use packrat_eack::{Encoding, Identifier};

use crate::codec::{DecodeError, Reader, Write};
use crate::group::GroupCoded;
use crate::{Epoch, MessageCounter};

/// Message type of an eACK.
const EACK_TYPE: u8 = 1;
/// Message type of a Report.
const REPORT_TYPE: u8 = 2;
/// Message type of a Reset.
const RESET_TYPE: u8 = 3;
/// Message type of a Goodbye.
const GOODBYE_TYPE: u8 = 4;
/// Message type of a path challenge.
const PATH_CHALLENGE_TYPE: u8 = 5;
/// Message type of a path response.
const PATH_RESPONSE_TYPE: u8 = 6;
/// Message type of a Baseline.
const BASELINE_TYPE: u8 = 7;
/// Message type of a coded symbol.
const CODED_TYPE: u8 = 8;
/// Message type of a report of recovered datagrams.
const RECOVERED_TYPE: u8 = 9;
/// Message type of a gateway's report of holes.
const HOLES_TYPE: u8 = 10;
/// Message type of a coded symbol of a group.
const GROUP_CODED_TYPE: u8 = 11;

/// Flag of an eACK with an echo.
const FLAG_ECHO: u8 = 1;
/// Flag of an eACK with an anchor.
const FLAG_ANCHOR: u8 = 2;
/// Flag of an eACK with the newest datagram.
const FLAG_NEWEST: u8 = 4;
/// All flags of an eACK.
const FLAGS_EACK: u8 = FLAG_ECHO | FLAG_ANCHOR | FLAG_NEWEST;

/// Flag of a symbol of the second half.
const FLAG_SECOND_HALF: u8 = 1;

/// Flag of [`Holes::wanted`].
const FLAG_WANTED: u8 = 1;

/// Most runs of places in one [`Holes`].
pub const MAXIMUM_RUNS: usize = 64;
/// Bytes of a run.
const RUN_LENGTH: usize = 4;

/// Unit of the ages on the wire: 16 µs in 16 bits reach 1.05 s.
const AGE_UNIT_MICROS: u64 = 16;

/// The longest age on the wire. It stands for every longer one, so that no round trip follows from
/// it.
pub const SATURATED_AGE: Duration = Duration::from_micros(u16::MAX as u64 * AGE_UNIT_MICROS);

/// Encrypted acknowledgement: the datagrams that the client has, as a sketch of their identifiers
/// (Packrat26, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eack<'a> {
    /// The epoch that the sketch belongs to.
    pub epoch: Epoch,
    /// True if the gateway should answer with a [`Report`].
    pub echo: bool,
    /// The newest datagram that the client has, in the sender's order as far as the transport
    /// reveals it.
    pub newest: Option<Identifier>,
    /// The time since its arrival; saturates at 1.05 s.
    pub newest_age: Duration,
    /// Holes that the client knows of; saturates at 255.
    pub holes: u8,
    /// The datagram after which the client's set begins. Sent until the gateway has confirmed the
    /// epoch.
    pub anchor: Option<Identifier>,
    /// The encoding of `prefix`.
    pub encoding: Encoding,
    /// The sketch.
    pub prefix: &'a [u8],
}

/// The gateway's answer to the client's eACKs. Sent when asked (echo), when an eACK could not be
/// decoded, when a hole can't be repaired, and when a queue begins or ceases to stand on the last
/// mile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The epoch that the gateway is in.
    pub epoch: Epoch,
    /// Counter of the newest eACK that was processed.
    pub echo: MessageCounter,
    /// The time since its receipt; saturates at 1.05 s.
    pub echo_age: Duration,
    /// Datagrams that are missing by that eACK and still being repaired.
    pub missing: u16,
    /// A datagram that the client has; earlier ones are not being repaired any more. A hole below
    /// it is the sender's own, was lost before the gateway, or cannot be repaired.
    pub settled: Option<Identifier>,
    /// The eACK could not be decoded: please send this longer prefix at once.
    pub wanted: Option<Encoding>,
    /// Smoothed last-mile round trip as the gateway measures it; zero: unknown.
    pub round_trip: Duration,
    /// Last-mile loss in 1/65536.
    pub loss: u16,
    /// Shortest wait of datagrams in the standing queue of the last mile; zero: no queue stands.
    /// Saturates at 1.05 s.
    pub queueing: Duration,
    /// Totals of the session.
    pub totals: Totals,
}

/// Totals of a session at the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Datagrams repaired (re-sent at least once).
    pub repaired: u32,
    /// Transmissions of repairs, copies and repetitions included.
    pub repair_transmissions: u32,
    /// Missing datagrams that could not be repaired: evicted, late, over budget.
    pub unrepairable: u32,
    /// eACKs that could not be decoded.
    pub decode_failures: u32,
    /// Resets by either side.
    pub resets: u32,
    /// Most bytes that were ever cached for this session.
    pub cache_high_water: u32,
}

/// The reason for the end of an epoch; a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum ResetReason {
    /// No reason, or one that this crate does not know.
    Unspecified = 0,
    /// Not even the longest prefix could be decoded.
    DecodeFailed = 1,
    /// The gateway lost its state (restart, memory pressure).
    StateLost = 2,
    /// The client could not keep up (its own record overflowed).
    ClientOverflow = 3,
}

impl ResetReason {
    /// The name of the reason in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::DecodeFailed => "decode_failed",
            Self::StateLost => "state_lost",
            Self::ClientOverflow => "client_overflow",
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::DecodeFailed,
            2 => Self::StateLost,
            3 => Self::ClientOverflow,
            _ => Self::Unspecified,
        }
    }
}

/// The reason for the end of a session; a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GoodbyeReason {
    /// No reason, or one that this crate does not know.
    Unspecified = 0,
    /// The base connection ended.
    Done = 1,
    /// No datagram passed for the idle time.
    Idle = 2,
    /// The gateway is being drained.
    Draining = 3,
}

impl GoodbyeReason {
    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Done,
            2 => Self::Idle,
            3 => Self::Draining,
            _ => Self::Unspecified,
        }
    }
}

/// A repair symbol, which stands for any lost datagram of its window (section "Coded repair").
///
/// It names the window by the lower half of its first place: [`Coded::repair`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coded<'a> {
    /// The half of the datagrams that it covers.
    pub half: Half,
    /// The lower 32 bits of the window's first place.
    pub first: u32,
    /// Number of places; not zero.
    pub count: u8,
    /// Distance of the places; not zero.
    pub step: u8,
    /// Gives the coefficients.
    pub seed: u16,
    /// As long as the longest half of the window; not empty.
    pub symbol: &'a [u8],
}

impl<'a> Coded<'a> {
    /// The message of a repair symbol.
    pub fn new(repair: &Repair<'a>) -> Self {
        let Repair { window, half, seed, symbol } = *repair;
        let (count, step) = (window.count(), window.step());
        Self { half, first: window.first() as u32, count, step, seed, symbol }
    }

    /// The repair symbol, at a receiver that expects places next to `expected`. `None` if the
    /// window would reach beyond the last place.
    pub fn repair(&self, expected: u64) -> Option<Repair<'a>> {
        let Self { half, first, count, step, seed, symbol } = *self;
        let window = Window::received(first, count, step, expected)?;
        Some(Repair { window, half, seed, symbol })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(CODED_TYPE);
        out.put_u8(match self.half {
            Half::First => 0,
            Half::Second => FLAG_SECOND_HALF,
        });
        out.put_u32(self.first);
        out.put_u8(self.count);
        out.put_u8(self.step);
        out.put_u16(self.seed);
        out.extend_from_slice(self.symbol);
    }

    fn decode(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let half = match reader.u8()? {
            0 => Half::First,
            FLAG_SECOND_HALF => Half::Second,
            _ => return Err(DecodeError::Field("flags")),
        };
        let (first, count, step) = (reader.u32()?, reader.u8()?, reader.u8()?);
        if count == 0 || step == 0 {
            return Err(DecodeError::Field("window"));
        }
        let (seed, symbol) = (reader.u16()?, reader.rest());
        if symbol.is_empty() || symbol.len() > half.longest() {
            return Err(DecodeError::Field("symbol length"));
        }
        Ok(Self { half, first, count, step, seed, symbol })
    }
}

/// The gateway's account of the numbered datagrams towards the server (section "Uploads"): every
/// place below `expected` that is in no run has arrived, or is not waited for any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holes<'a> {
    /// True if the client is to send the missing datagrams again; otherwise its transport is to see
    /// their loss.
    pub wanted: bool,
    /// The lower 32 bits of the place behind the highest that has arrived.
    pub expected: u32,
    /// The time since that one arrived; saturates at 1.05 s.
    pub age: Duration,
    /// The empty places below it, newest run first, four bytes each: [`Self::runs`].
    runs: &'a [u8],
}

/// Consecutive places whose datagrams are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The lowest of them; of a message that was received, its lower 32 bits.
    pub first: u64,
    /// Length of the run; not zero.
    pub count: u16,
}

impl<'a> Holes<'a> {
    /// Creates the message that names `missing`, the newest run first, in a buffer of the caller's.
    /// If a message has no room for all runs, or they are too far apart, it is about the oldest
    /// ones and the places below their end.
    pub fn new(
        wanted: bool,
        expected: u64,
        age: Duration,
        missing: &[Run],
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        let end = |run: &Run| run.first + u64::from(run.count);
        let is_far = |above: u64, run: &Run| above - end(run).min(above) > u64::from(u16::MAX);
        let mut begin = missing.len().saturating_sub(MAXIMUM_RUNS);
        let pairs = (begin + 1..missing.len()).rev();
        if let Some(far) = pairs.into_iter().find(|&at| is_far(missing[at - 1].first, &missing[at]))
        {
            begin = far;
        }
        let missing = &missing[begin..];
        let is_cut = begin > 0 || missing.first().is_some_and(|run| is_far(expected, run));
        let expected = if is_cut { missing.first().map_or(expected, end) } else { expected };
        buffer.clear();
        let mut above = expected;
        for run in missing {
            buffer.put_u16(u16::try_from(above.saturating_sub(end(run))).unwrap_or(u16::MAX));
            buffer.put_u16(run.count);
            above = run.first;
        }
        let age = if is_cut { SATURATED_AGE } else { age };
        Self { wanted, expected: expected as u32, age, runs: buffer }
    }

    /// The runs of missing places, newest first, by their lower 32 bits.
    pub fn runs(&self) -> impl Iterator<Item = Run> + 'a {
        let mut above = self.expected;
        self.runs.chunks_exact(RUN_LENGTH).map(move |run| {
            let word = |at: usize| u16::from_be_bytes([run[at], run[at + 1]]);
            let (distance, count) = (word(0), word(2));
            above = above.wrapping_sub(u32::from(distance)).wrapping_sub(u32::from(count));
            Run { first: u64::from(above), count }
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(HOLES_TYPE);
        out.put_u8(if self.wanted { FLAG_WANTED } else { 0 });
        out.put_u32(self.expected);
        out.put_u16(age_to_wire(self.age));
        out.extend_from_slice(self.runs);
    }

    fn decode(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let wanted = match reader.u8()? {
            0 => false,
            FLAG_WANTED => true,
            _ => return Err(DecodeError::Field("flags")),
        };
        let (expected, age) = (reader.u32()?, age_from_wire(reader.u16()?));
        let runs = reader.rest();
        let is_whole = runs.len().is_multiple_of(RUN_LENGTH);
        if !is_whole || runs.len() > MAXIMUM_RUNS * RUN_LENGTH {
            return Err(DecodeError::Field("runs"));
        }
        if runs.chunks_exact(RUN_LENGTH).any(|run| run[2..] == [0, 0]) {
            return Err(DecodeError::Field("run length"));
        }
        Ok(Self { wanted, expected, age, runs })
    }
}

/// A message inside a sealed datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message<'a> {
    /// Client to gateway.
    Eack(Eack<'a>),
    /// Gateway to client.
    Report(Report),
    /// Either way: a new epoch begins with empty sets. Repeated until messages of the new epoch
    /// arrive.
    Reset {
        /// The epoch that begins.
        epoch: Epoch,
        /// The reason for the end of the old one.
        reason: ResetReason,
    },
    /// Either way: everything about the session may be forgotten.
    Goodbye {
        /// The reason.
        reason: GoodbyeReason,
    },
    /// Gateway to a subscriber of a stream: a new epoch begins with this set added to the client's.
    /// It holds the datagrams that the client will never get, so that the gateway need not keep it
    /// apart. Repeated until eACKs of the new epoch arrive.
    Baseline {
        /// The epoch that begins.
        epoch: Epoch,
        /// The encoding of `set`: power sums, as many as were agreed.
        encoding: Encoding,
        /// The set, as a prefix that is as long as the sketch.
        set: &'a [u8],
    },
    /// Gateway to client: a repair that was not asked for. Sent to clients that have agreed on it.
    Coded(Coded<'a>),
    /// Client to gateway: the datagrams recovered from [`Message::Coded`], which no eACK shows.
    Recovered {
        /// Datagrams recovered in this session, modulo 2^32.
        total: u32,
    },
    /// Gateway to client: the missing ones among the numbered datagrams towards the server. Sent to
    /// clients that number datagrams.
    Holes(Holes<'a>),
    /// Gateway to all subscribers of a stream at once: a repair that serves each of them. Sealed with
    /// the key of the stream's symbols, never with a session's.
    GroupCoded(GroupCoded<'a>),
    /// Gateway to an address from which a message of the session came: are you there? (As RFC 9000
    /// section 8.2.)
    PathChallenge {
        /// Unpredictable.
        data: u64,
    },
    /// Client, from the address that was asked: yes.
    PathResponse {
        /// The challenge's.
        data: u64,
    },
}

impl<'a> Message<'a> {
    /// Parses the plaintext of a sealed datagram.
    ///
    /// # Errors
    /// The plaintext is no valid message.
    pub fn decode(plaintext: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(plaintext);
        match reader.u8()? {
            EACK_TYPE => Eack::decode(reader).map(Self::Eack),
            REPORT_TYPE => Report::decode(reader).map(Self::Report),
            RESET_TYPE => {
                let (epoch, reason) =
                    (Epoch::new(reader.u16()?), ResetReason::from_byte(reader.u8()?));
                reader.finish()?;
                Ok(Self::Reset { epoch, reason })
            }
            GOODBYE_TYPE => {
                let reason = GoodbyeReason::from_byte(reader.u8()?);
                reader.finish()?;
                Ok(Self::Goodbye { reason })
            }
            BASELINE_TYPE => {
                let epoch = Epoch::new(reader.u16()?);
                let encoding = get_encoding(&mut reader)?.ok_or(DecodeError::Field("encoding"))?;
                let set = reader.rest();
                if set.len() != encoding.encoded_len() {
                    return Err(DecodeError::Field("set length"));
                }
                Ok(Self::Baseline { epoch, encoding, set })
            }
            CODED_TYPE => Coded::decode(reader).map(Self::Coded),
            RECOVERED_TYPE => {
                let total = reader.u32()?;
                reader.finish()?;
                Ok(Self::Recovered { total })
            }
            HOLES_TYPE => Holes::decode(reader).map(Self::Holes),
            GROUP_CODED_TYPE => GroupCoded::decode(reader).map(Self::GroupCoded),
            PATH_CHALLENGE_TYPE => {
                let data = reader.u64()?;
                reader.finish()?;
                Ok(Self::PathChallenge { data })
            }
            PATH_RESPONSE_TYPE => {
                let data = reader.u64()?;
                reader.finish()?;
                Ok(Self::PathResponse { data })
            }
            other => Err(DecodeError::MessageType(other)),
        }
    }

    /// Appends the plaintext to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Eack(eack) => eack.encode(out),
            Self::Report(report) => report.encode(out),
            Self::Reset { epoch, reason } => {
                out.put_u8(RESET_TYPE);
                out.put_u16(epoch.get());
                out.put_u8(*reason as u8);
            }
            Self::Goodbye { reason } => {
                out.put_u8(GOODBYE_TYPE);
                out.put_u8(*reason as u8);
            }
            Self::Baseline { epoch, encoding, set } => {
                out.put_u8(BASELINE_TYPE);
                out.put_u16(epoch.get());
                put_encoding(out, Some(*encoding));
                out.extend_from_slice(set);
            }
            Self::Coded(coded) => coded.encode(out),
            Self::Recovered { total } => {
                out.put_u8(RECOVERED_TYPE);
                out.put_u32(*total);
            }
            Self::Holes(holes) => holes.encode(out),
            Self::GroupCoded(coded) => {
                out.put_u8(GROUP_CODED_TYPE);
                coded.encode(out);
            }
            Self::PathChallenge { data } => {
                out.put_u8(PATH_CHALLENGE_TYPE);
                out.put_u64(*data);
            }
            Self::PathResponse { data } => {
                out.put_u8(PATH_RESPONSE_TYPE);
                out.put_u64(*data);
            }
        }
    }
}

impl<'a> Eack<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out.put_u8(EACK_TYPE);
        out.put_u16(self.epoch.get());
        out.put_u8(
            flag(self.echo, FLAG_ECHO)
                | flag(self.anchor.is_some(), FLAG_ANCHOR)
                | flag(self.newest.is_some(), FLAG_NEWEST),
        );
        out.put_u8(self.holes);
        if let Some(newest) = self.newest {
            out.put_u32(newest.get());
            out.put_u16(age_to_wire(self.newest_age));
        }
        if let Some(anchor) = self.anchor {
            out.put_u32(anchor.get());
        }
        put_encoding(out, Some(self.encoding));
        out.extend_from_slice(self.prefix);
    }

    fn decode(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let epoch = Epoch::new(reader.u16()?);
        let flags = reader.u8()?;
        if flags & !FLAGS_EACK != 0 {
            return Err(DecodeError::Field("flags"));
        }
        let holes = reader.u8()?;
        let (mut newest, mut newest_age, mut anchor) = (None, Duration::ZERO, None);
        if flags & FLAG_NEWEST != 0 {
            newest = Some(identifier(&mut reader)?);
            newest_age = age_from_wire(reader.u16()?);
        }
        if flags & FLAG_ANCHOR != 0 {
            anchor = Some(identifier(&mut reader)?);
        }
        let encoding = get_encoding(&mut reader)?.ok_or(DecodeError::Field("encoding"))?;
        let prefix = reader.rest();
        if prefix.len() != encoding.encoded_len() {
            return Err(DecodeError::Field("prefix length"));
        }
        Ok(Self {
            epoch,
            echo: flags & FLAG_ECHO != 0,
            newest,
            newest_age,
            holes,
            anchor,
            encoding,
            prefix,
        })
    }
}

impl Report {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(REPORT_TYPE);
        out.put_u16(self.epoch.get());
        out.put_u32(self.echo.get());
        out.put_u16(age_to_wire(self.echo_age));
        out.put_u16(self.missing);
        // Zero is no identifier.
        out.put_u32(self.settled.map_or(0, Identifier::get));
        put_encoding(out, self.wanted);
        out.put_u32(u32::try_from(self.round_trip.as_micros()).unwrap_or(u32::MAX));
        out.put_u16(self.loss);
        out.put_u16(age_to_wire(self.queueing));
        for total in [
            self.totals.repaired,
            self.totals.repair_transmissions,
            self.totals.unrepairable,
            self.totals.decode_failures,
            self.totals.resets,
            self.totals.cache_high_water,
        ] {
            out.put_u32(total);
        }
    }

    fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let report = Self {
            epoch: Epoch::new(reader.u16()?),
            echo: MessageCounter::new(reader.u32()?),
            echo_age: age_from_wire(reader.u16()?),
            missing: reader.u16()?,
            settled: match reader.u32()? {
                0 => None,
                value => Some(Identifier::new(value).ok_or(DecodeError::Field("identifier"))?),
            },
            wanted: get_encoding(&mut reader)?,
            round_trip: Duration::from_micros(u64::from(reader.u32()?)),
            loss: reader.u16()?,
            queueing: age_from_wire(reader.u16()?),
            totals: Totals {
                repaired: reader.u32()?,
                repair_transmissions: reader.u32()?,
                unrepairable: reader.u32()?,
                decode_failures: reader.u32()?,
                resets: reader.u32()?,
                cache_high_water: reader.u32()?,
            },
        };
        reader.finish()?;
        Ok(report)
    }
}

fn identifier(reader: &mut Reader<'_>) -> Result<Identifier, DecodeError> {
    Identifier::new(reader.u32()?).ok_or(DecodeError::Field("identifier"))
}

/// Form and count; zeros mean no encoding.
fn put_encoding(out: &mut Vec<u8>, encoding: Option<Encoding>) {
    out.extend_from_slice(&encoding.map_or([0, 0], Encoding::to_wire));
}

fn get_encoding(reader: &mut Reader<'_>) -> Result<Option<Encoding>, DecodeError> {
    match reader.array()? {
        [0, 0] => Ok(None),
        bytes => Encoding::from_wire(bytes).map(Some).ok_or(DecodeError::Field("encoding")),
    }
}

fn age_to_wire(age: Duration) -> u16 {
    u16::try_from(age.as_micros() / u128::from(AGE_UNIT_MICROS)).unwrap_or(u16::MAX)
}

fn age_from_wire(age: u16) -> Duration {
    Duration::from_micros(u64::from(age) * AGE_UNIT_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(message: Message<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(Message::decode(&bytes), Ok(message));
        for length in 0..bytes.len() {
            assert!(
                Message::decode(&bytes[..length]).is_err(),
                "a message cut to {length} bytes was accepted"
            );
        }
        bytes.push(0);
        assert!(Message::decode(&bytes).is_err(), "a message with a byte too many was accepted");
        bytes.pop();
        bytes
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::decode(&bytes);
        }

        #[test]
        fn messages_round_trip(epoch: u16, echo: bool, count: u32, newest in proptest::option::of(1u32..1000), age in 0u16..,
                               holes: u8, anchor in proptest::option::of(1u32..1000), sums in 2u8..40, byte: u8) {
            let epoch = Epoch::new(epoch);
            let encoding = Encoding::PowerSums { count: sums };
            let prefix = vec![byte; encoding.encoded_len()];
            let newest_age = if newest.is_some() { age_from_wire(age) } else { Duration::ZERO };
            round_trip(Message::Eack(Eack {
                epoch, echo, newest: newest.and_then(Identifier::new), newest_age, holes,
                anchor: anchor.and_then(Identifier::new), encoding, prefix: &prefix,
            }));
            round_trip(Message::Report(Report {
                epoch, echo: MessageCounter::new(count), echo_age: age_from_wire(age), missing: age, settled: newest.and_then(Identifier::new), wanted: echo.then_some(encoding),
                round_trip: Duration::from_micros(u64::from(count)), loss: age, queueing: age_from_wire(age),
                totals: Totals { repaired: count, resets: 3, ..Totals::default() },
            }));
            round_trip(Message::Reset { epoch, reason: ResetReason::DecodeFailed });
            round_trip(Message::Goodbye { reason: GoodbyeReason::Draining });
            round_trip(Message::Baseline { epoch, encoding, set: &prefix });
            round_trip(Message::PathChallenge { data: u64::from(count) << 20 });
            round_trip(Message::PathResponse { data: u64::from(count) << 20 });
        }
    }

    proptest! {
        #[test]
        fn repair_symbols_round_trip(
            second: bool, place in 0..1u64 << 40, ahead in -1000i64..1000, count in 1u8.., step in 1u8..,
            seed: u16, length in 1usize..=770, byte: u8,
        ) {
            let half = if second { Half::Second } else { Half::First };
            let symbol = vec![byte; length.min(half.longest())];
            let window = Window::new(place, count, step).unwrap();
            let repair = Repair { window, half, seed, symbol: &symbol };
            let mut bytes = Vec::new();
            Message::Coded(Coded::new(&repair)).encode(&mut bytes);
            let Ok(Message::Coded(coded)) = Message::decode(&bytes) else { panic!("no symbol") };
            if let Some(expected) = place.checked_add_signed(ahead) {
                prop_assert_eq!(coded.repair(expected), Some(repair));
            }
            for end in 0..bytes.len() - symbol.len() + 1 {
                prop_assert!(Message::decode(&bytes[..end]).is_err());
            }
        }
    }

    #[test]
    fn the_longest_repair_symbol_fits_any_path_and_longer_ones_fail() {
        for half in Half::BOTH {
            let symbol = [7; 1501];
            let of = |length| Coded {
                half,
                first: 1,
                count: 255,
                step: 255,
                seed: 1,
                symbol: &symbol[..length],
            };
            let encoded = |coded: Coded<'_>| {
                let mut bytes = Vec::new();
                Message::Coded(coded).encode(&mut bytes);
                bytes
            };
            let longest = encoded(of(half.longest()));
            assert!(longest.len() <= crate::seal::MAXIMUM_PLAINTEXT_BYTES, "{}", longest.len());
            assert!(Message::decode(&longest).is_ok());
            assert!(Message::decode(&encoded(of(half.longest() + 1))).is_err());
            for (field, at) in [("flags", 1), ("count", 6), ("step", 7)] {
                let mut bent = longest.clone();
                bent[at] = if field == "flags" { 2 } else { 0 };
                assert!(Message::decode(&bent).is_err(), "{field}");
            }
        }
    }

    proptest! {
        #[test]
        fn holes_round_trip_and_name_the_places_that_are_missing(
            below: u16, lengths in proptest::collection::vec((1u16..300, 1u16..300), 0..100), wanted: bool,
        ) {
            let expected = (1 << 40) + u64::from(below);
            let mut above = expected;
            let missing: Vec<Run> = lengths.iter().map(|&(distance, count)| {
                above -= u64::from(distance) + u64::from(count);
                Run { first: above, count }
            }).collect();
            let (mut buffer, age) = (Vec::new(), Duration::from_micros(160));
            let holes = Holes::new(wanted, expected, age, &missing, &mut buffer);
            let mut bytes = Vec::new();
            Message::Holes(holes).encode(&mut bytes);
            prop_assert!(bytes.len() <= crate::seal::MAXIMUM_PLAINTEXT_BYTES);
            prop_assert_eq!(Message::decode(&bytes), Ok(Message::Holes(holes)));
            let cut = missing.len().saturating_sub(MAXIMUM_RUNS);
            let named: Vec<(u32, u16)> =
                holes.runs().map(|run| (run.first as u32, run.count)).collect();
            let oldest: Vec<(u32, u16)> =
                missing[cut..].iter().map(|run| (run.first as u32, run.count)).collect();
            prop_assert_eq!(named, oldest);
            if cut == 0 {
                prop_assert_eq!((holes.expected, holes.age), (expected as u32, age));
            } else {
                let end = missing[cut].first + u64::from(missing[cut].count);
                prop_assert_eq!((holes.expected, holes.age), (end as u32, SATURATED_AGE));
            }
        }
    }

    #[test]
    fn holes_that_are_malformed_are_refused() {
        let run = Run { first: 90, count: 5 };
        let mut buffer = Vec::new();
        let holes = Holes::new(true, 100, Duration::ZERO, &[run], &mut buffer);
        let mut bytes = Vec::new();
        Message::Holes(holes).encode(&mut bytes);
        assert_eq!(holes.runs().collect::<Vec<_>>(), [run]);
        for length in [0, 1, 5, 7, 9, 10, 11] {
            assert!(Message::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(Message::decode(&bytes[..8]).is_ok(), "nothing is missing");
        let mut bent = bytes.clone();
        bent[1] = 2;
        assert!(Message::decode(&bent).is_err(), "an unknown flag");
        let mut bent = bytes.clone();
        bent[11] = 0;
        assert!(Message::decode(&bent).is_err(), "an empty run");
        bytes.extend([0, 1, 0, 1].repeat(MAXIMUM_RUNS));
        assert!(Message::decode(&bytes).is_err(), "too many runs");
    }

    #[test]
    fn runs_that_are_too_far_apart_are_told_of_oldest_first() {
        let runs = [Run { first: 200_000, count: 1 }, Run { first: 100, count: 2 }];
        let mut buffer = Vec::new();
        let holes = Holes::new(true, 200_100, Duration::ZERO, &runs, &mut buffer);
        assert_eq!((holes.expected, holes.runs().collect::<Vec<_>>()), (102, vec![runs[1]]));
    }

    #[test]
    fn a_typical_eack_is_small() {
        let encoding = packrat_eack::encoding_for(1);
        let prefix = vec![1; encoding.encoded_len()];
        let mut bytes = Vec::new();
        Message::Eack(Eack {
            epoch: Epoch::FIRST,
            echo: false,
            newest: Identifier::new(7),
            newest_age: Duration::from_millis(1),
            holes: 1,
            anchor: None,
            encoding,
            prefix: &prefix,
        })
        .encode(&mut bytes);
        assert!(bytes.len() <= 40, "{} bytes", bytes.len());
    }

    #[test]
    fn ages_saturate() {
        assert_eq!(age_to_wire(Duration::from_secs(60)), u16::MAX);
        assert_eq!(
            age_from_wire(age_to_wire(Duration::from_micros(1600))),
            Duration::from_micros(1600)
        );
    }
}
