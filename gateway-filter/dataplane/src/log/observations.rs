//! Sessions that are observed, and their events.
//!
//! An operator who asks for a session's events observes it for a while; each request prolongs that.
//! Few sessions can be observed at the same time, and of each only the newest events are kept.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use packrat_api::status::{SessionEvent, SessionStep};
use packrat_engine::{Sequence, SessionEvent as Step};
use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use parking_lot::Mutex;

use super::timestamp::timestamp;

/// Sessions that can be observed at the same time.
const MOST_SESSIONS: usize = 16;
/// Events that are kept of each kind.
const KEPT_EVENTS: usize = 4096;

/// The events of the sessions that are observed.
#[derive(Debug, Default)]
pub(crate) struct Observations(Mutex<HashMap<u64, Observed>>);

/// The events of one session.
#[derive(Debug)]
struct Observed {
    until: Timestamp,
    newest: u64,
    events: VecDeque<SessionEvent>,
}

impl Observations {
    /// Observes a session until then. False if too many are observed.
    pub(crate) fn observe(&self, flow: u64, until: Timestamp, now: Timestamp) -> bool {
        let mut observed = self.0.lock();
        observed.retain(|id, observed| *id == flow || observed.until >= now);
        let is_full = observed.len() >= MOST_SESSIONS;
        if let Some(known) = observed.get_mut(&flow) {
            known.until = known.until.max(until);
        } else if is_full {
            return false;
        } else {
            observed.insert(flow, Observed { until, newest: 0, events: VecDeque::new() });
        }
        true
    }

    /// Keeps an event of a session. False if it is not observed any more.
    pub(crate) fn keep(
        &self,
        flow: u64,
        assistance: SessionId,
        route: &str,
        step: Step,
        now: Timestamp,
    ) -> bool {
        let Some(step) = described(step) else { return true };
        let mut all = self.0.lock();
        let Some(observed) = all.get_mut(&flow) else { return false };
        if observed.until < now {
            all.remove(&flow);
            return false;
        }
        observed.newest += 1;
        if observed.events.len() >= KEPT_EVENTS {
            observed.events.pop_front();
        }
        observed.events.push_back(SessionEvent {
            number: observed.newest,
            ts: timestamp(),
            route: route.to_owned(),
            session: flow,
            assistance: assistance.get(),
            microseconds: now.as_micros(),
            step,
        });
        true
    }

    /// The events of a session after number `after`, oldest first, and the number to pass as `after`
    /// the next time. `None` if it is not observed.
    pub(crate) fn after(
        &self,
        flow: u64,
        after: u64,
        limit: usize,
        now: Timestamp,
    ) -> Option<(u64, Vec<SessionEvent>)> {
        let all = self.0.lock();
        let observed = all.get(&flow).filter(|observed| observed.until >= now)?;
        let events = observed.events.iter().filter(|event| event.number > after).take(limit);
        let events: Vec<SessionEvent> = events.cloned().collect();
        let newest = events.last().map_or(observed.newest, |event| event.number);
        Some((newest, events))
    }
}

/// The step as documents have it; `None` for one that they have no name for.
fn described(step: Step) -> Option<SessionStep> {
    let microseconds = |age: Duration| u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    Some(match step {
        Step::EpochAnchored { epoch, first } => {
            SessionStep::EpochAnchored { epoch: epoch.get().into(), first: first.get() }
        }
        Step::EackDecoded { eack, recorded, newest, newly_missing, missing } => {
            let (eack, newest) = (eack.get(), newest.map(Sequence::get));
            SessionStep::EackDecoded { eack, recorded, newest, newly_missing, missing }
        }
        Step::EackFailed { eack, symbols, resets } => {
            SessionStep::EackFailed { eack: eack.get(), symbols: symbols.into(), resets }
        }
        Step::EackIgnored { eack, reason } => {
            SessionStep::EackIgnored { eack: eack.get(), reason: reason.name().to_owned() }
        }
        Step::DatagramMissing { datagram, age } => {
            let datagram = datagram.get();
            SessionStep::DatagramMissing { datagram, age_microseconds: microseconds(age) }
        }
        Step::RepairSent { datagram, transmission, age } => {
            let datagram = datagram.get();
            SessionStep::RepairSent { datagram, transmission, age_microseconds: microseconds(age) }
        }
        Step::RepairRefused { datagram, reason } => SessionStep::RepairRefused {
            datagram: datagram.get(),
            reason: reason.name().to_owned(),
        },
        Step::TailProbeSent { datagram } => SessionStep::TailProbeSent { datagram: datagram.get() },
        Step::MissingArrived { datagram, transmissions, age } => SessionStep::MissingArrived {
            datagram: datagram.get(),
            transmissions,
            age_microseconds: microseconds(age),
        },
        Step::ReportSent { eack, settled, wanted_symbols, queue_stands } => {
            let (eack, settled) = (eack.get(), settled.map(Sequence::get));
            let wanted_symbols = wanted_symbols.map(u32::from);
            SessionStep::ReportSent { eack, settled, wanted_symbols, queue_stands }
        }
        Step::Reset { epoch, side, reason } => SessionStep::Reset {
            epoch: epoch.get().into(),
            side: side.name().to_owned(),
            reason: reason.name().to_owned(),
        },
        Step::PathChallenged => SessionStep::PathChallenged,
        Step::PathValidated => SessionStep::PathValidated,
        Step::GivenUp { datagram, transmissions, reason } => {
            let datagram = datagram.map(Sequence::get);
            SessionStep::GivenUp { datagram, transmissions, reason: reason.name().to_owned() }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_engine::{EackIgnoredReason, GiveUpReason, RepairRefusedReason, Side};
    use packrat_wire::message::ResetReason;
    use packrat_wire::{Epoch, MessageCounter};

    const STEP: Step = Step::TailProbeSent { datagram: Sequence::new(7) };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn keep(observations: &Observations, flow: u64, millis: u64) -> bool {
        observations.keep(flow, SessionId::new(5), "web", STEP, at(millis))
    }

    #[test]
    fn a_session_is_observed_until_its_time_is_over() {
        let (observations, flow) = (Observations::default(), 1);
        assert!(!keep(&observations, flow, 0));
        assert!(observations.after(flow, 0, 9, at(0)).is_none());
        assert!(observations.observe(flow, at(10), at(0)));
        assert!(keep(&observations, flow, 5));
        // A shorter time does not end the observation earlier, a longer one prolongs it.
        assert!(observations.observe(flow, at(6), at(5)) && keep(&observations, flow, 8));
        assert!(observations.observe(flow, at(20), at(5)) && keep(&observations, flow, 18));
        let (newest, events) = observations.after(flow, 1, 9, at(20)).unwrap();
        assert_eq!((newest, events.len(), events[0].number), (3, 2, 2));
        assert!(observations.after(flow, 0, 9, at(21)).is_none(), "also if it is silent");
        assert!(!keep(&observations, flow, 21));
    }

    #[test]
    fn documents_and_traces_have_the_same_keys_and_values() {
        let (age, epoch) = (Duration::from_micros(1500), Epoch::new(3));
        let (eack, datagram) = (MessageCounter::new(1), Sequence::new(7));
        let steps = [
            Step::EpochAnchored { epoch, first: datagram },
            Step::EackDecoded {
                eack,
                recorded: 9,
                newest: Some(datagram),
                newly_missing: 1,
                missing: 2,
            },
            Step::EackFailed { eack, symbols: 9, resets: true },
            Step::EackIgnored { eack, reason: EackIgnoredReason::OtherEpoch },
            Step::DatagramMissing { datagram, age },
            Step::RepairSent { datagram, transmission: 1, age },
            Step::RepairRefused { datagram, reason: RepairRefusedReason::BudgetEmpty },
            Step::TailProbeSent { datagram },
            Step::MissingArrived { datagram, transmissions: 1, age },
            Step::ReportSent { eack, settled: None, wanted_symbols: Some(9), queue_stands: true },
            Step::Reset { epoch, side: Side::Client, reason: ResetReason::ClientOverflow },
            Step::PathChallenged,
            Step::PathValidated,
            Step::GivenUp {
                datagram: None,
                transmissions: 0,
                reason: GiveUpReason::TooManyRepairs,
            },
        ];
        for step in steps {
            let document = serde_json::to_value(described(step).unwrap()).unwrap();
            assert_eq!(serde_json::to_value(step).unwrap(), document);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let observations = Observations::default();
        for number in 0..MOST_SESSIONS as u64 {
            assert!(observations.observe(number, at(10), at(0)));
        }
        let one_more = 1000;
        assert!(!observations.observe(one_more, at(10), at(5)));
        assert!(observations.observe(1, at(10), at(5)), "known");
        for _ in 0..KEPT_EVENTS + 10 {
            keep(&observations, 1, 6);
        }
        let (newest, events) = observations.after(1, 0, usize::MAX, at(6)).unwrap();
        assert_eq!(
            (newest, events.len(), events[0].number),
            (KEPT_EVENTS as u64 + 10, KEPT_EVENTS, 11)
        );
        assert!(observations.observe(one_more, at(30), at(20)), "the others' time is over");
    }
}
