//! The client's shell as a whole: the paths of an endpoint, a path with its shim, driver and wakers,
//! between a server whose datagrams pass a real gateway, and a transport.
//!
//! Input: byte 0 is the initial condition (bit 0: no session). Then steps of one byte, the kind in
//! the lower three bits and a number in the upper five; some kinds take a length byte and as many
//! bytes.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use packrat_fuzz_entry::take;
use packrat_wire::estimate::Timestamp;
use packrat_wire::{is_control, number};
use s2n_quic_core::inet::ExplicitCongestionNotification;
use s2n_quic_core::path::Tuple;

use crate::path::{AssistedPath, Step};
use crate::paths::Paths;
use crate::release::{arrive, release};
use crate::test_gateway::{SERVER_ADDRESS, TestGateway, TestHost, metadata, new_path, new_path_on};

/// The longest hold of a client by default.
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// Delay of timers.
const TIMER: Duration = Duration::from_micros(500);
const GRACE: Duration = Duration::from_millis(2);

/// A waker that the shell wakes.
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
    /// The server's own datagrams, of which the code may recover one each.
    genuine: HashSet<Vec<u8>>,
    /// Datagrams that have arrived and are the transport's.
    ledger: HashMap<Vec<u8>, Copies>,
}

impl Transport {
    fn see(&mut self, bytes: &[u8]) {
        let is_genuine = self.genuine.contains(bytes);
        if is_genuine {
            self.ledger.entry(bytes.to_vec()).or_default();
        }
        let copies = self.ledger.get_mut(bytes).expect("a datagram that never arrived");
        copies.seen += 1;
        copies.waits_since = None;
        let recovered = u32::from(is_genuine);
        assert!(copies.seen <= copies.arrived + recovered, "the transport sees one too often");
    }
}

struct World {
    host: Arc<TestHost>,
    path: Arc<AssistedPath>,
    paths: Arc<Paths>,
    gateway: Option<TestGateway>,
    transport: Transport,
    endpoint: Arc<Bell>,
    /// Time at which the driver wakes by itself; `None` when it only waits for the path.
    driver: Option<Timestamp>,
    next: u64,
    /// Forwarded by the gateway, and lost behind it.
    lost: Vec<Vec<u8>>,
    last: Vec<u8>,
}

fn server() -> SocketAddr {
    SERVER_ADDRESS.parse().unwrap()
}

/// Runs the steps. Panics when a datagram is seen too often, changed, never, or later than after
/// the longest hold.
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
            6 => world.numbered(number, take(&mut rest)),
            _ => world.change(number),
        }
        world.check();
    }
    // In the end every datagram has arrived.
    world.pass(LONGEST_HOLD + GRACE);
    world.check();
    world.path.close();
    world.poll();
    for copies in world.transport.ledger.values() {
        assert!(copies.seen > 0, "a datagram was lost");
    }
}

impl World {
    fn new(settings: u8) -> Self {
        let paths = Arc::new(Paths::default());
        let (path, host) = new_path(true, paths.released.clone());
        let (path, _) = paths.join(server(), || path);
        paths.on_begun(server());
        let gateway = (settings & 1 == 0).then(|| TestGateway::meet(&path, &host));
        let mut world = Self {
            host,
            path,
            paths,
            gateway,
            transport: Transport::default(),
            endpoint: Arc::default(),
            driver: None,
            next: 0,
            lost: Vec::new(),
            last: Vec::new(),
        };
        world.drive();
        world.poll();
        world
    }

    /// The next datagram of the server, as the gateway forwards it.
    fn packet(&mut self) -> Vec<u8> {
        let packet = [&[0x41; 20][..], &self.next.to_be_bytes(), &[7; 30]].concat();
        self.next += 1;
        self.transport.genuine.insert(packet.clone());
        let forwarded = match &mut self.gateway {
            Some(gateway) => gateway.forward(&packet, &self.host),
            None => packet,
        };
        self.last.clone_from(&forwarded);
        forwarded
    }

    fn send(&mut self) {
        let packet = self.packet();
        self.arrive(packet, server());
    }

    fn lose(&mut self) {
        let packet = self.packet();
        self.lost.push(packet);
    }

    fn arrive_late(&mut self, index: usize) {
        if !self.lost.is_empty() {
            let packet = self.lost.remove(index % self.lost.len());
            self.arrive(packet, server());
        }
    }

    /// The gateway receives the client's messages; its answers and repairs arrive, or some do not.
    fn hear(&mut self, number: u64) {
        let said = self.host.sent();
        let Some(gateway) = &mut self.gateway else { return };
        let mut answers = Vec::new();
        for said in said {
            answers.extend(gateway.hear(&said, &self.host));
        }
        for (at, answer) in answers.into_iter().enumerate() {
            if number == 0 || !(at as u64).is_multiple_of(number + 1) {
                self.arrive(answer, server());
            }
        }
    }

    /// A datagram of another sender: the same header with other contents, an imitation of
    /// Packrat's, one from another address, a copy, or random bytes.
    fn foreign(&mut self, number: u64, bytes: &[u8]) {
        let (datagram, from) = match number & 7 {
            0..=2 => ([&[0x41], bytes, &[0xee]].concat(), server()),
            3 => ([&[0x0b, 0x50, 0x6b, 0x72], bytes, &[0xee]].concat(), server()),
            4 => (bytes.to_vec(), SocketAddr::new(server().ip(), 10)),
            _ => (self.last.clone(), server()),
        };
        self.arrive(datagram, from);
    }

    /// A forged datagram with a number: of the last one, next to it, or anywhere.
    fn numbered(&mut self, number: u64, bytes: &[u8]) {
        let Some((front, _)) = self.last.split_first_chunk::<{ number::NUMBER_LENGTH }>() else {
            return;
        };
        let mut front = *front;
        if number > 0 {
            front[7] = front[7].wrapping_add(number as u8);
        }
        if number >= 16 {
            front[5] ^= bytes.first().copied().unwrap_or_default();
        }
        self.arrive([&front[..], bytes, &[0xee]].concat(), server());
    }

    fn change(&mut self, number: u64) {
        match number {
            0 => self.path.close(),
            1 => self.path.on_network_change(),
            2 => {
                // The connection ends, and another one to the same address begins.
                self.path.close();
                let released = self.paths.released.clone();
                let (path, is_new) =
                    self.paths.join(server(), || new_path_on(&self.host, true, released));
                assert!(is_new, "a closed path is used once more");
                self.path = path;
                self.drive();
            }
            // The gateway forwards no datagram for a while.
            _ => self.next += number,
        }
        self.run_woken();
    }

    fn arrive(&mut self, mut datagram: Vec<u8>, from: SocketAddr) {
        let now = self.timestamp();
        let base = number::split(&datagram).filter(|_| from == server());
        let base = base.map_or(&datagram[..], |(_, base)| base).to_vec();
        // The shell alone knows whether it is a control datagram: then it must not be seen.
        let control_before = self.path.stats().2.control_received;
        let entry = self.transport.ledger.entry(base.clone()).or_default();
        entry.arrived += 1;
        if entry.seen == 0 {
            entry.waits_since.get_or_insert(now);
        }
        let Self { paths, transport, .. } = self;
        arrive(paths, metadata(from), &mut datagram, &mut |header, bytes| {
            assert_eq!(header.ecn, ExplicitCongestionNotification::Ect0);
            transport.see(bytes);
        });
        if self.path.stats().2.control_received > control_before {
            assert!(is_control(&base), "a datagram was taken for Packrat's");
            let copies = self.transport.ledger.get_mut(&base).unwrap();
            copies.arrived -= 1;
            assert_eq!(copies.seen, copies.arrived, "the transport has seen a control datagram");
            if copies.arrived == 0 {
                self.transport.ledger.remove(&base);
            }
        }
        // s2n-quic polls its endpoint after it has received.
        self.poll();
        self.run_woken();
    }

    fn timestamp(&self) -> Timestamp {
        use crate::host::Host as _;
        self.host.now()
    }

    /// The endpoint, as s2n-quic polls it: leaves its waker, and takes the released datagrams.
    fn poll(&mut self) {
        self.endpoint.0.store(false, Ordering::Relaxed);
        self.paths.released.set_waker(&Waker::from(Arc::clone(&self.endpoint)));
        let Self { paths, transport, .. } = self;
        release::<Tuple>(paths, &mut |_, bytes| transport.see(bytes));
    }

    /// The driver's turn; see `driver::drive`.
    fn drive(&mut self) {
        let now = self.timestamp();
        self.driver = match self.path.step() {
            Step::Until(next) => next.map(|next| next.max(now + TIMER)),
            Step::Remind => Some(now),
            Step::Ended => None,
        };
    }

    /// Runs only the woken tasks, of the driver and the endpoint.
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

    /// Lets time pass; only the shell's own requests are served.
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
