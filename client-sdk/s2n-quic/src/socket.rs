//! The one UDP socket of an endpoint.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// Kernel buffer to request in both directions, bytes: 60 ms at 500 Mbit/s. The kernel grants as
/// much as its limits allow.
const KERNEL_BUFFER_BYTES: usize = 4 << 20;

/// Binds a non-blocking UDP socket with large kernel buffers. s2n-quic itself sets ECN, packet
/// information, don't-fragment and GRO on its clones, which share the options with this one.
pub(crate) fn bind(local: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    // Best effort: a smaller buffer than asked for is not an error worth failing for.
    let _ = socket.set_recv_buffer_size(KERNEL_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(KERNEL_BUFFER_BYTES);
    socket.set_nonblocking(true)?;
    socket.bind(&local.into())?;
    Ok(socket.into())
}
