//! The server: a generator, or a sink.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use packrat_dataplane::socket::{ReceiveBatch, listener_options};
use serde::{Deserialize, Serialize};

use super::datagram::{self, Header, Purpose};
use super::generator::{self, Feedback, Pattern, Receiver, feedback_interval, wait_readable};
use super::progress::Progress;
use crate::Fallible;

/// Parameters of the server.
#[derive(Debug)]
pub(crate) struct Service {
    /// The address at which it listens.
    pub(crate) listen: SocketAddr,
    /// Number of clients to wait for.
    pub(crate) sessions: usize,
    /// The datagrams to send, phase by phase.
    pub(crate) patterns: Vec<Pattern>,
    /// The pause between the last client's greeting and the first datagram.
    pub(crate) pause: Duration,
    /// True if the clients send.
    pub(crate) upload: bool,
    /// Longest run time.
    pub(crate) limit: Duration,
    /// The clients' count of what they have received, if they write one.
    pub(crate) progress: Option<Progress>,
}

/// The server's counts of one phase.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Clients that greeted.
    pub(crate) sessions: u64,
    /// Datagrams sent.
    pub(crate) sent: u64,
    /// Datagrams received, if the clients send, and seconds between the first and the last.
    pub(crate) received: u64,
    pub(crate) seconds: f64,
}

/// Line on standard output by which the server reports to the parent process that it listens.
pub(crate) const LISTENING_LINE: &str = "listening";
/// Line on standard output by which the server reports that all clients have greeted.
pub(crate) const COMPLETE_LINE: &str = "complete";
/// Line on standard output by which the server reports that it has begun a phase, whose counts
/// follow.
pub(crate) const BEGUN_LINE: &str = "begun";

fn say(line: &str) {
    println!("{line}");
    // A failure means that the parent process has ended.
    let _ = std::io::stdout().flush();
}

/// Serves until everything was sent, and reports how much that was.
pub(crate) fn run(service: &Service) -> Fallible {
    let socket = UdpSocket::bind(service.listen)?;
    listener_options(socket.as_fd(), true)?;
    say(LISTENING_LINE);
    if service.upload {
        say(&serde_json::to_string(&receive(&socket, service))?);
        return Ok(());
    }
    let mut batch = ReceiveBatch::new(32);
    let (places, mut receivers) = greeted(&socket, &mut batch, service)?;
    say(COMPLETE_LINE);
    std::thread::sleep(service.pause);
    let mut reports = |receivers: &mut [Receiver]| {
        while batch.receive(socket.as_fd()).is_ok() {
            for message in batch.messages() {
                let place = message.source.and_then(|source| places.get(&source));
                let Some(receiver) = place.and_then(|place| receivers.get_mut(*place)) else {
                    continue;
                };
                for bytes in message.datagrams() {
                    if let Some(Header { purpose: Purpose::Feedback, number, .. }) =
                        datagram::read(bytes)
                    {
                        receiver.acknowledged = receiver.acknowledged.max(number);
                    }
                }
            }
        }
    };
    let mut feedback = match &service.progress {
        Some(progress) => Feedback::Progress(progress),
        None => Feedback::Reports(&mut reports),
    };
    for pattern in &service.patterns {
        say(BEGUN_LINE);
        let sent = generator::send(socket.as_fd(), false, pattern, &mut receivers, &mut feedback);
        let served = Served { sessions: receivers.len() as u64, sent, ..Served::default() };
        say(&serde_json::to_string(&served)?);
    }
    generator::end(socket.as_fd(), false, &receivers);
    Ok(())
}

/// The places of clients by address.
type Places = HashMap<SocketAddr, usize>;

/// The places of clients, and the clients, once all of them have come.
fn greeted(
    socket: &UdpSocket,
    batch: &mut ReceiveBatch,
    service: &Service,
) -> Fallible<(Places, Vec<Receiver>)> {
    let begun = Instant::now();
    let mut places = Places::new();
    let mut receivers = Vec::new();
    while receivers.len() < service.sessions {
        if begun.elapsed() > service.limit {
            return Err(format!(
                "only {} of {} clients have come",
                receivers.len(),
                service.sessions
            )
            .into());
        }
        wait_readable(socket.as_fd(), Duration::from_millis(50));
        if batch.receive(socket.as_fd()).is_err() {
            continue;
        }
        for address in batch.messages().filter_map(|message| message.source) {
            places.entry(address).or_insert_with(|| {
                receivers.push(Receiver { address, next: 0, acknowledged: 0 });
                receivers.len() - 1
            });
        }
    }
    Ok((places, receivers))
}

/// Counts the datagrams that clients send.
fn receive(socket: &UdpSocket, service: &Service) -> Served {
    let begun = Instant::now();
    let mut batch = ReceiveBatch::new(32);
    let mut served = Served { sessions: 1, ..Served::default() };
    let (mut first, mut last, mut reported) = (None, Instant::now(), 0);
    let size = service.patterns.first().map_or(datagram::SHORTEST_BYTES, |pattern| pattern.size);
    let interval = feedback_interval(size);
    while begun.elapsed() < service.limit {
        wait_readable(socket.as_fd(), Duration::from_millis(50));
        if batch.receive(socket.as_fd()).is_err() {
            continue;
        }
        for message in batch.messages() {
            let (mut highest, mut ended) = (0, false);
            for bytes in message.datagrams() {
                match datagram::read(bytes) {
                    Some(Header { purpose: Purpose::Data, number, .. }) => {
                        served.received += 1;
                        highest = number + 1;
                    }
                    Some(Header { purpose: Purpose::End, .. }) => ended = true,
                    _ => {}
                }
            }
            if ended {
                served.seconds =
                    first.map_or(0.0, |first| last.duration_since(first).as_secs_f64());
                return served;
            }
            if highest > 0 {
                if first.is_none() {
                    say(COMPLETE_LINE);
                    say(BEGUN_LINE);
                }
                last = Instant::now();
                first.get_or_insert(last);
            }
            if highest >= reported + interval
                && let Some(source) = message.source
            {
                reported = highest;
                let mut feedback = [0; datagram::SHORTEST_BYTES];
                datagram::write(&mut feedback, Header::message(Purpose::Feedback, highest));
                // The next report replaces a lost one.
                let _ = socket.send_to(&feedback, source);
            }
        }
    }
    served
}
