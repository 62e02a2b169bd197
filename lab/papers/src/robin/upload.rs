//! An upload over two links, with a sidekick, a splitting proxy, or neither, in virtual time.

use super::sender::{QuackUse, Sender};
use packrat_emulation::path::{Link, LinkConfig, LossModel, QueueDiscipline, Verdict};
use packrat_emulation::schedule::Schedule;
use packrat_wire::estimate::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// Bytes of an upload in a packet.
const CHUNK_BYTES: u64 = 1350;
/// Bytes of the datagram around a packet.
const DATAGRAM_BYTES: usize = 1392;
/// Bytes of a datagram with an acknowledgement.
const ACKNOWLEDGEMENT_BYTES: usize = 48;
/// Bytes of a quACK beside its sums of four bytes: a sealed message.
const QUACK_BYTES: usize = 40;
/// Bytes of the headers of Ethernet, IPv4 and UDP.
const HEADER_BYTES: usize = 14 + 20 + 8;
const TCP_HEADERS: usize = 14 + 20 + 32;
/// TCP sends a lost segment again after a round trip, and the time that three others take.
const TCP_RECOVERY: Duration = Duration::from_millis(5);
/// Time at which everything ends.
const TIME_LIMIT: Timestamp = Timestamp::from_millis(600_000);

/// The times of quACKs, and their capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quacks {
    pub(crate) every: Duration,
    /// Packets that may be missing.
    pub(crate) threshold: usize,
}

/// QuACKs that are no sums: one for each packet (Sidekick24, section 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strawman {
    /// 1a and 1b: a datagram with the identifiers of this many packets, the newest ones.
    Datagrams(usize),
    /// 1c: a TCP segment with one identifier, and an acknowledgement for every second one.
    Segments,
}

/// The proxy's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Help {
    /// The proxy only forwards.
    None,
    /// The proxy sends quACKs, and the sender retransmits the packets that they miss: Robin with
    /// PACUBIC.
    Robin(Quacks),
    /// The proxy sends quACKs, and packets that have passed it do not fill the sender's window any
    /// more.
    MovesWindow(Quacks),
    /// The proxy ends the connection, and begins another one.
    Split,
}

/// The receiver's rule for acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledging {
    /// Every packet, as quiche does.
    Each,
    /// Acknowledges at these intervals, if a packet has arrived.
    Every(Duration),
}

/// The settings of an upload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Upload {
    pub(crate) bytes: u64,
    /// Delay of one way, and Mbit/s, of the near link and of the far one.
    pub(crate) delays: [Duration; 2],
    pub(crate) rates: [u64; 2],
    /// Loss of the near link, in both directions.
    pub(crate) loss: f64,
    pub(crate) help: Help,
    /// Replaces the sums of the quACKs, if set.
    pub(crate) strawman: Option<Strawman>,
    pub(crate) acknowledging: Acknowledging,
    pub(crate) seed: u64,
}

/// Sidekick24, table 5, scenario 2: 1 ms and 100 Mbit/s, then 25 ms and 10 Mbit/s.
pub(crate) fn scenario(bytes: u64, loss: f64, help: Help, seed: u64) -> Upload {
    Upload {
        bytes,
        delays: [Duration::from_millis(1), Duration::from_millis(25)],
        rates: [100, 10],
        loss,
        help,
        strawman: None,
        acknowledging: Acknowledging::Each,
        seed,
    }
}

/// The result of an upload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) goodput_mbps: f64,
    /// Datagrams, and bytes of Ethernet frames, that each node has sent: the sender, the proxy towards it,
    /// and the receiver.
    pub(crate) sent: [[u64; 2]; 3],
    /// Seconds, and packets that the sender's window allows; of a split connection also the proxy's.
    pub(crate) windows: Vec<(f64, f64, f64)>,
}

/// Content of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Packet {
        number: u64,
        chunk: u64,
    },
    /// As much of the receiver's log.
    Acknowledgement(usize),
    /// As much of the proxy's log.
    Quack(usize),
    /// TCP's acknowledgement of quACKs.
    SegmentAcknowledgement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A datagram of a connection comes out of a link.
    Arrival {
        connection: usize,
        link: usize,
        content: Content,
    },
    /// A timer for an acknowledgement, a quACK, the sender, or a sample of the windows.
    Acknowledge {
        connection: usize,
    },
    QuackDue,
    /// A lost segment with a quACK is sent again.
    SegmentAgain(usize),
    Timer {
        connection: usize,
    },
    Look,
}

/// The four links, by their place: near and far towards the receiver, far and near back.
const NEAR_UP: usize = 0;
const FAR_UP: usize = 1;
const FAR_DOWN: usize = 2;
const NEAR_DOWN: usize = 3;

struct Connection {
    sender: Sender,
    /// The first and the last link towards its receiver.
    links: (usize, usize),
    received: Vec<u64>,
    chunks: Vec<bool>,
    in_order: u64,
    acknowledged: usize,
    acknowledges: bool,
    timer: Option<Timestamp>,
}

impl Connection {
    fn new(sender: Sender, chunks: u64, links: (usize, usize)) -> Self {
        Self {
            sender,
            links,
            received: Vec::new(),
            chunks: vec![false; chunks as usize],
            in_order: 0,
            acknowledged: 0,
            acknowledges: false,
            timer: None,
        }
    }

    fn receive(&mut self, number: u64, chunk: u64) {
        self.received.push(number);
        self.chunks[chunk as usize] = true;
        while self.chunks.get(self.in_order as usize).is_some_and(|arrived| *arrived) {
            self.in_order += 1;
        }
    }
}

struct UploadSimulation {
    upload: Upload,
    now: Timestamp,
    links: [Link; 4],
    connections: Vec<Connection>,
    /// Packets that have passed the proxy.
    passed: Vec<u64>,
    quacked: usize,
    /// Entries of it that TCP has delivered, and segments that wait for others.
    delivered: usize,
    early: BTreeSet<usize>,
    schedule: Schedule<Event>,
    outcome: Outcome,
}

impl Upload {
    /// Runs it.
    pub(crate) fn run(self) -> Outcome {
        let chunks = self.bytes.div_ceil(CHUNK_BYTES);
        let (uses, threshold) = match self.help {
            Help::Robin(quacks) => (QuackUse::Retransmit, quacks.threshold),
            Help::MovesWindow(quacks) => (QuackUse::MoveWindow, quacks.threshold),
            Help::None | Help::Split => (QuackUse::None, 0),
        };
        let connection = |available, links| {
            Connection::new(Sender::new(chunks, available, uses, threshold), chunks, links)
        };
        let connections = match self.help {
            Help::Split => {
                vec![connection(chunks, (NEAR_UP, NEAR_UP)), connection(0, (FAR_UP, FAR_UP))]
            }
            _ => vec![connection(chunks, (NEAR_UP, FAR_UP))],
        };
        let mut simulation = UploadSimulation {
            upload: self,
            now: Timestamp::ZERO,
            links: self.links(),
            connections,
            passed: Vec::new(),
            quacked: 0,
            delivered: 0,
            early: BTreeSet::new(),
            schedule: Schedule::new(),
            outcome: Outcome::default(),
        };
        simulation.run();
        let received = simulation.connections.last().map_or(0, |last| last.in_order);
        let seconds = simulation.now.as_secs_f64().max(1e-9);
        Outcome {
            goodput_mbps: (received * CHUNK_BYTES).min(self.bytes) as f64 * 8e-6 / seconds,
            ..simulation.outcome
        }
    }

    /// The queues hold one bandwidth-delay product of the whole path.
    fn links(&self) -> [Link; 4] {
        let round_trip = (self.delays[0] + self.delays[1]) * 2;
        [(0, true), (1, false), (1, false), (0, true)]
            .map(|(at, lossy)| {
                let rate = self.rates[at] * 1_000_000;
                let limit = (rate as f64 * round_trip.as_secs_f64() / 8.0) as usize;
                let loss = if lossy { LossModel::new(self.loss, 1.0) } else { LossModel::None };
                LinkConfig::new(self.delays[at], rate)
                    .with_queue(QueueDiscipline::DropTail { limit: limit.max(32 * 1024) })
                    .with_loss(loss)
            })
            .map({
                let mut number = 0;
                move |config: LinkConfig| {
                    number += 1;
                    Link::new(config.with_seed(self.seed * 4 + number))
                }
            })
    }

    fn quacks(&self) -> Option<Quacks> {
        match self.help {
            Help::Robin(quacks) | Help::MovesWindow(quacks) => Some(quacks),
            Help::None | Help::Split => None,
        }
    }
}

impl UploadSimulation {
    fn run(&mut self) {
        if let Some(quacks) = self.upload.quacks().filter(|_| self.upload.strawman.is_none()) {
            self.schedule.plan(Timestamp::ZERO + quacks.every, Event::QuackDue);
        }
        self.schedule.plan(Timestamp::ZERO, Event::Look);
        self.transmit();
        while let Some((at, event)) = self.schedule.pop() {
            let all_arrived =
                |connection: &Connection| connection.in_order as usize == connection.chunks.len();
            if at > TIME_LIMIT || self.connections.iter().all(all_arrived) {
                return;
            }
            self.now = at;
            self.handle(event);
            self.transmit();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { connection, link, content } => self.arrive(connection, link, content),
            Event::Acknowledge { connection } => self.acknowledge(connection),
            Event::QuackDue => self.quack(),
            Event::SegmentAgain(length) => self.offer(0, NEAR_DOWN, Content::Quack(length)),
            Event::Timer { connection } => self.look_at_timer(connection),
            Event::Look => {
                let window = |at: usize| self.connections.get(at).map(|it| it.sender.window());
                let both =
                    (self.now.as_secs_f64(), window(0).unwrap_or(0.0), window(1).unwrap_or(0.0));
                self.outcome.windows.push(both);
                self.schedule.plan(self.now + Duration::from_millis(50), Event::Look);
            }
        }
    }

    fn offer(&mut self, connection: usize, link: usize, content: Content) {
        let (length, headers, node) = match (content, self.upload.strawman) {
            (Content::Packet { .. }, _) => (DATAGRAM_BYTES, HEADER_BYTES, 0),
            (Content::Acknowledgement(_), _) => (ACKNOWLEDGEMENT_BYTES, HEADER_BYTES, 2),
            (Content::Quack(_), Some(Strawman::Datagrams(window))) => (4 * window, HEADER_BYTES, 1),
            (Content::Quack(_), Some(Strawman::Segments)) => (4, TCP_HEADERS, 1),
            (Content::Quack(_), None) => {
                let sums = self.upload.quacks().map_or(0, |quacks| quacks.threshold + 1);
                (QUACK_BYTES + 4 * sums, HEADER_BYTES, 1)
            }
            (Content::SegmentAcknowledgement, _) => (0, TCP_HEADERS, 0),
        };
        // Packets that the proxy forwards towards the sender also count there.
        let node = if link == NEAR_DOWN { 1 } else { node };
        let is_first = link == NEAR_UP || link == FAR_DOWN || link == NEAR_DOWN;
        if is_first {
            self.outcome.sent[node][0] += 1;
            self.outcome.sent[node][1] += (length + headers) as u64;
        }
        match (self.links[link].offer(self.now, length), content, self.upload.strawman) {
            (Verdict::Deliver { at }, ..) => {
                self.schedule.plan(at, Event::Arrival { connection, link, content });
            }
            (_, Content::Quack(length), Some(Strawman::Segments)) => {
                let again = self.now + self.upload.delays[0] * 2 + TCP_RECOVERY;
                self.schedule.plan(again, Event::SegmentAgain(length));
            }
            _ => {}
        }
    }

    fn transmit(&mut self) {
        for at in 0..self.connections.len() {
            while let Some((number, chunk)) = self.connections[at].sender.poll_transmit(self.now) {
                let first = self.connections[at].links.0;
                self.offer(at, first, Content::Packet { number, chunk });
            }
            let connection = &mut self.connections[at];
            let next = connection.sender.next_timeout();
            if let Some(next) = next
                && connection.timer.is_none()
            {
                connection.timer = Some(next);
                self.schedule.plan(next, Event::Timer { connection: at });
            }
        }
    }

    fn arrive(&mut self, at: usize, link: usize, content: Content) {
        let connection = &mut self.connections[at];
        match content {
            Content::Packet { number, chunk } if link == connection.links.1 => {
                connection.receive(number, chunk);
                let in_order = connection.in_order;
                if let Some(next) = self.connections.get_mut(at + 1) {
                    next.sender.provide(in_order);
                }
                match self.upload.acknowledging {
                    Acknowledging::Each => self.acknowledge(at),
                    Acknowledging::Every(interval) => {
                        let acknowledges = &mut self.connections[at].acknowledges;
                        if !std::mem::replace(acknowledges, true) {
                            self.schedule
                                .plan(self.now + interval, Event::Acknowledge { connection: at });
                        }
                    }
                }
            }
            Content::Packet { number, .. } => {
                self.passed.push(number);
                self.offer(at, FAR_UP, content);
                if self.upload.strawman.is_some() {
                    self.offer(at, NEAR_DOWN, Content::Quack(self.passed.len()));
                }
            }
            Content::Acknowledgement(_) if link == FAR_DOWN && connection.links.0 == NEAR_UP => {
                self.offer(at, NEAR_DOWN, content);
            }
            Content::Acknowledgement(length) => {
                connection.sender.on_acknowledgement(&connection.received[..length], self.now);
            }
            Content::Quack(length) => match self.upload.strawman {
                None => connection.sender.on_quack(&self.passed[..length], self.now),
                Some(Strawman::Datagrams(window)) => {
                    let first = length.saturating_sub(window);
                    connection.sender.on_echo(&self.passed[first..length], self.now);
                }
                Some(Strawman::Segments) => self.receive_segment(at, length),
            },
            Content::SegmentAcknowledgement => {}
        }
    }

    /// TCP delivers in order.
    fn receive_segment(&mut self, at: usize, length: usize) {
        self.early.insert(length);
        let first = self.delivered;
        while self.early.remove(&(self.delivered + 1)) {
            self.delivered += 1;
        }
        self.connections[at].sender.on_echo(&self.passed[first..self.delivered], self.now);
        if length.is_multiple_of(2) {
            self.offer(at, NEAR_UP, Content::SegmentAcknowledgement);
        }
    }

    fn acknowledge(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        connection.acknowledges = false;
        let length = connection.received.len();
        if length > connection.acknowledged {
            connection.acknowledged = length;
            let link = if connection.links.1 == NEAR_UP { NEAR_DOWN } else { FAR_DOWN };
            self.offer(at, link, Content::Acknowledgement(length));
        }
    }

    fn quack(&mut self) {
        let Some(quacks) = self.upload.quacks() else { return };
        if self.passed.len() > self.quacked {
            self.quacked = self.passed.len();
            self.offer(0, NEAR_DOWN, Content::Quack(self.quacked));
        }
        self.schedule.plan(self.now + quacks.every, Event::QuackDue);
    }

    fn look_at_timer(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        connection.timer = None;
        if connection.sender.next_timeout().is_some_and(|due| due <= self.now)
            && let Some((number, chunk)) = connection.sender.on_timeout(self.now)
        {
            let first = connection.links.0;
            self.offer(at, first, Content::Packet { number, chunk });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROBIN: Help = Help::Robin(Quacks { every: Duration::from_millis(30), threshold: 10 });

    fn goodput(loss: f64, help: Help) -> f64 {
        let mut all: Vec<f64> =
            (1..=5).map(|seed| scenario(5_000_000, loss, help, seed).run().goodput_mbps).collect();
        all.sort_by(f64::total_cmp);
        all[2]
    }

    #[test]
    fn quacks_repair_the_near_link_and_are_neutral_without_losses() {
        let (lossless, robin) = (goodput(0.0, Help::None), goodput(0.0, ROBIN));
        assert!(lossless > 8.5 && (robin / lossless - 1.0).abs() < 0.01, "{lossless} {robin}");
        let (alone, robin, split) =
            (goodput(0.01, Help::None), goodput(0.01, ROBIN), goodput(0.01, Help::Split));
        assert!(robin > 2.0 * alone && robin > 0.9 * lossless, "{alone} {robin}");
        assert!(split > 0.9 * lossless, "{split}");
    }

    #[test]
    fn strawmen_need_a_datagram_per_packet_and_lose_its_contents() {
        let upload = |strawman| {
            let base = scenario(5_000_000, 0.01, ROBIN, 1);
            Upload { strawman, ..base }.run()
        };
        let [sums, echo, window, segments] = [
            None,
            Some(Strawman::Datagrams(1)),
            Some(Strawman::Datagrams(5)),
            Some(Strawman::Segments),
        ]
        .map(upload);
        let of_proxy = |outcome: &Outcome| outcome.sent[1][0] as f64;
        for strawman in [&echo, &window, &segments] {
            assert!(of_proxy(strawman) > 1.8 * of_proxy(&sums), "{:?}", strawman.sent);
        }
        assert!(segments.sent[0][0] as f64 > 1.4 * sums.sent[0][0] as f64, "{:?}", segments.sent);
        // The receiver also acknowledges repeated packets of which only the echo was lost.
        assert!(echo.sent[2][0] > window.sent[2][0], "{:?} {:?}", echo.sent, window.sent);
        assert_eq!(window.sent[2][0], sums.sent[2][0]);
        assert!(window.goodput_mbps > 0.9 * sums.goodput_mbps, "{}", window.goodput_mbps);
    }

    #[test]
    fn a_window_that_quacks_move_needs_few_acknowledgements() {
        let quacks = Quacks { every: Duration::from_millis(15), threshold: 50 };
        let seldom = Acknowledging::Every(Duration::from_millis(80));
        let upload = |help, acknowledging| {
            let delays = [Duration::from_millis(25), Duration::from_millis(1)];
            let base = scenario(5_000_000, 0.0, help, 1);
            Upload { delays, rates: [10, 100], acknowledging, ..base }.run()
        };
        let each = upload(Help::None, Acknowledging::Each);
        let few = upload(Help::MovesWindow(quacks), seldom);
        assert!(few.goodput_mbps > 0.95 * each.goodput_mbps, "{few:?}");
        assert!((few.sent[2][0] as f64) < 0.04 * each.sent[2][0] as f64, "{:?}", few.sent);
    }
}
