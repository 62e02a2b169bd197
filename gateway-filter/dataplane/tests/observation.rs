//! Events within one session, of a real client on the loopback interface.

use std::time::Duration;

use client::{connect, transfer};
use gateway::{Gateway, config, socket};
use packrat_api::status::SessionStep;
use packrat_dataplane::ObservationError;

use crate::client;
use crate::gateway;

#[test]
fn an_observed_session_tells_what_became_of_each_missing_datagram() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut client, upstream) = connect(gateway.listen, &server);
    let session = gateway.dataplane.sessions(&gateway.route, 1)[0].session;
    let observe = |session, after| {
        gateway.dataplane.observe(session, Duration::from_secs(60), after, usize::MAX)
    };
    assert_eq!(observe(session + 1000, 0), Err(ObservationError::NoSession(session + 1000)));
    // What happened before is not known.
    transfer(&mut client, &server, upstream, 0..200);
    assert_eq!(observe(session, 0).unwrap().events, []);
    transfer(&mut client, &server, upstream, 200..600);
    let observed = observe(session, 0).unwrap();
    assert_eq!(observed.newest, observed.events.last().unwrap().number);
    for (event, number) in observed.events.iter().zip(1..) {
        assert_eq!((event.session, event.number, &*event.route), (session, number, "web"));
    }
    let count = |is: fn(&SessionStep) -> bool| {
        observed.events.iter().filter(|event| is(&event.step)).count()
    };
    let missing = count(|step| matches!(step, SessionStep::DatagramMissing { .. }));
    let arrived = count(|step| matches!(step, SessionStep::MissingArrived { .. }));
    let given_up = count(|step| matches!(step, SessionStep::GivenUp { .. }));
    let sent = count(|step| matches!(step, SessionStep::RepairSent { .. }));
    let refused = count(|step| matches!(step, SessionStep::RepairRefused { .. }));
    assert!(missing >= 10, "{missing}");
    assert!(sent + given_up + refused >= missing, "{missing} {sent} {given_up} {refused}");
    assert!(arrived + given_up > 0, "{missing} {arrived} {given_up}");
    assert!(count(|step| matches!(step, SessionStep::EackDecoded { .. })) > 0);
    // The stable keys of one line.
    let sent = observed
        .events
        .iter()
        .find(|event| matches!(event.step, SessionStep::DatagramMissing { .. }))
        .unwrap();
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
    // Asked again, it goes on behind the last one.
    let newest = observed.newest;
    assert!(observe(session, newest).unwrap().events.iter().all(|event| event.number > newest));
}
