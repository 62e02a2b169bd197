//! UDP sockets with batches, segmentation offload and ECN marks: quinn-udp's, for mio.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use mio::net::UdpSocket;
use packrat_client::base_of;
use packrat_socket::{Batch, Mark, is_too_long, with_large_buffers};
use quinn_udp::{Transmit, UdpSocketState};
use serde::Deserialize;

/// Most bytes of one send: the largest UDP payload over IPv4.
const MOST_BYTES: usize = 65_507;
/// Length that no datagram has.
const NONE_REFUSED_BYTES: usize = usize::MAX;

/// The treatment of datagrams that are longer than the path MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DontFragment {
    /// Forbidden for the datagrams of a program that begins with QUIC, which finds the path MTU
    /// itself (RFC 9000, section 14); allowed for all others, as from any socket, if they are
    /// longer than the path MTU that the system knows.
    #[default]
    Auto,
    /// Fragmentation is forbidden: datagrams that are too long are lost.
    Always,
    /// Fragmentation is allowed.
    Never,
}

impl FromStr for DontFragment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            other => Err(format!("{other:?} is neither auto, nor always, nor never")),
        }
    }
}

/// True for the first datagram of a QUIC connection: a long header (RFC 8999, section 5.1) of some
/// version, in as many bytes as clients have to send (RFC 9000, section 14.1).
pub(crate) fn is_quic_initial(datagram: &[u8]) -> bool {
    const SHORTEST_BYTES: usize = 1200;
    let [first, version @ .., _] = datagram.first_chunk::<6>().copied().unwrap_or_default();
    datagram.len() >= SHORTEST_BYTES && first & 0xc0 == 0xc0 && version != [0; 4]
}

/// Lets the system fragment datagrams longer than the path MTU that it knows.
#[cfg(target_os = "linux")]
fn allow_fragments(socket: &std::net::UdpSocket) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt::Ipv6DontFrag};
    use rustix::net::sockopt::{
        Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    };
    set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::WANT)?;
    if socket.local_addr()?.is_ipv6() {
        set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::WANT)?;
        setsockopt(socket, Ipv6DontFrag, &false)?;
    }
    Ok(())
}

/// Elsewhere don't-fragment stays as quinn-udp sets it.
#[cfg(not(target_os = "linux"))]
fn allow_fragments(_: &std::net::UdpSocket) -> io::Result<()> {
    Ok(())
}

/// A socket that may send from addresses of other hosts: for datagrams that the system redirects
/// (TPROXY), and for their answers. It shares its address with no other socket (SO_REUSEADDR),
/// because that would get redirected datagrams.
///
/// # Errors
/// When the system refuses it: Linux and CAP_NET_ADMIN are required.
#[cfg(target_os = "linux")]
pub fn transparent(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    use socket2::{Domain, Protocol, Socket, Type};
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv4() {
        socket.set_ip_transparent_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_ip_transparent_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Other systems redirect otherwise.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn transparent(_: SocketAddr) -> io::Result<std::net::UdpSocket> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A socket that does not block.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) socket: UdpSocket,
    state: UdpSocketState,
    /// The length of the shortest datagram that the link has refused for its number.
    refused: AtomicUsize,
}

/// The receiver of datagrams, and the address that they come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
}

impl Socket {
    pub(crate) fn new(socket: std::net::UdpSocket, may_fragment: bool) -> io::Result<Self> {
        let state = with_large_buffers(&socket)?;
        if may_fragment {
            allow_fragments(&socket)?;
        }
        Ok(Self {
            socket: UdpSocket::from_std(socket),
            state,
            refused: AtomicUsize::new(NONE_REFUSED_BYTES),
        })
    }

    /// Receives the datagrams that have arrived.
    ///
    /// # Errors
    /// `WouldBlock` if no datagram is there.
    pub(crate) fn receive(&self, batch: &mut Batch) -> io::Result<()> {
        batch.receive(&self.state, (&self.socket).into())
    }

    /// Sends datagrams of `size` bytes each (the last may be shorter), and returns how many the
    /// system would not send.
    pub(crate) fn send(&self, way: Way, data: &[u8], size: usize, mark: Mark) -> u64 {
        let size = size.max(1);
        let most = self.state.max_gso_segments().min(MOST_BYTES / size).max(1);
        let mut errors = 0;
        // An empty datagram also counts.
        let empty = data.is_empty().then_some(data);
        for chunk in empty.into_iter().chain(data.chunks(size * most)) {
            let Err(error) = self.try_send(way, chunk, size, mark) else { continue };
            if error.kind() == io::ErrorKind::WouldBlock {
                errors += chunk.len().div_ceil(size).max(1) as u64;
                continue;
            }
            if chunk.len() <= size {
                errors += u64::from(!self.send_plain(way, chunk, mark, &error));
                continue;
            }
            // The system, or a device, does not take them together.
            for datagram in chunk.chunks(size) {
                let sent = self.try_send(way, datagram, size, mark);
                let is_sent = |error| self.send_plain(way, datagram, mark, &error);
                errors += u64::from(!sent.map_or_else(is_sent, |()| true));
            }
        }
        errors
    }

    /// Sends a datagram without its number, if the link has refused it for that. True: it has left.
    fn send_plain(&self, way: Way, datagram: &[u8], mark: Mark, error: &io::Error) -> bool {
        let base = base_of(datagram).filter(|base| base.len() < datagram.len());
        let Some(base) = base.filter(|_| is_too_long(error)) else { return false };
        self.refused.fetch_min(base.len(), Ordering::Relaxed);
        self.try_send(way, base, base.len(), mark).is_ok()
    }

    /// The length of the shortest datagram that the link has refused for its number since the last call.
    pub(crate) fn take_refused(&self) -> Option<usize> {
        let length = self.refused.swap(NONE_REFUSED_BYTES, Ordering::Relaxed);
        (length != NONE_REFUSED_BYTES).then_some(length)
    }

    fn try_send(&self, way: Way, contents: &[u8], size: usize, ecn: Mark) -> io::Result<()> {
        let segment_size = (contents.len() > size).then_some(size);
        let transmit =
            Transmit { destination: way.to, ecn, contents, segment_size, src_ip: way.from };
        self.state.try_send((&self.socket).into(), &transmit)
    }
}

/// Datagrams for one receiver, gathered until one send can't take the next.
#[derive(Debug, Default)]
pub(crate) struct Run {
    data: Vec<u8>,
    size: usize,
    mark: Mark,
    /// The last datagram was shorter than the others.
    is_over: bool,
}

impl Run {
    /// Adds a datagram behind a header, and first sends the batch if the datagram does not fit it.
    /// Returns the datagrams that the system refused.
    pub(crate) fn add(
        &mut self,
        socket: &Socket,
        way: Way,
        header: &[u8],
        datagram: &[u8],
        mark: Mark,
    ) -> u64 {
        // If the system coalesces datagrams again, programs look for one header only.
        self.add_to(socket, way, header, datagram, mark, header.is_empty())
    }

    /// Adds a datagram towards a gateway, behind its number, if it has one.
    pub(crate) fn add_numbered(
        &mut self,
        socket: &Socket,
        way: Way,
        number: &[u8],
        datagram: &[u8],
        mark: Mark,
    ) -> u64 {
        self.add_to(socket, way, number, datagram, mark, true)
    }

    fn add_to(
        &mut self,
        socket: &Socket,
        way: Way,
        header: &[u8],
        datagram: &[u8],
        mark: Mark,
        may_go_on: bool,
    ) -> u64 {
        let length = header.len() + datagram.len();
        let goes_on = may_go_on
            && !self.is_over
            && self.mark == mark
            && length <= self.size
            && length > 0
            && self.data.len() + length <= MOST_BYTES;
        let mut errors = 0;
        if self.data.is_empty() || !goes_on {
            errors = self.flush(socket, way);
            (self.size, self.mark) = (length, mark);
        }
        if length == 0 {
            return errors + socket.send(way, &[], 0, mark);
        }
        self.data.extend_from_slice(header);
        self.data.extend_from_slice(datagram);
        self.is_over = length < self.size;
        errors
    }

    /// Sends the batched datagrams.
    pub(crate) fn flush(&mut self, socket: &Socket, way: Way) -> u64 {
        if self.data.is_empty() {
            return 0;
        }
        let errors = socket.send(way, &self.data, self.size, self.mark);
        self.data.clear();
        self.is_over = false;
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another user's socket at the same port would get redirected datagrams, or withhold them from
    /// the agent.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_socket_for_redirected_datagrams_has_an_exclusive_address() {
        use socket2::{Domain, Socket, Type};
        let own = match transparent(([127, 0, 0, 1], 0).into()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                println!("SKIPPED: it needs CAP_NET_ADMIN");
                return;
            }
            own => own.unwrap(),
        };
        let port = own.local_addr().unwrap().port();
        for address in [[127, 0, 0, 1], [0; 4]] {
            let other = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            other.set_reuse_address(true).unwrap();
            other.bind(&SocketAddr::from((address, port)).into()).unwrap_err();
        }
    }

    /// The longest datagram has no room for a number.
    #[test]
    fn what_has_room_without_its_number_only_leaves_without() {
        let receiver = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let socket = Socket::new(socket, false).unwrap();
        let way = Way { to: receiver.local_addr().unwrap(), from: None };
        let mut run = Run::default();
        for (length, refused) in [(1200, None), (MOST_BYTES, Some(MOST_BYTES))] {
            let (number, datagram) = (*b"\x0bPkr\x29\0\0\x07", vec![length as u8; length]);
            let mut errors = run.add_numbered(&socket, way, &number, &datagram, None);
            errors += run.flush(&socket, way);
            assert_eq!((errors, socket.take_refused()), (0, refused), "{length}");
            let mut buffer = vec![0; 1 << 16];
            let received = receiver.recv(&mut buffer).unwrap();
            assert_eq!(received, if refused.is_some() { length } else { length + number.len() });
            assert!(buffer[..received].ends_with(&datagram));
        }
    }

    #[test]
    fn quic_finds_its_path_mtu_itself_and_others_do_not() {
        let long = |first: u8, version: u32, length: usize| {
            let mut bytes = vec![0; length];
            bytes[0] = first;
            bytes[1..5].copy_from_slice(&version.to_be_bytes());
            is_quic_initial(&bytes)
        };
        assert!(
            long(0xc3, 1, 1200) && long(0xd0, 0x6b33_43cf, 1452) && long(0xc0, 0x0a1a_2a3a, 1200)
        );
        // Version negotiation, a header that is too short, a short header, WireGuard's, and DTLS's.
        for (first, version, length) in [
            (0xc3, 0, 1200),
            (0xc3, 1, 1199),
            (0x43, 1, 1200),
            (4, 0, 1400),
            (22, 0xfefd_0000, 1300),
        ] {
            assert!(!long(first, version, length), "{first:#x} {version:#x} {length}");
        }
        assert!(!is_quic_initial(b"") && !is_quic_initial(b"\xc3"));
    }
}
