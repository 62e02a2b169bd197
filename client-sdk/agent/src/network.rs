//! Notices that the network is another one.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use packrat_socket::source_towards;

/// Advance of the wall clock over the monotonic clock that shows that the host has slept.
const SLEEP_ADVANCE: Duration = Duration::from_secs(3);

/// The first address that there is a route to, or the first one.
pub fn choose(found: impl IntoIterator<Item = SocketAddr>) -> Option<SocketAddr> {
    let found: Vec<_> = found.into_iter().collect();
    let reached = found.iter().find(|address| source_towards(**address).is_some());
    reached.or(found.first()).copied()
}

/// True for an address of this host's: the system lets a socket have it.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    UdpSocket::bind((address.to_canonical(), 0)).is_ok()
}

/// The last readings of the two clocks: only the wall clock continues while the host sleeps.
#[derive(Debug)]
pub(crate) struct Wakefulness {
    steady: Instant,
    of_day: SystemTime,
}

impl Wakefulness {
    pub(crate) fn new(steady: Instant, of_day: SystemTime) -> Self {
        Self { steady, of_day }
    }

    /// True if the host has slept since the last call. A clock that was set looks the same, and
    /// costs a message to the gateway.
    pub(crate) fn has_slept(&mut self, steady: Instant, of_day: SystemTime) -> bool {
        let passed = steady.saturating_duration_since(self.steady);
        let of_day_passed = of_day.duration_since(self.of_day).unwrap_or_default();
        *self = Self { steady, of_day };
        of_day_passed.saturating_sub(passed) >= SLEEP_ADVANCE
    }
}

/// Events of this host's addresses and routes, as they happen (rtnetlink(7)).
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct NetworkEvents {
    socket: std::os::fd::OwnedFd,
    buffer: Vec<u8>,
}

#[cfg(target_os = "linux")]
impl NetworkEvents {
    /// Bytes of messages taken at once.
    const BYTES: usize = 16 << 10;
    /// Addresses and routes of IPv4 and IPv6: RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE,
    /// RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE.
    const GROUPS: u32 = 0x10 | 0x40 | 0x100 | 0x400;

    /// Registers for events about networks.
    ///
    /// # Errors
    /// When the system does not report such events: the agent then detects another network by
    /// polling.
    pub(crate) fn new(registry: &mio::Registry, token: mio::Token) -> std::io::Result<Self> {
        use nix::sys::socket::{
            AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket,
        };
        use std::os::fd::AsRawFd;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, Self::GROUPS))?;
        let mut source = mio::unix::SourceFd(&socket.as_raw_fd());
        registry.register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Self { socket, buffer: vec![0; Self::BYTES] })
    }

    /// Takes the events: returns the addresses that this host has lost.
    pub(crate) fn take(&mut self) -> Vec<IpAddr> {
        use nix::errno::Errno;
        use nix::sys::socket::{MsgFlags, recv};
        use std::os::fd::AsRawFd;
        let mut lost = Vec::new();
        loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return lost,
                Ok(length) => lost.extend(lost_addresses(&self.buffer[..length])),
                // Some events were lost: polling finds their changes.
                Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(_) => return lost,
            }
        }
    }
}

/// Elsewhere another network is noticed by looking.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct NetworkEvents;

#[cfg(not(target_os = "linux"))]
impl NetworkEvents {
    pub(crate) fn new(_: &mio::Registry, _: mio::Token) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn take(&mut self) -> Vec<IpAddr> {
        Vec::new()
    }
}

/// The addresses that messages of the kernel's take from this host: RTM_DELADDR, with its attributes
/// IFA_ADDRESS and IFA_LOCAL.
#[cfg(any(target_os = "linux", test))]
fn lost_addresses(mut messages: &[u8]) -> Vec<IpAddr> {
    /// Bytes of a message's header.
    const HEADER_BYTES: usize = 16;
    const ADDRESS_MESSAGE: usize = 8;
    const RTM_DELADDR: u16 = 21;
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let mut lost = Vec::new();
    while let Some(([a, b, c, d, e, f], _)) = messages.split_first_chunk() {
        let length = u32::from_ne_bytes([*a, *b, *c, *d]) as usize;
        let Some(message) = messages.get(HEADER_BYTES..length) else { return lost };
        if u16::from_ne_bytes([*e, *f]) == RTM_DELADDR {
            let mut attributes = message.get(ADDRESS_MESSAGE..).unwrap_or_default();
            while let Some(([a, b, c, d], _)) = attributes.split_first_chunk() {
                let length = usize::from(u16::from_ne_bytes([*a, *b]));
                let Some(value) = attributes.get(4..length) else { break };
                if [IFA_ADDRESS, IFA_LOCAL].contains(&u16::from_ne_bytes([*c, *d])) {
                    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
                    let v6 = <[u8; 16]>::try_from(value).map(IpAddr::from);
                    lost.extend(v4.or(v6));
                }
                attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
        messages = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut payload = vec![2, 24, 0, 0, 1, 0, 0, 0];
        for (kind, value) in attributes {
            payload.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            payload.extend_from_slice(&kind.to_ne_bytes());
            payload.extend_from_slice(value);
            payload.resize(payload.len().next_multiple_of(4), 0);
        }
        let mut message = (16 + payload.len() as u32).to_ne_bytes().to_vec();
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&[0; 10]);
        message.extend_from_slice(&payload);
        message
    }

    #[test]
    fn the_kernel_says_which_addresses_the_host_has_lost() {
        let name: &[u8] = b"wlan0\0";
        let six = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let messages = [
            message(20, &[(2, &[192, 0, 2, 1])]),
            message(21, &[(3, name), (1, &[192, 0, 2, 2]), (2, &[192, 0, 2, 3])]),
            message(21, &[(1, &six)]),
        ]
        .concat();
        let expected: Vec<IpAddr> =
            ["192.0.2.2", "192.0.2.3", "2001:db8::1"].map(|one| one.parse().unwrap()).to_vec();
        assert_eq!(lost_addresses(&messages), expected);
        // Cut off, and of impossible lengths.
        for end in 0..messages.len() {
            assert!(lost_addresses(&messages[..end]).len() < 3);
        }
        for byte in 0..messages.len() {
            for value in [0, 1, 3, 0xff] {
                let mut broken = messages.clone();
                broken[byte] = value;
                let _ = lost_addresses(&broken);
            }
        }
    }

    #[test]
    fn this_host_has_its_addresses_and_no_others() {
        assert!(is_of_this_host([127, 0, 0, 2].into()));
        // RFC 5737, for documents.
        assert!(!is_of_this_host([192, 0, 2, 1].into()));
    }

    #[test]
    fn a_host_that_has_slept_shows_by_its_clock() {
        let (steady, of_day) = (Instant::now(), SystemTime::now());
        let mut wakefulness = Wakefulness::new(steady, of_day);
        let seconds = Duration::from_secs;
        assert!(!wakefulness.has_slept(steady + seconds(60), of_day + seconds(61)));
        assert!(wakefulness.has_slept(steady + seconds(61), of_day + seconds(600)));
        assert!(!wakefulness.has_slept(steady + seconds(62), of_day + seconds(10)), "set back");
    }
}
