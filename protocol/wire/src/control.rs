//! The outer layout of control datagrams.
//!
//! ```text
//!   0        1        2        3        4
//!  +--------+--------+--------+--------+--------+----
//!  |  0x0B  |  'P'   |  'k'   |  'r'   |ver|type| ...
//!  +--------+--------+--------+--------+--------+----
//! ```
//!
//! The first byte lies in 4..=15, the range that RFC 7983 section 7 and RFC 9443 section 2 leave
//! unassigned: STUN, ZRTP, DTLS, TURN channels, (S)RTP and QUIC with its fixed bit set never start
//! like this. A QUIC sender that greases the fixed bit (RFC 9287) may; the three magic bytes tell
//! its packets apart.

use crate::codec::{DecodeError, Reader, Write};
use crate::cookie::COOKIE_LENGTH;
use crate::{MessageCounter, SessionId};

/// First byte of every control datagram.
pub const FIRST_BYTE: u8 = 0x0b;
/// Bytes 1 to 3 of every control datagram.
pub const MAGIC: [u8; 3] = *b"Pkr";
/// Version of the protocol that this crate speaks: packrat/2.
pub const PROTOCOL_VERSION: u8 = 2;
/// A Discover is padded to this length: no answer to it is longer.
pub const DISCOVER_LENGTH: usize = 64;
/// An Init is padded to this length: no answer to it is longer.
pub const INIT_LENGTH: usize = 256;
/// Longest control datagram (UDP payload): the size that every path for QUIC carries (RFC 9000,
/// section 14).
pub const MAXIMUM_LENGTH: usize = 1200;
/// Longest list of versions.
pub const MAXIMUM_VERSIONS: usize = 32;

/// Control type of a Discover.
const DISCOVER_TYPE: u8 = 1;
/// Control type of an Offer.
const OFFER_TYPE: u8 = 2;
/// Control type of an Init.
const INIT_TYPE: u8 = 3;
/// Control type of an InitAck.
const INIT_ACK_TYPE: u8 = 4;
/// Control type of a Refusal.
const REFUSAL_TYPE: u8 = 5;
/// Control type of a sealed message.
const SEALED_TYPE: u8 = 8;

/// True if a datagram is Packrat's own (to be consumed) and not the base connection's (to be
/// forwarded).
#[inline]
pub fn is_control(datagram: &[u8]) -> bool {
    datagram.len() > 4 && datagram[0] == FIRST_BYTE && datagram[1..4] == MAGIC
}

/// A gateway's reason for refusing to assist; a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum RefusalReason {
    /// No reason, or one that this crate does not know.
    Unspecified = 0,
    /// No version in common; the refusal lists the gateway's.
    Version = 1,
    /// The gateway is configured not to assist this route.
    Disabled = 2,
    /// The gateway has no room (sessions or cache).
    Full = 3,
    /// The cookie is too old or was made for another address: start again with a Discover.
    Cookie = 4,
    /// The gateway has no such session (any more). The nonce is the session and the counter of the
    /// sealed datagram. Not authenticated, so the client only asks again before it believes it
    /// (as with RFC 9000 section 10.3's stateless reset, without its token).
    Session = 5,
    /// The Init brings no token that this gateway accepts, and it asks for one.
    Token = 6,
    /// The client is left without assistance for comparison.
    Holdout = 7,
}

impl RefusalReason {
    /// The name in reports and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Version => "version",
            Self::Disabled => "disabled",
            Self::Full => "full",
            Self::Cookie => "cookie",
            Self::Session => "session",
            Self::Token => "token",
            Self::Holdout => "holdout",
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Version,
            2 => Self::Disabled,
            3 => Self::Full,
            4 => Self::Cookie,
            5 => Self::Session,
            6 => Self::Token,
            7 => Self::Holdout,
            _ => Self::Unspecified,
        }
    }
}

impl core::fmt::Display for RefusalReason {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::Unspecified => "it gives no reason that this client knows",
            Self::Version => "it speaks no version of the protocol that this client speaks",
            Self::Disabled => "it does not assist this route",
            Self::Full => "it has no room for another session of this client",
            Self::Cookie => "the proof of this client's address has expired",
            Self::Session => "it does not know this session (any more)",
            Self::Token => "it asks for an assist token, and accepts none that it was shown",
            Self::Holdout => "it leaves this client without assistance for comparison",
        })
    }
}

/// A control datagram as it travels. Sealed ones carry a [`crate::message::Message`] inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control<'a> {
    /// Client: is there a gateway on this path?
    Discover {
        /// Drawn by the client for this attempt; every answer repeats it.
        nonce: u64,
        /// Versions that the client speaks, best first.
        versions: &'a [u8],
        /// Noise message 1 of [`PROTOCOL_VERSION`], if the client sends it in advance: a gateway that is not
        /// busy answers with an InitAck, which saves a round trip; any other ignores it. May be
        /// empty.
        noise: &'a [u8],
    },
    /// The gateway will assist. It keeps no state; the cookie lets the client prove its address.
    Offer {
        /// The Discover's.
        nonce: u64,
        /// The version to use.
        version: u8,
        /// Gateway's time that the cookie is bound to.
        cookie_time: u32,
        /// See [`crate::cookie`].
        cookie: [u8; COOKIE_LENGTH],
    },
    /// Client: let us start; first Noise message.
    Init {
        /// The Discover's.
        nonce: u64,
        /// The Offer's.
        cookie_time: u32,
        /// The Offer's.
        cookie: [u8; COOKIE_LENGTH],
        /// Noise message 1, its payload are the client's [`crate::handshake::ClientParams`].
        noise: &'a [u8],
    },
    /// Gateway: second Noise message; assistance has begun.
    InitAck {
        /// The Init's.
        nonce: u64,
        /// Noise message 2, its payload are the [`crate::handshake::GatewayParams`].
        noise: &'a [u8],
    },
    /// Gateway: no.
    Refusal {
        /// Nonce of the refused message.
        nonce: u64,
        /// The reason.
        reason: RefusalReason,
        /// Versions that the gateway speaks.
        versions: &'a [u8],
    },
    /// Either side, after the handshake: see [`crate::seal`].
    Sealed {
        /// The session, as named in the InitAck.
        session: SessionId,
        /// Message counter of this direction, masked: see [`crate::seal`].
        counter: MessageCounter,
        /// Ciphertext and tag.
        ciphertext: &'a [u8],
    },
}

impl<'a> Control<'a> {
    /// Parses a UDP payload.
    ///
    /// # Errors
    /// The payload is no valid control datagram. A [`DecodeError::Version`] on a Discover-like
    /// datagram may be answered with a refusal.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, DecodeError> {
        if !is_control(datagram) {
            return Err(DecodeError::NotControl);
        }
        let (version, kind) = (datagram[4] >> 4, datagram[4] & 0x0f);
        let mut reader = Reader::new(&datagram[5..]);
        // Discover and Refusal keep their layout in every version: versions are negotiated with
        // them.
        if version != PROTOCOL_VERSION && kind != DISCOVER_TYPE && kind != REFUSAL_TYPE {
            return Err(DecodeError::Version(version));
        }
        match kind {
            DISCOVER_TYPE => Self::decode_discover(version, datagram, reader),
            OFFER_TYPE => {
                let message = Self::Offer {
                    nonce: reader.u64()?,
                    version: reader.u8()?,
                    cookie_time: reader.u32()?,
                    cookie: reader.array()?,
                };
                reader.finish()?;
                Ok(message)
            }
            INIT_TYPE => {
                if datagram.len() < INIT_LENGTH {
                    return Err(DecodeError::Unpadded);
                }
                let (nonce, cookie_time, cookie) = (reader.u64()?, reader.u32()?, reader.array()?);
                let length = reader.u16()?;
                Ok(Self::Init {
                    nonce,
                    cookie_time,
                    cookie,
                    noise: reader.bytes(usize::from(length))?,
                })
            }
            INIT_ACK_TYPE => Ok(Self::InitAck { nonce: reader.u64()?, noise: reader.rest() }),
            REFUSAL_TYPE => {
                let message = Self::Refusal {
                    nonce: reader.u64()?,
                    reason: RefusalReason::from_byte(reader.u8()?),
                    versions: short_list(&mut reader)?,
                };
                reader.finish()?;
                Ok(message)
            }
            SEALED_TYPE => Ok(Self::Sealed {
                session: SessionId::new(reader.u32()?),
                counter: MessageCounter::new(reader.u32()?),
                ciphertext: reader.rest(),
            }),
            other => Err(DecodeError::MessageType(other)),
        }
    }

    /// Decodes a Discover of any version: `reader` is behind its header.
    fn decode_discover(
        version: u8,
        datagram: &'a [u8],
        mut reader: Reader<'a>,
    ) -> Result<Self, DecodeError> {
        if datagram.len() < DISCOVER_LENGTH {
            return Err(DecodeError::Unpadded);
        }
        let nonce = reader.u64()?;
        let versions = short_list(&mut reader)?;
        // An answer must not be longer than its question. In a Discover of another version
        // the bytes behind the versions are padding here.
        let may_bring_noise = version == PROTOCOL_VERSION && datagram.len() >= INIT_LENGTH;
        let noise = match reader.u16() {
            Ok(length) if may_bring_noise => reader.bytes(usize::from(length))?,
            _ => &[],
        };
        Ok(Self::Discover { nonce, versions, noise })
    }

    /// Appends the datagram to `out`, padded if the anti-amplification rule requires it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut header = |kind: u8| {
            out.put_u8(FIRST_BYTE);
            out.extend_from_slice(&MAGIC);
            out.put_u8(PROTOCOL_VERSION << 4 | kind);
        };
        match *self {
            Self::Discover { nonce, versions, noise } => {
                header(DISCOVER_TYPE);
                out.put_u64(nonce);
                put_short_list(out, versions);
                if !noise.is_empty() {
                    put_noise(out, noise);
                }
                let padded = if noise.is_empty() { DISCOVER_LENGTH } else { INIT_LENGTH };
                out.resize(out.len().max(start + padded), 0);
            }
            Self::Offer { nonce, version, cookie_time, cookie } => {
                header(OFFER_TYPE);
                out.put_u64(nonce);
                out.put_u8(version);
                out.put_u32(cookie_time);
                out.extend_from_slice(&cookie);
            }
            Self::Init { nonce, cookie_time, cookie, noise } => {
                header(INIT_TYPE);
                out.put_u64(nonce);
                out.put_u32(cookie_time);
                out.extend_from_slice(&cookie);
                put_noise(out, noise);
                out.resize(out.len().max(start + INIT_LENGTH), 0);
            }
            Self::InitAck { nonce, noise } => {
                header(INIT_ACK_TYPE);
                out.put_u64(nonce);
                out.extend_from_slice(noise);
            }
            Self::Refusal { nonce, reason, versions } => {
                header(REFUSAL_TYPE);
                out.put_u64(nonce);
                out.put_u8(reason as u8);
                put_short_list(out, versions);
            }
            Self::Sealed { session, counter, ciphertext } => {
                header(SEALED_TYPE);
                out.put_u32(session.get());
                out.put_u32(counter.get());
                out.extend_from_slice(ciphertext);
            }
        }
    }
}

/// The nonce of a refusal of a sealed datagram, from the fields of its header as they travel.
pub fn session_nonce(session: SessionId, counter: MessageCounter) -> u64 {
    u64::from(session.get()) << 32 | u64::from(counter.get())
}

/// The length, then the message.
fn put_noise(out: &mut Vec<u8>, noise: &[u8]) {
    let noise = &noise[..noise.len().min(usize::from(u16::MAX))];
    out.put_u16(noise.len() as u16);
    out.extend_from_slice(noise);
}

/// A count byte, then at most [`MAXIMUM_VERSIONS`] bytes: more would not fit a padded Discover.
fn put_short_list(out: &mut Vec<u8>, list: &[u8]) {
    let list = &list[..list.len().min(MAXIMUM_VERSIONS)];
    out.put_u8(list.len() as u8);
    out.extend_from_slice(list);
}

fn short_list<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let count = usize::from(reader.u8()?);
    if count > MAXIMUM_VERSIONS {
        return Err(DecodeError::Field("versions"));
    }
    reader.bytes(count)
}

/// Length of the outer header of a sealed datagram.
pub(crate) const SEALED_HEADER_LENGTH: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base_transports_are_not_control() {
        for first in 0..=255u8 {
            let mut datagram = [first; 64];
            assert!(!is_control(&datagram), "{first:#x}");
            datagram[1..4].copy_from_slice(&MAGIC);
            assert_eq!(is_control(&datagram), first == FIRST_BYTE);
        }
        assert!((4..=15).contains(&FIRST_BYTE));
        assert!(!is_control(&[]) && !is_control(&[FIRST_BYTE, b'P', b'k', b'r']));
    }

    #[test]
    fn answers_are_never_longer_than_questions() {
        let (mut discover, mut offer, mut refusal) = (Vec::new(), Vec::new(), Vec::new());
        Control::Discover { nonce: 1, versions: &[1], noise: &[] }.encode(&mut discover);
        Control::Offer { nonce: 1, version: 1, cookie_time: 9, cookie: [7; COOKIE_LENGTH] }
            .encode(&mut offer);
        Control::Refusal { nonce: 1, reason: RefusalReason::Version, versions: &[1; 32] }
            .encode(&mut refusal);
        assert!(offer.len() <= discover.len() && refusal.len() <= discover.len());
    }

    #[test]
    fn unpadded_questions_are_refused() {
        let mut discover = Vec::new();
        Control::Discover { nonce: 1, versions: &[1], noise: &[] }.encode(&mut discover);
        assert_eq!(Control::decode(&discover[..DISCOVER_LENGTH - 1]), Err(DecodeError::Unpadded));
    }

    #[test]
    fn noise_counts_only_in_a_discover_that_is_as_long_as_an_init() {
        let (noise, mut discover) = ([7; 39], Vec::new());
        Control::Discover { nonce: 1, versions: &[1], noise: &noise }.encode(&mut discover);
        assert_eq!(discover.len(), INIT_LENGTH);
        let brings = |datagram: &[u8]| matches!(Control::decode(datagram), Ok(Control::Discover { noise, .. }) if !noise.is_empty());
        assert!(brings(&discover));
        assert!(!brings(&discover[..INIT_LENGTH - 1]));
        // Another version's datagram, of unknown layout.
        discover[4] = (PROTOCOL_VERSION + 1) << 4 | DISCOVER_TYPE;
        assert!(!brings(&discover));
        discover[4] = PROTOCOL_VERSION << 4 | DISCOVER_TYPE;
        discover[15..17].copy_from_slice(&[1, 0]);
        assert!(Control::decode(&discover).is_err(), "longer than the datagram");
    }

    #[test]
    fn a_discover_of_another_version_is_still_understood() {
        let mut discover = Vec::new();
        let control = Control::Discover { nonce: 77, versions: &[9, 8], noise: &[] };
        control.encode(&mut discover);
        discover[4] = 9 << 4 | DISCOVER_TYPE;
        assert_eq!(Control::decode(&discover), Ok(control));
        discover[4] = 9 << 4 | SEALED_TYPE;
        assert_eq!(Control::decode(&discover), Err(DecodeError::Version(9)));
    }

    #[test]
    fn an_unknown_reason_is_a_refusal_without_one() {
        let mut refusal = Vec::new();
        Control::Refusal { nonce: 3, reason: RefusalReason::Full, versions: &[] }
            .encode(&mut refusal);
        for reason in [0, 8, 200, 255] {
            refusal[13] = reason;
            assert!(matches!(
                Control::decode(&refusal),
                Ok(Control::Refusal { nonce: 3, reason: RefusalReason::Unspecified, .. })
            ));
        }
    }

    #[test]
    fn a_list_of_versions_longer_than_a_discover_is_malformed() {
        let mut discover = vec![0; 256];
        Control::Discover { nonce: 1, versions: &[9; MAXIMUM_VERSIONS], noise: &[] }
            .encode(&mut discover);
        let discover = &mut discover[256..];
        assert!(Control::decode(discover).is_ok());
        discover[13] += 1;
        assert_eq!(Control::decode(discover), Err(DecodeError::Field("versions")));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Control::decode(&bytes);
            if bytes.len() > 5 {
                bytes[0] = FIRST_BYTE;
                bytes[1..4].copy_from_slice(&MAGIC);
                bytes[4] = PROTOCOL_VERSION << 4 | (bytes[4] & 0x0f);
                let _ = Control::decode(&bytes);
            }
        }

        #[test]
        fn round_trip(nonce: u64, time: u32, cookie: [u8; COOKIE_LENGTH], noise in proptest::collection::vec(any::<u8>(), 0..300),
                      session: u32, counter: u32, versions in proptest::collection::vec(any::<u8>(), 0..32)) {
            for control in [
                Control::Discover { nonce, versions: &versions, noise: &[] },
                Control::Discover { nonce, versions: &versions, noise: &noise },
                Control::Offer { nonce, version: 1, cookie_time: time, cookie },
                Control::Init { nonce, cookie_time: time, cookie, noise: &noise },
                Control::InitAck { nonce, noise: &noise },
                Control::Refusal { nonce, reason: RefusalReason::Full, versions: &versions },
                Control::Sealed { session: SessionId::new(session), counter: MessageCounter::new(counter), ciphertext: &noise },
            ] {
                let mut bytes = Vec::new();
                control.encode(&mut bytes);
                prop_assert_eq!(Control::decode(&bytes), Ok(control));
            }
        }
    }
}
