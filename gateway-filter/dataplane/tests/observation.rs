//! Events within one session, of a real client on the loopback interface.

use std::time::Duration;

use packrat_api::status::{SessionEvent, SessionStep};
use packrat_dataplane::ObservationError;

use crate::client::{connect, transfer};
use crate::gateway;

#[test]
fn an_observed_session_reports_each_missing_datagrams_fate() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = connect(gateway.listen, &server);
    let session = gateway.dataplane.sessions(&gateway.route, 1)[0].session;
    let observe = |session, after| {
        gateway.dataplane.observe(session, Duration::from_secs(600), after, usize::MAX)
    };
    assert_eq!(observe(session + 1000, 0), Err(ObservationError::NoSession(session + 1000)));
    // Events before the observation are not recorded.
    transfer(&mut client, &server, upstream, 0..200);
    assert_eq!(observe(session, 0).unwrap().events, []);
    let count = |observed: &[SessionEvent], is: fn(&SessionStep) -> bool| {
        observed.iter().filter(|event| is(&event.step)).count()
    };
    let missing = |step: &SessionStep| matches!(step, SessionStep::DatagramMissing { .. });
    let over = |step: &SessionStep| {
        matches!(step, SessionStep::MissingArrived { .. } | SessionStep::GivenUp { .. })
    };
    let decided = |step: &SessionStep| {
        let sent = matches!(step, SessionStep::RepairSent { .. });
        sent || matches!(step, SessionStep::GivenUp { .. } | SessionStep::RepairRefused { .. })
    };
    // Symbols may repair some of them before they are missed, and the last eACK is in flight.
    let mut observed: Vec<SessionEvent> = Vec::new();
    for first in (200..).step_by(200) {
        transfer(&mut client, &server, upstream, first..first + 200);
        let newest = observed.last().map_or(0, |event| event.number);
        observed.extend(observe(session, newest).unwrap().events);
        let missed = count(&observed, missing);
        if missed >= 10 && count(&observed, decided) >= missed && count(&observed, over) > 0 {
            break;
        }
        assert!(first < 20_000, "{missed} missing: {observed:?}");
    }
    for (event, number) in observed.iter().zip(1..) {
        assert_eq!((event.session, event.number, &*event.route), (session, number, "web"));
    }
    assert!(count(&observed, |step| matches!(step, SessionStep::EackDecoded { .. })) > 0);
    // The stable keys of one line.
    let sent = observed.iter().find(|event| missing(&event.step)).unwrap();
    let line = serde_json::to_value(sent).unwrap();
    assert_eq!(line["event"], "datagram_missing");
    let mut keys: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "age_microseconds",
            "assistance",
            "datagram",
            "event",
            "microseconds",
            "number",
            "route",
            "session",
            "ts"
        ]
    );
    // Asked again, it continues behind the last one.
    let newest = observe(session, 0).unwrap().newest;
    assert!(observe(session, newest).unwrap().events.iter().all(|event| event.number > newest));
}
