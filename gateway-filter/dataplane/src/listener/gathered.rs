//! Single datagrams of many sessions, which leave together: where servers send datagrams one by one to
//! many clients, a system call for each of them costs a tenth of its way.

use std::ops::Range;
use std::sync::Arc;

use packrat_engine::NumberHeader;

use crate::metrics::{Distribution, Metric};
use crate::session::{ClientPath, Session};
use crate::socket::{Destination, Ecn, GsoBatch, SendReport, Sender, WhenFull};
use crate::sync::atomic::Ordering;

/// Number of gathered datagrams at which they are sent: none waits longer than it takes to read as
/// many.
const MOST_GATHERED: usize = 16;
/// Bytes of a datagram that is copied to wait for others.
const LONGEST_COPIED_BYTES: usize = 2048;

/// Datagrams that wait, each for another client.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    session: Arc<Session>,
    path: ClientPath,
    place: Range<usize>,
    number: Option<NumberHeader>,
    ecn: Ecn,
}

impl Waiting {
    fn datagram<'a>(&'a self, bytes: &'a [u8]) -> GsoBatch<'a> {
        let data = bytes.get(self.place.clone()).unwrap_or_default();
        let numbers = self.number.as_slice();
        GsoBatch { numbers, ..GsoBatch::single(data, self.ecn) }
    }
}

/// True if this is a datagram that may wait for others of other sessions.
pub(super) fn may_wait(batches: &[GsoBatch<'_>]) -> bool {
    matches!(batches, [one] if one.segments() == 1 && one.data.len() <= LONGEST_COPIED_BYTES)
}

impl Gathered {
    /// Keeps a datagram until [`Self::send`].
    pub(super) fn gather(
        &mut self,
        sender: &mut Sender,
        session: &Arc<Session>,
        datagram: GsoBatch<'_>,
        number: Option<NumberHeader>,
    ) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(datagram.data);
        self.waiting.push(Waiting {
            session: Arc::clone(session),
            path: session.path(),
            place: begin..self.bytes.len(),
            number,
            ecn: datagram.ecn,
        });
        if self.waiting.len() >= MOST_GATHERED {
            self.send(sender);
        }
    }

    /// Sends the gathered datagrams, with one call if all clients are at one listener.
    pub(super) fn send(&mut self, sender: &mut Sender) {
        if self.waiting.is_empty() {
            return;
        }
        // If sending panics, no datagram is sent twice.
        let mut gathered = std::mem::take(self);
        let Self { bytes, waiting } = &gathered;
        for mut rest in waiting.chunk_by(|one, other| Arc::ptr_eq(&one.path.slot, &other.path.slot))
        {
            while let [one, others @ ..] = rest {
                let sent = if others.is_empty() { 0 } else { send_together(sender, rest, bytes) };
                for one in rest.iter().take(sent) {
                    let report = SendReport {
                        datagrams: 1,
                        bytes: one.datagram(bytes).bytes() as u64,
                        ..SendReport::default()
                    };
                    count_sent(&one.session, &report);
                }
                rest = if sent > 0 {
                    rest.get(sent..).unwrap_or_default()
                } else {
                    // Sent alone, the datagram shows its own error.
                    send(sender, &one.session, &[one.datagram(bytes)]);
                    others
                };
            }
        }
        gathered.waiting.clear();
        gathered.bytes.clear();
        *self = gathered;
    }
}

/// Sends datagrams of one listener until one fails; returns how many were sent.
fn send_together(sender: &mut Sender, waiting: &[Waiting], bytes: &[u8]) -> usize {
    let Some(Waiting { path: ClientPath { slot, .. }, .. }) = waiting.first() else { return 0 };
    let sent = slot.with(|downstream| {
        let singles: Vec<(Destination, GsoBatch<'_>)> = waiting
            .iter()
            .map(|one| {
                let ClientPath { client, local, .. } = &one.path;
                let destination = downstream.destination(*client, *local, WhenFull::Wait);
                (destination, one.datagram(bytes))
            })
            .collect();
        sender.send_singles(downstream.socket(), &singles)
    });
    sent.unwrap_or(0)
}

/// Sends what a server has sent, and the engine has recorded, to the client of `session`.
pub(super) fn send(sender: &mut Sender, session: &Arc<Session>, batches: &[GsoBatch<'_>]) {
    let report = session.send_to_client(sender, batches, WhenFull::Wait);
    if let Some(length) = report.number_refused {
        session.assist(|flow| flow.refuse_numbers(length));
    }
    count_sent(session, &report);
}

/// Counts the datagrams that were sent to the client of `session`.
fn count_sent(session: &Session, report: &SendReport) {
    let metrics = &session.route.metrics;
    metrics.add(Metric::DownstreamDatagrams, report.datagrams);
    metrics.add(Metric::DownstreamBytes, report.bytes);
    if report.datagrams > 0 {
        metrics.record(Distribution::Batch, report.datagrams);
    }
    session.totals.to_client_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
    session.totals.to_client_bytes.fetch_add(report.bytes, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use packrat_api::route::RouteConfig;

    use super::super::{Forwarder, Mailboxes};
    use super::*;
    use crate::context::Environment;
    use crate::metrics::Metric;
    use crate::route::Route;
    use crate::socket::{ClientAddress, Descriptors, ListenerAddress, Reader, bind_reuse_port};

    /// Sessions of two listeners in turn. Sending to port 0 fails; no number is longer than eight
    /// bytes.
    #[test]
    fn each_client_gets_its_own_and_one_that_fails_costs_no_other() {
        let environment = Environment::silent(100);
        let config = RouteConfig::new("web", ["127.0.0.1:9".parse().unwrap()]).unwrap();
        let route = Arc::new(Route::new(config, Arc::clone(&environment)).unwrap());
        let descriptors = Descriptors::default();
        let slots = [1, 2].map(|port| {
            let slot = route.slot(ListenerAddress::new(([127, 0, 0, 1], port).into()), 0);
            let open = |_: &_| bind_reuse_port("127.0.0.1:0".parse().unwrap());
            slot.fill(&descriptors, 0, Reader::IoThread, open).unwrap();
            slot
        });
        let clients: Vec<UdpSocket> =
            (0..2 * MOST_GATHERED + 3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut forwarder = Forwarder::new(Arc::new(Mailboxes::new(1).unwrap()), 0);
        let now = environment.now();
        let mut expected = Vec::new();
        for (number, client) in clients.iter().enumerate() {
            let mut address = client.local_addr().unwrap();
            if number % 7 == 3 {
                address.set_port(0);
            }
            let slot = Arc::clone(&slots[number / 5 % 2]);
            let path = ClientPath { client: ClientAddress::new(address), slot, local: None };
            // Clients at port 0 are all the same one.
            let session = forwarder.find_or_open(&route, &path, None, None, now).unwrap();
            let datagram = vec![number as u8; 100 + number];
            let header = (number % 2 == 1).then_some([7; 8]);
            let batch = GsoBatch::single(&datagram, Ecn::NOT_CAPABLE);
            assert!(may_wait(&[batch]));
            let Forwarder { gathered, sender, .. } = &mut forwarder;
            gathered.gather(sender, &session, batch, header);
            let whole = [header.as_ref().map_or(&[][..], |header| header), &datagram].concat();
            expected.push((number % 7 != 3).then_some(whole));
        }
        assert_eq!(forwarder.gathered.waiting.len(), 3, "the others are on their way");
        forwarder.send_gathered();
        assert!(forwarder.gathered.waiting.is_empty());
        for (client, expected) in clients.iter().zip(&expected) {
            let Some(expected) = expected else { continue };
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut buffer = [0; 400];
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], expected);
        }
        let sent = expected.iter().flatten();
        let metrics = route.metrics();
        assert_eq!(metrics.get(Metric::DownstreamDatagrams), sent.clone().count() as u64);
        let bytes: usize = sent.map(Vec::len).sum();
        assert_eq!(metrics.get(Metric::DownstreamBytes), bytes as u64);
        let failed = expected.iter().filter(|one| one.is_none()).count() as u64;
        assert_eq!(metrics.get(Metric::DownstreamDropped), failed);
    }
}
