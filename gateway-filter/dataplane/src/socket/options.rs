//! Opening sockets and setting the options that the dataplane relies on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Bytes asked for as receive buffer; the default of 212 kB loses bursts of GSO senders.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// Bytes asked for as send buffer of sockets towards clients.
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// The address family that a socket was opened with; a dual-stack socket is [`Family::V6`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6, or both.
    V6,
}

impl Family {
    /// The family of sockets that can reach `address`.
    pub const fn of(address: &SocketAddr) -> Self {
        match address {
            SocketAddr::V4(_) => Self::V4,
            SocketAddr::V6(_) => Self::V6,
        }
    }

    const fn domain(self) -> Domain {
        match self {
            Self::V4 => Domain::IPV4,
            Self::V6 => Domain::IPV6,
        }
    }

    /// `address` in the form that a socket of this family takes: IPv4 addresses become mapped ones
    /// (RFC 4291, 2.5.5.2).
    pub fn address(self, address: SocketAddr) -> SocketAddr {
        match (self, address) {
            (Self::V6, SocketAddr::V4(v4)) => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            (_, other) => other,
        }
    }

    const fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` lives for the whole call and `size` is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The value of an option of a socket that is an int.
fn option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let (mut value, mut size) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: `value` has this `size`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut size)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// The largest IP packet that the way from `local` (unspecified: the kernel's choice) to `remote`
/// takes, as far as the kernel knows. Does not send a packet.
pub(super) fn path_mtu(local: IpAddr, remote: IpAddr) -> io::Result<u32> {
    /// The port is not asked for the way.
    const ANY_PORT: u16 = 9;
    let socket = std::net::UdpSocket::bind((local, 0))?;
    socket.connect((remote, ANY_PORT))?;
    let mtu = match remote {
        IpAddr::V4(_) => option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU)?,
        IpAddr::V6(_) => option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
    };
    u32::try_from(mtu).map_err(|_| io::Error::other("the kernel says a negative MTU"))
}

/// Sets the options that sending and receiving share. Each of them may be missing from a kernel
/// without harm: then batches stay single datagrams, marks are not seen, or the network's own
/// fragmentation applies.
fn set_datagram_options(socket: BorrowedFd<'_>, family: Family) {
    let _ = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    // PROBE sets don't-fragment and leaves path MTU discovery to the base connection: the kernel's
    // own idea of the path MTU must not make datagrams fail which the transport is probing
    // with.
    let _ = set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    let _ = set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    if family == Family::V6 {
        let _ = set_option(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        );
        let _ = set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
    }
}

/// Prepares a socket that clients send to, also one that the shell has opened: don't-fragment, send
/// buffer, and (for a socket that is read here) receive buffer, GRO, ECN marks and destination
/// addresses. Returns its family.
///
/// # Errors
/// When it is not a UDP socket.
pub fn listener_options(socket: BorrowedFd<'_>, reads_here: bool) -> io::Result<Family> {
    let reference = SockRef::from(&socket);
    if reference.r#type()? != Type::DGRAM {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a datagram socket"));
    }
    let family = match reference.domain()? {
        Domain::IPV4 => Family::V4,
        Domain::IPV6 => Family::V6,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither an IPv4 nor an IPv6 socket",
            ));
        }
    };
    grow_buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER_BYTES);
    if reads_here {
        grow_buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES);
        set_datagram_options(socket, family);
        match family {
            Family::V4 => set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?,
            Family::V6 => set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?,
        }
    } else {
        let _ =
            set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
        if family == Family::V6 {
            let _ = set_option(
                socket,
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_PROBE,
            );
        }
    }
    Ok(family)
}

/// Asks for a large buffer; the forced form needs CAP_NET_ADMIN, the other is limited by
/// net.core.rmem_max or wmem_max.
fn grow_buffer(socket: BorrowedFd<'_>, forced: libc::c_int, limited: libc::c_int, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    if set_option(socket, libc::SOL_SOCKET, forced, bytes).is_err() {
        let _ = set_option(socket, libc::SOL_SOCKET, limited, bytes);
    }
}

/// Opens a socket on `address` that shares its port with other sockets of this process
/// (SO_REUSEPORT): the kernel spreads clients over them.
///
/// # Errors
/// When the address cannot be bound.
pub fn bind_reuse_port(address: SocketAddr) -> io::Result<OwnedFd> {
    bind(address, true)
}

/// Opens a socket on `address` that shares its port with no other socket.
///
/// # Errors
/// When the address cannot be bound; `AddrInUse` while another socket has the port, one that would
/// share it included.
pub(crate) fn bind_alone(address: SocketAddr) -> io::Result<OwnedFd> {
    bind(address, false)
}

fn bind(address: SocketAddr, shares_port: bool) -> io::Result<OwnedFd> {
    let family = Family::of(&address);
    let socket =
        Socket::new(family.domain(), Type::DGRAM.cloexec().nonblocking(), Some(Protocol::UDP))?;
    // Of ports that are shared, the kernel may choose one that another program shares already.
    let is_chosen = address.port() == 0;
    socket.set_reuse_port(shares_port && !is_chosen)?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(address))?;
    socket.set_reuse_port(shares_port)?;
    Ok(OwnedFd::from(socket))
}

/// Joins an IPv6 group for what one host sends to it (MLDv2; RFC 3678 section 5.1.2).
///
/// # Errors
/// When the group cannot be joined.
pub(crate) fn join_source(
    socket: BorrowedFd<'_>,
    group: SocketAddrV6,
    source: IpAddr,
) -> io::Result<()> {
    let storage = |address: SocketAddr| {
        let address = SockAddr::from(address);
        // SAFETY: any bytes are a valid `sockaddr_storage`, and zeroes are an unspecified address.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        // SAFETY: the address is readable for its length, which is no more than a
        // `sockaddr_storage` has; the two do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(
                address.as_ptr().cast::<u8>(),
                (&raw mut storage).cast::<u8>(),
                address.len() as usize,
            );
        }
        storage
    };
    let request = libc::group_source_req {
        gsr_interface: group.scope_id(),
        gsr_group: storage(group.into()),
        gsr_source: storage(SocketAddr::new(source, 0)),
    };
    let size = size_of::<libc::group_source_req>() as libc::socklen_t;
    // SAFETY: `request` lives for the whole call and `size` is its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::MCAST_JOIN_SOURCE_GROUP,
            (&raw const request).cast(),
            size,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a socket connected to `endpoint`, from the first of `source_ports` that is free, or else
/// from any. Returns the socket and the receive buffer in bytes that the kernel granted.
///
/// # Errors
/// When no socket can be opened (descriptors, memory) or the endpoint has no route.
pub fn open_connected(endpoint: SocketAddr, source_ports: &[u16]) -> io::Result<(OwnedFd, usize)> {
    let family = Family::of(&endpoint);
    let socket =
        Socket::new(family.domain(), Type::DGRAM.cloexec().nonblocking(), Some(Protocol::UDP))?;
    grow_buffer(socket.as_fd(), libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BUFFER_BYTES);
    set_datagram_options(socket.as_fd(), family);
    let bound = source_ports.iter().any(|&port| {
        socket.bind(&SockAddr::from(SocketAddr::new(family.unspecified(), port))).is_ok()
    });
    socket.connect(&SockAddr::from(endpoint))?;
    if bound {
        discard_received(&socket);
    }
    // Linux reports twice the usable size.
    let granted = socket.recv_buffer_size()? / 2;
    Ok((OwnedFd::from(socket), granted))
}

/// Between bind and connect anybody could send to the socket. Nothing was sent to the endpoint yet,
/// so whatever is queued now is not from it.
fn discard_received(socket: &Socket) {
    let mut byte = [std::mem::MaybeUninit::uninit(); 1];
    for _ in 0..1024 {
        if socket.recv(&mut byte).is_err() {
            return;
        }
    }
}

/// The address that a socket is bound to, `None` when it is not an internet socket.
pub fn local_address(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    SockRef::from(&socket).local_addr().ok()?.as_socket()
}

/// Raises the soft limit of open descriptors to the hard limit: every session needs one. Returns
/// the limit.
///
/// # Errors
/// When the operating system refuses.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is initialised and only read.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_sets_dont_fragment() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            if std::net::UdpSocket::bind(address).is_err() {
                println!("SKIPPED: no {address} here");
                continue;
            }
            let listener = bind_reuse_port(address.parse().unwrap()).unwrap();
            for reads_here in [false, true] {
                listener_options(listener.as_fd(), reads_here).unwrap();
                let endpoint = local_address(listener.as_fd()).unwrap();
                let (upstream, granted) = open_connected(endpoint, &[]).unwrap();
                assert!(granted > 0);
                for socket in [listener.as_fd(), upstream.as_fd()] {
                    let discover = if endpoint.is_ipv4() {
                        option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
                    } else {
                        option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
                    };
                    assert_eq!(discover.unwrap(), libc::IP_PMTUDISC_PROBE);
                }
            }
        }
    }

    #[test]
    fn a_port_that_the_kernel_chooses_is_shared_only_on_purpose() {
        // So many that chance alone would give two of them one port.
        let sockets: Vec<OwnedFd> =
            (0..600).map(|_| bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap()).collect();
        let addresses: std::collections::HashSet<_> =
            sockets.iter().map(|socket| local_address(socket.as_fd()).unwrap()).collect();
        assert_eq!(addresses.len(), sockets.len());
        bind_reuse_port(*addresses.iter().next().unwrap()).unwrap();
    }

    #[test]
    fn the_first_free_source_port_is_taken() {
        let endpoint = "127.0.0.1:9".parse().unwrap();
        let taken = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let taken_port = taken.local_addr().unwrap().port();
        // The port is below the range that the system chooses from, so that it stays free.
        let is_free = |port: &u16| std::net::UdpSocket::bind(("0.0.0.0", *port)).is_ok();
        let first = 10_000 + (std::process::id() % 10_000) as u16;
        let free_port = (first..).find(is_free).unwrap();
        let port = |socket: &OwnedFd| local_address(socket.as_fd()).unwrap().port();
        let (socket, _) = open_connected(endpoint, &[taken_port, free_port]).unwrap();
        assert_eq!(port(&socket), free_port);
        let (other, _) = open_connected(endpoint, &[taken_port, free_port]).unwrap();
        assert!(port(&other) != taken_port && port(&other) != free_port && port(&other) != 0);
    }

    #[test]
    fn a_socket_that_is_no_datagram_socket_is_refused() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listener_options(listener.as_fd(), true).is_err());
    }
}
