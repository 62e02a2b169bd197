//! Messages between the gateways of one address, which have one static key: the search for the
//! session of a client that has moved.
//!
//! ```text
//!   client                 gateway B                      gateway A, C, ...
//!     | == Sealed (session) ==> |   not known here             |
//!     |                         | -- Inquiry (nonce) --------> |
//!     |                         | <--------- Mine, NotMine --- |
//!     |                         | == Sealed, as it came =====> |   from a socket for this client
//!     | <======================== PathChallenge ============== |
//!     | ========================= PathResponse ==============> |   A: the client has moved to B
//!     |                         | -- Arrival (nonce) --------> |   from the same socket
//!     |                         | <----------- Moved (nonce) - |
//!     | == what it has sent meanwhile, and all that follows => |
//! ```
//!
//! They are control datagrams of the type [`PEER_TYPE`], all of one length: no answer is longer than its
//! question. The tag keys them with a secret of these gateways, so that only they can ask or answer. The nonce
//! of the Inquiry names the relay: a Moved proves that one, of that session, and no later one.

use ring::hmac;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::SessionId;
use crate::codec::{Reader, Write};
use crate::control::{FIRST_BYTE, MAGIC, PROTOCOL_VERSION, is_control};
use crate::tag::{TAG_LENGTH, is_same};

/// Control type of the datagrams between gateways.
pub const PEER_TYPE: u8 = 6;
/// Bytes of a message: header, kind, nonce, session, tag.
pub const PEER_LENGTH: usize = 5 + 1 + 8 + 4 + TAG_LENGTH;

/// The meaning of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PeerKind {
    /// Has the gateway a session with this id?
    Inquiry = 0,
    /// The asked gateway does not have the session.
    NotMine = 1,
    /// The asked gateway has the session.
    Mine = 2,
    /// The client of the session has proved the address that the Arrival came from: its datagrams
    /// may follow.
    Moved = 3,
    /// Has the client of the session proved this message's source address? There is no other answer
    /// than Moved.
    Arrival = 4,
}

/// A message between gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerMessage {
    /// Kind of the message.
    pub kind: PeerKind,
    /// Drawn for the Inquiry; the answers, and the Arrival of the relay that follows, repeat it.
    pub nonce: u64,
    /// The session in question.
    pub session: SessionId,
}

/// Keys the messages of gateways with one secret.
#[derive(ZeroizeOnDrop)]
pub struct PeerKey(Zeroizing<[u8; 32]>);

impl core::fmt::Debug for PeerKey {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("PeerKey(..)")
    }
}

/// True if a datagram is a message between gateways, authentic or not.
pub fn is_peer(datagram: &[u8]) -> bool {
    is_control(datagram)
        && datagram.len() == PEER_LENGTH
        && datagram[4] == PROTOCOL_VERSION << 4 | PEER_TYPE
}

impl PeerKey {
    /// The key that follows from the gateways' secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(derive(secret, b"packrat/2 peer"))
    }

    /// The message as a datagram.
    pub fn seal(&self, message: &PeerMessage) -> Vec<u8> {
        let mut out = Vec::with_capacity(PEER_LENGTH);
        out.put_u8(FIRST_BYTE);
        out.extend_from_slice(&MAGIC);
        out.put_u8(PROTOCOL_VERSION << 4 | PEER_TYPE);
        out.put_u8(message.kind as u8);
        out.put_u64(message.nonce);
        out.put_u32(message.session.get());
        let tag = self.tag(&out);
        out.extend_from_slice(&tag);
        out
    }

    /// The message in a datagram; `None` if it is not authentic.
    pub fn open(&self, datagram: &[u8]) -> Option<PeerMessage> {
        if !is_peer(datagram) {
            return None;
        }
        let (body, tag) = datagram.split_last_chunk()?;
        let is_authentic = is_same(&self.tag(body), tag);
        let mut reader = Reader::new(body.get(5..)?);
        let kind = match reader.u8().ok()? {
            0 => PeerKind::Inquiry,
            1 => PeerKind::NotMine,
            2 => PeerKind::Mine,
            3 => PeerKind::Moved,
            4 => PeerKind::Arrival,
            _ => return None,
        };
        let (nonce, session) = (reader.u64().ok()?, SessionId::new(reader.u32().ok()?));
        is_authentic.then_some(PeerMessage { kind, nonce, session })
    }

    fn tag(&self, body: &[u8]) -> [u8; TAG_LENGTH] {
        // The key comes first and every message has one length; only half of the digest is
        // revealed. Length extension is therefore impossible.
        let mut digest: [u8; 32] =
            Sha256::new_with_prefix(*self.0).chain_update(body).finalize().into();
        let mut tag = [0; TAG_LENGTH];
        tag.copy_from_slice(&digest[..TAG_LENGTH]);
        digest.zeroize();
        tag
    }
}

/// The key for one purpose that follows from a secret: 32 bytes of HKDF with SHA-256 and without salt
/// (RFC 5869).
pub fn derive(secret: &[u8; 32], purpose: &[u8]) -> Zeroizing<[u8; 32]> {
    let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
    let extracted = hmac::sign(&key(&[0; 32]), secret);
    let expanded = hmac::sign(&key(extracted.as_ref()), &[purpose, &[1]].concat());
    let mut derived = Zeroizing::new([0; 32]);
    derived.copy_from_slice(expanded.as_ref());
    derived
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;

    #[test]
    fn keys_for_purposes_are_those_of_rfc_5869() {
        struct Length;
        impl ring::hkdf::KeyType for Length {
            fn len(&self) -> usize {
                32
            }
        }
        for purpose in [&b"packrat/2 peer"[..], b"packrat/2 ticket"] {
            let salt = ring::hkdf::Salt::new(ring::hkdf::HKDF_SHA256, &[]);
            let extracted = salt.extract(&[7; 32]);
            let mut expected = [0; 32];
            extracted.expand(&[purpose], Length).unwrap().fill(&mut expected).unwrap();
            assert_eq!(*derive(&[7; 32], purpose), expected);
        }
    }

    #[test]
    fn only_gateways_with_the_same_key_open_messages_unchanged() {
        let (key, other) = (PeerKey::new(&[7; 32]), PeerKey::new(&[8; 32]));
        let answers = [PeerKind::NotMine, PeerKind::Mine, PeerKind::Moved];
        for kind in answers.into_iter().chain([PeerKind::Inquiry, PeerKind::Arrival]) {
            let message = PeerMessage { kind, nonce: 0x0123_4567, session: SessionId::new(99) };
            let datagram = key.seal(&message);
            assert_eq!(datagram.len(), PEER_LENGTH);
            assert_eq!(key.open(&datagram), Some(message));
            assert_eq!(other.open(&datagram), None);
            for bit in 0..8 * PEER_LENGTH {
                let mut changed = datagram.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(key.open(&changed), None, "bit {bit}");
            }
            for length in 0..PEER_LENGTH {
                assert!(!is_peer(&datagram[..length]) && key.open(&datagram[..length]).is_none());
            }
            assert!(is_peer(&datagram) && !is_peer(&[&datagram[..], &[0]].concat()));
            assert!(!is_peer(&[0x41; PEER_LENGTH]), "a base datagram");
            // A client must not understand these messages.
            assert!(Control::decode(&datagram).is_err());
        }
    }
}
