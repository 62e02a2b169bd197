//! The connection IDs that QUIC clients send to (RFC 8999), as read from their datagrams.
//!
//! A client that changes its connection ID retires the old one, and a server answers datagrams to a
//! retired one with a stateless reset (RFC 9000, section 10.3). A client that accepts this reset
//! loses the connection, which is worse than a missing repair. But a socket may have several
//! connections to one server, and no datagram identifies its connection. Therefore each new
//! connection ID puts all others in doubt, as it may replace any of them. An ID that is used again
//! after that was not replaced: it belongs to another connection.
//!
//! ```text
//!                                   another one is new
//!   new, sent to last ---> in use ----------------------> in doubt: nothing is sent again
//!                            ^                               |
//!                            +------ sent to once more ------+
//! ```
//!
//! A connection may try a new path with its new connection ID and use both until it retires the old
//! one. Therefore an ID that was not used for a while is also out of use.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;
use packrat_wire::scone;

/// Bytes of the longest connection ID in QUIC, versions 1 and 2.
const LONGEST_ID_BYTES: usize = 20;
/// Versions whose long headers have the server's connection ID (RFC 9000, section 17.2; RFC 9369).
const QUIC_VERSIONS: [[u8; 4]; 2] = [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf]];
/// Most connection IDs to remember that the client has sent to.
const USED_IDS: usize = 8;
/// Most connection IDs to remember that handshakes have offered.
const OFFERED_IDS: usize = 4;
/// Longest pause of a connection, among several, during which its datagrams are still sent again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A connection ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConnectionId {
    bytes: [u8; LONGEST_ID_BYTES],
    length: usize,
}

impl ConnectionId {
    fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_ID_BYTES];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { bytes, length: id.len() })
    }

    fn begins(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.bytes[..self.length])
    }
}

/// A connection ID that the client has sent to.
#[derive(Debug)]
struct Used {
    id: ConnectionId,
    at: Timestamp,
    in_doubt: bool,
}

/// The server's connection IDs in use.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    /// The last one first.
    used: Vec<Used>,
    /// IDs of the server's long headers that the client has not sent to. They may be forged.
    offered: Vec<ConnectionId>,
    /// Length of the last handshake's connection ID, which the following IDs share.
    length: usize,
}

impl Destinations {
    /// Processes a datagram of the server. If it has a long header of QUIC, the header offers a
    /// connection ID. The ID is believed once the client sends a long header to it: a forged ID is
    /// harmless.
    pub(crate) fn on_received(&mut self, datagram: &[u8]) {
        let Some(id) = long_header(datagram).and_then(|(_, source)| ConnectionId::new(source))
        else {
            return;
        };
        if self.offered.contains(&id) || self.used.iter().any(|used| used.id == id) {
            return;
        }
        if self.offered.len() == OFFERED_IDS {
            self.offered.remove(0);
        }
        self.offered.push(id);
    }

    /// The client sends a datagram.
    pub(crate) fn on_sent(&mut self, datagram: &[u8], now: Timestamp) {
        if let Some((destination, _)) = long_header(datagram) {
            let is_it = |id: &ConnectionId| ConnectionId::new(destination) == Some(*id);
            if let Some(at) = self.offered.iter().position(is_it) {
                let id = self.offered.remove(at);
                self.length = id.length;
                self.begin(id, now);
            }
        } else if let Some(rest) = behind_short_header(datagram) {
            if let Some(at) = self.find(rest) {
                self.used[..=at].rotate_right(1);
                (self.used[0].at, self.used[0].in_doubt) = (now, false);
            } else if self.knows_length()
                && let Some(id) = rest.get(..self.length).and_then(ConnectionId::new)
            {
                self.begin(id, now);
            }
        }
    }

    /// A connection ID is sent to for the first time.
    fn begin(&mut self, id: ConnectionId, now: Timestamp) {
        self.used.iter_mut().for_each(|used| used.in_doubt = true);
        self.used.truncate(USED_IDS - 1);
        self.used.insert(0, Used { id, at: now, in_doubt: false });
    }

    /// True if a handshake of QUIC has passed.
    pub(crate) fn knows_length(&self) -> bool {
        !self.used.is_empty()
    }

    /// False if a datagram goes to a connection ID that may be retired.
    pub(crate) fn is_in_use(&self, datagram: &[u8], now: Timestamp) -> bool {
        let Some(rest) = behind_short_header(datagram) else { return true };
        match self.find(rest) {
            Some(0) => true,
            Some(at) => {
                let used = &self.used[at];
                !used.in_doubt && now.saturating_since(used.at) < LONGEST_PAUSE
            }
            None => !self.knows_length(),
        }
    }

    fn find(&self, rest: &[u8]) -> Option<usize> {
        self.used.iter().position(|used| used.id.begins(rest))
    }
}

fn behind_short_header(datagram: &[u8]) -> Option<&[u8]> {
    let (first, rest) = scone::behind(datagram).split_first()?;
    (first & 0xc0 == 0x40).then_some(rest)
}

/// The destination and source connection IDs of a long header.
fn long_header(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = scone::behind(datagram).split_first()?;
    let (version, rest) = rest.split_first_chunk()?;
    if first & 0x80 == 0 || !QUIC_VERSIONS.contains(version) {
        return None;
    }
    let (&length, rest) = rest.split_first()?;
    let (destination, rest) = rest.split_at_checked(usize::from(length))?;
    let (&length, rest) = rest.split_first()?;
    Some((destination, rest.get(..usize::from(length))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(version: [u8; 4], destination: &[u8], source: &[u8]) -> Vec<u8> {
        let (to, from) = ([destination.len() as u8], [source.len() as u8]);
        [&[0xc0][..], &version, &to, destination, &from, source, &[0; 20]].concat()
    }

    fn short(id: &[u8], rest: u8) -> Vec<u8> {
        [&[0x40][..], id, &[rest; 20]].concat()
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// The handshake of a server with this connection ID.
    fn after_handshake(id: &[u8]) -> Destinations {
        let mut destinations = Destinations::default();
        destinations.on_received(&long(QUIC_VERSIONS[0], &[1, 2], id));
        destinations.on_sent(&long(QUIC_VERSIONS[0], id, &[1, 2]), at(0));
        destinations
    }

    /// Destinations after a client with several connections has sent to these IDs in this order,
    /// one each millisecond, after the handshake of the first.
    fn sent_to(ids: &[u8]) -> Destinations {
        let mut destinations = after_handshake(&[ids[0]; 8]);
        for (millis, id) in ids.iter().enumerate() {
            destinations.on_sent(&short(&[*id; 8], 1), at(millis as u64));
        }
        destinations
    }

    /// A connection ID is out of use once a new one is used, until a datagram is sent to it again.
    #[test]
    fn a_new_connection_id_puts_the_former_one_out_of_use() {
        for (sent, in_use) in [
            (&[1][..], &[1][..]),
            (&[1, 1, 2], &[2]),
            (&[1, 2, 1], &[1, 2]),
            (&[1, 2, 1, 2, 3], &[3]),
            (&[1, 2, 1, 2, 3, 2, 3], &[2, 3]),
            (&[1, 2, 1, 3, 1, 2], &[1, 2, 3]),
        ] {
            let destinations = sent_to(sent);
            let found = |id: &u8| destinations.is_in_use(&short(&[*id; 8], 9), at(10));
            assert_eq!((1..5).filter(found).collect::<Vec<_>>(), in_use, "{sent:?}");
            let long = long(QUIC_VERSIONS[0], &[1; 8], &[]);
            assert!(destinations.is_in_use(&long, at(10)), "a handshake's are ignored, not reset");
        }
    }

    #[test]
    fn what_is_not_sent_to_for_a_while_is_out_of_use_beside_what_is() {
        let destinations = sent_to(&[1, 2, 1, 2]);
        let late = at(2) + LONGEST_PAUSE;
        assert!(destinations.is_in_use(&short(&[1; 8], 9), at(1) + LONGEST_PAUSE));
        assert!(!destinations.is_in_use(&short(&[1; 8], 9), late));
        assert!(destinations.is_in_use(&short(&[2; 8], 9), late + LONGEST_PAUSE));
    }

    /// With more connections than are remembered, only datagrams of the last one are sent again.
    #[test]
    fn only_the_last_of_too_many_connections_has_repeats() {
        let most = USED_IDS as u8;
        let few: Vec<u8> = (1..=most).chain(1..=most).collect();
        let in_use = |destinations: &Destinations, ids: u8| {
            (1..=ids).filter(|id| destinations.is_in_use(&short(&[*id; 8], 9), at(50))).count()
        };
        assert_eq!(in_use(&sent_to(&few), most), USED_IDS);
        let many: Vec<u8> = (1..=most + 1).chain(1..=most + 1).collect();
        assert_eq!(in_use(&sent_to(&many), most + 1), 1);
    }

    #[test]
    fn a_connection_id_is_believed_once_the_handshake_goes_to_it() {
        for version in QUIC_VERSIONS {
            let mut destinations = Destinations::default();
            destinations.on_sent(&long(version, &[4; 9], &[1, 2]), at(0));
            // The client sends to no forged ID, before or after.
            let forged = [&[][..], &[7; 3], &[7; 20], &[5; 8]];
            for id in forged.into_iter().chain([&[7; 8][..]]) {
                destinations.on_received(&long(version, &[1, 2], id));
            }
            destinations.on_sent(&short(&[7; 8], 1), at(0));
            assert!(!destinations.knows_length(), "it may be any protocol's");
            destinations.on_sent(&long(version, &[7; 8], &[1, 2]), at(1));
            for id in forged.into_iter().chain([&[7; 8][..]]) {
                destinations.on_received(&long(version, &[1, 2], id));
            }
            // A client may leave the handshake's ID before a short header goes there.
            destinations.on_sent(&short(&[9; 8], 1), at(2));
            assert!(!destinations.is_in_use(&short(&[7; 8], 1), at(2)));
            destinations.on_sent(&short(&[9; 8], 2), at(2));
            assert_eq!(destinations.used.len(), 2);
            assert_eq!(destinations.used[0].id, ConnectionId::new(&[9; 8]).unwrap());
        }
    }

    /// A SCONE packet in front, of whatever advice, has no part in it.
    #[test]
    fn connection_ids_are_read_behind_a_scone_packet() {
        let scone = |first: u8, packets: Vec<u8>| {
            [&[first, 0x6f, 0x7d, 0xc0, 0xfd, 2, 5, 5, 0][..], &packets].concat()
        };
        let mut destinations = Destinations::default();
        destinations.on_received(&scone(0xff, long(QUIC_VERSIONS[0], &[1, 2], &[7; 8])));
        destinations.on_sent(&scone(0xff, long(QUIC_VERSIONS[0], &[7; 8], &[1, 2])), at(0));
        assert!(destinations.is_in_use(&scone(0xc3, short(&[7; 8], 1)), at(1)));
        destinations.on_sent(&scone(0xff, short(&[9; 8], 1)), at(2));
        assert!(!destinations.is_in_use(&scone(0xff, short(&[7; 8], 1)), at(3)));
        assert!(destinations.is_in_use(&short(&[9; 8], 1), at(3)));
    }

    #[test]
    fn connections_have_connection_ids_of_their_own_lengths() {
        let mut destinations = after_handshake(&[7; 8]);
        destinations.on_received(&long(QUIC_VERSIONS[1], &[1, 2], &[9; 5]));
        destinations.on_sent(&long(QUIC_VERSIONS[1], &[9; 5], &[1, 2]), at(1));
        for number in 0..4 {
            destinations.on_sent(&short(&[7; 8], number), at(2));
            destinations.on_sent(&short(&[9; 5], number), at(2));
        }
        assert_eq!(destinations.used.len(), 2);
        assert!(destinations.is_in_use(&short(&[7; 8], 9), at(3)));
    }

    #[test]
    fn without_connection_ids_no_datagram_is_out_of_use() {
        let mut empty = after_handshake(&[]);
        for id in [7, 9] {
            empty.on_sent(&short(&[id; 8], 1), at(0));
        }
        assert!(empty.knows_length() && empty.is_in_use(&short(&[7; 8], 1), at(9)));
        let whole = long(QUIC_VERSIONS[0], &[7; 8], &[7; 8]);
        for offered in [
            &long([0x12, 0x34, 0x56, 0x78], &[7; 8], &[7; 8])[..],
            &long([0; 4], &[7; 8], &[7; 8]),
            &long(QUIC_VERSIONS[0], &[7; 21], &[7; 21]),
            &whole[..whole.len() - 21],
            &[0xc0, 0, 0, 0, 1, 200, 1],
            &[0x80],
            &[],
        ] {
            let mut other = Destinations::default();
            other.on_received(offered);
            for id in [7, 9] {
                other.on_sent(offered, at(0));
                other.on_sent(&short(&[id; 8], 1), at(0));
            }
            assert!(!other.knows_length(), "{offered:x?}");
            assert!(other.is_in_use(&short(&[7; 8], 1), at(9)), "{offered:x?}");
        }
    }
}
