//! SOCKS version 5 (RFC 1928) as bytes: a program's messages on its control connection, and the
//! header of its datagrams.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of SOCKS that this agent speaks (RFC 1928).
const SOCKS_VERSION: u8 = 5;
/// The only offered method of authentication: no authentication.
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const UDP_ASSOCIATE: u8 = 3;
/// Type of an IPv4 address (RFC 1928, section 5).
const IPV4_TYPE: u8 = 1;
/// Type of a host name (RFC 1928, section 5).
const NAME_TYPE: u8 = 3;
/// Type of an IPv6 address (RFC 1928, section 5).
const IPV6_TYPE: u8 = 4;
/// Bytes of the longest header of a datagram: the longest name.
#[cfg(test)]
const LONGEST_HEADER: usize = 3 + 1 + 1 + 255 + 2;

/// A destination as a program names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Destination {
    /// An address.
    Address(SocketAddr),
    /// A host's name and a port.
    Name(String, u16),
}

/// The answer to a request (RFC 1928, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Succeeded = 0,
    Failure = 1,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// The next step of a control connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The message is incomplete.
    More,
    /// The answer, in bytes.
    Answer(Vec<u8>),
    /// The program asks for an association, for datagrams from this port; 0: it does not know yet.
    Associate(u16),
    /// The last answer, in bytes; empty if the program does not speak SOCKS version 5.
    End(Vec<u8>),
}

/// A control connection up to its association: bytes in, steps out.
#[derive(Debug, Default)]
pub(crate) struct Negotiation {
    received: Vec<u8>,
    method_chosen: bool,
}

impl Negotiation {
    /// Bytes have arrived. Call [`Self::next`] until it wants more.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The next step.
    pub(crate) fn next(&mut self) -> Step {
        if self.method_chosen { self.request() } else { self.methods() }
    }

    fn methods(&mut self) -> Step {
        match *self.received.as_slice() {
            [] => Step::More,
            [version, ..] if version != SOCKS_VERSION => Step::End(Vec::new()),
            [_, count, ref methods @ ..] if methods.len() >= usize::from(count) => {
                let methods = &methods[..usize::from(count)];
                if !methods.contains(&NO_AUTHENTICATION) {
                    return Step::End(vec![SOCKS_VERSION, NO_ACCEPTABLE_METHOD]);
                }
                self.received.drain(..2 + usize::from(count));
                self.method_chosen = true;
                Step::Answer(vec![SOCKS_VERSION, NO_AUTHENTICATION])
            }
            _ => Step::More,
        }
    }

    fn request(&mut self) -> Step {
        let [version, command, _, ref rest @ ..] = *self.received.as_slice() else {
            return Step::More;
        };
        if version != SOCKS_VERSION {
            return Step::End(Vec::new());
        }
        match destination(rest) {
            Ok(None) => Step::More,
            Err(Unknown) => Step::End(reply(Reply::AddressNotSupported, None)),
            Ok(Some(_)) if command != UDP_ASSOCIATE => {
                Step::End(reply(Reply::CommandNotSupported, None))
            }
            // The program's address is the control connection's; the address in the message
            // is ignored.
            Ok(Some((Destination::Address(address), _))) => Step::Associate(address.port()),
            Ok(Some((Destination::Name(_, port), _))) => Step::Associate(port),
        }
    }
}

/// A reply with the address of the relay.
pub(crate) fn reply(reply: Reply, relay: Option<SocketAddr>) -> Vec<u8> {
    let mut bytes = vec![SOCKS_VERSION, reply as u8, 0];
    put(&mut bytes, relay.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into()));
    bytes
}

/// The header of datagrams from this address (section 7).
pub(crate) fn header(from: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    put(&mut bytes, from);
    bytes
}

/// The destination of a program's datagram, and its payload. `None`: the datagram is malformed, or
/// a fragment, which a relay may drop (section 7).
pub(crate) fn split(datagram: &[u8]) -> Option<(Destination, &[u8])> {
    let [_, _, fragment, ref rest @ ..] = *datagram else { return None };
    let (destination, rest) = destination(rest).ok()??;
    (fragment == 0).then_some((destination, rest))
}

fn put(bytes: &mut Vec<u8>, address: SocketAddr) {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            bytes.push(IPV4_TYPE);
            bytes.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes.push(IPV6_TYPE);
            bytes.extend_from_slice(&ip.octets());
        }
    }
    bytes.extend_from_slice(&address.port().to_be_bytes());
}

/// The type of an address is unknown, or a name is invalid.
#[derive(Debug)]
struct Unknown;

/// The destination at the beginning, and the bytes behind it; `None` if bytes are missing.
fn destination(bytes: &[u8]) -> Result<Option<(Destination, &[u8])>, Unknown> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
    let (length, rest) = match *kind {
        IPV4_TYPE => (4, rest),
        IPV6_TYPE => (16, rest),
        NAME_TYPE => match rest.split_first() {
            None => return Ok(None),
            Some((0, _)) => return Err(Unknown),
            Some((length, rest)) => (usize::from(*length), rest),
        },
        _ => return Err(Unknown),
    };
    let Some((host, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    let Some((port, rest)) = rest.split_first_chunk() else { return Ok(None) };
    let port = u16::from_be_bytes(*port);
    let ip = |ip: IpAddr| Destination::Address((ip.to_canonical(), port).into());
    let destination = match host.len() {
        4 if *kind == IPV4_TYPE => ip(<[u8; 4]>::try_from(host).map_err(|_| Unknown)?.into()),
        16 if *kind == IPV6_TYPE => {
            ip(Ipv6Addr::from(<[u8; 16]>::try_from(host).map_err(|_| Unknown)?).into())
        }
        _ => {
            let name = std::str::from_utf8(host).map_err(|_| Unknown)?;
            if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(Unknown);
            }
            // Some programs write an address as a name.
            name.parse().map_or_else(|_| Destination::Name(name.to_ascii_lowercase(), port), ip)
        }
    };
    Ok(Some((destination, rest)))
}

/// Checks the result of parsing bytes: for the fuzz target, and the test of its corpus.
///
/// # Panics
/// When the result is wrong.
#[cfg(any(test, fuzzing))]
pub(crate) fn check(data: &[u8]) {
    let steps = |parts: &mut dyn Iterator<Item = &[u8]>| {
        let (mut negotiation, mut steps) = (Negotiation::default(), Vec::new());
        for part in parts {
            negotiation.receive(part);
            loop {
                let step = negotiation.next();
                match step {
                    Step::More => break,
                    Step::Answer(_) => steps.push(step),
                    Step::Associate(_) | Step::End(_) => {
                        steps.push(step);
                        return steps;
                    }
                }
            }
        }
        steps
    };
    let at_once = steps(&mut std::iter::once(data));
    assert_eq!(steps(&mut data.chunks(1)), at_once, "byte by byte it is something else");
    assert!(at_once.len() <= 2, "one answer, and the end or an association");
    if let Some((Destination::Address(to), payload)) = split(data) {
        let again = [&header(to)[..], payload].concat();
        assert_eq!(split(&again), Some((Destination::Address(to), payload)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzz_targets_corpus() {
        let expected = ["empty", "associate", "connect", "password_only", "by_name", "by_address"];
        packrat_fuzz_entry::corpus::run("socks", &expected, check);
    }

    fn address(text: &str) -> Destination {
        Destination::Address(text.parse().unwrap())
    }

    #[test]
    fn a_program_associates_byte_by_byte_or_all_at_once() {
        let said = b"\x05\x02\x02\x00\x05\x03\x00\x01\x00\x00\x00\x00\x12\x34";
        let mut negotiation = Negotiation::default();
        let mut steps = Vec::new();
        for byte in said {
            negotiation.receive(&[*byte]);
            steps.extend(Some(negotiation.next()).filter(|step| *step != Step::More));
        }
        assert_eq!(steps, [Step::Answer(vec![5, 0]), Step::Associate(0x1234)]);
        let mut negotiation = Negotiation::default();
        negotiation.receive(said);
        assert_eq!([negotiation.next(), negotiation.next()], *steps);
    }

    #[test]
    fn what_is_not_served_gets_the_answer_of_the_standard() {
        let answer = |said: &[u8]| {
            let mut negotiation = Negotiation::default();
            negotiation.receive(said);
            match negotiation.next() {
                Step::Answer(_) => negotiation.next(),
                step => step,
            }
        };
        assert_eq!(answer(b"GET / HTTP/1.1\r\n"), Step::End(vec![]));
        assert_eq!(answer(b"\x04\x01\x00\x50"), Step::End(vec![]), "version 4");
        assert_eq!(answer(b"\x05\x01\x02"), Step::End(vec![5, 0xff]), "a password only");
        let refused = |code: u8| Step::End(vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(answer(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"), refused(7));
        assert_eq!(answer(b"\x05\x01\x00\x05\x03\x00\x09"), refused(8));
        assert_eq!(answer(b"\x05\x01\x00\x05\x03\x00\x03\x00\x00\x50"), refused(8), "no name");
    }

    #[test]
    fn datagrams_have_their_destination_in_front() {
        for (from, expected) in [
            ("192.0.2.7:443", "\0\0\0\x01\u{40}"),
            ("[2001:db8::1]:443", "\0\0\0\x04"),
            ("[::ffff:192.0.2.7]:443", "\0\0\0\x01"),
        ] {
            let from: SocketAddr = from.parse().unwrap();
            let bytes = [&header(from)[..], b"payload"].concat();
            assert_eq!(bytes[..4], expected.as_bytes()[..4]);
            let canonical = SocketAddr::from((from.ip().to_canonical(), 443));
            let split = split(&bytes);
            assert_eq!(split, Some((Destination::Address(canonical), &b"payload"[..])));
        }
        let named = b"\0\0\0\x03\x0cEdge.Example\x01\xbb.";
        let name = Destination::Name("edge.example".to_owned(), 443);
        assert_eq!(split(named), Some((name, &b"."[..])));
        assert_eq!(split(b"\0\0\0\x03\x091.2.3.4.\0\x01"), None, "cut off");
        assert_eq!(split(b"\0\0\0\x03\x071.2.3.4\0\x01"), Some((address("1.2.3.4:1"), &b""[..])));
        for wrong in
            [&b""[..], b"\0\0", b"\0\0\x01\x01\x01\x02\x03\x04\0\x01x", b"\0\0\0\x02abcdef"]
        {
            assert_eq!(split(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_longest_name_fits() {
        let name = vec![b'a'; 255];
        let bytes = [&b"\0\0\0\x03\xff"[..], &name, &[0, 80]].concat();
        assert_eq!(bytes.len(), LONGEST_HEADER);
        let name = String::from_utf8(name).unwrap();
        assert_eq!(split(&bytes), Some((Destination::Name(name, 80), &b""[..])));
    }
}
