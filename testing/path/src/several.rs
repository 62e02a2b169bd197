//! Several servers behind several gateways of one key, without loss.
//!
//! ```text
//!   server 0 ... 3 <-- gateway 0 ... 2 <-- the SDK, by another address each time
//! ```

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_api::route::Hidden;
use packrat_dataplane::RouteConfig;

use crate::{ANY_PORT, Gateway};

/// Number of servers.
const SERVER_COUNT: usize = 4;
/// Number of gateways.
const GATEWAY_COUNT: usize = 3;
/// Interval at which a thread looks if the host is on time.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// A gateway waits 100 ms longer for a client's message than the client does before it sends it.
const MOST_LATENESS: Duration = Duration::from_millis(20);

/// Answers each datagram with its own number, the address that it comes from, and the datagram.
struct Witness {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    fn start(number: usize, over: &Arc<AtomicBool>) -> Self {
        let socket = UdpSocket::bind(ANY_PORT).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let address = socket.local_addr().unwrap();
        let over = Arc::clone(over);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !over.load(Ordering::Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut buffer) else { continue };
                let mut answer = format!("{number} {client} ").into_bytes();
                answer.extend_from_slice(&buffer[..length]);
                let _ = socket.send_to(&answer, client);
            }
        });
        Self { address, thread: Some(thread) }
    }
}

/// A thread that runs at intervals, and whether the host has ever kept it waiting.
struct Pulse {
    is_late: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    fn start(over: &Arc<AtomicBool>) -> Self {
        let is_late = Arc::new(AtomicBool::new(false));
        let (over, late) = (Arc::clone(over), Arc::clone(&is_late));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                std::thread::sleep(LOOK_INTERVAL);
                late.fetch_or(begun.elapsed() > LOOK_INTERVAL + MOST_LATENESS, Ordering::Relaxed);
            }
        });
        Self { is_late, thread: Some(thread) }
    }
}

/// Several gateways in front of the same servers; each of them reports the address of the client.
pub struct Several {
    servers: Vec<Witness>,
    gateways: Vec<Gateway>,
    pulse: Pulse,
    over: Arc<AtomicBool>,
}

impl Several {
    /// Starts them.
    pub fn start() -> Self {
        let over = Arc::default();
        let servers: Vec<_> =
            (0..SERVER_COUNT).map(|number| Witness::start(number, &over)).collect();
        let gateways = (0..GATEWAY_COUNT).map(|_| {
            let mut config =
                RouteConfig::new("web", servers.iter().map(|server| server.address)).unwrap();
            config.static_key = Some(Hidden::new("0f".repeat(32)));
            Gateway::with(ANY_PORT, config)
        });
        Self { gateways: gateways.collect(), servers, pulse: Pulse::start(&over), over }
    }

    /// Addresses that the SDK may send to.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.gateways.iter().map(Gateway::address)
    }

    /// True if the host has never kept anybody waiting for as long as makes a difference to clients that move.
    pub fn is_on_time(&self) -> bool {
        !self.pulse.is_late.load(Ordering::Relaxed)
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let servers = self.servers.iter_mut().map(|server| &mut server.thread);
        for thread in servers.chain([&mut self.pulse.thread]).filter_map(Option::take) {
            let _ = thread.join();
        }
    }
}
