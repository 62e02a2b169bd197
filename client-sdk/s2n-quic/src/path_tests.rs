//! The shell around a scripted core, without s2n-quic.

use super::*;
use crate::host::OperatingSystem;
use packrat_client::{PacketNumber, TimeoutActions};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// First byte of what the scripted core takes for control.
const CONTROL: u8 = 5;

/// A core that does what its fields say.
#[derive(Default)]
struct Scripted {
    rewritten: Option<Vec<u8>>,
    transmit: Vec<Vec<u8>>,
    timeout: Option<Timestamp>,
    panic_on_number: Option<u64>,
}

impl Core for Scripted {
    fn on_datagram(&mut self, datagram: &[u8], _now: Timestamp) -> Datagram {
        if datagram.first() == Some(&CONTROL) { Datagram::Control } else { Datagram::Base }
    }
    fn on_packet_number(&mut self, packet_number: PacketNumber, _now: Timestamp) {
        assert_ne!(Some(packet_number.get()), self.panic_on_number, "as the test wants it");
    }
    fn rewrite_frames(
        &mut self,
        _frames: &[u8],
        _room: usize,
        _force_ack: bool,
        _now: Timestamp,
    ) -> Option<Vec<u8>> {
        self.rewritten.clone()
    }
    fn poll_transmit(&mut self, _now: Timestamp) -> Option<Vec<u8>> {
        self.transmit.pop()
    }
    fn next_timeout(&self) -> Option<Timestamp> {
        self.timeout
    }
    fn handle_timeout(&mut self, _now: Timestamp) -> TimeoutActions {
        self.timeout = None;
        TimeoutActions { force_ack: true }
    }
    fn close(&mut self, _now: Timestamp) {
        self.transmit.push(b"goodbye".to_vec());
    }
    fn stats(&self) -> AssistStats {
        let mut stats = AssistStats::default();
        stats.eack_bytes = 7;
        stats
    }
}

/// A path whose control datagrams go to the returned socket.
fn path(core: Option<Scripted>) -> (AssistedPath, UdpSocket) {
    let (path, gateway, _) = path_and_address(core);
    (path, gateway)
}

/// The same, and the address that they come from.
fn path_and_address(core: Option<Scripted>) -> (AssistedPath, UdpSocket, SocketAddr) {
    let gateway = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    gateway.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let socket = crate::socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let core = core.map(|core| Box::new(core) as Box<dyn Core>);
    let address = socket.local_addr().unwrap();
    let host = Arc::new(OperatingSystem::new(socket));
    let path =
        AssistedPath::new(gateway.local_addr().unwrap(), host, core, EndpointWaker::default());
    (path, gateway, address)
}

#[test]
fn what_the_core_has_ready_leaves_at_once_from_the_connections_own_socket() {
    let (path, gateway, address) = path_and_address(Some(Scripted {
        transmit: vec![b"second".to_vec(), b"first".to_vec()],
        ..Scripted::default()
    }));
    path.on_packet_number(1);
    let mut buffer = [0; 64];
    let (length, from) = gateway.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"first");
    assert_eq!(from, address);
    assert_eq!(gateway.recv(&mut buffer).unwrap(), 6);
    path.close();
    assert_eq!(gateway.recv(&mut buffer).unwrap(), 7, "the goodbye is sent as well");
    assert_eq!(path.stats().1.control_sent, 3);
    assert!(path.step().ended);
}

#[test]
fn a_connection_that_outlives_its_assistance_is_plain() {
    let (path, _gateway) = path(Some(Scripted { rewritten: Some(vec![9]), ..Scripted::default() }));
    assert_eq!(path.rewrite(&[1], 10), Some(vec![9]));
    path.close();
    path.on_packet_number(1);
    assert_eq!(path.rewrite(&[1], 10), None, "nothing is withheld when nobody repairs");
    assert_eq!(path.health(), Health::Off);
    assert_eq!(path.stats().0.eack_bytes, 7, "its figures stay");
}

#[test]
fn a_panic_in_the_core_ends_assistance_and_nothing_else() {
    let scripted =
        Scripted { panic_on_number: Some(2), rewritten: Some(vec![1; 9]), ..Scripted::default() };
    let (path, _gateway) = path(Some(scripted));
    path.on_packet_number(1);
    assert_eq!(path.stats().0.eack_bytes, 7);
    assert!(path.rewrite(&[1; 9], 100).is_some());
    path.on_packet_number(2);
    path.on_packet_number(3);
    assert_eq!(path.health(), Health::Failed);
    assert_eq!(path.rewrite(&[1; 9], 100), None, "frames leave as the transport wrote them");
    assert_eq!(path.received_packet_numbers(), [(1, 3)]);
    assert_eq!(path.stats().0.eack_bytes, 7, "what it had counted stays");
    assert!(path.step().ended, "the driver has nothing left to do");
}

#[test]
fn a_rewritten_packet_keeps_its_length_with_padding_in_front() {
    let (path, _gateway) =
        path(Some(Scripted { rewritten: Some(vec![9, 9]), ..Scripted::default() }));
    assert_eq!(path.rewrite(&[1, 2, 3, 4], 10), Some(vec![0, 0, 9, 9]));
    assert_eq!(path.rewrite(&[1, 2], 2), Some(vec![9, 9]));
    assert_eq!(path.rewrite(&[1], 1), None, "more than there is room for");
    assert_eq!(path.stats().1.rewrites_refused, 1);
}

#[test]
fn the_driver_is_told_to_force_an_acknowledgement_when_a_timeout_wants_it() {
    let scripted = Scripted { timeout: Some(Timestamp::ZERO), ..Scripted::default() };
    let (path, _gateway) = path(Some(scripted));
    assert_eq!(path.step(), Step { next: None, force_ack: true, ended: false });
    assert!(!path.step().force_ack, "once");
    assert_eq!(path.stats().1.acks_forced, 1);
}

#[tokio::test]
async fn the_driver_is_woken_when_its_timer_is_too_late() {
    let later = Timestamp::from_millis(3_600_000);
    let (path, _gateway) = path(Some(Scripted { timeout: Some(later), ..Scripted::default() }));
    assert_eq!(path.step().next, Some(later));
    path.on_packet_number(1);
    let woken = tokio::time::timeout(Duration::from_millis(50), path.wake.notified());
    assert!(woken.await.is_err(), "the timer is as it was");
    path.lock().core = Guarded::new(Some(Box::new(Scripted {
        timeout: Some(Timestamp::from_millis(10)),
        ..Scripted::default()
    })));
    path.on_packet_number(2);
    tokio::time::timeout(Duration::from_secs(5), path.wake.notified()).await.unwrap();
}

/// Datagrams that have arrived at the gateway by now, on the loopback interface.
fn arrived(gateway: &UdpSocket) -> Vec<Vec<u8>> {
    gateway.set_nonblocking(true).unwrap();
    let mut buffer = [0; 64];
    std::iter::from_fn(|| gateway.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec()))
        .collect()
}

fn with_a_report_that_is_due() -> Scripted {
    Scripted {
        transmit: vec![b"report".to_vec()],
        timeout: Some(Timestamp::ZERO),
        ..Scripted::default()
    }
}

#[test]
fn a_packet_of_the_handshake_is_reported_at_once() {
    let (path, gateway) = path(Some(with_a_report_that_is_due()));
    assert_eq!(path.arrive(&[0xc0, 1, 2]), Arrival::Pass);
    assert_eq!(arrived(&gateway), [] as [Vec<u8>; 0]);
    path.on_handshake_packet();
    assert_eq!(arrived(&gateway), [b"report"]);
}

#[test]
fn a_datagram_is_reported_together_with_its_packet_number() {
    let (path, gateway) = path(Some(Scripted::default()));
    path.on_packet_number(1);
    path.lock().core = Guarded::new(Some(Box::new(with_a_report_that_is_due())));
    assert_eq!(path.arrive(&[0xc0, 1, 2]), Arrival::Pass);
    // s2n-quic is about to decrypt it: neither the driver nor a packet in front of the 1-RTT packet
    // makes the report leave.
    let soon = path.host().now() + Duration::from_secs(3600);
    path.lock().unopened = Some(soon);
    assert_eq!(path.step().next, Some(soon + DECRYPTION_TIME));
    path.on_handshake_packet();
    assert_eq!(arrived(&gateway), [] as [Vec<u8>; 0]);
    path.on_packet_number(2);
    assert_eq!(arrived(&gateway), [b"report"]);
    assert_eq!(path.lock().unopened, None);
}

#[tokio::test]
async fn a_datagram_that_the_transport_drops_is_reported_by_the_driver() {
    let (path, gateway) = path(Some(with_a_report_that_is_due()));
    assert_eq!(path.arrive(&[0x41, 1, 2]), Arrival::Pass);
    tokio::time::timeout(Duration::from_secs(5), path.wake.notified()).await.unwrap();
    let due = path.lock().armed.unwrap();
    assert_eq!(Some(due), path.lock().unopened.map(|arrived| arrived + DECRYPTION_TIME));
    while path.host().now() < due {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    path.step();
    assert_eq!(arrived(&gateway), [b"report"]);
}

#[test]
fn what_was_withheld_is_acknowledged_after_the_core_has_gone() {
    use crate::acknowledgements::tests::frames;
    for panics in [false, true] {
        let scripted = Scripted {
            rewritten: Some(frames(&[(1, 1)])),
            panic_on_number: panics.then_some(9),
            ..Scripted::default()
        };
        let (path, _gateway) = path(Some(scripted));
        for number in [1, 3, 4, 6] {
            path.on_packet_number(number);
        }
        let withheld = path.rewrite(&frames(&[(6, 6), (3, 4), (1, 1)]), 1200).unwrap();
        assert!(withheld.ends_with(&frames(&[(1, 1)])));
        if panics {
            path.on_packet_number(9);
        } else {
            path.close();
            path.on_packet_number(9);
        }
        assert_eq!(path.health(), if panics { Health::Failed } else { Health::Off });
        // The transport takes everything up to 6 for acknowledged.
        let rewritten = path.rewrite(&frames(&[(9, 9)]), 1200).unwrap();
        assert_eq!(rewritten, frames(&[(9, 9), (6, 6), (3, 4), (1, 1)]));
    }
}

#[test]
fn without_a_core_the_path_only_records() {
    let (path, _gateway) = path(None);
    assert_eq!(path.arrive(&[CONTROL, 1, 2]), Arrival::Pass);
    path.on_packet_number(4);
    assert_eq!(path.received_packet_numbers(), [(4, 4)]);
    assert_eq!(path.rewrite(&[1], 10), None);
    assert_eq!(path.health(), Health::Off);
}

#[test]
fn the_first_connection_owns_the_path() {
    let (path, _gateway) = path(None);
    assert!(path.claim(3));
    assert!(!path.claim(4));
    assert!(path.claim(3));
}

#[test]
fn a_token_that_comes_late_is_shown_at_once_to_the_gateway_that_has_asked_for_one() {
    use packrat_client::{Assist, AssistState, ClientConfig, RefusalReason};
    use packrat_wire::control::Control;
    let gateway = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    gateway.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let host: Arc<dyn Host> = Arc::new(OperatingSystem::new(
        crate::socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap(),
    ));
    let core = Assist::new(ClientConfig::default(), [1; 32], host.now());
    let path = AssistedPath::new(
        gateway.local_addr().unwrap(),
        host,
        Some(Box::new(core)),
        crate::interceptor::EndpointWaker::default(),
    );
    let heard = |wanted: &dyn Fn(&Control<'_>) -> bool| loop {
        let mut buffer = [0; 2000];
        let length = gateway.recv(&mut buffer).unwrap();
        let control = Control::decode(&buffer[..length]).unwrap();
        if wanted(&control)
            && let Control::Discover { nonce, .. } | Control::Init { nonce, .. } = control
        {
            return nonce;
        }
    };
    path.step();
    let nonce = heard(&|control| matches!(control, Control::Discover { noise: [_, ..], .. }));
    let mut refusal = Vec::new();
    Control::Refusal { nonce, reason: RefusalReason::Token, versions: &[1] }.encode(&mut refusal);
    assert!(matches!(path.arrive(&refusal), Arrival::Control));
    assert_eq!(path.stats().0.state, AssistState::Refused);
    assert!(
        path.step().next.is_some_and(|next| next > path.host().now() + Duration::from_secs(200))
    );

    let token = vec![0xab; 60];
    path.set_token(packrat_client::Token::new(token.clone()).unwrap());
    // The driver does not have to be asked first.
    let nonce = heard(
        &|control| matches!(control, Control::Discover { nonce: other, noise: [], .. } if *other != nonce),
    );
    let mut offer = Vec::new();
    Control::Offer { nonce, version: 1, cookie_time: 1, cookie: [2; 16] }.encode(&mut offer);
    path.arrive(&offer);
    path.step();
    heard(&|control| match control {
        Control::Init { noise, .. } => noise.windows(token.len()).any(|window| window == token),
        _ => false,
    });
}
