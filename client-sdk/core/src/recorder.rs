//! The set of identifiers that this client has received in the current epoch.
//!
//! A client may have to believe unproven datagrams. A forged one among them is a difference that no
//! hole explains, once: the gateway adds the decoded datagrams to its own set. Until then, eACKs
//! are long enough for all of them.

use packrat_eack::{Encoding, Identifier, Sketch};
use packrat_wire::MessageCounter;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::GatewayParams;
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme, Material};

use crate::generations::Generations;
use crate::packet_number::PacketNumber;

/// Fewest identifiers to remember for recognising duplicates; datagrams with a place are recognised
/// by the place as well.
const REMEMBERED_IDENTIFIERS: usize = 7168;

/// Fewest packet numbers to remember by identifier: the gateway refers to datagrams that are at
/// most a few round trips old.
const JOINED_NUMBERS: usize = 1792;

/// Unproven datagrams of the set about which the gateway may not have been informed yet.
#[derive(Debug, Clone, Copy, Default)]
struct Unproven {
    count: u64,
    /// The first eACK that covers all of them.
    told_by: Option<MessageCounter>,
}

/// Result of [`Recorder::record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// Not seen before.
    New,
    /// Seen before.
    Duplicate,
    /// Another datagram with the same identifier was seen before: neither end can tell the two
    /// apart.
    Collision,
}

/// A few bits of a datagram's material that distinguish it from another one with the same
/// identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Check(u32);

impl From<&Material> for Check {
    fn from(material: &Material) -> Self {
        Self(material.check())
    }
}

/// Records datagrams; knows the newest.
#[derive(Debug)]
pub(crate) struct Recorder {
    scheme: IdentifierScheme,
    key: IdentifierKey,
    sketch: Sketch,
    known: Generations<Check>,
    /// The datagram looked for last, if it is not among them.
    unknown: Option<Identifier>,
    /// Packet numbers by identifier, of the last datagrams that had one.
    packet_numbers: Generations<PacketNumber>,
    /// Two datagrams with one identifier and one number are the same one.
    knows_copies: bool,
    /// The datagram recorded last, and when.
    last: Option<(Identifier, Timestamp)>,
    /// The newest datagram in the sender's order.
    newest: Option<(Identifier, Timestamp)>,
    /// The set of this epoch begins behind this datagram.
    anchor: Option<Identifier>,
    unproven: Unproven,
}

impl Recorder {
    /// Begins recording. `material`: of the last datagram received before.
    pub(crate) fn new(gateway_params: &GatewayParams, material: Option<&Material>) -> Self {
        let key = gateway_params.identifier_key();
        let anchor = material.map(|material| key.identify_material(material));
        let mut recorder = Self {
            scheme: gateway_params.scheme,
            key,
            sketch: Sketch::new(gateway_params.sketch_key(), gateway_params.limits),
            known: Generations::new(REMEMBERED_IDENTIFIERS),
            unknown: None,
            packet_numbers: Generations::new(JOINED_NUMBERS),
            // With only part of the bytes, a forged datagram could equal a genuine one.
            knows_copies: gateway_params.distinct
                && gateway_params.scheme == IdentifierScheme::Payload,
            last: None,
            newest: None,
            anchor,
            unproven: Unproven::default(),
        };
        // Received before the set began: when it is repeated, it must not enter the set.
        if let (Some(anchor), Some(material)) = (anchor, material) {
            recorder.remember(anchor, *material);
        }
        recorder
    }

    /// The part of a datagram that its identifier is made of.
    pub(crate) fn material(&self, datagram: &[u8]) -> Material {
        Material::of(self.scheme, datagram)
    }

    /// The identifier of a datagram.
    pub(crate) fn identify(&self, datagram: &[u8]) -> Identifier {
        self.key.identify(self.scheme, datagram)
    }

    /// The identifier of a datagram, and true if it was recorded before; a packet number that follows is its
    /// own then.
    pub(crate) fn look_up(&mut self, material: &Material, now: Timestamp) -> (Identifier, bool) {
        let identifier = self.key.identify_material(material);
        let found = self.known.get(identifier);
        self.unknown = found.is_none().then_some(identifier);
        let known = found == Some(material.into());
        if known {
            self.last = Some((identifier, now));
        }
        (identifier, known)
    }

    /// Records an authentic datagram, which arrived at `now`.
    pub(crate) fn record(&mut self, material: Material, now: Timestamp) -> Recorded {
        let identifier = self.key.identify_material(&material);
        self.last = Some((identifier, now));
        let recorded = self.remember(identifier, material);
        if recorded == Recorded::New {
            self.sketch.insert(identifier);
        }
        recorded
    }

    /// The datagram that has just entered the set may be forged.
    pub(crate) fn doubt(&mut self) {
        self.unproven = Unproven { count: self.unproven.count + 1, told_by: None };
    }

    /// The datagram doubted last is authentic.
    pub(crate) fn trust(&mut self) {
        self.unproven.count = self.unproven.count.saturating_sub(1);
    }

    /// Datagrams of the set that the gateway may not know, and that no hole explains.
    pub(crate) fn unproven(&self) -> u64 {
        self.unproven.count
    }

    /// An eACK of the set leaves.
    pub(crate) fn on_told(&mut self, eack: MessageCounter) {
        self.unproven.told_by.get_or_insert(eack);
    }

    /// The gateway has decoded this eACK.
    pub(crate) fn on_decoded(&mut self, eack: MessageCounter) {
        if self.unproven.told_by.is_some_and(|told_by| eack >= told_by) {
            self.unproven = Unproven::default();
        }
    }

    fn remember(&mut self, identifier: Identifier, material: Material) -> Recorded {
        let check = Check::from(&material);
        if self.unknown.take() != Some(identifier) {
            match self.known.get(identifier) {
                Some(known) if known == check => return Recorded::Duplicate,
                Some(_) => return Recorded::Collision,
                None => {}
            }
        }
        self.known.insert(identifier, check);
        Recorded::New
    }

    /// The datagram recorded last carried this packet number.
    pub(crate) fn join(&mut self, packet_number: PacketNumber) {
        let Some((identifier, _)) = self.last else { return };
        self.packet_numbers.insert(identifier, packet_number);
    }

    /// Memory that grows with the recorded datagrams, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.known.memory() + self.packet_numbers.memory()
    }

    /// Trims memory after a period without datagrams: later ones are no duplicates.
    pub(crate) fn trim(&mut self) {
        self.known.clear();
        self.packet_numbers.clear();
    }

    /// True if two datagrams with one identifier and one number are the same one.
    pub(crate) const fn knows_copies(&self) -> bool {
        self.knows_copies
    }

    /// True if the datagram with this identifier, which was recorded before, had this number then.
    pub(crate) fn is_copy(&self, identifier: Identifier, number: PacketNumber) -> bool {
        self.knows_copies && self.packet_number(identifier) == Some(number)
    }

    /// The packet number of a datagram, while it is remembered.
    pub(crate) fn packet_number(&self, identifier: Identifier) -> Option<PacketNumber> {
        self.packet_numbers.get(identifier)
    }

    /// The datagram recorded last is the newest in the sender's order.
    pub(crate) fn mark_newest(&mut self) {
        self.newest = self.last;
    }

    pub(crate) fn newest(&self) -> Option<(Identifier, Timestamp)> {
        self.newest
    }

    pub(crate) fn anchor(&self) -> Option<Identifier> {
        self.anchor
    }

    /// A new epoch: the set is empty, and begins behind the newest datagram.
    pub(crate) fn reset(&mut self) {
        self.sketch.clear();
        self.anchor = self.newest.or(self.last).map(|(identifier, _)| identifier);
        self.newest = None;
        self.unproven = Unproven::default();
    }

    /// Adds a whole set of the gateway's to this one; returns false if the set does not fit.
    pub(crate) fn add(&mut self, set: &[u8]) -> bool {
        self.sketch.add_power_sums(set)
    }

    /// The encoding that is cheapest for `expected` differences within the agreed limits.
    pub(crate) fn encoding_for(&self, expected: usize) -> Option<Encoding> {
        self.sketch.limits().encoding_for(expected)
    }

    /// True if the sketch can give this prefix.
    pub(crate) fn can_give(&self, encoding: Encoding) -> bool {
        self.sketch.limits().allow(encoding)
    }

    /// Replaces `out` by the serialised prefix; false when the sketch can't give it.
    pub(crate) fn write_prefix(&self, encoding: Encoding, out: &mut Vec<u8>) -> bool {
        out.clear();
        self.sketch.write_prefix(encoding, out).is_ok()
    }
}
