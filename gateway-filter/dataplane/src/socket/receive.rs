//! Receiving many datagrams with one system call, batches of the kernel (GRO) included.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::{SockAddr, SockAddrStorage};

use super::control_message::{self, ControlBuffer};
use super::ecn::Ecn;
use super::send::GsoBatch;

/// Bytes for one message: the largest UDP payload, and what GRO may put together.
const MESSAGE_BYTES: usize = 65_536;
/// Distance between the buffers of two messages: an odd number of cache lines more, so that the
/// beginnings of many small messages do not compete for the same lines of the cache.
const BUFFER_STRIDE: usize = MESSAGE_BYTES + 21 * 64;
/// Most messages of one call.
const MESSAGE_LIMIT: usize = 32;
/// Fewest messages that are asked for.
const FEWEST_MESSAGES: usize = 4;

/// Buffers for one `recvmmsg` call; reused.
pub struct ReceiveBatch {
    data: Vec<u8>,
    messages: Vec<MessageInfo>,
    capacity: usize,
    /// Messages that the last call asked for, and got.
    asked: usize,
    received: usize,
    call: Call,
}

/// The arguments of the system call, written for as many messages as are asked for, not cleared
/// as a whole each time.
struct Call {
    names: Vec<SockAddrStorage>,
    controls: Vec<ControlBuffer>,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `vectors` and `headers` are written anew before each system call, and not
// read afterwards; they point at memory that the batch owns.
unsafe impl Send for Call {}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ReceiveBatch")
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
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

/// One received message: one datagram, or several of the same size (the last may be shorter) that
/// the kernel put together.
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
    /// The sender.
    pub source: Option<SocketAddr>,
    /// True if the end is missing because it did not fit.
    pub truncated: bool,
}

impl<'a> Message<'a> {
    /// The datagrams as they may be sent on.
    pub const fn batch(&self) -> GsoBatch<'a> {
        GsoBatch::plain(self.data, self.segment_size, self.ecn)
    }

    /// The datagrams with their boundaries.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.batch().datagrams()
    }
}

impl ReceiveBatch {
    /// Buffers for up to `capacity` messages of 64 KiB; one call takes at most 32.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(MESSAGE_LIMIT);
        // SAFETY: iovec and mmsghdr are plain data for which all-zero bytes are valid (null
        // pointers, lengths of zero).
        let (vector, header) =
            unsafe { (std::mem::zeroed::<libc::iovec>(), std::mem::zeroed::<libc::mmsghdr>()) };
        Self {
            data: vec![0; capacity * BUFFER_STRIDE],
            messages: Vec::with_capacity(capacity),
            capacity,
            asked: FEWEST_MESSAGES.min(capacity),
            received: 0,
            call: Call {
                names: std::iter::repeat_with(SockAddrStorage::zeroed).take(capacity).collect(),
                controls: vec![ControlBuffer::new(); capacity],
                vectors: vec![vector; capacity],
                headers: vec![header; capacity],
            },
        }
    }

    /// Receives the messages that are there, without waiting. Returns their number;
    /// [`Self::was_filled`] is true if there may be more.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing, else what the socket reports: a connected socket reports
    /// ICMP errors this way.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.messages.clear();
        self.prepare();
        let Call { names, headers, .. } = &mut self.call;
        // SAFETY: the first `asked` headers, of at most `capacity`, point at buffers of the given
        // sizes, which outlive the call.
        let result = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                self.asked as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(result) else { return Err(io::Error::last_os_error()) };
        for (header, name) in headers.iter().zip(names).take(received) {
            // SAFETY: recvmmsg has filled this header; its control buffer is one of `controls`,
            // still valid.
            let control = unsafe { control_message::parse(&header.msg_hdr) };
            let length = (header.msg_len as usize).min(MESSAGE_BYTES);
            // SAFETY: the kernel has written an address of `msg_namelen` bytes (0 for none) into
            // this storage.
            let source = unsafe {
                SockAddr::new(
                    std::mem::replace(name, SockAddrStorage::zeroed()),
                    header.msg_hdr.msg_namelen,
                )
            };
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

    /// Points the headers of the next call at their buffers.
    #[inline]
    fn prepare(&mut self) {
        // Where many were, many are expected again.
        let count = if self.was_filled() {
            self.capacity
        } else {
            (self.received * 2).max(FEWEST_MESSAGES)
        };
        self.asked = count.min(self.capacity);
        self.received = 0;
        let Call { names, controls, vectors, headers } = &mut self.call;
        let places = names.iter_mut().zip(controls).zip(vectors).zip(headers.iter_mut());
        for (buffer, (((name, control), vector), header)) in
            self.data.chunks_exact_mut(BUFFER_STRIDE).zip(places).take(self.asked)
        {
            *vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: MESSAGE_BYTES };
            let header = &mut header.msg_hdr;
            header.msg_namelen = name.size_of();
            header.msg_name = std::ptr::from_mut(name).cast();
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = ControlBuffer::CAPACITY as _;
            header.msg_flags = 0;
        }
    }

    /// True if the last call got as many messages as it asked for: there may be more.
    pub fn was_filled(&self) -> bool {
        self.received == self.asked
    }

    /// The messages of the last call, in order.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Message<'_>> {
        self.messages.iter().zip(self.data.chunks_exact(BUFFER_STRIDE)).map(|(info, buffer)| {
            Message {
                data: buffer.get(..info.length).unwrap_or_default(),
                segment_size: info.segment_size,
                ecn: info.ecn,
                local: info.local,
                source: info.source,
                truncated: info.truncated,
            }
        })
    }
}
