//! The client's shell as a whole: its release queue, a path with its core, driver and wakers,
//! between a server whose datagrams pass a real gateway, and a transport that decrypts what is
//! authentic and has s2n-quic's window of packet numbers.
//!
//! Input: byte 0 is what there is at the beginning (bit 0: no session; bit 1: no keys; bit 2: no
//! handshake). Then steps of one byte, the kind in the lower three bits and a number in the upper
//! five; some kinds take a length byte and as many bytes.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use packrat_fuzz_entry::take;
use packrat_wire::estimate::Timestamp;
use s2n_codec::DecoderBufferMut;
use s2n_quic_core::frame::FrameMut;
use s2n_quic_core::inet::{ExplicitCongestionNotification, SocketAddress, datagram::Header};
use s2n_quic_core::path::{Handle as _, RemoteAddress, Tuple};

use crate::header_protection::SharedKey;
use crate::interceptor::Paths;
use crate::packet_protection::ProvingKey;
use crate::path::AssistedPath;
use crate::release::Withheld;
use crate::test_gateway::{SERVER, TestGateway, TestHost};
use crate::test_keys::{IDENTIFIER, Numbered, Plain, long_header, short_header};
use crate::tls::{ConnectionKeys, NewKeys};

/// The longest hold of [`crate::test_gateway::config`].
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// Delay of timers.
const TIMER: Duration = Duration::from_micros(500);
const GRACE: Duration = Duration::from_millis(2);
/// s2n-quic drops a packet that is further behind its newest one.
const WINDOW: u64 = 128;
/// The shell's part of it: see `RECEIVE_WINDOW` in the path.
const USABLE_WINDOW: u64 = 126;
const ROOM: usize = 1200;

/// One of the wakers that the shell wakes.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies of one datagram: how many have arrived, how many the transport has seen, and since when
/// one waits.
#[derive(Default)]
struct Copies {
    arrived: u32,
    seen: u32,
    waits_since: Option<Timestamp>,
}

/// The transport, as far as it matters here.
#[derive(Default)]
struct Transport {
    decrypted: BTreeSet<u64>,
    /// Numbers of authentic datagrams.
    numbers: HashMap<Vec<u8>, u64>,
    /// Datagrams that have arrived and are the transport's.
    ledger: HashMap<Vec<u8>, Copies>,
    is_connected: bool,
}

impl Transport {
    fn see(&mut self, bytes: &[u8], path: &AssistedPath) {
        let copies = self.ledger.get_mut(bytes).expect("a datagram that never arrived");
        copies.seen += 1;
        copies.waits_since = None;
        assert!(copies.seen <= copies.arrived, "the transport has seen a datagram twice");
        let Some(&number) = self.numbers.get(bytes) else { return };
        let too_old = self.decrypted.last().is_some_and(|newest| number + WINDOW < *newest);
        if self.is_connected && !too_old && self.decrypted.insert(number) {
            path.on_packet_number(number);
        }
    }
}

struct World {
    host: Arc<TestHost>,
    path: Arc<AssistedPath>,
    paths: Arc<Paths>,
    withheld: Withheld<Tuple>,
    gateway: Option<TestGateway>,
    transport: Transport,
    endpoint: Arc<Bell>,
    /// When the driver wakes by itself; `None` when it waits for the path's word alone.
    driver: Option<Timestamp>,
    next: u64,
    /// Everything can be read and proven.
    keeps_window: bool,
    /// Forwarded by the gateway, and lost behind it.
    lost: Vec<Vec<u8>>,
    last: Vec<u8>,
}

/// Runs the steps. Panics when a datagram is seen twice, changed, never, or later than after the
/// longest hold, when a repair that is waited for comes too late for the transport's window, or
/// when something is acknowledged that the transport does not have or that would tell of a hole.
pub fn client_shell(data: &[u8]) {
    let (&settings, mut rest) = data.split_first().unwrap_or((&0, &[]));
    let mut world = World::new(settings);
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = u64::from(step >> 3);
        match step & 7 {
            0 => (0..=number).for_each(|_| world.send()),
            1 => (0..=number).for_each(|_| world.lose()),
            2 => world.arrive_late(number as usize),
            3 => world.pass(Duration::from_millis(number * number)),
            4 => world.hear(number),
            5 => world.foreign(number, take(&mut rest)),
            6 => world.acknowledge(take(&mut rest)),
            _ => world.change(number),
        }
        world.check();
    }
    // Whatever was going on: in the end all of it has arrived.
    world.pass(LONGEST_HOLD + GRACE);
    world.check();
    world.path.close();
    world.paths.end(&world.path);
    world.poll();
    for copies in world.transport.ledger.values() {
        assert!(copies.seen > 0, "a datagram was lost");
    }
}

impl World {
    fn new(settings: u8) -> Self {
        let paths = Arc::new(Paths::default());
        let (path, host) = crate::test_gateway::path(true, paths.waker.clone());
        assert!(paths.insert(&path));
        let gateway = (settings & 1 == 0).then(|| TestGateway::meet(&path, &host));
        let mut world = Self {
            withheld: Withheld::new(Arc::clone(&paths), NewKeys::default()),
            host,
            path,
            paths,
            gateway,
            transport: Transport::default(),
            endpoint: Arc::default(),
            driver: None,
            next: 0,
            keeps_window: settings & 6 == 0,
            lost: Vec::new(),
            last: Vec::new(),
        };
        world.drive();
        if settings & 2 == 0 {
            world.take_keys();
        }
        if settings & 4 == 0 {
            world.shake_hands();
        }
        world
    }

    fn take_keys(&mut self) {
        let opener = SharedKey::new(Plain).opener();
        let proofs = ProvingKey::new(Numbered(1)).proofs();
        self.path.set_keys(ConnectionKeys { opener, proofs });
    }

    fn shake_hands(&mut self) {
        self.arrive(long_header(), SERVER.parse().unwrap());
        if !self.transport.is_connected {
            self.transport.is_connected = true;
            self.path.on_handshake_packet();
        }
        self.run_woken();
    }

    /// The next packet of the server, which the gateway forwards.
    fn packet(&mut self) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        let packet = short_header(&IDENTIFIER, number, number as u8);
        self.transport.numbers.insert(packet.clone(), number);
        if let Some(gateway) = &mut self.gateway {
            gateway.forward(&packet, &self.host);
        }
        self.last.clone_from(&packet);
        packet
    }

    fn send(&mut self) {
        let packet = self.packet();
        self.arrive(packet, SERVER.parse().unwrap());
    }

    fn lose(&mut self) {
        let packet = self.packet();
        self.lost.push(packet);
    }

    fn arrive_late(&mut self, index: usize) {
        if !self.lost.is_empty() {
            let packet = self.lost.remove(index % self.lost.len());
            self.arrive(packet, SERVER.parse().unwrap());
        }
    }

    /// The gateway hears what the client has said; its answers and repairs arrive, or some do not.
    fn hear(&mut self, number: u64) {
        let said = self.host.sent();
        let Some(gateway) = &mut self.gateway else { return };
        let mut answers = Vec::new();
        for said in said {
            answers.extend(gateway.hear(&said, &self.host));
        }
        for (at, answer) in answers.into_iter().enumerate() {
            if number == 0 || !(at as u64).is_multiple_of(number + 1) {
                self.lost.retain(|lost| *lost != answer);
                self.arrive(answer, SERVER.parse().unwrap());
            }
        }
    }

    /// A datagram of another sender: a header of the connection with another tag, a header of the
    /// handshake, what looks like Packrat's, from elsewhere, or anything.
    fn foreign(&mut self, number: u64, bytes: &[u8]) {
        let server: SocketAddr = SERVER.parse().unwrap();
        let far = bytes.first().copied().unwrap_or_default();
        let (datagram, from) = match number & 7 {
            0..=2 => {
                let number = self.next + u64::from(far) * (number + 1);
                let header = short_header(&IDENTIFIER, number, far);
                ([&header[..], bytes, &[0xee]].concat(), server)
            }
            3 => ([&[0xc3, 0, 0, 0, 1][..], bytes].concat(), server),
            4 => ([&[0x0b, 0x50, 0x6b, 0x72], bytes, &[0xee]].concat(), server),
            5 => (bytes.to_vec(), SocketAddr::new(server.ip(), 10)),
            6 => (self.last.clone(), server),
            _ => ([bytes, &[0xee]].concat(), server),
        };
        self.arrive(datagram, from);
    }

    fn change(&mut self, number: u64) {
        match number {
            0 => self.path.close(),
            1 => self.path.let_go(),
            2 => self.take_keys(),
            3 => self.shake_hands(),
            4 => self.paths.end(&self.path),
            // The sender leaves numbers out (RFC 9000, section 21.4).
            _ => self.next += number,
        }
        self.run_woken();
    }

    fn arrive(&mut self, mut datagram: Vec<u8>, from: SocketAddr) {
        let now = self.timestamp();
        let remote = RemoteAddress::from(SocketAddress::from(from));
        let header = Header {
            path: Tuple::from_remote_address(remote),
            ecn: ExplicitCongestionNotification::Ect0,
        };
        // The shell alone knows whether it is a control datagram: then it must not be seen.
        let control_before = self.path.stats().1.control_received;
        let entry = self.transport.ledger.entry(datagram.clone()).or_default();
        entry.arrived += 1;
        entry.waits_since.get_or_insert(now);
        self.check_window(&datagram);
        let bytes = datagram.clone();
        let Self { withheld, transport, path, .. } = self;
        withheld.arrive(header, &mut datagram, &mut |header, bytes| {
            assert_eq!(header.ecn, ExplicitCongestionNotification::Ect0);
            transport.see(bytes, path);
        });
        if self.path.stats().1.control_received > control_before {
            assert!(packrat_wire::is_control(&bytes), "a datagram was taken for Packrat's");
            let copies = self.transport.ledger.get_mut(&bytes).unwrap();
            copies.arrived -= 1;
            assert_eq!(copies.seen, copies.arrived, "the transport has seen a control datagram");
            if copies.arrived == 0 {
                self.transport.ledger.remove(&bytes);
            }
        }
        // s2n-quic polls its endpoint after it has received.
        self.poll();
        self.run_woken();
    }

    /// The lowest hole that is waited for is filled before the transport's window has moved
    /// past it.
    fn check_window(&self, datagram: &[u8]) {
        let (Some(number), Some(newest)) =
            (self.transport.numbers.get(datagram), self.transport.decrypted.last())
        else {
            return;
        };
        let deliverable = self.path.deliverable();
        if self.keeps_window && deliverable.checked_sub(USABLE_WINDOW) == Some(*number) {
            assert!(number + USABLE_WINDOW >= *newest, "the repair of {number} is of no use");
        }
    }

    fn timestamp(&self) -> Timestamp {
        use crate::host::Host as _;
        self.host.now()
    }

    /// The endpoint, as s2n-quic polls it: leaves its waker, and releases.
    fn poll(&mut self) {
        for _ in 0..100 {
            self.endpoint.0.store(false, Ordering::Relaxed);
            self.paths.waker.set(&Waker::from(Arc::clone(&self.endpoint)));
            if !self.withheld.is_ready() {
                return;
            }
            let Self { withheld, transport, path, .. } = self;
            withheld.release_all(&mut |_, bytes| transport.see(bytes, path));
        }
        panic!("something is always ready, and never released");
    }

    /// The driver's turn; see `driver::drive`.
    fn drive(&mut self) {
        let step = self.path.step();
        if step.force_ack {
            self.acknowledge(&[]);
        }
        let now = self.timestamp();
        self.driver = step.next.filter(|_| !step.ended).map(|next| next.max(now + TIMER));
    }

    /// Lets the driver and the endpoint do what they were woken for, and nothing else.
    fn run_woken(&mut self) {
        for _ in 0..1000 {
            let is_notified = {
                let notified = pin!(self.path.wake.notified());
                let mut context = Context::from_waker(Waker::noop());
                notified.poll(&mut context).is_ready()
            };
            if is_notified {
                self.drive();
            } else if self.endpoint.0.load(Ordering::Relaxed) {
                self.poll();
            } else {
                return;
            }
        }
        panic!("the driver never sleeps");
    }

    /// Lets time pass; nothing happens but what the shell has asked for.
    fn pass(&mut self, time: Duration) {
        let until = self.timestamp() + time;
        for _ in 0..20_000 {
            let now = self.timestamp();
            let Some(at) = self.driver.filter(|at| *at <= until) else {
                self.host.pass(until.saturating_since(now));
                return;
            };
            self.host.pass(at.saturating_since(now) + TIMER);
            self.drive();
            self.run_woken();
        }
        panic!("timers without end");
    }

    /// The transport sends a packet with an ACK frame of its newest packet, and arbitrary frames.
    fn acknowledge(&mut self, bytes: &[u8]) {
        let Some(&largest) = self.transport.decrypted.last() else { return };
        let mut frames = vec![0x02, 0x80, 0, 0, 0, 0, 0, 0];
        frames[2..5].copy_from_slice(&(largest as u32).to_be_bytes()[1..]);
        frames.extend_from_slice(bytes);
        let deliverable = self.path.deliverable();
        let hole = (deliverable < u64::MAX / 2).then(|| deliverable - USABLE_WINDOW);
        let Some(mut rewritten) = self.path.rewrite(&frames, ROOM) else { return };
        assert!((frames.len()..=ROOM.max(frames.len())).contains(&rewritten.len()));
        let mut buffer = DecoderBufferMut::new(&mut rewritten);
        while let Ok((frame, rest)) = buffer.decode::<FrameMut<'_>>() {
            if let FrameMut::Ack(ack) = frame {
                for range in ack.ack_ranges() {
                    for number in range.start().as_u64()..=range.end().as_u64() {
                        assert!(self.transport.decrypted.contains(&number), "{number} is not here");
                        assert!(hole.is_none_or(|hole| number < hole), "{number} tells of a hole");
                    }
                }
                return;
            }
            buffer = rest;
        }
    }

    fn check(&mut self) {
        let now = self.timestamp();
        for copies in self.transport.ledger.values() {
            if let Some(since) = copies.waits_since {
                let waited = now.saturating_since(since);
                assert!(waited <= LONGEST_HOLD + GRACE, "a datagram waits since {waited:?}");
            }
        }
    }
}
