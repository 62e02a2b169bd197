//! The shell around a real core, without s2n-quic.

use super::*;
use crate::acknowledgements::tests::frames;
use crate::test_gateway::{TestGateway, TestHost};
use packrat_wire::SessionId;
use packrat_wire::seal::session_of;
use std::time::Duration;

fn path(assisted: bool) -> (Arc<AssistedPath>, Arc<TestHost>) {
    crate::test_gateway::path(assisted, EndpointWaker::default())
}

/// With a session.
fn assisted() -> (Arc<AssistedPath>, Arc<TestHost>) {
    let (path, host) = path(true);
    TestGateway::meet(&path, &host);
    (path, host)
}

/// A datagram of the base connection whose header tells nothing.
fn datagram(number: u8) -> Vec<u8> {
    [&[0xc0, 1, 2][..], &[number + 1; 40]].concat()
}

/// A datagram arrives, and the transport decrypts a 1-RTT packet out of it.
fn receive(path: &AssistedPath, number: u8) {
    assert_eq!(path.arrive(&datagram(number)), Arrival::Pass);
    path.on_packet_number(number.into());
}

#[test]
fn what_the_core_has_ready_leaves_at_once_and_the_goodbye_as_well() {
    let (path, host) = path(true);
    path.step();
    assert_eq!(host.sent().len(), 1, "the question for a gateway");
    let (path, host) = assisted();
    path.close();
    assert_eq!(host.sent().len(), 1, "the goodbye");
    assert!(path.step().ended);
}

#[test]
fn a_connection_that_outlives_its_assistance_is_plain() {
    let (path, _) = assisted();
    receive(&path, 0);
    assert!(path.rewrite(&frames(&[(0, 0)]), 1200).is_some());
    path.close();
    path.on_packet_number(1);
    assert_eq!(path.rewrite(&[1], 10), None, "nothing is withheld when nobody repairs");
    assert_eq!(path.health(), Health::Off);
    assert_eq!(path.stats().0.sessions, 1, "its figures stay");
}

#[test]
fn a_panic_in_the_core_ends_assistance_and_nothing_else() {
    let (path, _) = assisted();
    receive(&path, 1);
    assert_eq!(path.stats().0.datagrams, 1);
    assert!(path.rewrite(&frames(&[(1, 1)]), 1200).is_some());
    path.lock().core.fails_at = Some(1);
    path.on_packet_number(2);
    path.on_packet_number(3);
    assert_eq!(path.health(), Health::Failed);
    assert_eq!(path.rewrite(&[1; 9], 100), None, "frames leave as the transport wrote them");
    assert_eq!(path.received_packet_numbers(), [(1, 3)]);
    assert_eq!(path.stats().0.datagrams, 1, "what it had counted stays");
    assert!(path.step().ended, "the driver has nothing left to do");
}

/// The name under which the client speaks next, after it has received something.
fn name(path: &AssistedPath, host: &TestHost, number: u8) -> SessionId {
    receive(path, number);
    host.pass(Duration::from_millis(50));
    path.step();
    let sent = host.sent();
    let names: Vec<_> = sent.iter().map(|datagram| session_of(datagram).unwrap()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| *name == names[0]), "{names:?}");
    names[0]
}

#[test]
fn after_a_change_of_the_address_nothing_leaves_under_the_name_of_the_path_before() {
    let (path, host) = path(true);
    TestGateway::meet(&path, &host);
    let first = name(&path, &host, 0);
    host.pass(Duration::from_secs(1));
    assert_eq!(name(&path, &host, 1), first, "nothing has changed");
    // For a while there is no route, and then the same one again.
    *host.source.lock().unwrap() = None;
    host.pass(Duration::from_secs(1));
    assert_eq!(name(&path, &host, 2), first);
    *host.source.lock().unwrap() = Some([192, 0, 2, 1].into());
    host.pass(Duration::from_secs(1));
    assert_eq!(name(&path, &host, 3), first);

    *host.source.lock().unwrap() = Some([198, 51, 100, 7].into());
    host.pass(SOURCE_INTERVAL);
    let second = name(&path, &host, 4);
    assert_ne!(second, first);
    assert_eq!(name(&path, &host, 5), second, "one change, one name");

    // The application says so first; the host's answer is no further change.
    *host.source.lock().unwrap() = Some([203, 0, 113, 9].into());
    path.on_network_change();
    let third = host.sent().iter().filter_map(|datagram| session_of(datagram)).next_back();
    host.pass(SOURCE_INTERVAL);
    let now = name(&path, &host, 6);
    assert_ne!(now, second);
    assert!(third.is_none_or(|third| third == now));
}

#[test]
fn a_rewritten_packet_keeps_its_length_with_padding_in_front() {
    assert_eq!(fit(vec![9, 9], 4, 10), Some(vec![0, 0, 9, 9]));
    assert_eq!(fit(vec![9, 9], 2, 2), Some(vec![9, 9]));
    assert_eq!(fit(vec![9, 9], 1, 3), Some(vec![9, 9]));
    assert_eq!(fit(vec![9, 9], 1, 1), None, "more than there is room for");
}

#[test]
fn the_driver_is_told_to_force_an_acknowledgement_when_a_timeout_wants_it() {
    let (path, host) = assisted();
    for number in [0, 1, 3] {
        receive(&path, number);
    }
    assert!(!path.step().force_ack);
    // A hold that ends late is extended once: this host may not have run.
    for _ in 0..2 {
        host.pass(Duration::from_secs(2));
        if path.step().force_ack {
            assert!(!path.step().force_ack, "once");
            assert_eq!(path.stats().1.acks_forced, 1);
            return;
        }
    }
    panic!("the hold did not end");
}

#[tokio::test]
async fn the_driver_is_woken_when_its_timer_is_too_late() {
    let (path, _) = assisted();
    assert_eq!(path.step().next, None);
    let woken = || tokio::time::timeout(Duration::from_millis(50), path.wake.notified());
    let _ = woken().await;
    receive(&path, 0);
    receive(&path, 1);
    assert!(path.lock().armed.is_some(), "an eACK is due");
    woken().await.unwrap();
    receive(&path, 2);
    assert!(woken().await.is_err(), "the timer is as it was");
}

#[test]
fn a_packet_of_the_handshake_is_reported_at_once() {
    let (path, host) = assisted();
    assert_eq!(path.arrive(&datagram(0)), Arrival::Pass);
    assert!(host.sent().is_empty());
    path.on_handshake_packet();
    assert_eq!(host.sent().len(), 1);
}

#[test]
fn a_datagram_is_reported_together_with_its_packet_number() {
    let (path, host) = assisted();
    receive(&path, 0);
    receive(&path, 1);
    host.pass(Duration::from_millis(15));
    host.sent();
    assert_eq!(path.arrive(&datagram(2)), Arrival::Pass);
    // s2n-quic is about to decrypt it: neither the driver nor a packet in front of the 1-RTT packet
    // makes the report leave.
    assert_eq!(path.step().next, Some(path.host().now() + DECRYPTION_TIME));
    path.on_handshake_packet();
    assert!(host.sent().is_empty());
    path.on_packet_number(2);
    assert_eq!(host.sent().len(), 1);
    assert_eq!(path.lock().unopened, None);
}

#[test]
fn a_datagram_that_the_transport_drops_delays_a_report_and_is_not_part_of_it() {
    let (path, host) = assisted();
    receive(&path, 0);
    receive(&path, 1);
    host.pass(Duration::from_millis(15));
    host.sent();
    assert_eq!(path.arrive(&datagram(2)), Arrival::Pass);
    path.step();
    assert!(host.sent().is_empty());
    host.pass(DECRYPTION_TIME);
    path.step();
    assert_eq!(host.sent().len(), 1);
    // When it comes once more, it is as new as before.
    path.arrive(&datagram(2));
    assert_eq!(path.stats().0.duplicates, 0);
    path.on_packet_number(2);
    path.arrive(&datagram(2));
    assert_eq!(path.stats().0.duplicates, 1);
}

#[test]
fn what_was_withheld_is_acknowledged_after_the_core_has_gone() {
    for panics in [false, true] {
        let (path, _) = assisted();
        for number in [0, 1, 3, 4, 6] {
            receive(&path, number);
        }
        let withheld = path.rewrite(&frames(&[(6, 6), (3, 4), (0, 1)]), 1200).unwrap();
        assert!(withheld.windows(2).any(|pair| pair == [2, 1]), "2 is missing: no more than 1");
        if panics {
            path.lock().core.fails_at = Some(1);
        } else {
            path.close();
        }
        path.on_packet_number(9);
        assert_eq!(path.health(), if panics { Health::Failed } else { Health::Off });
        // The transport takes everything up to 6 for acknowledged.
        let rewritten = path.rewrite(&frames(&[(9, 9)]), 1200).unwrap();
        assert_eq!(rewritten, frames(&[(9, 9), (6, 6), (3, 4), (0, 1)]));
    }
}

#[test]
fn without_a_core_the_path_only_records() {
    let (path, _) = path(false);
    let control = [&[packrat_wire::control::FIRST_BYTE][..], &packrat_wire::control::MAGIC];
    assert_eq!(path.arrive(&control.concat()), Arrival::Pass);
    path.on_packet_number(4);
    assert_eq!(path.received_packet_numbers(), [(4, 4)]);
    assert_eq!(path.rewrite(&[1], 10), None);
    assert_eq!(path.health(), Health::Off);
}

#[test]
fn the_first_connection_owns_the_path() {
    let (path, _) = path(false);
    assert!(path.claim(3));
    assert!(!path.claim(4));
    assert!(path.claim(3));
}

#[test]
fn a_token_that_comes_late_is_shown_at_once_to_the_gateway_that_has_asked_for_one() {
    use packrat_client::{AssistState, RefusalReason};
    use packrat_wire::control::{Control, VERSION};
    let (path, host) = path(true);
    path.step();
    let sent = host.sent();
    let Ok(Control::Discover { nonce, .. }) = Control::decode(&sent[0]) else { panic!("{sent:?}") };
    let mut refusal = Vec::new();
    Control::Refusal { nonce, reason: RefusalReason::Token, versions: &[1] }.encode(&mut refusal);
    assert_eq!(path.arrive(&refusal), Arrival::Control);
    assert_eq!(path.stats().0.state, AssistState::Refused);
    assert!(
        path.step().next.is_some_and(|next| next > path.host().now() + Duration::from_secs(200))
    );
    host.sent();

    let token = vec![0xab; 60];
    path.set_token(Token::new(token.clone()).unwrap());
    // The driver does not have to be asked first.
    let sent = host.sent();
    let Ok(Control::Discover { nonce, .. }) = Control::decode(&sent[0]) else { panic!("{sent:?}") };
    let mut offer = Vec::new();
    Control::Offer { nonce, version: VERSION, cookie_time: 1, cookie: [2; 16] }.encode(&mut offer);
    path.arrive(&offer);
    path.step();
    let sent = host.sent();
    assert!(sent.iter().any(|said| match Control::decode(said) {
        Ok(Control::Init { noise, .. }) => noise.windows(token.len()).any(|window| window == token),
        _ => false,
    }));
}
