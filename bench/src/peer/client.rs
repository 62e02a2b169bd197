//! The clients: sinks with the real client core, behind a last mile that loses datagrams; or
//! generators.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use packrat_client::{Assist, ClientConfig, Datagram, PacketNumber};
use packrat_dataplane::socket::{ReceiveBatch, listener_options};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::event::{Timespec, epoll};
use serde::{Deserialize, Serialize};

use super::datagram::{self, Header, Purpose};
use super::generator::{self, Feedback, Pattern, Receiver, feedback_interval};
use super::progress::{self, Progress};
use crate::Fallible;

/// Parameters of the clients.
#[derive(Debug)]
pub(crate) struct Behaviour {
    /// The address to which they send.
    pub(crate) server: SocketAddr,
    /// The addresses from which they send, in turn.
    pub(crate) sources: Vec<IpAddr>,
    /// Number of clients.
    pub(crate) sessions: usize,
    /// True if they ask for assistance.
    pub(crate) assist: bool,
    /// Share of the datagrams that the last mile loses.
    pub(crate) loss: f64,
    /// The datagrams that they send, if any.
    pub(crate) upload: Option<Pattern>,
    /// True if they report their progress to the server.
    pub(crate) feedback: bool,
    /// The file in which all clients together count their received datagrams instead.
    pub(crate) progress: Option<Progress>,
    /// Phases of the run.
    pub(crate) phases: usize,
    /// Longest run time.
    pub(crate) limit: Duration,
}

/// The clients' counts of one phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Datagrams that reached the last mile, without repairs.
    pub(crate) received: u64,
    /// Bytes of these datagrams.
    pub(crate) bytes: u64,
    /// Datagrams that the last mile lost.
    pub(crate) lost: u64,
    /// Lost datagrams that were repaired.
    pub(crate) repaired: u64,
    /// Datagrams that never reached the last mile: dropped by the gateway, or in a queue.
    pub(crate) missing: u64,
    /// Seconds between the first and the last.
    pub(crate) seconds: f64,
    /// Delay one way in microseconds, 50th and 99th percentile.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// eACKs sent, in all phases.
    pub(crate) eacks: u64,
    /// Sessions with assistance.
    pub(crate) assisted: u64,
    /// Datagrams sent, if they send.
    pub(crate) sent: u64,
}

struct Client {
    socket: UdpSocket,
    assist: Option<Assist>,
    /// The number that follows the highest seen.
    next: u64,
    lost: HashSet<u64>,
    reported: u64,
    ended: bool,
    /// The time of the core's next call, if it is in the queue.
    planned: Option<Timestamp>,
}

struct Clients {
    behaviour: Behaviour,
    all: Vec<Client>,
    begun: Instant,
    random: ChaCha8Rng,
    received: u64,
    phases: Vec<SeenPhase>,
    /// Clients whose core is to be called, and when; entries that are not those planned do not count.
    timers: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

/// The progress of a phase.
#[derive(Default)]
struct SeenPhase {
    seen: Seen,
    delays: Vec<u32>,
    first: Option<Duration>,
    last: Duration,
}

/// Runs until the server's end mark; returns the counts of each phase.
pub(crate) fn run(behaviour: Behaviour) -> Fallible<Vec<Seen>> {
    let (sessions, server) = (behaviour.sessions, behaviour.server);
    let mut clients = Clients {
        all: Vec::with_capacity(sessions),
        begun: Instant::now(),
        random: ChaCha8Rng::seed_from_u64(7),
        received: 0,
        timers: BinaryHeap::new(),
        phases: std::iter::repeat_with(SeenPhase::default).take(behaviour.phases.max(1)).collect(),
        behaviour,
    };
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for number in 0..sessions {
        let sources = &clients.behaviour.sources;
        let source = sources.get(number % sources.len().max(1)).copied();
        let socket = UdpSocket::bind((source.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), 0))?;
        listener_options(socket.as_fd(), true)?;
        socket.connect(server)?;
        epoll::add(
            &poller,
            &socket,
            epoll::EventData::new_u64(number as u64),
            epoll::EventFlags::IN,
        )?;
        let client = Client {
            socket,
            assist: None,
            next: 0,
            lost: HashSet::new(),
            reported: 0,
            ended: false,
            planned: None,
        };
        clients.all.push(client);
    }
    clients.work(poller.as_fd())?;
    Ok(clients.finish())
}

impl Clients {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn work(&mut self, poller: BorrowedFd<'_>) -> Fallible {
        let mut batch = ReceiveBatch::new(32);
        let mut events = Vec::with_capacity(512);
        let mut greeted = Instant::now();
        let mut admitted = 0;
        while self.begun.elapsed() < self.behaviour.limit
            && self.all.iter().any(|client| !client.ended)
        {
            // One after the other, as clients come: a thousand handshakes at once would be a test
            // of queues.
            let rate = if self.behaviour.assist { 2000.0 } else { 20_000.0 };
            let due = 1 + (self.begun.elapsed().as_secs_f64() * rate) as usize;
            while admitted < self.all.len().min(due) {
                self.admit(admitted);
                admitted += 1;
            }
            if self.received == 0 && greeted.elapsed() > Duration::from_secs(1) {
                (0..admitted).for_each(|index| self.greet(index));
                greeted = Instant::now();
            }
            if let Some(pattern) = self.behaviour.upload
                && self.begun.elapsed() > Duration::from_millis(100)
            {
                return self.upload(&pattern);
            }
            events.clear();
            let limit = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            match epoll::wait(poller, rustix::buffer::spare_capacity(&mut events), Some(&limit)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let data = event.data;
                self.read(usize::try_from(data.u64())?, &mut batch)?;
            }
            self.serve_due();
        }
        Ok(())
    }

    /// Starts a client.
    fn admit(&mut self, index: usize) {
        let now = self.now();
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        if let Some(client) = self.all.get_mut(index).filter(|_| self.behaviour.assist) {
            client.assist = Some(Assist::new(ClientConfig::default(), seed, now));
        }
        self.serve(index);
        self.greet(index);
    }

    /// Sends a client's greeting to the server.
    fn greet(&self, index: usize) {
        let mut hello = [0; datagram::SHORTEST_BYTES];
        datagram::write(&mut hello, Header::message(Purpose::Hello, 0));
        if let Some(client) = self.all.get(index).filter(|client| client.next == 0) {
            // A greeting that is lost is repeated.
            let _ = client.socket.send(&hello);
        }
    }

    fn upload(&mut self, pattern: &Pattern) -> Fallible {
        let server = self.behaviour.server;
        let Some(client) = self.all.first() else { return Ok(()) };
        let mut receivers = [Receiver { address: server, next: 0, acknowledged: 0 }];
        let mut batch = ReceiveBatch::new(8);
        let socket = client.socket.as_fd();
        let mut reports = |receivers: &mut [Receiver]| {
            while batch.receive(socket).is_ok() {
                for bytes in batch.messages().flat_map(|message| message.datagrams()) {
                    if let (Some(Header { purpose: Purpose::Feedback, number, .. }), [receiver]) =
                        (datagram::read(bytes), &mut *receivers)
                    {
                        receiver.acknowledged = receiver.acknowledged.max(number);
                    }
                }
            }
        };
        let mut feedback = Feedback::Reports(&mut reports);
        let sent = generator::send(socket, true, pattern, &mut receivers, &mut feedback);
        generator::end(socket, true, &receivers);
        if let Some(phase) = self.phases.first_mut() {
            phase.seen.sent = sent;
        }
        Ok(())
    }

    /// Reads the datagrams that arrived for a client.
    fn read(&mut self, index: usize, batch: &mut ReceiveBatch) -> Fallible {
        let Some(client) = self.all.get_mut(index) else { return Ok(()) };
        if let Err(error) = batch.receive(client.socket.as_fd()) {
            // No datagram is waiting, or the server does not listen yet.
            return match error.kind() {
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::ConnectionRefused => Ok(()),
                _ => Err(error.into()),
            };
        }
        let time = datagram::now();
        let now = self.now();
        for bytes in batch.messages().flat_map(|message| message.datagrams()) {
            self.take(index, bytes, time, now);
        }
        self.serve(index);
        self.report(index);
        Ok(())
    }

    fn take(&mut self, index: usize, bytes: &[u8], time: Duration, now: Timestamp) {
        let Some(client) = self.all.get_mut(index) else { return };
        let Some(Header { purpose, phase, number, sent }) = datagram::read(bytes) else {
            if let Some(assist) = &mut client.assist {
                assist.on_datagram(bytes, now);
            }
            return;
        };
        if purpose == Purpose::End {
            client.ended = true;
            return;
        }
        if purpose != Purpose::Data {
            return;
        }
        let Some(SeenPhase { seen, delays, first, last }) = self.phases.get_mut(usize::from(phase))
        else {
            return;
        };
        let is_lost = self.behaviour.loss > 0.0
            && f64::from(self.random.next_u32()) < self.behaviour.loss * f64::from(u32::MAX);
        if number < client.next {
            // A second copy: a repair, a copy of one, or the network's duplicate.
            if is_lost {
                return;
            }
            seen.repaired += u64::from(client.lost.remove(&number));
        } else {
            seen.missing += number - client.next;
            client.next = number + 1;
            seen.received += 1;
            seen.bytes += bytes.len() as u64;
            self.received += 1;
            if let Some(progress) = &self.behaviour.progress
                && self.received.is_multiple_of(progress::WRITE_INTERVAL)
            {
                progress.report(self.received);
            }
            first.get_or_insert(time);
            *last = time;
            if delays.len() < 2_000_000 {
                delays
                    .push(u32::try_from(time.saturating_sub(sent).as_nanos()).unwrap_or(u32::MAX));
            }
            if is_lost {
                seen.lost += 1;
                client.lost.insert(number);
                return;
            }
        }
        if let Some(assist) = &mut client.assist
            && assist.on_datagram(bytes, now) == Datagram::Base
        {
            assist.on_packet_number(PacketNumber::new(number), now);
        }
    }

    /// Calls the cores whose time has come.
    fn serve_due(&mut self) {
        let now = self.now();
        while let Some(Reverse((at, index))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let client = self.all.get_mut(index);
            if client
                .is_some_and(|client| client.planned.take_if(|planned| *planned == at).is_some())
            {
                self.serve(index);
            }
        }
    }

    /// Sends the client core's messages.
    fn serve(&mut self, index: usize) {
        let now = self.now();
        let Some(Client { socket, assist: Some(assist), ended: false, planned, .. }) =
            self.all.get_mut(index)
        else {
            return;
        };
        if assist.next_timeout().is_some_and(|at| at <= now) {
            assist.handle_timeout(now);
        }
        while let Some(message) = assist.poll_transmit(now) {
            // Messages may be lost like any datagram.
            let _ = socket.send(&message);
        }
        let soonest = now + Duration::from_micros(100);
        if let Some(at) = assist.next_timeout().map(|at| at.max(soonest))
            && planned.is_none_or(|planned| at < planned)
        {
            *planned = Some(at);
            self.timers.push(Reverse((at, index)));
        }
    }

    /// Reports the client's progress to the server.
    fn report(&mut self, index: usize) {
        let Some(client) = self.all.get_mut(index).filter(|_| self.behaviour.feedback) else {
            return;
        };
        let seen = &self.phases.last().map(|phase| &phase.seen);
        let size = seen.and_then(|seen| seen.bytes.checked_div(seen.received)).unwrap_or(1).max(1);
        let interval = feedback_interval(usize::try_from(size).unwrap_or(usize::MAX));
        if client.next >= client.reported + interval {
            client.reported = client.next;
            let mut feedback = [0; datagram::SHORTEST_BYTES];
            datagram::write(&mut feedback, Header::message(Purpose::Feedback, client.next));
            let _ = client.socket.send(&feedback);
        }
    }

    fn finish(self) -> Vec<Seen> {
        let stats = |client: &Client| client.assist.as_ref().map(Assist::stats);
        let eacks = self.all.iter().filter_map(stats).map(|stats| stats.eacks).sum();
        let assisted = self.all.iter().filter_map(stats).filter(|stats| stats.sessions > 0).count();
        let phases = self.phases.into_iter();
        phases.map(|phase| Seen { eacks, assisted: assisted as u64, ..phase.finish() }).collect()
    }
}

impl SeenPhase {
    fn finish(mut self) -> Seen {
        self.delays.sort_unstable();
        let percentile = |share: f64| {
            let index = (self.delays.len() as f64 * share) as usize;
            self.delays.get(index).map_or(0.0, |delay| f64::from(*delay) / 1000.0)
        };
        Seen {
            seconds: self.last.saturating_sub(self.first.unwrap_or_default()).as_secs_f64(),
            p50: percentile(0.50),
            p99: percentile(0.99),
            ..self.seen
        }
    }
}
