//! The clients: sinks with the real client core, behind a last mile that loses datagrams; or
//! generators.

use std::collections::HashSet;
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use packrat_client::{Assist, ClientConfig, Datagram, PacketNumber};
use packrat_dataplane::socket::{ReceiveBatch, listener_options};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::event::{Timespec, epoll};
use serde::{Deserialize, Serialize};

use super::datagram::{self, Purpose};
use super::generator::{self, Pattern, Receiver, feedback_interval};

/// Parameters of the clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behaviour {
    /// The address to which they send.
    pub(crate) server: SocketAddr,
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
    /// Longest run time.
    pub(crate) limit: Duration,
}

/// The clients' counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Datagrams that reached the last mile, without repairs.
    pub(crate) received: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Datagrams that the last mile lost.
    pub(crate) lost: u64,
    /// Lost datagrams that were repaired.
    pub(crate) repaired: u64,
    /// Datagrams that never reached the last mile: dropped by the gateway, or in a queue.
    pub(crate) missing: u64,
    /// Seconds between the first and the last.
    pub(crate) seconds: f64,
    /// One-way delay in microseconds, 50th and 99th percentile.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// eACKs sent.
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
}

struct Clients {
    behaviour: Behaviour,
    all: Vec<Client>,
    begun: Instant,
    random: ChaCha8Rng,
    seen: Seen,
    delays: Vec<u32>,
    first: Option<Duration>,
    last: Duration,
}

/// Runs until the server's end mark.
pub(crate) fn run(behaviour: Behaviour) -> Result<Seen, Box<dyn Error>> {
    let mut clients = Clients {
        behaviour,
        all: Vec::with_capacity(behaviour.sessions),
        begun: Instant::now(),
        random: ChaCha8Rng::seed_from_u64(7),
        seen: Seen::default(),
        delays: Vec::new(),
        first: None,
        last: Duration::ZERO,
    };
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for number in 0..behaviour.sessions {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        listener_options(socket.as_fd(), true)?;
        socket.connect(behaviour.server)?;
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

    fn work(&mut self, poller: BorrowedFd<'_>) -> Result<(), Box<dyn Error>> {
        let mut batch = ReceiveBatch::new(32);
        let mut events = Vec::with_capacity(512);
        let sweep_interval = Duration::from_millis(if self.all.len() > 1000 { 20 } else { 1 });
        let (mut swept, mut greeted) = (Instant::now(), Instant::now());
        let mut admitted = 0;
        while self.begun.elapsed() < self.behaviour.limit
            && self.all.iter().any(|client| !client.ended)
        {
            // One after the other, as clients come: a thousand handshakes at once would be a test
            // of queues.
            let rate = if self.behaviour.assist { 1000.0 } else { 20_000.0 };
            let due = 1 + (self.begun.elapsed().as_secs_f64() * rate) as usize;
            while admitted < self.all.len().min(due) {
                self.admit(admitted);
                admitted += 1;
            }
            if self.first.is_none() && greeted.elapsed() > Duration::from_secs(1) {
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
            if self.behaviour.assist && swept.elapsed() >= sweep_interval {
                swept = Instant::now();
                (0..self.all.len()).for_each(|index| self.serve(index));
            }
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
        self.greet(index);
    }

    /// Sends a client's greeting to the server.
    fn greet(&self, index: usize) {
        let mut hello = [0; datagram::SHORTEST];
        datagram::write(&mut hello, Purpose::Hello, 0, datagram::now());
        if let Some(client) = self.all.get(index).filter(|client| client.next == 0) {
            // A greeting that is lost is repeated.
            let _ = client.socket.send(&hello);
        }
    }

    fn upload(&mut self, pattern: &Pattern) -> Result<(), Box<dyn Error>> {
        let server = self.behaviour.server;
        let Some(client) = self.all.first() else { return Ok(()) };
        let mut receivers = [Receiver { address: server, next: 0, acknowledged: 0 }];
        let mut batch = ReceiveBatch::new(8);
        self.seen.sent =
            generator::send(client.socket.as_fd(), true, pattern, &mut receivers, |receivers| {
                while batch.receive(client.socket.as_fd()).is_ok() {
                    for bytes in batch.messages().flat_map(|message| message.datagrams()) {
                        if let (Some((Purpose::Feedback, number, _)), [receiver]) =
                            (datagram::read(bytes), &mut *receivers)
                        {
                            receiver.acknowledged = receiver.acknowledged.max(number);
                        }
                    }
                }
            });
        Ok(())
    }

    /// Reads the datagrams that arrived for a client.
    fn read(&mut self, index: usize, batch: &mut ReceiveBatch) -> Result<(), Box<dyn Error>> {
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
        let Some((purpose, number, sent)) = datagram::read(bytes) else {
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
        let is_lost = self.behaviour.loss > 0.0
            && f64::from(self.random.next_u32()) < self.behaviour.loss * f64::from(u32::MAX);
        if number < client.next {
            // A second copy: a repair, a copy of one, or the network's duplicate.
            if is_lost {
                return;
            }
            self.seen.repaired += u64::from(client.lost.remove(&number));
        } else {
            self.seen.missing += number - client.next;
            client.next = number + 1;
            self.seen.received += 1;
            self.seen.bytes += bytes.len() as u64;
            self.first.get_or_insert(time);
            self.last = time;
            if self.delays.len() < 2_000_000 {
                self.delays
                    .push(u32::try_from(time.saturating_sub(sent).as_nanos()).unwrap_or(u32::MAX));
            }
            if is_lost {
                self.seen.lost += 1;
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

    /// Sends the client core's messages.
    fn serve(&mut self, index: usize) {
        let now = self.now();
        let Some(Client { socket, assist: Some(assist), ended: false, .. }) =
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
    }

    /// Reports the client's progress to the server.
    fn report(&mut self, index: usize) {
        let Some(client) = self.all.get_mut(index).filter(|_| self.behaviour.feedback) else {
            return;
        };
        let size = self.seen.bytes.checked_div(self.seen.received).unwrap_or(1).max(1);
        let interval = feedback_interval(usize::try_from(size).unwrap_or(usize::MAX));
        if client.next >= client.reported + interval {
            client.reported = client.next;
            let mut feedback = [0; datagram::SHORTEST];
            datagram::write(&mut feedback, Purpose::Feedback, client.next, datagram::now());
            let _ = client.socket.send(&feedback);
        }
    }

    fn finish(mut self) -> Seen {
        let mut delays = std::mem::take(&mut self.delays);
        delays.sort_unstable();
        let percentile = |share: f64| {
            let index = (delays.len() as f64 * share) as usize;
            delays.get(index).map_or(0.0, |delay| f64::from(*delay) / 1000.0)
        };
        let stats = |client: &Client| client.assist.as_ref().map(Assist::stats);
        Seen {
            seconds: self.last.saturating_sub(self.first.unwrap_or_default()).as_secs_f64(),
            p50: percentile(0.50),
            p99: percentile(0.99),
            eacks: self.all.iter().filter_map(stats).map(|stats| stats.eacks).sum(),
            assisted: self.all.iter().filter_map(stats).filter(|stats| stats.sessions > 0).count()
                as u64,
            ..self.seen
        }
    }
}
