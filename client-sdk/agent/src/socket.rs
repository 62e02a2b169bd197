//! UDP sockets with batches, segmentation offload and ECN marks: quinn-udp's, for mio.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use mio::net::UdpSocket;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};

/// Bytes for one message: what the kernel may put together.
const MESSAGE_BYTES: usize = 65_536;
/// Most bytes of one send: the largest UDP payload over IPv4.
const MOST_BYTES: usize = 65_507;
/// Bytes asked for as buffers; the kernel gives what its limits allow.
const BUFFER_BYTES: usize = 4 << 20;

/// The ECN mark of a datagram.
pub(crate) type Mark = Option<EcnCodepoint>;

/// A socket that does not block.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) socket: UdpSocket,
    state: UdpSocketState,
}

/// The receiver of datagrams, and the address that they come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) to: SocketAddr,
    pub(crate) from: Option<IpAddr>,
}

impl Socket {
    pub(crate) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let _ = state.set_recv_buffer_size((&socket).into(), BUFFER_BYTES);
        let _ = state.set_send_buffer_size((&socket).into(), BUFFER_BYTES);
        Ok(Self { socket: UdpSocket::from_std(socket), state })
    }

    /// Sends datagrams of `size` bytes each (the last may be shorter), and returns how many the
    /// system would not send.
    pub(crate) fn send(&self, way: Way, data: &[u8], size: usize, mark: Mark) -> u64 {
        let size = size.max(1);
        let most = self.state.max_gso_segments().min(MOST_BYTES / size).max(1);
        let mut errors = 0;
        // An empty datagram is one, too.
        let empty = data.is_empty().then_some(data);
        for chunk in empty.into_iter().chain(data.chunks(size * most)) {
            let Err(error) = self.try_send(way, chunk, size, mark) else { continue };
            let single = chunk.len() <= size;
            if single || error.kind() == io::ErrorKind::WouldBlock {
                errors += chunk.len().div_ceil(size).max(1) as u64;
                continue;
            }
            // The system, or a device, does not take them together.
            let refused = |datagram: &&[u8]| self.try_send(way, datagram, size, mark).is_err();
            errors += chunk.chunks(size).filter(refused).count() as u64;
        }
        errors
    }

    fn try_send(&self, way: Way, contents: &[u8], size: usize, ecn: Mark) -> io::Result<()> {
        let segment_size = (contents.len() > size).then_some(size);
        let transmit =
            Transmit { destination: way.to, ecn, contents, segment_size, src_ip: way.from };
        self.state.try_send((&self.socket).into(), &transmit)
    }
}

/// Buffers for one call that receives; reused.
pub(crate) struct Batch {
    data: Vec<u8>,
    messages: [RecvMeta; BATCH_SIZE],
    received: usize,
}

/// Datagrams of one sender that arrived together: all of `size` bytes, the last may be shorter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) size: usize,
    pub(crate) mark: Mark,
    pub(crate) source: SocketAddr,
    pub(crate) local: Option<IpAddr>,
}

impl<'a> Message<'a> {
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (&'a [u8], Mark)> + use<'a> {
        let (data, mark) = (self.data, self.mark);
        let empty = data.is_empty().then_some(data);
        empty.into_iter().chain(data.chunks(self.size)).map(move |datagram| (datagram, mark))
    }

    pub(crate) fn count(&self) -> u64 {
        self.data.len().div_ceil(self.size).max(1) as u64
    }
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self {
            data: vec![0; BATCH_SIZE * MESSAGE_BYTES],
            messages: [RecvMeta::default(); BATCH_SIZE],
            received: 0,
        }
    }

    /// Receives what is there.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing.
    pub(crate) fn receive(&mut self, socket: &Socket) -> io::Result<()> {
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
        self.received = socket.state.recv((&socket.socket).into(), &mut buffers, messages)?;
        Ok(())
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = Message<'_>> {
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
    /// Adds a datagram, and first sends what it does not go with. Returns the datagrams that the
    /// system would not send.
    pub(crate) fn add(&mut self, socket: &Socket, way: Way, datagram: &[u8], mark: Mark) -> u64 {
        let goes_on = !self.is_over
            && self.mark == mark
            && datagram.len() <= self.size
            && !datagram.is_empty()
            && self.data.len() + datagram.len() <= MOST_BYTES;
        let mut errors = 0;
        if self.data.is_empty() || !goes_on {
            errors = self.flush(socket, way);
            (self.size, self.mark) = (datagram.len(), mark);
        }
        if datagram.is_empty() {
            return errors + socket.send(way, datagram, 0, mark);
        }
        self.data.extend_from_slice(datagram);
        self.is_over = datagram.len() < self.size;
        errors
    }

    /// Sends what there is.
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
