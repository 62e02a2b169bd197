//! The connection ID that a QUIC client sends to (RFC 8999), as its datagrams show it.
//!
//! A client that changes it retires the old one, and a server answers what still comes to a retired
//! one with a stateless reset (RFC 9000, section 10.3). A client that takes it for its own loses the
//! connection. So nothing is sent to a connection ID again after one that is sent to another.

/// Connection IDs are no longer than this in QUIC, version 1.
const LONGEST: usize = 20;

/// The server's connection ID in use.
#[derive(Debug, Default)]
pub(crate) struct Destination {
    /// Its length, which only a long header tells.
    length: Option<usize>,
    /// That of the newest datagram with a short header.
    newest: Option<([u8; LONGEST], usize)>,
}

impl Destination {
    /// A datagram came from the server: its long header has the length of the server's connection
    /// IDs. Of other protocols' datagrams it may be anything, which does no harm:
    /// [`Self::is_in_use`] asks for short headers alone.
    pub(crate) fn on_received(&mut self, datagram: &[u8]) {
        if datagram.first().is_some_and(|first| first & 0x80 != 0)
            && let Some(length) = source_length(datagram).filter(|length| *length <= LONGEST)
        {
            self.length = Some(length);
        }
    }

    /// The client sends a datagram. Returns true if it goes to another connection ID than the one
    /// before.
    pub(crate) fn on_sent(&mut self, datagram: &[u8]) -> bool {
        let Some(id) = self.of(datagram) else { return false };
        let mut newest = [0; LONGEST];
        newest[..id.len()].copy_from_slice(id);
        let newest = Some((newest, id.len()));
        let has_changed = self.newest.is_some() && self.newest != newest;
        self.newest = newest;
        has_changed
    }

    /// False if a datagram goes to a connection ID that is no longer used.
    pub(crate) fn is_in_use(&self, datagram: &[u8]) -> bool {
        match (self.of(datagram), &self.newest) {
            (Some(id), Some((newest, length))) => *id == newest[..*length],
            _ => true,
        }
    }

    /// The connection ID of a datagram with a short header.
    fn of<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (first, rest) = datagram.split_first()?;
        if first & 0xc0 != 0x40 {
            return None;
        }
        rest.get(..self.length?)
    }
}

/// Length of the source connection ID of a long header.
fn source_length(datagram: &[u8]) -> Option<usize> {
    let rest = datagram.get(5..)?;
    let (&destination, rest) = rest.split_first()?;
    rest.get(usize::from(destination)).map(|length| usize::from(*length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(source: &[u8]) -> Vec<u8> {
        let lengths_and_ids = [&[4, 1, 2, 3, 4, source.len() as u8][..], source].concat();
        [&[0xc0, 0, 0, 0, 1][..], &lengths_and_ids, &[0; 20]].concat()
    }

    fn short(id: &[u8], rest: u8) -> Vec<u8> {
        [&[0x40][..], id, &[rest; 20]].concat()
    }

    #[test]
    fn a_connection_id_is_out_of_use_when_another_one_is_used() {
        let mut destination = Destination::default();
        destination.on_received(&long(&[7; 8]));
        assert!(!destination.on_sent(&short(&[7; 8], 1)));
        assert!(!destination.on_sent(&short(&[7; 8], 2)));
        assert!(destination.is_in_use(&short(&[7; 8], 1)));
        assert!(destination.on_sent(&short(&[9; 8], 3)));
        assert!(!destination.is_in_use(&short(&[7; 8], 1)));
        assert!(destination.is_in_use(&short(&[9; 8], 1)));
        assert!(destination.is_in_use(&long(&[7; 8])), "a handshake's are ignored, not reset");
    }

    #[test]
    fn servers_without_connection_ids_and_other_protocols_have_none_out_of_use() {
        let mut unknown = Destination::default();
        assert!(!unknown.on_sent(&short(&[7; 8], 1)) && !unknown.on_sent(&short(&[9; 8], 1)));
        assert!(unknown.is_in_use(&short(&[7; 8], 1)));
        let mut empty = Destination::default();
        empty.on_received(&long(&[]));
        assert!(!empty.on_sent(&short(&[], 1)) && !empty.on_sent(&short(&[], 2)));
        assert!(empty.is_in_use(&short(&[], 1)));
        for datagram in [&[][..], &[0x80], &[0xc0, 0, 0, 0, 1, 200, 1], &[0x40], &long(&[1; 21])] {
            let mut any = Destination::default();
            any.on_received(datagram);
            assert!(!any.on_sent(datagram) && any.is_in_use(datagram));
        }
    }
}
