//! quinn's socket, with shims between it and the system's.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use packrat_client::{Access, ClientConfig, Counters, NumberHeader, Timestamp, base_of};
use packrat_socket::{
    Batch, FlowFigures, Limits, Mark, Peers, SocketError, Wire, is_too_long, source_from,
    with_large_buffers,
};
use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, TokioRuntime, UdpPoller};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::Interest;
use tokio::time::Sleep;

/// Most bytes of one send: the largest UDP payload over IPv4.
const MOST_BYTES: usize = 65_507;
/// Longest time until the timer fires; quinn may then wake once without need.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Beside each datagram: its ECN mark, and the address of this host that it was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beside {
    mark: Mark,
    local: Option<IpAddr>,
}

/// A datagram for quinn.
#[derive(Debug)]
struct Ready {
    peer: SocketAddr,
    beside: Beside,
    datagram: Vec<u8>,
}

/// A socket for a quinn endpoint whose connections are assisted. The endpoint is the client of every
/// peer that it sends to; an endpoint that accepts connections gets a socket of quinn's own.
pub struct Socket {
    io: tokio::net::UdpSocket,
    udp: UdpSocketState,
    began: Instant,
    state: Mutex<State>,
}

struct State {
    peers: Peers<Beside>,
    /// Datagrams that quinn has sent and the system has not taken yet.
    pending: Pending,
    ready: VecDeque<Ready>,
    batch: Batch,
    timer: Pin<Box<Sleep>>,
    /// Time at which the timer wakes quinn.
    armed: Option<Timestamp>,
    /// Waker of quinn's endpoint, which waits for datagrams.
    waker: Option<Waker>,
}

/// Datagrams of one of quinn's transmits, in runs of one length.
#[derive(Debug, Default)]
struct Pending {
    runs: VecDeque<Run>,
    peer: Option<SocketAddr>,
    mark: Mark,
    source: Option<IpAddr>,
    /// Length of the shortest datagram that the link has refused because of its number.
    refused: Option<usize>,
}

/// Datagrams that leave together: all of `size` bytes, the last may be shorter.
#[derive(Debug)]
struct Run {
    data: Vec<u8>,
    size: usize,
    is_over: bool,
}

impl Pending {
    /// Adds a datagram behind the number that precedes it on the wire.
    fn add(&mut self, number: Option<NumberHeader>, datagram: &[u8]) {
        let front = number.as_ref().map_or(&[][..], |number| &number[..]);
        let length = front.len() + datagram.len();
        let fits =
            |run: &Run| !run.is_over && length <= run.size && run.data.len() + length <= MOST_BYTES;
        if !self.runs.back().is_some_and(fits) {
            self.runs.push_back(Run { data: Vec::new(), size: length, is_over: false });
        }
        if let Some(run) = self.runs.back_mut() {
            run.data.extend_from_slice(front);
            run.data.extend_from_slice(datagram);
            run.is_over = length < run.size;
        }
    }
}

/// The socket as [`Peers`] sees it.
struct Port<'a> {
    io: &'a tokio::net::UdpSocket,
    udp: &'a UdpSocketState,
    ready: &'a mut VecDeque<Ready>,
}

impl Port<'_> {
    fn send(&self, peer: SocketAddr, contents: &[u8], ecn: Mark) {
        let transmit =
            Transmit { destination: peer, ecn, contents, segment_size: None, src_ip: None };
        // One that finds no room is lost, as any datagram may be.
        let _ = self.udp.try_send(self.io.into(), &transmit);
    }
}

impl Wire<Beside> for Port<'_> {
    fn deliver(&mut self, peer: SocketAddr, datagram: &[u8], beside: Beside) {
        self.ready.push_back(Ready { peer, beside, datagram: datagram.to_vec() });
    }

    fn transmit(&mut self, peer: SocketAddr, control: &[u8]) {
        self.send(peer, control, None);
    }

    fn repeat(&mut self, peer: SocketAddr, datagram: &[u8], mark: Mark) {
        self.send(peer, datagram, mark);
    }

    fn source(&self, peer: SocketAddr) -> Option<IpAddr> {
        source_from(self.io.local_addr().ok()?, peer)
    }
}

impl Socket {
    /// Binds a socket at `local` (port 0: any). Must be called inside a Tokio runtime with I/O and
    /// time enabled.
    ///
    /// # Errors
    /// [`SocketError::Bind`] when the system refuses the address; as [`Self::new`].
    pub fn bind(local: SocketAddr, config: ClientConfig) -> Result<Arc<Self>, SocketError> {
        let socket = std::net::UdpSocket::bind(local);
        Self::new(socket.map_err(|source| SocketError::Bind { local, source })?, config)
    }

    /// A socket that the application has made, such as one protected by Android's VPN service.
    ///
    /// # Errors
    /// [`SocketError::NoRuntime`] outside of a Tokio runtime; [`SocketError::Setup`] when the system
    /// refuses a socket option.
    pub fn new(
        socket: std::net::UdpSocket,
        config: ClientConfig,
    ) -> Result<Arc<Self>, SocketError> {
        // Tokio's own constructors panic.
        tokio::runtime::Handle::try_current().map_err(|_| SocketError::NoRuntime)?;
        let setup = |source| SocketError::Setup { source };
        let udp = with_large_buffers(&socket).map_err(setup)?;
        let io = tokio::net::UdpSocket::from_std(socket).map_err(setup)?;
        let state = State {
            peers: Peers::new(config.into(), Limits::default()),
            pending: Pending::default(),
            ready: VecDeque::new(),
            batch: Batch::new(),
            timer: Box::pin(tokio::time::sleep(LONGEST_SLEEP)),
            armed: None,
            waker: None,
        };
        Ok(Arc::new(Self { io, udp, began: Instant::now(), state: Mutex::new(state) }))
    }

    /// A client endpoint on this socket. For other settings pass the socket to
    /// [`Endpoint::new_with_abstract_socket`], or to [`Endpoint::rebind_abstract`].
    ///
    /// # Errors
    /// [`SocketError::NoRuntime`] outside of a Tokio runtime; [`SocketError::Address`] when the
    /// system does not report the socket's address.
    pub fn endpoint(self: &Arc<Self>) -> Result<Endpoint, SocketError> {
        tokio::runtime::Handle::try_current().map_err(|_| SocketError::NoRuntime)?;
        let socket = Arc::clone(self);
        let config = EndpointConfig::default();
        Endpoint::new_with_abstract_socket(config, None, socket, Arc::new(TokioRuntime))
            .map_err(|source| SocketError::Address { source })
    }

    /// Sets the gateway to accept and the token of future handshakes, also for existing flows: a
    /// session with another gateway ends.
    pub fn set_access(&self, access: Access) {
        self.with(|peers, now, port| peers.set_access(access, now, port));
    }

    /// Reports that the network has changed. A change of the host's own address is detected without
    /// this call.
    pub fn on_network_change(&self) {
        self.with(|peers, now, port| peers.on_network_change(now, port));
    }

    /// Returns the figures of a peer's flow, or `None` if no datagram was sent to the peer
    /// recently.
    pub fn figures(&self, peer: SocketAddr) -> Option<FlowFigures> {
        self.with(|peers, now, _| peers.figures(peer, now))
    }

    /// The sums of all flows.
    pub fn counters(&self) -> Counters {
        self.lock().peers.counters()
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
    }

    /// Shims are guarded: no panic is behind a poisoned lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the peers, and wakes quinn if there is something for it, or its timer is too late.
    fn with<R>(&self, call: impl FnOnce(&mut Peers<Beside>, Timestamp, &mut Port<'_>) -> R) -> R {
        let state = &mut *self.lock();
        let result = call(&mut state.peers, self.now(), &mut self.port(&mut state.ready));
        state.wake_in_time();
        result
    }

    /// Sends the datagrams that the system has not accepted yet. If the link refuses a datagram
    /// because of its number, the datagram leaves without the number.
    ///
    /// # Errors
    /// `WouldBlock` if datagrams remain. Other errors are the socket's.
    fn flush(&self, pending: &mut Pending) -> io::Result<()> {
        while let (Some(run), Some(destination)) = (pending.runs.front(), pending.peer) {
            let segment_size = (run.data.len() > run.size).then_some(run.size);
            let transmit = Transmit {
                destination,
                ecn: pending.mark,
                contents: &run.data,
                segment_size,
                src_ip: pending.source,
            };
            let send = || self.udp.try_send((&self.io).into(), &transmit);
            match self.io.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Ok(()) => drop(pending.runs.pop_front()),
                // Lost, as any datagram may be, unless it is its number that is too much.
                Err(_) => {
                    let Some(run) = pending.runs.pop_front() else { continue };
                    let (ecn, src_ip) = (pending.mark, pending.source);
                    let refused = run.data.chunks(run.size.max(1)).filter_map(|contents| {
                        let segment_size = None;
                        self.send_singly(&Transmit {
                            destination,
                            ecn,
                            contents,
                            segment_size,
                            src_ip,
                        })
                    });
                    pending.refused = pending.refused.into_iter().chain(refused).min();
                }
            }
        }
        Ok(())
    }

    /// Sends one datagram, without its number if the link refuses it for that: its length then.
    fn send_singly(&self, transmit: &Transmit<'_>) -> Option<usize> {
        let error = self.udp.try_send((&self.io).into(), transmit).err()?;
        let length = transmit.contents.len();
        let base = base_of(transmit.contents).filter(|base| base.len() < length)?;
        if !is_too_long(&error) {
            return None;
        }
        let _ = self.udp.try_send((&self.io).into(), &Transmit { contents: base, ..*transmit });
        Some(base.len())
    }

    /// Sends datagrams of quinn's, each as its flow has it: behind a number, with others, or as it is.
    fn send(&self, state: &mut State, transmit: &Transmit<'_>) -> io::Result<()> {
        let (bytes, peer) = (transmit.contents.len(), transmit.destination);
        let size = transmit.segment_size.unwrap_or(bytes).max(1);
        let now = self.now();
        let State { peers, pending, ready, .. } = state;
        // A gateway learns of another network before anything leaves from there.
        peers.on_sending(peer, transmit.ecn, now, &mut self.port(ready));
        // A number is for a datagram that leaves: quinn comes again.
        self.flush(pending)?;
        if let (Some(before), Some(length)) = (pending.peer, pending.refused.take()) {
            peers.on_refused(before, length, now);
        }
        (pending.peer, pending.mark, pending.source) = (Some(peer), transmit.ecn, transmit.src_ip);
        for datagram in transmit.contents.chunks(size) {
            if !peers.bundle(peer, datagram, now) {
                pending.add(peers.on_send(peer, datagram, now), datagram);
            }
        }
        peers.on_sent(peer, bytes.div_ceil(size) as u64, bytes as u64, now);
        let result = self.flush(pending);
        if peers.next_timeout().is_some_and(|next| next <= now) {
            peers.handle_timeout(now, &mut self.port(ready));
        }
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn port<'a>(&'a self, ready: &'a mut VecDeque<Ready>) -> Port<'a> {
        Port { io: &self.io, udp: &self.udp, ready }
    }
}

impl State {
    /// Wakes quinn if there is something for it, if its timer is too late, or if the system has not taken
    /// all that it has sent.
    fn wake_in_time(&mut self) {
        let next = self.peers.next_timeout();
        let is_late = next.is_some_and(|next| self.armed.is_none_or(|armed| next < armed));
        if (is_late || !self.ready.is_empty() || !self.pending.runs.is_empty())
            && let Some(waker) = self.waker.take()
        {
            waker.wake();
        }
    }

    /// Arms the timer. Ready: its time has come already.
    fn poll_timer(&mut self, now: Timestamp, context: &mut Context<'_>) -> Poll<()> {
        let Some(next) = self.peers.next_timeout() else {
            self.armed = None;
            return Poll::Pending;
        };
        if self.armed != Some(next) {
            self.armed = Some(next);
            let wait = next.saturating_since(now).min(LONGEST_SLEEP);
            self.timer.as_mut().reset(tokio::time::Instant::now() + wait);
        }
        self.timer.as_mut().poll(context)
    }

    /// Delivers the ready datagrams. Datagrams of one peer and one size are delivered together, as
    /// the kernel does.
    fn fill(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
        messages: &mut [RecvMeta],
        most_segments: usize,
    ) -> usize {
        let mut filled = 0;
        for (buffer, message) in buffers.iter_mut().zip(messages) {
            let Some(Ready { peer, beside, datagram }) = self.ready.pop_front() else { break };
            let size = datagram.len().min(buffer.len());
            buffer[..size].copy_from_slice(&datagram[..size]);
            let mut length = size;
            let mut segments = 1;
            // The last one may be shorter.
            while length == segments * size
                && segments < most_segments
                && let Some(next) = self.ready.front()
                && (next.peer, next.beside) == (peer, beside)
                && (1..=size).contains(&next.datagram.len())
                && length + next.datagram.len() <= buffer.len()
                && let Some(next) = self.ready.pop_front()
            {
                buffer[length..length + next.datagram.len()].copy_from_slice(&next.datagram);
                length += next.datagram.len();
                segments += 1;
            }
            *message = RecvMeta {
                addr: peer,
                len: length,
                stride: size,
                ecn: beside.mark,
                dst_ip: beside.local,
            };
            filled += 1;
        }
        filled
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { socket: self, wait: Mutex::new(None) })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let state = &mut *self.lock();
        let result = self.send(state, transmit);
        state.wake_in_time();
        result
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        messages: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.lock();
        // Sends the remainder of quinn's transmits: quinn does not poll for it.
        while !state.pending.runs.is_empty() && self.io.poll_send_ready(context)?.is_ready() {
            match self.flush(&mut state.pending) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
        loop {
            if !state.ready.is_empty() {
                let most_segments = self.udp.gro_segments();
                return Poll::Ready(Ok(state.fill(buffers, messages, most_segments)));
            }
            let now = self.now();
            if state.peers.next_timeout().is_some_and(|at| at <= now) {
                let State { peers, ready, .. } = &mut *state;
                peers.handle_timeout(now, &mut self.port(ready));
                continue;
            }
            let Poll::Ready(readable) = self.io.poll_recv_ready(context) else {
                if state.poll_timer(now, context).is_ready() {
                    state.armed = None;
                    continue;
                }
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            readable?;
            let batch = &mut state.batch;
            let receive = || batch.receive(&self.udp, (&self.io).into());
            match self.io.try_io(Interest::READABLE, receive) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                result => result?,
            }
            let now = self.now();
            let State { peers, ready, batch, .. } = &mut *state;
            let mut port = self.port(ready);
            for message in batch.messages() {
                let local = message.local;
                let datagrams =
                    message.datagrams().map(|(datagram, mark)| (datagram, Beside { mark, local }));
                peers.on_received(message.source, datagrams, now, &mut port);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.udp.max_gso_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.udp.gro_segments()
    }

    fn may_fragment(&self) -> bool {
        self.udp.may_fragment()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.with(|peers, now, port| peers.close(now, port));
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Socket")
            .field("local", &self.io.local_addr().ok())
            .finish_non_exhaustive()
    }
}

type Wait = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// Waits until the socket takes datagrams again.
struct Writable {
    socket: Arc<Socket>,
    wait: Mutex<Option<Wait>>,
}

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let wait = this.wait.get_mut().unwrap_or_else(PoisonError::into_inner);
        let socket = Arc::clone(&this.socket);
        let wait_for =
            wait.get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let result = ready!(wait_for.as_mut().poll(context));
        *wait = None;
        Poll::Ready(result)
    }
}

impl std::fmt::Debug for Writable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Writable").finish_non_exhaustive()
    }
}
