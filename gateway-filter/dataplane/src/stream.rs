//! A stream with many receivers on sockets of its own: what arrives at one address goes to every subscriber of another.
//!
//! ```text
//!   sender --unicast or multicast--> upstream socket --> engine's Stream: cache
//!                                                             |
//!                       subscribers' socket  <-- copies, with GSO for each subscriber's batch; or once to a group
//!                          ^   |
//!         handshakes, eACKs +   +--> repairs
//! ```
//!
//! One thread does it all: nothing is shared, and nothing waits for anything but the sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use packrat_engine::{
    Gateway, GatewayConfig, Stream, StreamConfig, StreamCounters, StreamGauges, StreamOutbox, Target,
};
use packrat_estimate::Timestamp;
use socket2::SockRef;

use crate::poller::Poller;
use crate::route::random_bytes;
use crate::socket::{
    Destination, Ecn, Family, Offload, Piece, ReceiveBatch, Sender, bind_reuse_port, listener_options,
    local_address,
};

const UPSTREAM: u64 = 0;
const SUBSCRIBERS: u64 = 1;
/// Messages of one call.
const BATCH: usize = 32;
/// How often the counters are published at least.
const PUBLISH: std::time::Duration = std::time::Duration::from_millis(500);

/// Where a stream comes from and goes to.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Where subscribers send to, and from where they get their copies.
    pub listen: SocketAddr,
    /// Where the stream arrives: an address of this host, or a multicast group, which is joined.
    pub upstream: SocketAddr,
    /// The only host that may send the stream; `None`: whoever reaches the address.
    pub source: Option<IpAddr>,
    /// A multicast group to which the stream is sent once, instead of a copy to each subscriber.
    pub group: Option<SocketAddr>,
    /// The gateway's static private key; `None`: a new one.
    pub static_key: Option<[u8; 32]>,
    /// The gateway's limits.
    pub limits: GatewayConfig,
    /// The stream's.
    pub stream: StreamConfig,
}

/// What a stream's thread has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamFigures {
    /// The engine's counters.
    pub counters: StreamCounters,
    /// The engine's levels.
    pub gauges: StreamGauges,
    /// Datagrams of the stream, copies and repairs sent.
    pub sent: u64,
    /// Datagrams that could not be sent: full socket buffers, above all.
    pub dropped: u64,
    /// Datagrams upstream that did not come from the stream's source.
    pub foreign: u64,
}

#[derive(Debug)]
struct Shared {
    poller: Poller,
    stop: AtomicBool,
    figures: Mutex<StreamFigures>,
}

/// A running stream; ends when it is dropped.
#[derive(Debug)]
pub struct StreamServer {
    shared: Arc<Shared>,
    listen: SocketAddr,
    upstream: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl StreamServer {
    /// Opens the sockets and starts the thread.
    ///
    /// # Errors
    /// An address can't be had, the group can't be joined, or the operating system gives no randomness.
    pub fn start(options: StreamOptions) -> io::Result<Self> {
        let subscribers = bind_reuse_port(options.listen)?;
        let family = listener_options(subscribers.as_fd(), true)?;
        let upstream = bind_reuse_port(options.upstream)?;
        listener_options(upstream.as_fd(), true)?;
        join(&upstream, options.upstream)?;
        let poller = Poller::new()?;
        poller.add(upstream.as_fd(), UPSTREAM)?;
        poller.add(subscribers.as_fd(), SUBSCRIBERS)?;
        let key = options.static_key.map_or_else(random_bytes, Ok).map_err(io::Error::other)?;
        let secret = random_bytes().map_err(io::Error::other)?;
        let gateway = Gateway::new(options.limits, key, random_bytes().map_err(io::Error::other)?);
        let group_repairs_from = options.group.and(options.stream.group_repairs_from.or(Some(3)));
        let config = StreamConfig { group_repairs_from, ..options.stream };
        let stream = Stream::new(Arc::clone(&gateway), config, secret);
        let shared = Arc::new(Shared {
            poller,
            stop: AtomicBool::new(false),
            figures: Mutex::new(StreamFigures::default()),
        });
        let (listen, local) = (local_address(subscribers.as_fd()), local_address(upstream.as_fd()));
        let worker = Worker {
            shared: Arc::clone(&shared),
            gateway,
            stream,
            socket: subscribers,
            upstream,
            family,
            wildcard: options.listen.ip().is_unspecified(),
            local: None,
            source: options.source,
            group: options.group,
            offload: Offload::default(),
            sender: Sender::default(),
            origin: Instant::now(),
            figures: StreamFigures::default(),
            published: Instant::now(),
            out: StreamOutbox::new(),
        };
        let thread =
            std::thread::Builder::new().name("packrat-stream".to_owned()).spawn(move || worker.run())?;
        Ok(Self {
            shared,
            listen: listen.unwrap_or(options.listen),
            upstream: local.unwrap_or(options.upstream),
            thread: Some(thread),
        })
    }

    /// Where subscribers send to.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where the stream arrives.
    pub fn upstream(&self) -> SocketAddr {
        self.upstream
    }

    /// What was done so far, not older than half a second.
    pub fn figures(&self) -> StreamFigures {
        *self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.poller.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Joins the group, if the address is one.
fn join(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let socket = SockRef::from(socket);
    match address.ip() {
        IpAddr::V4(group) if group.is_multicast() => {
            socket.join_multicast_v4(&group, &std::net::Ipv4Addr::UNSPECIFIED)
        }
        IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0),
        _ => Ok(()),
    }
}

struct Worker {
    shared: Arc<Shared>,
    gateway: Arc<Gateway>,
    stream: Stream,
    socket: OwnedFd,
    upstream: OwnedFd,
    family: Family,
    wildcard: bool,
    /// The address of this host that subscribers know, on a wildcard socket.
    local: Option<IpAddr>,
    source: Option<IpAddr>,
    group: Option<SocketAddr>,
    offload: Offload,
    sender: Sender,
    origin: Instant,
    figures: StreamFigures,
    published: Instant,
    out: StreamOutbox,
}

impl Worker {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1) + self.origin.elapsed()
    }

    fn run(mut self) {
        let mut batch = ReceiveBatch::new(BATCH);
        let mut ready = Vec::new();
        let shared = Arc::clone(&self.shared);
        while !shared.stop.load(Ordering::SeqCst) {
            let timeout = self.stream.next_timeout().map(|at| at.saturating_since(self.now()));
            let timeout = timeout.unwrap_or(PUBLISH).min(PUBLISH);
            let stopping = || !shared.stop.load(Ordering::SeqCst);
            if shared.poller.wait(Some(timeout), &mut ready, stopping).is_err() {
                return;
            }
            for number in &ready {
                match *number {
                    UPSTREAM => self.on_stream(&mut batch),
                    SUBSCRIBERS => self.on_subscribers(&mut batch),
                    _ => {}
                }
            }
            let now = self.now();
            if self.gateway.is_cookie_secret_old(now)
                && let Ok(secret) = random_bytes()
            {
                self.gateway.rotate_cookie_secret(secret, now);
            }
            self.stream.handle_timeout(now, &mut self.out);
            self.send_outbox();
            if self.published.elapsed() >= PUBLISH {
                self.publish();
            }
        }
        self.publish();
    }

    /// Records a batch, then sends it: an eACK can't come before what it is about.
    fn on_stream(&mut self, batch: &mut ReceiveBatch) {
        // An error is that of a datagram sent before.
        if batch.receive(self.upstream.as_fd()).is_err() {
            return;
        }
        let now = self.now();
        let mut pieces = Vec::with_capacity(BATCH);
        for message in batch.messages() {
            let from = message.source.map(|source| source.ip().to_canonical());
            if message.truncated || (self.source.is_some() && from != self.source) {
                self.figures.foreign += 1;
                continue;
            }
            for datagram in message.datagrams() {
                self.stream.forward(datagram, now);
            }
            pieces.push(Piece { data: message.data, segment_size: message.segment_size, ecn: message.ecn });
        }
        if pieces.is_empty() {
            return;
        }
        match self.group {
            Some(group) => self.send(group, &pieces),
            None => {
                let subscribers: Vec<SocketAddr> = self.stream.subscribers().collect();
                for subscriber in subscribers {
                    self.send(subscriber, &pieces);
                }
            }
        }
    }

    fn on_subscribers(&mut self, batch: &mut ReceiveBatch) {
        if batch.receive(self.socket.as_fd()).is_err() {
            return;
        }
        let now = self.now();
        for message in batch.messages() {
            self.local = message.local.or(self.local);
            let Some(from) = message.source else { continue };
            for datagram in message.datagrams() {
                // Without randomness there is no handshake; the next attempt may have it.
                let Ok(seed) = random_bytes() else { continue };
                self.stream.receive(datagram, from, || seed, now, &mut self.out);
            }
        }
        self.send_outbox();
    }

    fn send_outbox(&mut self) {
        let out = std::mem::take(&mut self.out);
        for (target, datagram) in out.datagrams() {
            let to = match (target, self.group) {
                (Target::One(to), _) | (Target::Group, Some(to)) => to,
                (Target::Group, None) => continue,
            };
            self.send(to, &[Piece::single(datagram, Ecn::default())]);
        }
        self.out = out;
        self.out.clear();
    }

    fn send(&mut self, to: SocketAddr, pieces: &[Piece<'_>]) {
        let destination = Destination {
            address: Some(to),
            source: self.local.filter(|_| self.wildcard && !to.ip().is_multicast()),
            family: self.family,
            leaves_as_v4: to.ip().to_canonical().is_ipv4(),
            may_wait: false,
        };
        let report = self.sender.send(self.socket.as_fd(), &self.offload, &destination, pieces);
        self.figures.sent += report.datagrams;
        self.figures.dropped += report.dropped + report.too_large;
    }

    fn publish(&mut self) {
        self.published = Instant::now();
        self.figures.counters.add(&self.stream.take_counters());
        self.figures.gauges = self.stream.gauges();
        *self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner) = self.figures;
    }
}
