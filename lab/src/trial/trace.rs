//! Joins the records of sender, path, gateway and receiver about one trial.

use super::flow::FlowOutcome;
use crate::network::{Departure, VirtualNetwork};
use crate::observer::TraceEvent;
use std::collections::BTreeMap;

/// Packets that a search for the one in a datagram may skip: packets that left inside of handshake
/// datagrams.
const SEARCHED_PACKETS: usize = 16;

/// Everything that happened, in order. `upload`: the sender is the client.
pub(crate) fn complete(
    outcome: FlowOutcome,
    network: &VirtualNetwork,
    upload: bool,
) -> Vec<TraceEvent> {
    let (mut path, departures) = network.take_trace();
    if upload {
        path.extend(outcome.receiving.trace);
        path.sort_by(|one, other| one.at().total_cmp(&other.at()));
        return path;
    }
    let mut trace = outcome.sender.trace;
    let numbers = numbers(&trace, &departures);
    for event in &mut path {
        if let TraceEvent::LastMile { number, identity, .. } = event {
            *number = numbers.get(identity).copied();
        }
    }
    for event in &mut trace {
        if let TraceEvent::DeclaredLost { number, arrived, .. } = event {
            *arrived = outcome.download.has_received(*number);
        }
    }
    trace.append(&mut path);
    // Only these events of the receiver: the others are about packets that it sent.
    let received =
        |event: &TraceEvent| matches!(event, TraceEvent::TooOld { .. } | TraceEvent::Client { .. });
    trace.extend(outcome.receiving.trace.into_iter().filter(received));
    trace.sort_by(|one, other| one.at().total_cmp(&other.at()));
    trace
}

/// The number of the packet in each datagram: datagrams leave in the order in which their packets
/// were made.
fn numbers(trace: &[TraceEvent], departures: &[Departure]) -> BTreeMap<u64, u64> {
    let mut sent = trace.iter().filter_map(|event| match *event {
        TraceEvent::Sent { number, bytes, .. } => Some((number, bytes)),
        _ => None,
    });
    let mut numbers = BTreeMap::new();
    for departure in departures.iter().filter(|departure| departure.short_header) {
        let mut ahead = sent.clone().take(SEARCHED_PACKETS);
        if let Some(skipped) = ahead.position(|(_, bytes)| bytes == departure.bytes)
            && let Some((number, _)) = sent.nth(skipped)
        {
            numbers.insert(departure.identity, number);
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::DatagramKind;
    use crate::stacks::Sender;
    use crate::trial::{Arm, Trial};
    use packrat_emulation::scenario::Scenario;

    #[test]
    fn packets_are_found_in_datagrams_by_order_and_length() {
        let sent = |number, bytes| TraceEvent::Sent { at: 0.0, number, bytes };
        let trace = [sent(0, 60), sent(1, 1200), sent(2, 1200), sent(4, 90)];
        let departure = |identity, bytes, short_header| Departure { identity, bytes, short_header };
        // The first packet left behind a handshake packet.
        let departures = [
            departure(10, 1200, false),
            departure(11, 1200, true),
            departure(12, 1200, true),
            departure(14, 90, true),
        ];
        let numbers = numbers(&trace, &departures);
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [(11, 1), (12, 2), (14, 4)]);
    }

    #[test]
    fn packets_are_also_found_behind_an_assisted_datagrams_number() {
        let mut scenario = Scenario::load("wifi").unwrap();
        scenario.size = 300_000;
        let (_, events) = Trial::new(scenario, Arm::Packrat, Sender::S2nCubic, 1).trace().unwrap();
        let repairs: Vec<Option<u64>> = events
            .iter()
            .filter_map(|event| match *event {
                TraceEvent::LastMile { kind: DatagramKind::Repair, number, .. } => Some(number),
                _ => None,
            })
            .collect();
        assert!(repairs.len() > 2 && repairs.iter().all(Option::is_some), "{repairs:?}");
    }
}
