//! Agreements of servers with clients of their own.

use std::path::{Path, PathBuf};

/// Script of both ends of the transfer through WireGuard.
pub(crate) const WIREGUARD_SCRIPT: &str = include_str!("client/wireguard.py");
/// Script of both ends of the transfer by WebRTC.
pub(crate) const WEBRTC_SCRIPT: &str = include_str!("client/webrtc.py");
/// Bytes of a datagram: a small state of a game.
const DATAGRAM_BYTES: usize = 200;

/// The datagram with this number: the number, big-endian, and bytes that follow from it.
pub(crate) fn echo_datagram(number: u64) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < DATAGRAM_BYTES {
        // xorshift: the bytes after the number differ everywhere.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes
}

/// The keys of a WireGuard tunnel, in the directory of an arm.
pub(crate) fn wireguard_keys(work: &Path) -> PathBuf {
    work.join("wireguard.keys")
}

/// The file with a media server's ports, for media and for pages, in the directory of an arm.
pub(crate) fn media_server_ports(work: &Path) -> PathBuf {
    work.join("media-server.ports")
}

/// The files in which WebRTC's peers exchange their descriptions.
pub(crate) struct Signalling {
    /// The sender's.
    pub(crate) offer: PathBuf,
    /// The receiver's.
    pub(crate) answer: PathBuf,
}

impl Signalling {
    /// The files in this directory of an arm.
    pub(crate) fn new(work: &Path) -> Self {
        Self { offer: work.join("offer.json"), answer: work.join("answer.json") }
    }
}
