//! Reading beside a shell: inside Envoy, the gateway's own threads read clients' datagrams.
//!
//! Envoy's interface calls a filter once per datagram, after it has cut what the kernel had put
//! together. So the gateway binds a socket of its own to the listener's address for each worker,
//! which its I/O threads read in batches, and has the kernel give them all datagrams. Envoy's
//! sockets stay and are read as before: a fault here, also when a socket comes or goes and the
//! places of others change, costs only speed, because every socket of the address is read by Envoy
//! or by the gateway, both of which forward and find the session.
//!
//! The kernel names sockets by their place in the order of binding, which cannot be queried. It is
//! found by trying: a datagram of one byte, which has no meaning in any protocol (RFC 9443, section
//! 2), is sent to each place in turn, and its reader notes it, be it an I/O thread or the shell. So
//! a late reader makes the search slower but does not change its result.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::context::Environment;
use crate::log::Event;
use crate::socket::{
    ListenerAddress, MOST_READERS, NO_PLACE, PROBE_BYTES, Places, ProbeReader, Slot, put_in_force,
};
use crate::sync::Mutex;

/// Longest wait for a probe; only a probe that is read elsewhere, or not at all, takes this long.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);
/// Time after which a probe is sent again: the socket that it was for may have been full.
const REPEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Time between two looks for a probe.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// Source ports that are tried until the kernel's own choice for one is a socket of the shell.
const MOST_SOURCES: usize = 32;
/// Source ports whose probes arrive nowhere until the search is given up.
const MOST_SILENT_SOURCES: usize = 4;
/// Shortest time between two attempts.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest time between two attempts, when they come often.
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// The listeners that are read beside a shell.
#[derive(Debug)]
pub(crate) struct Steering {
    environment: Arc<Environment>,
    workers: u32,
    listeners: Mutex<HashMap<ListenerAddress, Listener>>,
}

#[derive(Debug)]
struct Listener {
    slots: Vec<Weak<Slot>>,
    /// The places that were found last.
    known: Vec<u32>,
    /// A thread is at it; whether it has to do it again.
    running: Option<bool>,
    next: Instant,
    pause: Duration,
}

impl Steering {
    pub(crate) fn new(environment: Arc<Environment>, workers: usize) -> Self {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX / 8);
        Self { environment, workers, listeners: Mutex::default() }
    }

    fn slots(&self, listener: ListenerAddress) -> Vec<Arc<Slot>> {
        let listeners = self.listeners.lock();
        let slots = listeners.get(&listener).into_iter().flat_map(|listener| &listener.slots);
        slots.filter_map(Weak::upgrade).collect()
    }

    fn readers(&self, listener: ListenerAddress) -> Vec<Arc<Slot>> {
        let slots = self.slots(listener).into_iter();
        slots.filter(|slot| slot.is_read_here()).take(MOST_READERS).collect()
    }

    fn known(&self, listener: ListenerAddress) -> Vec<u32> {
        self.listeners
            .lock()
            .get(&listener)
            .map(|listener| listener.known.clone())
            .unwrap_or_default()
    }

    /// Notes what a thread has found; true if it has to do it again.
    fn finish(&self, address: ListenerAddress, known: Vec<u32>) -> bool {
        let mut listeners = self.listeners.lock();
        let Some(listener) = listeners.get_mut(&address) else { return false };
        listener.known = known;
        if listener.running == Some(true) {
            listener.running = Some(false);
            return true;
        }
        listener.running = None;
        // Each search is followed by a longer pause, as a search may not help.
        listener.next = Instant::now() + listener.pause;
        listener.pause = (listener.pause * 2).min(LONGEST_PAUSE);
        false
    }

    /// Has the kernel give datagrams to a slot whose socket is read here from now on.
    pub(crate) fn join(self: &Arc<Self>, slot: &Arc<Slot>) {
        {
            let mut listeners = self.listeners.lock();
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
        self.steer(slot.listener(), true);
    }

    /// Notes that no socket can be opened beside the shell's.
    pub(crate) fn note_refused(&self, listener: ListenerAddress, error: &io::Error) {
        let detail = format!("the listener does not share its address: {error}");
        self.environment.logger.log(Event::ListenerNotSteered, || {
            [("listener", listener.to_string().into()), ("detail", detail.into())]
        });
    }

    /// Notes that a datagram has come to the shell's socket, although it should have come to one of
    /// ours.
    pub(crate) fn note_stray(self: &Arc<Self>, listener: ListenerAddress) {
        self.steer(listener, false);
    }

    /// Finds the places of all sockets of a listener that are read here, on a thread of its own.
    /// Returns at once before the time of the next search. `has_joined`: one of the sockets is new.
    fn steer(self: &Arc<Self>, address: ListenerAddress, has_joined: bool) {
        {
            let mut listeners = self.listeners.lock();
            let Some(listener) = listeners.get_mut(&address) else { return };
            let now = Instant::now();
            if listener.next > now {
                return;
            }
            if listener.next + LONGEST_PAUSE < now {
                listener.pause = SHORTEST_PAUSE;
            }
            if let Some(again) = &mut listener.running {
                // As long as a thread looks for them, datagrams come to the shell anyway.
                *again |= has_joined;
                return;
            }
            listener.running = Some(false);
        }
        let held = Arc::clone(self);
        let thread =
            std::thread::Builder::new().name("packrat-steering".to_owned()).spawn(move || {
                loop {
                    let (known, event, detail) = match held.find_places(address) {
                        Ok((known, detail)) => (known, Event::ListenerSteered, detail),
                        Err(error) => (Vec::new(), Event::ListenerNotSteered, error.to_string()),
                    };
                    held.environment.logger.log(event, || {
                        [("listener", address.to_string().into()), ("detail", detail.into())]
                    });
                    if !held.finish(address, known) {
                        return;
                    }
                }
            });
        if thread.is_err() {
            self.finish(address, Vec::new());
        }
    }

    /// Finds the places of the gateway's sockets among all sockets of the address, and has the
    /// kernel give them all datagrams; returns the places, and a text that describes them.
    fn find_places(&self, listener: ListenerAddress) -> io::Result<(Vec<u32>, String)> {
        let readers = self.readers(listener);
        if readers.is_empty() {
            return Ok((Vec::new(), "no thread reads here".to_owned()));
        }
        let mut prober = Prober {
            steering: self,
            listener,
            readers: &readers,
            before: self.known(listener),
            source: None,
        };
        let workers = self.workers;
        // As many sockets of the shell come first as there are workers; after a while anything is
        // possible.
        let likely = workers..2 * workers;
        let others = (0..workers).chain(2 * workers..4 * workers + 8);
        let mut to_ask: VecDeque<(u32, bool)> =
            likely.chain(others).map(|place| (place, false)).collect();
        let mut places: Vec<Option<u32>> = vec![None; readers.len()];
        let mut known = Vec::new();
        while known.len() < readers.len()
            && let Some((place, is_asked_again)) = to_ask.pop_front()
        {
            match prober.ask(place)? {
                Answer::NoSource => {
                    return Ok((Vec::new(), "there is no other socket".to_owned()));
                }
                Answer::Reader(reader) => {
                    if let Some(found @ None) = places.get_mut(reader) {
                        *found = Some(place);
                        known.push(place);
                    }
                }
                Answer::Silence if !is_asked_again => to_ask.push_back((place, true)),
                Answer::Silence | Answer::Foreign => {}
            }
        }
        prober.put(None, &known)?;
        if known.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "no probe has arrived at a socket of ours",
            ));
        }
        let found = format!("{} of {} readers, at {known:?}", known.len(), readers.len());
        Ok((known, found))
    }
}

/// The place that a probe has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Socket of this reader.
    Reader(usize),
    /// Socket of the shell, or one that is read here since the search began.
    Foreign,
    /// The probe was not read.
    Silence,
    /// There is no source port for probes: the kernel gives each of them to our sockets of its own
    /// accord.
    NoSource,
}

/// Probes, one after the other.
struct Prober<'a> {
    steering: &'a Steering,
    listener: ListenerAddress,
    readers: &'a [Arc<Slot>],
    /// Places to which clients' datagrams go during the search.
    before: Vec<u32>,
    source: Option<Source>,
}

/// A source port of probes. Each has a byte of its own, so that a late one is not taken for another.
struct Source {
    socket: UdpSocket,
    port: u16,
    unused: RangeInclusive<u8>,
}

impl Source {
    fn open(listener: ListenerAddress) -> io::Result<Self> {
        let targets = match listener.get().ip() {
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
                let mut destination = listener.get();
                destination.set_ip(target);
                socket.connect(destination)?;
                let port = socket.local_addr()?.port();
                Ok(Self { socket, port, unused: PROBE_BYTES })
            };
            match open() {
                Ok(source) => return Ok(source),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Prober<'_> {
    /// Socket that gets a datagram when the kernel is to give it to `place`.
    fn ask(&mut self, place: u32) -> io::Result<Answer> {
        let usable = self.source.take().filter(|source| !source.unused.is_empty());
        let Some(mut source) = usable.map_or_else(|| self.find_source(), |it| Ok(Some(it)))? else {
            return Ok(Answer::NoSource);
        };
        let answer = self.send(&mut source, place);
        self.source = Some(source);
        answer
    }

    /// A source port whose datagrams the kernel gives to the shell of its own accord: what our
    /// readers get of them has come to the place that was asked about.
    fn find_source(&self) -> io::Result<Option<Source>> {
        let mut silent = 0;
        for _ in 0..MOST_SOURCES {
            let mut source = Source::open(self.listener)?;
            // The port may have been another source's.
            self.steering.slots(self.listener).iter().for_each(|slot| slot.forget_probe());
            match self.send(&mut source, NO_PLACE)? {
                Answer::Foreign => return Ok(Some(source)),
                Answer::Silence => silent += 1,
                Answer::Reader(_) | Answer::NoSource => {}
            }
            if silent == MOST_SILENT_SOURCES {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    "no probe has arrived; is the host's own address blocked by a firewall?",
                ));
            }
        }
        Ok(None)
    }

    /// Clients' datagrams still go to the same places as before.
    fn send(&self, source: &mut Source, place: u32) -> io::Result<Answer> {
        let Some(byte) = source.unused.next() else { return Ok(Answer::Silence) };
        self.put(Some((source.port, place)), &self.before)?;
        let (begun, mut repeat) = (Instant::now(), Duration::ZERO);
        while begun.elapsed() < PROBE_PATIENCE {
            if begun.elapsed() >= repeat {
                source.socket.send(&[byte])?;
                repeat += REPEAT_INTERVAL;
            }
            let slots = self.steering.slots(self.listener);
            let reader_at = |slot: &Arc<Slot>| slot.probe_reader(source.port, byte);
            let read = slots.iter().find_map(|slot| Some((slot, reader_at(slot)?)));
            if let Some((slot, reader)) = read {
                let number = self.readers.iter().position(|known| Arc::ptr_eq(known, slot));
                return Ok(match (reader, number) {
                    (ProbeReader::IoThread, Some(number)) => Answer::Reader(number),
                    _ => Answer::Foreign,
                });
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(Answer::Silence)
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
