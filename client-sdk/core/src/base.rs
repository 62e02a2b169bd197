//! The base connection's part of a datagram, where no session is known.

use packrat_wire::bundle::is_bundle;
use packrat_wire::control::is_control;
use packrat_wire::number::split;

/// The base connection's part of a datagram: all of it, or what is behind a number. `None`: it is a
/// message of Packrat's own.
///
/// For datagrams of a gateway whose session is not known here any more: it goes on numbering until it
/// knows that. And for what a shim sends: what has such a part is the transport's own, sent again.
pub fn base_of(datagram: &[u8]) -> Option<&[u8]> {
    let base = split(datagram).map_or(datagram, |(_, base)| base);
    (!is_control(base)).then_some(base)
}

/// True if what a shim sends carries datagrams of the transport's, alone or in a bundle: it bears the ECN
/// mark of the transport's last one. Without one it would contradict what the transport counts (RFC 9000,
/// section 13.4.2.1).
pub fn bears_mark(datagram: &[u8]) -> bool {
    base_of(datagram).is_some() || is_bundle(datagram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_eack::Identifier;
    use packrat_wire::number::NumberKey;

    #[test]
    fn numbers_come_off_and_messages_of_the_gateways_are_not_the_transports() {
        let header = NumberKey::new([1, 2]).header(5, Identifier::from_hash(7));
        let message = b"\x0bPkr\x28 a message of the gateway's";
        assert_eq!(base_of(b"plain"), Some(&b"plain"[..]));
        assert_eq!(base_of(&[&header[..], b"numbered"].concat()), Some(&b"numbered"[..]));
        assert_eq!(base_of(message), None);
        assert_eq!(base_of(&[&header[..], message].concat()), None);
    }
}
