//! Evidence that a client receives at its address, from the clear parts of the datagrams between it
//! and its server: the server has chosen a value at random, and the client repeats it. An attacker
//! who forges a source address does not learn the value, however many datagrams the server answers.

use packrat_wire::scone;

/// The evidence about one client and its server.
#[derive(Debug, Default)]
pub struct AddressProof {
    proof: Proof,
    /// Values from the client's address that might be taken for a server's choice.
    own: Own,
}

impl AddressProof {
    #[cfg(test)]
    pub(crate) fn given() -> Self {
        Self { proof: Proof::Given, ..Self::default() }
    }

    /// True once the client has repeated a value of the server.
    pub fn is_given(&self) -> bool {
        self.proof == Proof::Given
    }

    /// Records a datagram from the server to the client.
    pub fn sent(&mut self, datagram: &[u8]) {
        let datagram = scone::behind(datagram);
        if self.proof != Proof::Given
            && let Some(value) = Value::in_question(datagram)
            && !self.own.contains(value.as_bytes())
        {
            self.proof = Proof::Asked(value);
        }
    }

    /// Records a datagram from the client's address.
    pub fn received(&mut self, datagram: &[u8]) {
        let datagram = scone::behind(datagram);
        match self.proof {
            Proof::Given => return,
            Proof::Asked(value) if value.is_in(datagram) => {
                self.proof = Proof::Given;
                return;
            }
            Proof::Asked(_) | Proof::Missing => {}
        }
        // A server may name itself as the client has (RFC 9000, section 7.2), or return received
        // bytes.
        if let Some((destination, _)) = connection_ids(datagram) {
            self.own.add(destination.get(..LONGEST_VALUE_BYTES).unwrap_or(destination));
        }
        if let Some(value) = Value::in_question(datagram) {
            self.own.add(value.as_bytes());
        }
    }
}

/// Values that have come from the client's address: the server has not chosen them, if it takes or
/// returns them. Two bits of 64 for each, so that many of them leave no value that is a proof.
#[derive(Debug, Default, Clone, Copy)]
struct Own(u64);

impl Own {
    fn bits(value: &[u8]) -> u64 {
        // FNV-1a: a sender who finds two values for one bit has proved less.
        let hash = value.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        1 << (hash >> 58) | 1 << (hash >> 52 & 63)
    }

    fn add(&mut self, value: &[u8]) {
        self.0 |= Self::bits(value);
    }

    fn contains(self, value: &[u8]) -> bool {
        let bits = Self::bits(value);
        self.0 & bits == bits
    }
}

/// Versions of QUIC whose long headers are known (RFC 9000, RFC 9369): other protocols have other
/// bytes there.
const QUIC_VERSIONS: [[u8; 4]; 2] = [[0, 0, 0, 1], [0x6b, 0x33, 0x43, 0xcf]];

/// Longest value of a server's that is kept, in bytes: a connection ID as a whole, as its beginning
/// may be the server's own name (QUIC-LB), which is no secret.
const LONGEST_VALUE_BYTES: usize = 20;

/// A value that a server has chosen at random and that its client repeats, in the clear.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Proof {
    #[default]
    Missing,
    /// The server has sent this value.
    Asked(Value),
    /// The client has repeated it.
    Given,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    protocol: Protocol,
    length: u8,
    bytes: [u8; LONGEST_VALUE_BYTES],
}

/// A protocol whose servers choose such a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// The server's connection ID (RFC 8999, section 5).
    Quic,
    /// The transaction identifier of a connectivity check (RFC 8489, section 5).
    Stun,
    /// The index of the server in a handshake response.
    WireGuard,
}

impl Value {
    fn new(protocol: Protocol, value: &[u8]) -> Option<Self> {
        let length = value.len().min(LONGEST_VALUE_BYTES);
        let mut bytes = [0; LONGEST_VALUE_BYTES];
        bytes.get_mut(..length)?.copy_from_slice(value.get(..length)?);
        Some(Self { protocol, length: length as u8, bytes })
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// The value in a server's datagram. Four random bytes are the minimum: an attacker who guesses
    /// them gains copies at the rate of a sparse flow.
    fn in_question(datagram: &[u8]) -> Option<Self> {
        match datagram {
            [0x80..=0xff, ..] => {
                let (_, source) = connection_ids(datagram)?;
                (source.len() >= 4).then(|| Self::new(Protocol::Quic, source)).flatten()
            }
            // A request, not an indication or an answer.
            [first, second, ..] if is_stun(datagram) && first & 1 == 0 && second & 0x10 == 0 => {
                Self::new(Protocol::Stun, datagram.get(8..20)?)
            }
            [2, 0, 0, 0, index @ ..] if datagram.len() == 92 => {
                Self::new(Protocol::WireGuard, index.get(..4)?)
            }
            _ => None,
        }
    }

    /// True if a client's datagram repeats the value.
    fn is_in(&self, datagram: &[u8]) -> bool {
        let at = match (self.protocol, datagram) {
            (Protocol::Quic, [0x80..=0xff, ..]) => 6,
            (Protocol::Quic, [0x40..=0x7f, ..]) => 1,
            // A success response.
            (Protocol::Stun, [1, 1, ..]) if is_stun(datagram) => 8,
            (Protocol::WireGuard, [4, 0, 0, 0, ..]) => 4,
            _ => return false,
        };
        datagram.get(at..).is_some_and(|rest| rest.starts_with(self.as_bytes()))
    }
}

/// The connection IDs of a long header, of a known version: the destination's and the source's.
fn connection_ids(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = datagram.split_first_chunk::<5>()?;
    let [0x80..=0xff, version @ ..] = *header else { return None };
    if !QUIC_VERSIONS.contains(&version) {
        return None;
    }
    let (&length, rest) = rest.split_first()?;
    let (destination, rest) = rest.split_at_checked(usize::from(length))?;
    let (&length, rest) = rest.split_first()?;
    Some((destination, rest.get(..usize::from(length))?))
}

fn is_stun(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xc0 == 0)
        && datagram.get(4..8) == Some(&[0x21, 0x12, 0xa4, 0x42])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long header with these connection IDs.
    fn long_header(destination: &[u8], source: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0xc3, 0, 0, 0, 1, destination.len() as u8];
        datagram.extend_from_slice(destination);
        datagram.push(source.len() as u8);
        datagram.extend_from_slice(source);
        datagram.extend_from_slice(&[9; 60]);
        datagram
    }

    fn stun(kind: [u8; 2], transaction: [u8; 12]) -> Vec<u8> {
        [&kind[..], &[0, 8, 0x21, 0x12, 0xa4, 0x42], &transaction, &[0; 8]].concat()
    }

    #[test]
    fn a_client_proves_its_address_by_what_its_server_has_chosen() {
        let own = [1; 8];
        let index = |kind: u8, bytes: usize| {
            [&[kind, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef][..], &vec![3; bytes]].concat()
        };
        let scone = |packet: &[u8]| [b"\xff\xef\x7d\xc0\xfd\x04serv\0", packet].concat();
        let cases: [(Vec<u8>, Vec<u8>, bool); 15] = [
            (long_header(&own, b"server!!"), [b"\x41server!!", &[5; 40][..]].concat(), true),
            (long_header(&own, b"serv"), [b"\x41serv", &[5; 40][..]].concat(), true),
            (long_header(&own, b"server!!"), long_header(b"server!!", &own), true),
            (scone(&long_header(&own, b"server!!")), scone(b"\x41server!!  "), true),
            (scone(&long_header(&own, b"server!!")), scone(b"\x41server?!  "), false),
            (long_header(&own, b"server!!"), [b"\x41server?!", &[5; 40][..]].concat(), false),
            (long_header(&own, b"server!!"), long_header(b"another!", b"server!!"), false),
            // Too short to be a proof, or empty.
            (long_header(&own, b"srv"), [b"\x41srv", &[5; 40][..]].concat(), false),
            (long_header(&own, b""), vec![0x41; 40], false),
            (stun([0, 1], *b"transaction!"), stun([1, 1], *b"transaction!"), true),
            (stun([0, 1], *b"transaction!"), stun([1, 1], *b"transaction?"), false),
            // The client's own value, which the server answers.
            (stun([1, 1], *b"transaction!"), stun([1, 1], *b"transaction!"), false),
            (stun([0, 1], *b"transaction!"), stun([0, 1], *b"transaction!"), false),
            (index(2, 84), index(4, 24), true),
            (index(1, 140), index(4, 24), false),
        ];
        for (asked, answered, proved) in cases {
            let mut proof = AddressProof::default();
            proof.sent(&asked);
            proof.received(&answered);
            assert_eq!(proof.is_given(), proved, "{asked:?} {answered:?}");
        }
    }

    #[test]
    fn what_has_come_from_the_address_itself_proves_nothing() {
        let request = stun([0, 1], *b"transaction!");
        let mut index = [7; 92];
        index[..4].copy_from_slice(&[2, 0, 0, 0]);
        let repeated = [b"\x41attacker", &[5; 40][..]].concat();
        let cases = [
            // A server that takes the client's choice for its own name.
            (
                long_header(b"attacker", &[1; 8]),
                long_header(&[1; 8], b"attacker"),
                repeated.clone(),
            ),
            (
                long_header(b"attackers 20 bytes!!", &[1; 8]),
                long_header(&[1; 8], b"attackers 20 bytes!!"),
                [b"\x41attackers 20 bytes!!", &[5; 40][..]].concat(),
            ),
            // A server that returns received bytes.
            (
                long_header(&[1; 8], b"attacker"),
                long_header(&[1; 8], b"attacker"),
                repeated.clone(),
            ),
            (request.clone(), request, stun([1, 1], *b"transaction!")),
            (index.to_vec(), index.to_vec(), [&[4, 0, 0, 0, 7, 7, 7, 7][..], &[3; 24]].concat()),
        ];
        for (said, returned, repeated) in cases {
            let mut proof = AddressProof::default();
            proof.received(&said);
            // Other values of the client in between do not matter.
            proof.received(&long_header(b"another!", &[2; 8]));
            proof.sent(&returned);
            proof.received(&repeated);
            assert!(!proof.is_given(), "{said:?}");
            // A value that the server has chosen is a proof all the same.
            proof.sent(&long_header(&[1; 8], b"server!!"));
            proof.received(&[b"\x41server!!", &[5; 40][..]].concat());
            assert!(proof.is_given(), "{said:?}");
        }
        // Another protocol's answer that begins like a long header: a transaction identifier,
        // flags, and counts.
        let mut proof = AddressProof::default();
        proof.sent(b"\x80\x01\x85\x80\x00\x00\x00\x04\x05tail!..............");
        assert_eq!(proof.proof, Proof::Missing);
    }

    #[test]
    fn a_servers_name_in_a_connection_id_alone_proves_nothing() {
        let (name, nonce) = ([7; 14], [1, 2, 3, 4, 5, 6]);
        let mut proof = AddressProof::default();
        proof.sent(&long_header(&[1; 8], &[&name[..], &nonce].concat()));
        proof.received(&[&[0x41], &name[..], &[9; 40]].concat());
        assert!(!proof.is_given());
        proof.received(&[&[0x41], &name[..], &nonce, &[9; 40]].concat());
        assert!(proof.is_given());
    }
}
