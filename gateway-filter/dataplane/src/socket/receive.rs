//! Receiving many datagrams with one system call, batches of the kernel (GRO) included.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::{SockAddr, SockAddrStorage};

use super::Ecn;
use super::control_message::{self, ControlBuffer};

/// Bytes for one message: the largest UDP payload, and what GRO may put together.
const MESSAGE_BYTES: usize = 65_536;
/// Most messages of one call.
const LIMIT: usize = 32;

/// Buffers for one `recvmmsg` call; reused.
#[derive(Debug)]
pub struct ReceiveBatch {
    data: Vec<u8>,
    messages: Vec<MessageInfo>,
    capacity: usize,
    received: usize,
}

#[derive(Debug, Clone, Copy)]
struct MessageInfo {
    length: usize,
    segment_size: usize,
    ecn: Ecn,
    local: Option<IpAddr>,
    source: Option<SocketAddr>,
    truncated: bool,
}

/// One received message: one datagram, or several of the same size (the last may be shorter) that the kernel put together.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The datagrams, one after the other.
    pub data: &'a [u8],
    /// Bytes of each datagram but the last; the length of `data` for a single one.
    pub segment_size: usize,
    /// The ECN mark, the same for all of them.
    pub ecn: Ecn,
    /// The address that it was sent to, when the socket reports it.
    pub local: Option<IpAddr>,
    /// Who sent it.
    pub source: Option<SocketAddr>,
    /// Whether the end is missing because it did not fit.
    pub truncated: bool,
}

impl<'a> Message<'a> {
    /// The datagrams with their boundaries.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        super::send::Piece { data: self.data, segment_size: self.segment_size, ecn: self.ecn }.datagrams()
    }
}

impl ReceiveBatch {
    /// Buffers for up to `capacity` messages of 64 KiB; one call takes at most 32.
    pub fn new(capacity: usize) -> Self {
        Self {
            data: vec![0; capacity.min(LIMIT) * MESSAGE_BYTES],
            messages: Vec::with_capacity(capacity),
            capacity: capacity.min(LIMIT),
            received: 0,
        }
    }

    /// Receives what is there, without waiting. Returns the number of messages; when it equals the capacity there may be more.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing, else what the socket reports: a connected socket reports ICMP errors this way.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.messages.clear();
        self.received = 0;
        let count = self.capacity;
        let mut names: [SockAddrStorage; LIMIT] = std::array::from_fn(|_| SockAddrStorage::zeroed());
        let mut controls = [const { ControlBuffer::new() }; LIMIT];
        // SAFETY: iovec and mmsghdr are plain data for which all-zero bytes are valid (null pointers, lengths of zero).
        let (mut vectors, mut headers) = unsafe {
            (std::mem::zeroed::<[libc::iovec; LIMIT]>(), std::mem::zeroed::<[libc::mmsghdr; LIMIT]>())
        };
        for (index, buffer) in self.data.chunks_exact_mut(MESSAGE_BYTES).take(count).enumerate() {
            vectors[index] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: MESSAGE_BYTES };
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = names[index].size_of();
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].as_mut_ptr();
            header.msg_controllen = ControlBuffer::CAPACITY as _;
        }
        // SAFETY: the first `count` headers point at buffers of the given sizes, which outlive the call.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(result) else { return Err(io::Error::last_os_error()) };
        for (header, name) in headers.iter().zip(names).take(received) {
            // SAFETY: recvmmsg has filled this header; its control buffer is `controls`, still valid.
            let control = unsafe { control_message::parse(&header.msg_hdr) };
            let length = (header.msg_len as usize).min(MESSAGE_BYTES);
            // SAFETY: the kernel has written an address of `msg_namelen` bytes (0 for none) into this storage.
            let source = unsafe { SockAddr::new(name, header.msg_hdr.msg_namelen) };
            self.messages.push(MessageInfo {
                length,
                segment_size: control.segment_size.map_or(length, |size| size.min(length)),
                ecn: control.ecn,
                local: control.local,
                source: source.as_socket().map(super::canonical),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            });
        }
        self.received = received;
        Ok(received)
    }

    /// Whether the last call filled every buffer.
    pub fn was_filled(&self) -> bool {
        self.received == self.capacity
    }

    /// What the last call received, in order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        self.messages.iter().zip(self.data.chunks_exact(MESSAGE_BYTES)).map(|(info, buffer)| Message {
            data: buffer.get(..info.length).unwrap_or_default(),
            segment_size: info.segment_size,
            ecn: info.ecn,
            local: info.local,
            source: info.source,
            truncated: info.truncated,
        })
    }
}
