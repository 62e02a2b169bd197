//! Outbox of a call: datagrams to the client, events to the log, samples to the metrics.

use crate::event::Event;
use crate::sample::Sample;

/// Datagrams to send to the client of the flow, events to log, and samples of distributions. Reused
/// between calls; the caller drains it.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    ends: Vec<usize>,
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

    /// True if there is nothing to send.
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
        self.events.clear();
        self.samples.clear();
    }

    /// Appends one datagram, written by `write`; nothing written is nothing sent.
    pub(crate) fn send<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.bytes.len();
        let result = write(&mut self.bytes);
        if self.bytes.len() > start {
            self.ends.push(self.bytes.len());
        }
        result
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(crate) fn sample(&mut self, sample: Sample) {
        self.samples.push(sample);
    }
}
