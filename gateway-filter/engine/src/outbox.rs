//! Outbox of a call: datagrams to the client and to the server, events to the log, samples to the
//! metrics.

use crate::event::Event;
use crate::sample::Sample;

/// Datagrams to send to the client of the flow and to its server, events to log, and samples of
/// distributions. Reused between calls; the caller drains it.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Positions of datagrams that are sent again with their original's report of congestion.
    congested: Vec<usize>,
    /// Towards the server: bytes, the end of each datagram in them, and its mark.
    upward: Vec<u8>,
    upward_ends: Vec<(usize, u8)>,
    events: Vec<Event>,
    samples: Vec<Sample>,
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Each datagram that is to be sent to the client now, in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().scan(0, |start, end| {
            let datagram = &self.bytes[*start..*end];
            *start = *end;
            Some(datagram)
        })
    }

    /// True if the datagram at this position of [`Self::datagrams`] bears the mark CE.
    pub fn is_congested(&self, position: usize) -> bool {
        self.congested.binary_search(&position).is_ok()
    }

    /// Each datagram of the base connection that is to be sent to the server now, in order, and its
    /// mark as [`crate::Flow::receive_upward`] was given it.
    pub fn datagrams_to_server(&self) -> impl Iterator<Item = (&[u8], u8)> {
        self.upward_ends.iter().scan(0, |start, &(end, mark)| {
            let datagram = &self.upward[*start..end];
            *start = end;
            Some((datagram, mark))
        })
    }

    /// True if there are no datagrams for the client.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes the events that happened.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// Samples of distributions.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.congested.clear();
        self.upward.clear();
        self.upward_ends.clear();
        self.events.clear();
        self.samples.clear();
    }

    /// Appends one datagram, written by `write`; an empty one is not sent.
    pub(crate) fn send<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.bytes.len();
        let result = write(&mut self.bytes);
        if self.bytes.len() > start {
            self.ends.push(self.bytes.len());
        }
        result
    }

    /// Appends one datagram of the base connection that is sent again; `congested`: its original
    /// came with the mark CE.
    pub(crate) fn repeat(&mut self, congested: bool, write: impl FnOnce(&mut Vec<u8>)) {
        if congested {
            self.congested.push(self.ends.len());
        }
        self.send(write);
    }

    /// Appends one datagram of the base connection for the server.
    pub(crate) fn send_to_server(&mut self, datagram: &[u8], mark: u8) {
        self.upward.extend_from_slice(datagram);
        self.upward_ends.push((self.upward.len(), mark));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(crate) fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
    }
}
