//! The base connection's part of a datagram, if no session is known.

use packrat_wire::bundle::is_bundle;
use packrat_wire::control::is_control;
use packrat_wire::number::split;

/// Returns the base connection's part of a datagram: the whole datagram, or the part behind a
/// number. `None` for a message of Packrat's own.
///
/// Use it for datagrams of a gateway whose session has ended here (the gateway numbers until it
/// learns that), and for datagrams that a shim sends: one with such a part is the transport's own,
/// sent again.
pub fn base_of(datagram: &[u8]) -> Option<&[u8]> {
    let base = split(datagram).map_or(datagram, |(_, base)| base);
    (!is_control(base)).then_some(base)
}

/// True if a datagram of the shim carries datagrams of the transport, alone or in a bundle. It then
/// bears the ECN mark of the transport's last one: without a mark it would contradict the
/// transport's counts (RFC 9000, section 13.4.2.1).
pub fn bears_mark(datagram: &[u8]) -> bool {
    base_of(datagram).is_some() || is_bundle(datagram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_eack::Identifier;
    use packrat_wire::number::NumberKey;

    #[test]
    fn numbers_and_gateway_messages_are_kept_from_the_transport() {
        let header = NumberKey::new([1, 2]).header(5, Identifier::from_hash(7));
        let message = b"\x0bPkr\x28 a message of the gateway's";
        assert_eq!(base_of(b"plain"), Some(&b"plain"[..]));
        assert_eq!(base_of(&[&header[..], b"numbered"].concat()), Some(&b"numbered"[..]));
        assert_eq!(base_of(message), None);
        assert_eq!(base_of(&[&header[..], message].concat()), None);
    }
}
