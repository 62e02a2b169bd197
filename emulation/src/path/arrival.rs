//! Datagrams of a socket, and how long each has waited there: the time at which the kernel had it
//! counts, not the time at which a thread of a busy host comes to read it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use socket2::Socket;

/// Buffer size requested for each socket; the kernel grants as much as its limits allow.
const SOCKET_BUFFER: usize = 8 * 1024 * 1024;

/// A datagram that has been read.
pub(crate) struct Arrived {
    pub(crate) length: usize,
    pub(crate) from: SocketAddr,
    /// The time for which the kernel has had it.
    pub(crate) waited: Duration,
}

/// Large buffers, and times of arrival. The kernel may give less; drops that follow from it show in
/// the report.
pub(crate) fn prepare(socket: &Socket) {
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    #[cfg(target_os = "linux")]
    {
        use nix::sys::socket::{setsockopt, sockopt};
        // Beyond its limits, if this process may do that.
        let _ = setsockopt(socket, sockopt::RcvBufForce, &SOCKET_BUFFER);
        let _ = setsockopt(socket, sockopt::ReceiveTimestampns, &true);
    }
}

/// Reads the next datagram.
#[cfg(target_os = "linux")]
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Arrived> {
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;
    use std::time::SystemTime;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

    let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let descriptor = socket.as_raw_fd();
    let message = recvmsg(descriptor, &mut parts, Some(&mut space), MsgFlags::empty())?;
    let address = message.address.as_ref().and_then(address_of);
    let stamp = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let waited = stamp.and_then(|stamp| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        now.checked_sub(stamp)
    });
    Ok(Arrived {
        length: message.bytes,
        from: address.ok_or(io::ErrorKind::AddrNotAvailable)?,
        waited: waited.unwrap_or_default(),
    })
}

#[cfg(target_os = "linux")]
fn address_of(address: &nix::sys::socket::SockaddrStorage) -> Option<SocketAddr> {
    let four = address.as_sockaddr_in().map(|four| SocketAddr::V4((*four).into()));
    four.or_else(|| address.as_sockaddr_in6().map(|six| SocketAddr::V6((*six).into())))
}

/// Reads the next datagram; here the kernel reports no time of arrival.
#[cfg(not(target_os = "linux"))]
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<Arrived> {
    let (length, from) = socket.recv_from(buffer)?;
    Ok(Arrived { length, from, waited: Duration::ZERO })
}
