//! UDP sockets with batches, segmentation offload and ECN marks: quinn-udp's, for mio.

use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::net::UdpSocket;
use packrat_socket::{Batch, Mark, with_large_buffers};
use quinn_udp::{Transmit, UdpSocketState};

/// Most bytes of one send: the largest UDP payload over IPv4.
const MOST_BYTES: usize = 65_507;
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
        let state = with_large_buffers(&socket)?;
        Ok(Self { socket: UdpSocket::from_std(socket), state })
    }

    /// Receives what is there.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing.
    pub(crate) fn receive(&self, batch: &mut Batch) -> io::Result<()> {
        batch.receive(&self.state, (&self.socket).into())
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
