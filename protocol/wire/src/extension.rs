//! Extensions behind the fields of client params and gateway params: records of type, length and
//! value, so that additions do not depend on each other.
//!
//! A receiver skips the records that it does not know, and bytes that are no record.

use core::time::Duration;

use crate::codec::{Reader, Write};
use crate::registry::grease;

/// Type of the record of [`Live`] in the params.
const LIVE_RECORD: u8 = 1;
/// Type of the record of a stream's secret in the gateway params.
const STREAM_SECRET_RECORD: u8 = 2;
/// Type of the record of the versions that the Discover lists, in the client params.
const VERSIONS_RECORD: u8 = 3;

/// Type of the record of [`Numbered`] in the params.
const NUMBERED_RECORD: u8 = 4;
/// Type of the record of the key of a stream's symbols in the gateway params.
const SYMBOL_KEY_RECORD: u8 = 6;

/// Type of the record of a [`ServerTicket`] in the params.
const TICKET_RECORD: u8 = 5;
/// Type of the record of bundles in the params, without a value.
const BUNDLES_RECORD: u8 = 7;
/// Type of the record of distinct numbers in the gateway params, without a value.
const DISTINCT_RECORD: u8 = 8;
/// Bytes of a [`ServerTicket`].
pub const TICKET_LENGTH: usize = 16;

/// Bytes of the longest value of a record without meaning.
const LONGEST_GREASE_BYTES: u64 = 4;

const FLAG_TO_CLIENT: u8 = 1;
const FLAG_TO_SERVER: u8 = 2;
const FLAG_CODED: u8 = 4;

/// Flags of the gateway's [`Numbered`] record that carry [`RouteHint`].
const LOSS_SHIFT: u32 = 3;
const LOSS_MASK: u8 = 3;
/// Place of the bits of [`RouteHint::heard`] in the flags, bits.
const HEARD_SHIFT: u32 = 5;
/// Largest number of datagrams in [`RouteHint::heard`].
pub const MOST_HEARD: u8 = 6;

const FLAG_SELECTIVE: u8 = 1;
const FLAG_SUBSCRIBE: u8 = 2;
const FLAG_SYMBOLS: u8 = 4;

/// The params of a live stream's receiver, beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// eACKs come only when a datagram is missing (selective eACKs: Packrat26, section 5.2.3): a
    /// datagram that no eACK has reported as missing for long has probably arrived.
    pub selective: bool,
    /// Subscribe to the stream that this address stands for: the gateway sends this client a copy
    /// of each of its datagrams.
    pub subscribe: bool,
    /// A datagram that would arrive later than this after it should have is of no use; zero: no
    /// such limit.
    pub window: Duration,
    /// A datagram that is late by no more than this is as good as one in time; zero: unknown.
    pub tolerance: Duration,
    /// Wants the symbols that the gateway sends to all subscribers at once ([`crate::group`]).
    pub symbols: bool,
}

impl Live {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        out.put_u8(LIVE_RECORD);
        out.put_u8(9);
        out.put_u8(
            u8::from(self.selective) * FLAG_SELECTIVE
                + u8::from(self.subscribe) * FLAG_SUBSCRIBE
                + u8::from(self.symbols) * FLAG_SYMBOLS,
        );
        out.put_u32(micros(self.window));
        out.put_u32(micros(self.tolerance));
    }

    /// Looks for the record in the bytes behind the fields of the params.
    pub(crate) fn find(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(find(bytes, LIVE_RECORD)?);
        let (flags, window, tolerance) =
            (reader.u8().ok()?, reader.u32().ok()?, reader.u32().ok()?);
        Some(Self {
            selective: flags & FLAG_SELECTIVE != 0,
            subscribe: flags & FLAG_SUBSCRIBE != 0,
            window: Duration::from_micros(u64::from(window)),
            tolerance: Duration::from_micros(u64::from(tolerance)),
            symbols: flags & FLAG_SYMBOLS != 0,
        })
    }
}

/// The directions in which datagrams get a number in front ([`crate::number`]): as the client wishes,
/// and as the gateway grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// Datagrams towards the client.
    pub to_client: bool,
    /// Datagrams towards the server.
    pub to_server: bool,
    /// Datagrams towards the client are also repaired by code: the gateway sends symbols over them.
    pub coded: bool,
    /// The longest base datagram that gets a number; a longer one goes plain.
    pub largest: u16,
}

/// Knowledge of the gateway about the client's way to it, in bits of the *numbered* record that are zero
/// otherwise: a client that does not know them ignores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteHint {
    /// Datagrams of the base connection received from the client before the answered question, at
    /// most [`MOST_HEARD`]; `None`: the gateway does not report it.
    pub heard: Option<u8>,
    /// Loss of the last mile that is remembered.
    pub loss: LossClass,
}

/// Loss of a last mile, as one of four classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LossClass {
    /// Unknown, or less than 1 %.
    #[default]
    Low,
    /// Loss from 1 % on.
    FromOne,
    /// Loss from 3 % on.
    FromThree,
    /// Loss from 8 % on.
    FromEight,
}

impl LossClass {
    const ALL: [Self; 4] = [Self::Low, Self::FromOne, Self::FromThree, Self::FromEight];

    /// The class of a share, 0 to 1.
    pub fn of(loss: f64) -> Self {
        Self::ALL.into_iter().rev().find(|class| loss >= class.least()).unwrap_or_default()
    }

    /// The lower end of the class.
    pub const fn least(self) -> f64 {
        match self {
            Self::Low => 0.0,
            Self::FromOne => 0.01,
            Self::FromThree => 0.03,
            Self::FromEight => 0.08,
        }
    }
}

impl RouteHint {
    /// The hint as flags of the record.
    pub(crate) fn flags(self) -> u8 {
        let heard = self.heard.map_or(0, |heard| heard.min(MOST_HEARD) + 1);
        (self.loss as u8) << LOSS_SHIFT | heard << HEARD_SHIFT
    }

    /// Looks for the record in the bytes behind the fields of the params.
    pub(crate) fn find(bytes: &[u8]) -> Self {
        let flags =
            find(bytes, NUMBERED_RECORD).and_then(|value| value.first().copied()).unwrap_or(0);
        Self {
            heard: (flags >> HEARD_SHIFT).checked_sub(1),
            loss: LossClass::ALL[usize::from(flags >> LOSS_SHIFT & LOSS_MASK)],
        }
    }
}

impl Numbered {
    /// Encodes the params with the gateway's `hint`.
    pub(crate) fn encode(&self, hint: RouteHint, out: &mut Vec<u8>) {
        out.put_u8(NUMBERED_RECORD);
        out.put_u8(3);
        out.put_u8(
            u8::from(self.to_client) * FLAG_TO_CLIENT
                + u8::from(self.to_server) * FLAG_TO_SERVER
                + u8::from(self.coded) * FLAG_CODED
                + hint.flags(),
        );
        out.put_u16(self.largest);
    }

    /// Looks for the record in the bytes behind the fields of the params.
    pub(crate) fn find(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(find(bytes, NUMBERED_RECORD)?);
        let (flags, largest) = (reader.u8().ok()?, reader.u16().ok()?);
        Some(Self {
            to_client: flags & FLAG_TO_CLIENT != 0,
            to_server: flags & FLAG_TO_SERVER != 0,
            coded: flags & FLAG_CODED != 0,
            largest,
        })
    }

    /// True if datagrams towards the client are repaired by code.
    pub fn is_coded(self) -> bool {
        self.to_client && self.coded
    }

    /// The part of this request that `able` allows; `None` if it is empty.
    pub fn within(self, able: Self) -> Option<Self> {
        let to_client = self.to_client && able.to_client;
        let to_server = self.to_server && able.to_server;
        let coded = to_client && self.coded && able.coded;
        let largest = self.largest.min(able.largest);
        (to_client || to_server).then_some(Self { to_client, to_server, coded, largest })
    }
}

/// The gateway's name for a client's server, readable only by gateways with the same static key. A
/// client that comes to another of these gateways shows the ticket once, and gets the same server
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTicket([u8; TICKET_LENGTH]);

impl ServerTicket {
    /// The ticket with these bytes.
    pub const fn new(bytes: [u8; TICKET_LENGTH]) -> Self {
        Self(bytes)
    }

    /// Bytes of the ticket, as on the wire.
    pub const fn as_bytes(&self) -> &[u8; TICKET_LENGTH] {
        &self.0
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(TICKET_RECORD);
        out.put_u8(TICKET_LENGTH as u8);
        out.extend_from_slice(&self.0);
    }

    /// Looks for the record in the bytes behind the fields of the params.
    pub(crate) fn find(bytes: &[u8]) -> Option<Self> {
        Reader::new(find(bytes, TICKET_RECORD)?).array().ok().map(Self)
    }
}

pub(crate) fn put_stream(secret: &[u8; 32], out: &mut Vec<u8>) {
    out.put_u8(STREAM_SECRET_RECORD);
    out.put_u8(32);
    out.extend_from_slice(secret);
}

/// Looks for a stream's secret in the bytes behind the fields of the gateway params.
pub(crate) fn find_stream(bytes: &[u8]) -> Option<[u8; 32]> {
    Reader::new(find(bytes, STREAM_SECRET_RECORD)?).array().ok()
}

pub(crate) fn put_symbols(key: &[u8; 32], out: &mut Vec<u8>) {
    out.put_u8(SYMBOL_KEY_RECORD);
    out.put_u8(32);
    out.extend_from_slice(key);
}

/// Looks for the key of a stream's symbols in the bytes behind the fields of the gateway params.
pub(crate) fn find_symbols(bytes: &[u8]) -> Option<[u8; 32]> {
    Reader::new(find(bytes, SYMBOL_KEY_RECORD)?).array().ok()
}

/// The sender of the params knows bundles ([`crate::bundle`]).
pub(crate) fn put_bundles(out: &mut Vec<u8>) {
    out.put_u8(BUNDLES_RECORD);
    out.put_u8(0);
}

/// True if the bytes behind the fields of the params request bundles.
pub(crate) fn find_bundles(bytes: &[u8]) -> bool {
    find(bytes, BUNDLES_RECORD).is_some()
}

/// The gateway gives no number to two datagrams of the server's.
pub(crate) fn put_distinct(out: &mut Vec<u8>) {
    out.put_u8(DISTINCT_RECORD);
    out.put_u8(0);
}

/// True if the bytes behind the fields of the gateway params grant distinct numbers.
pub(crate) fn find_distinct(bytes: &[u8]) -> bool {
    find(bytes, DISTINCT_RECORD).is_some()
}

/// The versions that the client has listed, in a place that an attacker cannot change unnoticed.
pub(crate) fn put_versions(versions: &[u8], out: &mut Vec<u8>) {
    out.put_u8(VERSIONS_RECORD);
    out.put_u8(versions.len() as u8);
    out.extend_from_slice(versions);
}

/// Looks for the versions that the client has listed.
pub(crate) fn find_versions(bytes: &[u8]) -> Option<&[u8]> {
    find(bytes, VERSIONS_RECORD)
}

/// A record without meaning. `random` chooses its type and its value.
pub(crate) fn put_grease(random: u64, out: &mut Vec<u8>) {
    let length = (random >> 8) % (LONGEST_GREASE_BYTES + 1);
    out.put_u8(grease(random));
    out.put_u8(length as u8);
    out.extend((0..length).map(|at| (random >> (8 * at + 11)) as u8));
}

/// The value of the first record of a type.
fn find(bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut reader = Reader::new(bytes);
    loop {
        let (found, length) = (reader.u8().ok()?, reader.u8().ok()?);
        let value = reader.bytes(usize::from(length)).ok()?;
        if found == wanted {
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hint_is_in_bits_that_the_record_does_not_use() {
        let granted = Numbered { to_client: true, to_server: true, coded: true, largest: 1400 };
        let mut plain = Vec::new();
        granted.encode(RouteHint::default(), &mut plain);
        assert_eq!(RouteHint::find(&plain), RouteHint::default());
        for heard in (0..=MOST_HEARD).map(Some).chain([None]) {
            for loss in LossClass::ALL {
                let (hint, mut bytes) = (RouteHint { heard, loss }, Vec::new());
                granted.encode(hint, &mut bytes);
                assert_eq!(RouteHint::find(&bytes), hint);
                assert_eq!(Numbered::find(&bytes), Some(granted), "as without");
                assert_eq!(bytes.len(), plain.len());
            }
        }
        let many = RouteHint { heard: Some(200), ..RouteHint::default() };
        let mut bytes = Vec::new();
        granted.encode(many, &mut bytes);
        assert_eq!(RouteHint::find(&bytes).heard, Some(MOST_HEARD));
        assert_eq!(LossClass::of(0.029), LossClass::FromOne);
    }

    #[test]
    fn a_record_is_found_among_others_and_may_be_longer_than_known() {
        let live = Live {
            selective: true,
            window: Duration::from_millis(200),
            tolerance: Duration::from_millis(20),
            symbols: true,
            ..Live::default()
        };
        let mut bytes = vec![99, 3, 1, 2, 3];
        live.encode(&mut bytes);
        assert_eq!(Live::find(&bytes), Some(live));
        let end = bytes.len();
        bytes.extend_from_slice(&[7, 200]);
        assert_eq!(Live::find(&bytes), Some(live), "a cut-off record behind it");
        let mut longer = bytes[..end].to_vec();
        longer[6] += 2;
        longer.extend_from_slice(&[5, 5]);
        assert_eq!(Live::find(&longer), Some(live));
        assert_eq!(Live::find(&bytes[..end - 1]), None);
    }

    #[test]
    fn a_wish_is_granted_as_far_as_both_are_able() {
        let wish = Numbered { to_client: true, to_server: true, coded: true, largest: 1400 };
        let mut bytes = vec![200, 1, 4];
        wish.encode(RouteHint::default(), &mut bytes);
        assert_eq!(Numbered::find(&bytes), Some(wish));
        assert_eq!(Numbered::find(&bytes[..bytes.len() - 1]), None);
        let able = Numbered { to_client: true, to_server: false, coded: true, largest: 1464 };
        let granted = Numbered { to_server: false, ..wish };
        assert_eq!(wish.within(able), Some(granted));
        assert_eq!(
            able.within(Numbered { largest: 1300, ..able }).map(|it| it.largest),
            Some(1300)
        );
        assert_eq!(wish.within(Numbered { to_client: false, ..able }), None);
        let to_server = Numbered { to_client: false, to_server: true, ..able };
        assert!(!wish.within(to_server).unwrap().coded, "only towards the client");
        assert!(!wish.within(Numbered { coded: false, ..able }).unwrap().coded);
    }

    proptest! {
        #[test]
        fn whatever_follows_is_no_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Live::find(&bytes), find_stream(&bytes), Numbered::find(&bytes), ServerTicket::find(&bytes));
            let _ = (find_symbols(&bytes), find_bundles(&bytes), find_distinct(&bytes));
        }
    }
}
