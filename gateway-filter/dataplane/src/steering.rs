//! Reading beside a shell: inside Envoy, the gateway's own threads read what clients send.
//!
//! Envoy's interface calls a filter once per datagram, after it has cut what the kernel had put together. So the gateway binds a
//! socket of its own to the listener's address for each worker, which its I/O threads read in batches, and tells the kernel to give
//! them all datagrams. Envoy's sockets stay where they are and are read as before: whatever goes wrong here, also when a socket
//! comes or goes and the places of others change, costs speed and nothing else, because every socket of the address is read by somebody who
//! forwards, and sessions are found whoever reads.
//!
//! The kernel names sockets by their place in the order of binding, which nobody can ask for. It is found by trying: a datagram of one byte,
//! which means nothing to anybody (RFC 9443, section 2), is sent to each place in turn, and the reader that it arrives at notes it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::dataplane::Environment;
use crate::downstream::Slot;
use crate::log::Event;
use crate::socket::{MOST_READERS, NOWHERE, Places, put_in_force};

/// How long a probe may be under way.
const PROBE_PATIENCE: Duration = Duration::from_millis(10);
/// Between two looks for a probe.
const PROBE_INTERVAL: Duration = Duration::from_micros(50);
/// Source ports that are tried until the kernel's own choice for one is somebody else's socket.
const MOST_SOURCES: usize = 32;
/// Time between two attempts, and the longest one when they come often.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// The listeners that are read beside a shell.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    listeners: Mutex<HashMap<SocketAddr, Listener>>,
}

#[derive(Debug)]
struct Listener {
    slots: Vec<Weak<Slot>>,
    /// What was found last.
    known: Vec<u32>,
    /// A thread is at it; whether it has to do it again.
    running: Option<bool>,
    next: Instant,
    pause: Duration,
}

impl Steering {
    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Listener>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self, listener: SocketAddr) -> Vec<Arc<Slot>> {
        let listeners = self.lock();
        let slots = listeners.get(&listener).into_iter().flat_map(|listener| &listener.slots);
        slots.filter_map(Weak::upgrade).filter(|slot| slot.is_read_here()).take(MOST_READERS).collect()
    }

    fn known(&self, listener: SocketAddr) -> Vec<u32> {
        self.lock().get(&listener).map(|listener| listener.known.clone()).unwrap_or_default()
    }

    /// Whether the thread has to do it again.
    fn finish(&self, address: SocketAddr, known: Vec<u32>) -> bool {
        let mut listeners = self.lock();
        let Some(listener) = listeners.get_mut(&address) else { return false };
        listener.known = known;
        if listener.running == Some(true) {
            listener.running = Some(false);
            return true;
        }
        listener.running = None;
        // What does not help is not to be done all the time.
        listener.next = Instant::now() + listener.pause;
        listener.pause = (listener.pause * 2).min(LONGEST_PAUSE);
        false
    }
}

/// A slot has got a socket that is read here.
pub(crate) fn join(environment: &Arc<Environment>, slot: &Arc<Slot>) {
    {
        let mut listeners = environment.steering.lock();
        listeners.retain(|_, listener| {
            listener.slots.retain(|known| known.strong_count() > 0);
            listener.running.is_some() || !listener.slots.is_empty()
        });
        let listener = listeners.entry(slot.listener()).or_insert_with(|| Listener {
            slots: Vec::new(),
            known: Vec::new(),
            running: None,
            next: Instant::now(),
            pause: SHORTEST_PAUSE,
        });
        listener.slots.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(slot)));
        listener.slots.push(Arc::downgrade(slot));
        listener.next = Instant::now();
        listener.pause = SHORTEST_PAUSE;
    }
    steer(environment, slot.listener());
}

/// No socket can be opened beside the shell's.
pub(crate) fn note_refused(environment: &Environment, listener: SocketAddr, error: &io::Error) {
    let detail = format!("the listener does not share its address: {error}");
    environment.logger.log(Event::ListenerNotSteered, || {
        [("listener", listener.to_string().into()), ("detail", detail.into())]
    });
}

/// A datagram has come to the shell's socket, although it should have come to one of ours.
pub(crate) fn note_stray(environment: &Arc<Environment>, listener: SocketAddr) {
    steer(environment, listener);
}

/// Finds the places of all sockets of a listener that are read here, on a thread of its own. Does nothing before its time.
fn steer(environment: &Arc<Environment>, address: SocketAddr) {
    {
        let mut listeners = environment.steering.lock();
        let Some(listener) = listeners.get_mut(&address) else { return };
        let now = Instant::now();
        if listener.next > now {
            return;
        }
        if listener.next + LONGEST_PAUSE < now {
            listener.pause = SHORTEST_PAUSE;
        }
        if let Some(again) = &mut listener.running {
            *again = true;
            return;
        }
        listener.running = Some(false);
    }
    let held = Arc::clone(environment);
    let thread = std::thread::Builder::new().name("packrat-steering".to_owned()).spawn(move || {
        loop {
            let (known, event, detail) = match find_places(&held, address) {
                Ok((known, detail)) => (known, Event::ListenerSteered, detail),
                Err(error) => (Vec::new(), Event::ListenerNotSteered, error.to_string()),
            };
            held.logger.log(event, || [("listener", address.to_string().into()), ("detail", detail.into())]);
            if !held.steering.finish(address, known) {
                return;
            }
        }
    });
    if thread.is_err() {
        environment.steering.finish(address, Vec::new());
    }
}

/// Probes of one source port, one after the other.
struct Prober<'a> {
    socket: UdpSocket,
    port: u16,
    number: u8,
    readers: &'a [Arc<Slot>],
}

impl<'a> Prober<'a> {
    fn new(listener: SocketAddr, readers: &'a [Arc<Slot>]) -> io::Result<Self> {
        let targets = match listener.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => vec![Ipv4Addr::LOCALHOST.into()],
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                vec![Ipv6Addr::LOCALHOST.into(), IpAddr::from(Ipv4Addr::LOCALHOST)]
            }
            ip => vec![ip],
        };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for target in targets {
            let unspecified: IpAddr = match target {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let open = || {
                let socket = UdpSocket::bind((unspecified, 0))?;
                let mut destination = listener;
                destination.set_ip(target);
                socket.connect(destination)?;
                let port = socket.local_addr()?.port();
                Ok(Self { socket, port, number: 0, readers })
            };
            match open() {
                Ok(prober) => return Ok(prober),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The reader that a datagram arrives at when the kernel is told to give it to `place`. Clients' go on to where they went before.
    fn ask(&mut self, place: u32, before: &[u32]) -> io::Result<Option<usize>> {
        self.put(Some((self.port, place)), before)?;
        self.number = (self.number + 1) % 12;
        let byte = 4 + self.number;
        self.socket.send(&[byte])?;
        let sent = Instant::now();
        loop {
            let reader = self.readers.iter().position(|slot| slot.has_seen_probe(self.port, byte));
            if reader.is_some() || sent.elapsed() > PROBE_PATIENCE {
                return Ok(reader);
            }
            std::thread::sleep(PROBE_INTERVAL);
        }
    }

    fn put(&self, probe: Option<(u16, u32)>, readers: &[u32]) -> io::Result<()> {
        let places = Places { probe, readers: readers.to_vec() };
        let sockets = self.readers.iter();
        sockets
            .filter_map(|slot| slot.with(|downstream| put_in_force(downstream.socket(), &places)))
            .next()
            .unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
    }
}

/// Finds the places of our sockets among those of the address, and has the kernel give them everything; returns them, and says what was found.
fn find_places(environment: &Environment, listener: SocketAddr) -> io::Result<(Vec<u32>, String)> {
    let readers = environment.steering.readers(listener);
    if readers.is_empty() {
        return Ok((Vec::new(), "nobody reads here".to_owned()));
    }
    let before = environment.steering.known(listener);
    // With a source port whose datagrams the kernel gives to somebody else of its own accord, nothing comes here by chance.
    let mut prober = None;
    for _ in 0..MOST_SOURCES {
        let mut candidate = Prober::new(listener, &readers)?;
        if candidate.ask(NOWHERE, &before)?.is_none() {
            prober = Some(candidate);
            break;
        }
    }
    let Some(mut prober) = prober else { return Ok((Vec::new(), "there is no other socket".to_owned())) };
    let workers = environment.workers() as u32;
    // As many sockets of the shell come first as there are workers; after a while anything is possible.
    let likely = workers..2 * workers;
    let others = (0..workers).chain(2 * workers..4 * workers + 8);
    let mut places: Vec<Option<u32>> = vec![None; readers.len()];
    let mut known = Vec::new();
    for place in likely.chain(others) {
        if known.len() == readers.len() {
            break;
        }
        if let Some(reader) = prober.ask(place, &before)?
            && let Some(found @ None) = places.get_mut(reader)
        {
            *found = Some(place);
            known.push(place);
        }
    }
    prober.put(None, &known)?;
    if known.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no probe has arrived; is the host's own address blocked by a firewall?",
        ));
    }
    let found = format!("{} of {} readers, at {known:?}", known.len(), readers.len());
    Ok((known, found))
}

/// What a reader keeps of the last probe that it has seen.
pub(crate) fn mark_of(port: u16, byte: u8) -> u32 {
    1 << 24 | u32::from(port) << 8 | u32::from(byte)
}
