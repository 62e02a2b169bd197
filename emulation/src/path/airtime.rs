//! Air that both directions of a segment share: a half-duplex medium, sans-IO.
//!
//! A station that has something to send takes a turn; while both have, turns alternate, as a
//! wireless LAN's contention gives each station the same chance. A turn costs time for access and
//! carries an aggregate of datagrams, which all arrive at its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Configuration of the air.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AirtimeConfig {
    /// Time that a turn costs besides its bytes: contention, preamble, acknowledgement.
    pub access: Duration,
    /// Datagrams of one turn, at most.
    pub aggregate: usize,
}

/// The air itself; both links have a clone of it.
#[derive(Debug, Clone)]
pub struct Air {
    config: AirtimeConfig,
    state: Arc<Mutex<State>>,
}

/// A user of the air: one of a link's two directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Station {
    /// The sender towards the client.
    Down,
    /// The sender towards the server.
    Up,
}

#[derive(Debug, Default)]
struct State {
    /// The end of the present turn, nanoseconds.
    free: u64,
    /// The stations that have something to send.
    waiting: [bool; 2],
    /// The station of the last turn.
    last: Option<Station>,
}

impl PartialEq for Air {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
    }
}

impl Air {
    /// Idle air.
    pub fn new(config: AirtimeConfig) -> Self {
        Self { config, state: Arc::default() }
    }

    /// Datagrams of one turn, at most.
    pub(super) fn aggregate(&self) -> usize {
        self.config.aggregate.max(1)
    }

    /// States whether a station has something to send from `now` on, nanoseconds.
    pub(super) fn set_waiting(&self, station: Station, waiting: bool, now: u64) {
        let mut state = self.lock();
        if waiting && state.waiting == [false; 2] {
            state.free = state.free.max(now);
        }
        state.waiting[station as usize] = waiting;
    }

    /// The beginning of this station's turn, nanoseconds; `None` while it is the other one's.
    pub(super) fn turn(&self, station: Station) -> Option<u64> {
        let state = self.lock();
        let yields = state.last == Some(station) && state.waiting[1 - station as usize];
        (state.waiting[station as usize] && !yields).then_some(state.free)
    }

    /// Takes a turn from `at` on, in which the bytes take this long; its end. All nanoseconds.
    pub(super) fn take(&self, station: Station, at: u64, bytes: u64) -> u64 {
        let mut state = self.lock();
        state.last = Some(station);
        state.free = at + super::nanos(self.config.access) + bytes;
        state.free
    }

    /// No code under this lock can leave the state half-changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use packrat_wire::estimate::Timestamp;

    use super::super::AnyLinkConfig;
    use super::super::link::{LinkConfig, Verdict};
    use super::super::queue::QueueDiscipline;
    use super::super::queued_link::QueuedLink;
    use super::*;

    /// A link in both directions at 12 Mbit/s without delay: a datagram of 1500 bytes takes a
    /// millisecond.
    fn pair(config: AirtimeConfig) -> [QueuedLink<usize>; 2] {
        let air = Air::new(config);
        [Station::Down, Station::Up].map(|station| {
            let link = LinkConfig::new(Duration::ZERO, 12_000_000)
                .with_queue(QueueDiscipline::DropTail { limit: 1 << 20 });
            let mut queued = AnyLinkConfig::Constant(link).queued();
            queued.air = Some((air.clone(), station));
            QueuedLink::new(queued)
        })
    }

    /// Offers this many datagrams to each at the beginning; arrivals in milliseconds.
    fn run(mut links: [QueuedLink<usize>; 2], counts: [usize; 2]) -> [Vec<f64>; 2] {
        for (link, count) in links.iter_mut().zip(counts) {
            for number in 0..count {
                link.offer(Timestamp::ZERO, 1500, 0, false, number);
            }
        }
        while let Some((at, which)) =
            (0..2).filter_map(|which| Some((links[which].next_timeout()?, which))).min()
        {
            links[which].handle_timeout(at);
        }
        links.map(|mut link| {
            std::iter::from_fn(|| link.poll_fate())
                .map(|fate| match fate.verdict {
                    Verdict::Deliver { at } => at.as_micros() as f64 * 1e-3,
                    other => panic!("{other:?}"),
                })
                .collect()
        })
    }

    #[test]
    fn two_directions_take_turns_and_one_alone_has_all_of_the_air() {
        let config = AirtimeConfig { access: Duration::ZERO, aggregate: 1 };
        let [down, up] = run(pair(config), [4, 2]);
        assert_eq!(down, [1.0, 3.0, 5.0, 6.0]);
        assert_eq!(up, [2.0, 4.0]);
    }

    #[test]
    fn an_aggregate_pays_for_access_once_and_arrives_as_a_whole() {
        let config = AirtimeConfig { access: Duration::from_micros(500), aggregate: 3 };
        let [down, up] = run(pair(config), [5, 1]);
        // The first datagram is alone, as it finds the air free.
        assert_eq!(down, [1.5, 6.5, 6.5, 6.5, 8.0]);
        assert_eq!(up, [3.0]);
    }

    #[test]
    fn the_air_has_one_user_and_is_not_idle_while_datagrams_wait() {
        let access = Duration::from_micros(100);
        let [down, up] = run(pair(AirtimeConfig { access, aggregate: 4 }), [101, 41]);
        let last = down.iter().chain(&up).copied().fold(0.0, f64::max);
        // 26 turns down, 11 up, 142 datagrams.
        assert!((last - (142.0 + 37.0 * 0.1)).abs() < 1e-6, "{last}");
    }
}
