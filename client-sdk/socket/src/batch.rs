//! Datagrams that arrive together: several in one call, some of them coalesced by the kernel.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};

/// Buffer of one message, in bytes: the longest that the kernel coalesces.
const MESSAGE_BYTES: usize = 65_536;
/// Size to request for a socket's buffers, in bytes; the kernel grants as much as its limits allow.
const BUFFER_BYTES: usize = 4 << 20;

/// The ECN mark of a datagram.
pub type Mark = Option<EcnCodepoint>;

/// EMSGSIZE.
const TOO_LONG: i32 = if cfg!(windows) {
    10_040
} else if cfg!(any(target_os = "linux", target_os = "android")) {
    90
} else {
    40
};

/// True if the link has refused a datagram as too long.
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(TOO_LONG)
}

/// The mark for sending datagrams again after one with this mark: it declares that the transport is
/// capable of ECN, as before. Only the network reports congestion, of one datagram.
pub(crate) fn capable(mark: Mark, before: Mark) -> Mark {
    if mark == Some(EcnCodepoint::Ce) { before.or(Some(EcnCodepoint::Ect0)) } else { mark }
}

/// Prepares a socket for batches, ECN and don't-fragment, with large buffers. It does not block any
/// more.
///
/// # Errors
/// When the system refuses a required option.
pub fn with_large_buffers<'s, S>(socket: &'s S) -> io::Result<UdpSocketState>
where
    UdpSockRef<'s>: From<&'s S>,
{
    let state = UdpSocketState::new(socket.into())?;
    let _ = state.set_recv_buffer_size(socket.into(), BUFFER_BYTES);
    let _ = state.set_send_buffer_size(socket.into(), BUFFER_BYTES);
    Ok(state)
}

/// Buffers for one call that receives; reused.
pub struct Batch {
    data: Vec<u8>,
    messages: [RecvMeta; BATCH_SIZE],
    received: usize,
}

/// Datagrams of one sender that arrived together: all of `size` bytes, the last may be shorter.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Bytes of all datagrams.
    pub data: &'a [u8],
    /// Bytes of each.
    pub size: usize,
    /// ECN mark of the datagrams.
    pub mark: Mark,
    /// Sender of the datagrams.
    pub source: SocketAddr,
    /// The address of this host that they were sent to.
    pub local: Option<IpAddr>,
}

impl<'a> Message<'a> {
    /// A message of one datagram.
    pub fn of_one(source: SocketAddr, data: &'a [u8], mark: Mark) -> Self {
        Self { data, size: data.len().max(1), mark, source, local: None }
    }

    /// The datagrams one by one, each with its mark.
    pub fn datagrams(&self) -> impl Iterator<Item = (&'a [u8], Mark)> + use<'a> {
        let (data, mark) = (self.data, self.mark);
        let empty = data.is_empty().then_some(data);
        empty.into_iter().chain(data.chunks(self.size)).map(move |datagram| (datagram, mark))
    }

    /// The number of them.
    pub fn count(&self) -> u64 {
        self.data.len().div_ceil(self.size).max(1) as u64
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batch").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Batch {
    /// A batch of 2 MiB.
    pub fn new() -> Self {
        Self {
            data: vec![0; BATCH_SIZE * MESSAGE_BYTES],
            messages: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
        }
    }

    /// Receives the datagrams that have arrived.
    ///
    /// # Errors
    /// `WouldBlock` if no datagram is there.
    pub fn receive(&mut self, state: &UdpSocketState, socket: UdpSockRef<'_>) -> io::Result<()> {
        self.received = 0;
        let mut rest = self.data.as_mut_slice();
        let mut buffers = [const { None }; BATCH_SIZE];
        for buffer in &mut buffers {
            let (head, tail) = rest.split_at_mut(MESSAGE_BYTES.min(rest.len()));
            *buffer = Some(head);
            rest = tail;
        }
        let mut buffers =
            buffers.map(|buffer| IoSliceMut::new(buffer.unwrap_or(Default::default())));
        let messages = &mut self.messages;
        self.received = state.recv(socket, &mut buffers, messages)?;
        Ok(())
    }

    /// False if the last call has received all datagrams: a later arrival is another event, on
    /// systems with edge-triggered events.
    pub fn may_have_more(&self) -> bool {
        // recvmmsg(2) returns fewer only when there are no more.
        !cfg!(target_os = "linux") || self.received == BATCH_SIZE
    }

    /// The messages of the last call.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        let buffers = self.data.chunks(MESSAGE_BYTES);
        buffers.zip(&self.messages).take(self.received).map(|(buffer, meta)| Message {
            data: buffer.get(..meta.len).unwrap_or_default(),
            size: meta.stride.max(1),
            mark: meta.ecn,
            source: meta.addr,
            local: meta.dst_ip,
        })
    }
}
