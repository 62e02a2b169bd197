//! Hosts that read datagrams in batches, and work on one after another, sans-IO.

use super::place::Place;
use packrat_emulation::scenario::{BatchSettings, BatchingSettings};
use packrat_wire::estimate::Timestamp;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The batches of all hosts, of datagrams `P`.
#[derive(Debug)]
pub(crate) struct Batching<P = s2n_quic::provider::io::testing::network::Packet> {
    settings: BatchingSettings,
    hosts: BTreeMap<(Place, Option<SocketAddr>), Host<P>>,
}

/// Datagrams that a host reads together.
#[derive(Debug)]
pub(crate) struct Batch<P> {
    pub(crate) place: Place,
    /// The address that they are for.
    pub(crate) host: SocketAddr,
    pub(crate) datagrams: Vec<P>,
    /// The time at which they are read.
    pub(crate) now: Timestamp,
}

#[derive(Debug)]
struct Host<P> {
    address: SocketAddr,
    waiting: Vec<P>,
    /// The time at which the first of them has waited long enough.
    due: Timestamp,
    /// The time at which the host has worked on all that it has read.
    free: Timestamp,
}

impl<P> Batching<P> {
    /// Idle hosts.
    pub(crate) fn new(settings: BatchingSettings) -> Self {
        Self { settings, hosts: BTreeMap::new() }
    }

    /// True if hosts at this place read in batches.
    pub(crate) fn has(&self, place: Place) -> bool {
        self.settings_of(place).is_some()
    }

    fn settings_of(&self, place: Place) -> Option<BatchSettings> {
        match place {
            Place::Server => self.settings.server,
            Place::Gateway => self.settings.gateway,
            Place::Client => self.settings.client,
        }
    }

    /// The gateway is one host, whatever address a datagram that passes it is for.
    fn key(place: Place, host: SocketAddr) -> (Place, Option<SocketAddr>) {
        (place, (place != Place::Gateway).then_some(host))
    }

    /// A datagram for `host` has come to a place that has batches; the batch that it completes.
    pub(crate) fn add(
        &mut self,
        place: Place,
        host: SocketAddr,
        now: Timestamp,
        datagram: P,
    ) -> Option<Batch<P>> {
        let settings = self.settings_of(place)?;
        let entry = self.hosts.entry(Self::key(place, host)).or_insert_with(|| Host {
            address: host,
            waiting: Vec::new(),
            due: now,
            free: Timestamp::ZERO,
        });
        if entry.waiting.is_empty() {
            // A busy host reads when it is done.
            entry.due = entry.free.max(now + microseconds(settings.wait_us));
        }
        entry.waiting.push(datagram);
        // A full batch ends the wait, but not the work on the one before.
        if entry.waiting.len() >= settings.datagrams {
            entry.due = entry.due.min(entry.free.max(now));
        }
        (entry.due <= now).then(|| entry.take(place, now))
    }

    /// A batch that is read by `now`, and not later than `before` if that comes first.
    pub(crate) fn due(&mut self, now: Timestamp, before: Option<Timestamp>) -> Option<Batch<P>> {
        let limit = before.map_or(now, |before| before.min(now));
        let (place, host) = self
            .hosts
            .iter_mut()
            .filter(|(_, host)| !host.waiting.is_empty() && host.due <= limit)
            .min_by_key(|(_, host)| host.due)
            .map(|((place, _), host)| (*place, host))?;
        let due = host.due;
        Some(host.take(place, due))
    }

    /// The time at which [`Self::due`] has the next batch.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.hosts.values().filter(|host| !host.waiting.is_empty()).map(|host| host.due).min()
    }

    /// The time at which a host is done with one more datagram.
    pub(crate) fn work(&mut self, place: Place, host: SocketAddr, now: Timestamp) -> Timestamp {
        let each = self.settings_of(place).map_or(0.0, |settings| settings.each_us);
        let Some(host) = self.hosts.get_mut(&Self::key(place, host)) else { return now };
        host.free = host.free.max(now) + microseconds(each);
        host.free
    }
}

impl<P> Host<P> {
    fn take(&mut self, place: Place, now: Timestamp) -> Batch<P> {
        let datagrams = std::mem::take(&mut self.waiting);
        Batch { place, host: self.address, datagrams, now }
    }
}

fn microseconds(us: f64) -> Duration {
    Duration::try_from_secs_f64(us * 1e-6).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batching(wait_us: f64, datagrams: usize, each_us: f64) -> Batching<u32> {
        let settings = BatchSettings { wait_us, datagrams, each_us };
        Batching::new(BatchingSettings { client: Some(settings), ..BatchingSettings::default() })
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn host(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 1))
    }

    #[test]
    fn the_first_datagram_waits_briefly_for_others_of_its_host() {
        let mut batching = batching(100.0, 10, 0.0);
        assert!(batching.add(Place::Client, host(1), at(0), 1).is_none());
        assert!(batching.add(Place::Client, host(2), at(30), 2).is_none());
        assert!(batching.add(Place::Client, host(1), at(99), 3).is_none());
        assert_eq!(batching.next_timeout(), Some(at(100)));
        assert!(batching.due(at(99), None).is_none());
        let batch = batching.due(at(105), None).unwrap();
        assert_eq!((batch.host, batch.datagrams, batch.now), (host(1), vec![1, 3], at(100)));
        assert_eq!(batching.next_timeout(), Some(at(130)));
        // Something else comes first.
        assert!(batching.due(at(140), Some(at(129))).is_none());
        assert!(!batching.has(Place::Gateway));
    }

    #[test]
    fn a_full_batch_is_read_at_once() {
        let mut batching = batching(100.0, 2, 0.0);
        assert!(batching.add(Place::Client, host(1), at(0), 1).is_none());
        let batch = batching.add(Place::Client, host(1), at(7), 2).unwrap();
        assert_eq!((batch.datagrams, batch.now), (vec![1, 2], at(7)));
        assert_eq!(batching.next_timeout(), None);
    }

    #[test]
    fn a_host_processes_datagrams_in_turn_and_reads_when_done() {
        let mut batching = batching(10.0, 2, 50.0);
        batching.add(Place::Client, host(1), at(0), 1);
        let batch = batching.add(Place::Client, host(1), at(5), 2).unwrap();
        let mut done = || batching.work(Place::Client, batch.host, batch.now);
        assert_eq!([done(), done()], [at(55), at(105)]);
        assert!(batching.add(Place::Client, host(1), at(6), 3).is_none());
        assert!(batching.add(Place::Client, host(1), at(8), 4).is_none());
        assert_eq!(batching.next_timeout(), Some(at(105)));
    }
}
