//! packrat/1 on the wire (stub of the interface; being written).
#![forbid(unsafe_code)]

/// Whether a datagram is Packrat's own (to be consumed) and not the base connection's (to be forwarded).
pub fn is_control(datagram: &[u8]) -> bool {
    datagram.len() >= 4 && datagram[..4] == [0x0b, b'P', b'k', b'r']
}
