//! The path between real UDP sockets.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use super::arrival::{self, Arrived};
use super::lateness::Lateness;
use super::link::{LinkConfig, LinkCounters};
use super::release::Direction;
use super::socket_drops::socket_drops;

/// Largest UDP payload over IPv4.
const LARGEST_DATAGRAM: usize = 65_507;
/// Interval at which a receiving thread checks if it should stop.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// Number of hosts of 127.0.0.0/8 from which clients appear, one after the other.
const HOST_COUNT: u64 = 200;
/// Clients that one path serves, those before a rebinding included; each costs a socket and a
/// thread.
const MOST_CLIENTS: usize = 256;

/// A path: its far end, and its two directions.
#[derive(Debug, Clone, Copy)]
pub struct PathConfig {
    /// The destination of the clients' datagrams.
    pub server: SocketAddr,
    /// Client to server.
    pub upward: LinkConfig,
    /// Server to client.
    pub downward: LinkConfig,
}

/// Failure to start a path.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// No socket on the loopback address.
    #[error("the emulated path could not open a UDP socket on the loopback address: {0}")]
    Socket(#[source] io::Error),
    /// No thread.
    #[error("the emulated path could not start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// Counters of one direction of a running path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DirectionReport {
    /// The link's decisions.
    #[serde(flatten)]
    pub link: LinkCounters,
    /// Datagrams sent out at the other end.
    pub released: u64,
    /// Datagrams that are on their way.
    pub in_flight: u64,
    /// Datagrams that the kernel would not send.
    pub send_errors: u64,
    /// The lateness with which they were sent out.
    pub lateness: Lateness,
}

/// Counters of a running path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PathReport {
    /// Client to server.
    pub upward: DirectionReport,
    /// Server to client.
    pub downward: DirectionReport,
    /// Client addresses seen; after a rebinding a client counts again.
    pub clients: u64,
    /// Datagrams of clients beyond the most that a path serves.
    pub refused: u64,
    /// Datagrams that the kernel dropped at the path's sockets: anything but 0 spoils a
    /// measurement.
    pub socket_drops: u64,
}

impl PathReport {
    /// True if the path kept to its settings: it was [on time](Lateness::is_on_time) in both
    /// directions, and the kernel has dropped no datagram. Otherwise measurements over it describe
    /// the machine more than the path.
    pub fn is_on_time(&self) -> bool {
        let directions = [&self.upward, &self.downward];
        self.socket_drops == 0 && directions.iter().all(|direction| direction.lateness.is_on_time())
    }
}

/// A path between UDP sockets on the loopback interface, in real time.
///
/// Clients send to [`address`](Self::address). For each client address the path opens a socket
/// towards the server, as a NAT does, so that the server sees one address per client. All clients
/// share the two links, including the clients of [other servers](Self::open_door). Dropping the
/// path stops its threads and closes its sockets. [`rebind`](Self::rebind) lets the NAT forget its
/// mappings, [`roam`](Self::roam) takes the clients to another network.
pub struct UdpPath {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

/// An address at which clients send to one server.
struct Door {
    server: SocketAddr,
    front: UdpSocket,
}

/// The way back to a client.
struct ToClient {
    door: Arc<Door>,
    client: SocketAddr,
}

struct Shared {
    upward: Arc<Direction<Arc<UdpSocket>>>,
    downward: Arc<Direction<ToClient>>,
    released_upward: AtomicU64,
    released_downward: AtomicU64,
    send_errors_upward: AtomicU64,
    send_errors_downward: AtomicU64,
    refused: AtomicU64,
    stopped: AtomicBool,
    /// Times that the NAT has forgotten its mappings; a client's socket belongs to one of these
    /// generations.
    mappings: AtomicU64,
    /// Times that the clients have gone to another network.
    journeys: AtomicU64,
    clients: Mutex<Clients>,
    capture: Mutex<Option<BufWriter<File>>>,
}

#[derive(Default)]
struct Clients {
    ports: Vec<u16>,
    /// The ports of doors beside the first.
    doors: Vec<u16>,
    threads: Vec<JoinHandle<()>>,
}

impl UdpPath {
    /// Opens the path on a free port of the loopback address, of the same family as the server's.
    ///
    /// # Errors
    /// When a socket or a thread cannot be had.
    pub fn start(config: PathConfig) -> Result<Self, PathError> {
        let (door, address) = Door::open(config.server)?;
        let origin = Instant::now();
        let shared = Arc::new(Shared {
            upward: Direction::new(config.upward, origin),
            downward: Direction::new(config.downward, origin),
            released_upward: AtomicU64::new(0),
            released_downward: AtomicU64::new(0),
            send_errors_upward: AtomicU64::new(0),
            send_errors_downward: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            mappings: AtomicU64::new(0),
            journeys: AtomicU64::new(0),
            clients: Mutex::default(),
            capture: Mutex::default(),
        });
        // Built before its threads, so that an error half-way stops the threads already running.
        let mut path = Self { shared: Arc::clone(&shared), address, threads: Vec::new() };
        path.spawn("path-up-out", Shared::release_upward)?;
        path.spawn("path-down-out", Shared::release_downward)?;
        path.spawn("path-up-in", move |shared| shared.receive_from_clients(&door))?;
        Ok(path)
    }

    /// Opens another address, at which clients send to another server through the same links.
    ///
    /// # Errors
    /// When a socket or a thread cannot be had.
    pub fn open_door(&mut self, server: SocketAddr) -> Result<SocketAddr, PathError> {
        let (door, address) = Door::open(server)?;
        self.shared.clients().doors.push(address.port());
        self.spawn("path-up-in", move |shared| shared.receive_from_clients(&door))?;
        Ok(address)
    }

    /// The address to which clients send.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets the NAT forget its mappings: from now on every client's datagrams reach the server from
    /// another port, and datagrams that the server sends to the old one are lost. Those on their
    /// way to the clients arrive.
    pub fn rebind(&self) {
        self.shared.mappings.fetch_add(1, Ordering::Relaxed);
    }

    /// Like [`rebind`](Self::rebind), and also changes the clients' address: to the next of
    /// 127.0.0.1, 127.0.0.2 and so on. If there is only one (IPv6, other systems than Linux) the
    /// address stays.
    pub fn roam(&self) {
        self.shared.journeys.fetch_add(1, Ordering::Relaxed);
        self.rebind();
    }

    /// Writes every datagram from the server to `file` from now on, whatever becomes of it: its
    /// length in four bytes, big end first, then its bytes. An error of the file ends the
    /// capture, not the path.
    pub fn capture(&self, file: File) {
        *self.shared.capture() = Some(BufWriter::new(file));
    }

    /// The path's counters.
    pub fn report(&self) -> PathReport {
        let shared = &self.shared;
        let mut ports = shared.clients().ports.clone();
        let clients = ports.len() as u64;
        ports.push(self.address.port());
        ports.extend(&shared.clients().doors);
        let upward = shared.upward.counters();
        let downward = shared.downward.counters();
        PathReport {
            upward: direction_report(upward, &shared.released_upward, &shared.send_errors_upward),
            downward: direction_report(
                downward,
                &shared.released_downward,
                &shared.send_errors_downward,
            ),
            clients,
            refused: shared.refused.load(Ordering::Relaxed),
            socket_drops: socket_drops(&ports),
        }
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<(), PathError> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&shared))
            .map_err(PathError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for UdpPath {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.upward.stop();
        self.shared.downward.stop();
        // A thread that panicked has nothing more to stop.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let of_clients = std::mem::take(&mut self.shared.clients().threads);
        for thread in of_clients {
            let _ = thread.join();
        }
    }
}

impl Door {
    fn open(server: SocketAddr) -> Result<(Arc<Self>, SocketAddr), PathError> {
        let front = loopback_socket(server).map_err(PathError::Socket)?;
        let address = front.local_addr().map_err(PathError::Socket)?;
        Ok((Arc::new(Self { server, front }), address))
    }
}

impl Shared {
    fn receive_from_clients(self: &Arc<Self>, door: &Arc<Door>) {
        let mut upstreams: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut mapping = 0;
        let mut buffer = vec![0; LARGEST_DATAGRAM + 1];
        while !self.stopped.load(Ordering::Relaxed) {
            // Errors here are time-outs and late ICMP errors of datagrams to clients that went
            // away.
            let Ok(arrived) = arrival::receive(&door.front, &mut buffer) else { continue };
            let Arrived { length, from: client, waited } = arrived;
            let current = self.mappings.load(Ordering::Relaxed);
            if mapping != current {
                mapping = current;
                upstreams.clear();
            }
            let upstream = match upstreams.get(&client) {
                Some(upstream) => upstream,
                None => match self.open_upstream(door, client, mapping) {
                    Ok(upstream) => upstreams.entry(client).or_insert(upstream),
                    Err(_) => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                },
            };
            self.upward.offer_belated(&buffer[..length], Arc::clone(upstream), waited);
        }
    }

    /// Opens the socket that stands for `client` towards the server, and a thread that receives
    /// from it as long as the mapping lasts.
    fn open_upstream(
        self: &Arc<Self>,
        door: &Arc<Door>,
        client: SocketAddr,
        mapping: u64,
    ) -> io::Result<Arc<UdpSocket>> {
        if self.clients().ports.len() >= MOST_CLIENTS {
            return Err(io::Error::other("this path serves no more clients"));
        }
        let journeys = self.journeys.load(Ordering::Relaxed);
        let abroad =
            (journeys > 0).then(|| loopback_socket_of(door.server, journeys)).and_then(Result::ok);
        let upstream = Arc::new(abroad.map_or_else(|| loopback_socket(door.server), Ok)?);
        upstream.connect(door.server)?;
        let port = upstream.local_addr()?.port();
        let (shared, socket) = (Arc::clone(self), Arc::clone(&upstream));
        let door = Arc::clone(door);
        let thread = thread::Builder::new().name("path-down-in".to_owned()).spawn(move || {
            let mut buffer = vec![0; LARGEST_DATAGRAM + 1];
            while !shared.stopped.load(Ordering::Relaxed) {
                // Errors here are time-outs, and ICMP errors while no server listens at the
                // server's address.
                let received = arrival::receive(&socket, &mut buffer);
                if shared.mappings.load(Ordering::Relaxed) != mapping {
                    return;
                }
                let Ok(Arrived { length, waited, .. }) = received else { continue };
                shared.write_to_capture(&buffer[..length]);
                let to = ToClient { door: Arc::clone(&door), client };
                shared.downward.offer_belated(&buffer[..length], to, waited);
            }
        })?;
        let mut clients = self.clients();
        clients.ports.push(port);
        clients.threads.push(thread);
        Ok(upstream)
    }

    fn release_upward(self: &Arc<Self>) {
        self.upward.release(|datagram| {
            let sent = send(|| datagram.destination.send(&datagram.payload));
            count(sent, &self.released_upward, &self.send_errors_upward);
        });
    }

    fn release_downward(self: &Arc<Self>) {
        self.downward.release(|datagram| {
            let ToClient { door, client } = datagram.destination;
            let sent = send(|| door.front.send_to(&datagram.payload, client));
            count(sent, &self.released_downward, &self.send_errors_downward);
        });
    }

    fn write_to_capture(&self, datagram: &[u8]) {
        let mut capture = self.capture();
        let Some(file) = capture.as_mut() else { return };
        let length = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        if file.write_all(&length.to_be_bytes()).and_then(|()| file.write_all(datagram)).is_err() {
            *capture = None;
        }
    }

    fn capture(&self) -> MutexGuard<'_, Option<BufWriter<File>>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a datagram. The first error may belong to the previous datagram, which was refused at the
/// other end.
fn send(once: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
    once().or_else(|_| once())
}

fn count(sent: io::Result<usize>, released: &AtomicU64, errors: &AtomicU64) {
    if sent.is_ok() { released } else { errors }.fetch_add(1, Ordering::Relaxed);
}

fn direction_report(
    (link, lateness, in_flight): (LinkCounters, Lateness, usize),
    released: &AtomicU64,
    send_errors: &AtomicU64,
) -> DirectionReport {
    DirectionReport {
        link,
        released: released.load(Ordering::Relaxed),
        in_flight: in_flight as u64,
        send_errors: send_errors.load(Ordering::Relaxed),
        lateness,
    }
}

/// A UDP socket on a free port of the loopback address of `peer`'s family, with large buffers and a
/// receive time-out.
fn loopback_socket(peer: SocketAddr) -> io::Result<UdpSocket> {
    loopback_socket_of(peer, 0)
}

/// A UDP socket like [`loopback_socket`]'s, on the host's address after `journeys` moves.
fn loopback_socket_of(peer: SocketAddr, journeys: u64) -> io::Result<UdpSocket> {
    let host = u8::try_from(journeys % HOST_COUNT).unwrap_or_default();
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::new(127, 0, 0, 1 + host), 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
    };
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    arrival::prepare(&socket);
    socket.set_read_timeout(Some(STOP_CHECK))?;
    socket.bind(&local.into())?;
    Ok(socket.into())
}
