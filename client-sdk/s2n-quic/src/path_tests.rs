//! The shell around a real shim, without s2n-quic.

use super::*;
use crate::test_gateway::{SERVER_ADDRESS, TestGateway, TestHost, metadata, new_path};
use packrat_wire::seal::session_of;
use packrat_wire::{SessionId, bundle};
use std::time::Duration;

/// A path on its host, and the datagrams released to s2n-quic.
struct World {
    path: Arc<AssistedPath>,
    host: Arc<TestHost>,
    released: ReleasedDatagrams,
}

impl World {
    fn new(assisted: bool) -> Self {
        let released = ReleasedDatagrams::default();
        let (path, host) = new_path(assisted, released.clone());
        Self { path: Arc::new(path), host, released }
    }

    /// A world with a session.
    fn assisted() -> (Self, TestGateway) {
        let world = Self::new(true);
        let gateway = TestGateway::meet(&world.path, &world.host);
        (world, gateway)
    }

    /// A handshake between connection IDs that are empty.
    fn shake_hands(&self) {
        let datagram = [0xe0, 0, 0, 0, 1, 0, 0, 0];
        self.arrive(&datagram);
        self.path.on_send(&datagram, ExplicitCongestionNotification::NotEct);
        self.path.step();
        self.host.sent();
    }

    /// Datagrams that s2n-quic sees when one arrives.
    fn arrive(&self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let front = self.path.arrive(datagram, metadata(SERVER_ADDRESS.parse().unwrap()));
        let mut seen: Vec<Vec<u8>> =
            front.map(|front| datagram[front..].to_vec()).into_iter().collect();
        seen.extend(self.released());
        seen
    }

    fn released(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.released.pop()).map(|released| released.datagram).collect()
    }

    /// The name under which the client speaks next, after it has received something.
    fn name(&self, gateway: &mut TestGateway, number: u8) -> SessionId {
        self.arrive(&gateway.forward(&datagram(number), &self.host));
        self.host.pass(Duration::from_millis(50));
        self.path.step();
        let sent = self.host.sent();
        let names: Vec<_> = sent.iter().map(|datagram| session_of(datagram).unwrap()).collect();
        assert!(!names.is_empty() && names.iter().all(|name| *name == names[0]), "{names:?}");
        names[0]
    }
}

/// A datagram of the base connection.
fn datagram(number: u8) -> Vec<u8> {
    [&[0x41, 1, 2][..], &[number + 1; 40]].concat()
}

#[test]
fn ready_datagrams_and_the_goodbye_leave_at_once() {
    let world = World::new(true);
    world.path.step();
    assert_eq!(world.host.sent().len(), 1, "the question for a gateway");
    let (world, _) = World::assisted();
    world.path.close();
    assert_eq!(world.host.sent().len(), 1, "the goodbye");
    assert_eq!(world.path.step(), Step::Ended);
}

#[test]
fn an_acknowledgement_with_a_due_eack_bears_its_own_mark() {
    use ExplicitCongestionNotification::{Ect0, NotEct};
    let (world, mut gateway) = World::assisted();
    let acknowledgement = [&[0x41, 9][..], &[7; 30]].concat();
    world.shake_hands();
    for number in 1..16 {
        world.arrive(&gateway.forward(&datagram(number), &world.host));
    }
    assert_eq!(world.path.on_send(&acknowledgement, Ect0), Departure::Now(None), "nothing is due");
    world.host.pass(Duration::from_millis(12));
    world.host.sent();
    assert_eq!(world.path.on_send(&acknowledgement, Ect0), Departure::WithOthers);
    let sent = world.host.sent_marked();
    // A copy of the first one may also have left.
    let Some((together, Ect0)) = sent.last() else { panic!("{sent:?}") };
    let bundle = bundle::split(together).unwrap();
    assert!(bundle.datagrams().eq([&acknowledgement[..]]));
    assert!(session_of(bundle.message).is_some(), "an eACK");
    // Long datagrams and handshakes leave alone; a message of the shim has no mark.
    for other in [[0x41; 90], [0xc3; 90]] {
        assert_eq!(world.path.on_send(&other, Ect0), Departure::Now(None));
    }
    world.path.close();
    assert!(world.host.sent_marked().iter().all(|(_, ecn)| *ecn == NotEct));
}

#[test]
fn what_waits_leaves_with_the_mark_that_it_was_sent_with() {
    use ExplicitCongestionNotification::{Ect0, NotEct};
    let (world, mut gateway) = World::assisted();
    assert_eq!(world.path.on_send(&[0x41; 90], Ect0), Departure::Now(None), "a request");
    world.host.pass(Duration::from_millis(40));
    let acknowledgement = |number: u8| [&[0x41, number][..], &[9; 30]].concat();
    world.shake_hands();
    // A download that is as fast as it gets.
    for number in 0..200 {
        if number == 20 {
            world.path.on_send(&acknowledgement(0), Ect0);
        }
        let whole = [&[0x41, number][..], &[7; 400]].concat();
        world.arrive(&gateway.forward(&whole, &world.host));
        world.host.pass(Duration::from_millis(4));
        world.path.step();
        gateway.talk(&world.path, &world.host);
    }
    assert_eq!(world.path.on_send(&acknowledgement(1), Ect0), Departure::WithOthers);
    assert!(world.host.sent().is_empty(), "it waits");
    assert_eq!(world.path.on_send(&acknowledgement(2), NotEct), Departure::WithOthers);
    assert_eq!(world.host.sent_marked(), [(acknowledgement(1), Ect0)]);
}

#[test]
fn a_hole_keeps_back_what_is_above_it_until_it_is_repaired() {
    let (world, mut gateway) = World::assisted();
    let sent: Vec<_> =
        (0..5).map(|number| gateway.forward(&datagram(number), &world.host)).collect();
    assert_eq!(sent[0].len(), datagram(0).len() + number::NUMBER_LENGTH, "it has a number");
    assert_eq!(world.arrive(&sent[0]), [datagram(0)]);
    assert!(world.arrive(&sent[2]).is_empty() && world.arrive(&sent[4]).is_empty());
    assert_eq!(world.arrive(&sent[1]), [1, 2].map(datagram));
    assert_eq!(world.arrive(&sent[3]), [3, 4].map(datagram));
    let (assist, shim, _) = world.path.stats();
    assert_eq!((assist.holes, assist.filled_in_time, shim.kept), (2, 2, 2));
}

#[test]
fn the_gateway_repairs_what_the_path_asks_for() {
    let (world, mut gateway) = World::assisted();
    let sent: Vec<_> =
        (0..3).map(|number| gateway.forward(&datagram(number), &world.host)).collect();
    world.arrive(&sent[0]);
    world.host.pass(Duration::from_millis(5));
    assert!(world.arrive(&sent[2]).is_empty());
    world.path.step();
    let mut seen = Vec::new();
    for said in world.host.sent() {
        for answer in gateway.hear(&said, &world.host) {
            seen.extend(world.arrive(&answer));
        }
    }
    assert_eq!(seen, [1, 2].map(datagram));
}

#[tokio::test]
async fn the_driver_releases_expired_datagrams_and_wakes_the_endpoint() {
    let (world, mut gateway) = World::assisted();
    let sent: Vec<_> =
        (0..3).map(|number| gateway.forward(&datagram(number), &world.host)).collect();
    world.arrive(&sent[0]);
    assert!(world.arrive(&sent[2]).is_empty());
    let woken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    struct Count(Arc<std::sync::atomic::AtomicUsize>);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    world.released.set_waker(&std::task::Waker::from(Arc::new(Count(Arc::clone(&woken)))));
    world.path.step();
    assert_eq!(woken.load(std::sync::atomic::Ordering::Relaxed), 0);
    // A hold that ends late is extended once: this host may not have run.
    for _ in 0..2 {
        world.host.pass(Duration::from_secs(2));
        world.path.step();
    }
    assert_eq!(woken.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(world.released(), [datagram(2)]);
}

#[test]
fn a_connection_that_outlives_its_assistance_is_plain() {
    let (world, mut gateway) = World::assisted();
    let sent: Vec<_> =
        (0..4).map(|number| gateway.forward(&datagram(number), &world.host)).collect();
    world.arrive(&sent[0]);
    assert!(world.arrive(&sent[2]).is_empty());
    world.path.close();
    assert_eq!(world.released(), [datagram(2)], "nothing waits when nobody repairs");
    // The gateway numbers until it has heard the goodbye.
    assert_eq!(world.arrive(&sent[3]), [datagram(3)]);
    assert_eq!(world.path.stats().0.sessions, 1, "its figures stay");
}

#[test]
fn a_panic_in_the_shim_ends_assistance_and_nothing_else() {
    let (world, mut gateway) = World::assisted();
    let sent: Vec<_> =
        (0..5).map(|number| gateway.forward(&datagram(number), &world.host)).collect();
    world.arrive(&sent[0]);
    assert!(world.arrive(&sent[2]).is_empty() && world.arrive(&sent[3]).is_empty());
    let received = world.path.stats().0.datagrams;
    world.path.fail_at(1);
    assert_eq!(world.arrive(&sent[4]), [4, 2, 3].map(datagram), "what waited is passed on");
    assert_eq!(world.path.health(), Health::Failed);
    assert_eq!(world.arrive(&sent[1]), [datagram(1)], "numbers come off without a shim");
    assert_eq!(world.path.stats().0.datagrams, received, "what it had counted stays");
    assert_eq!(world.path.step(), Step::Ended, "the driver has nothing left to do");
    assert!(!world.path.is_usable(), "the next connection gets a shim of its own");
}

#[test]
fn no_datagram_bears_the_old_paths_session_id_after_a_move() {
    let (world, mut gateway) = World::assisted();
    let gateway = &mut gateway;
    let first = world.name(gateway, 0);
    world.host.pass(Duration::from_secs(1));
    assert_eq!(world.name(gateway, 1), first, "nothing has changed");
    // For a while there is no route, and then the same one again.
    *world.host.source.lock().unwrap() = None;
    world.host.pass(Duration::from_secs(1));
    assert_eq!(world.name(gateway, 2), first);
    *world.host.source.lock().unwrap() = Some([192, 0, 2, 1].into());
    world.host.pass(Duration::from_secs(1));
    assert_eq!(world.name(gateway, 3), first);

    *world.host.source.lock().unwrap() = Some([198, 51, 100, 7].into());
    world.host.pass(SourceAddress::INTERVAL);
    let second = world.name(gateway, 4);
    assert_ne!(second, first);
    assert_eq!(world.name(gateway, 5), second, "one change, one name");

    // The application reports the change first; the host's answer is no further change.
    *world.host.source.lock().unwrap() = Some([203, 0, 113, 9].into());
    world.path.on_network_change();
    let third = world.host.sent().iter().filter_map(|datagram| session_of(datagram)).next_back();
    world.host.pass(SourceAddress::INTERVAL);
    let now = world.name(gateway, 6);
    assert_ne!(now, second);
    assert!(third.is_none_or(|third| third == now));
}

#[tokio::test]
async fn the_driver_is_woken_when_its_timer_is_too_late() {
    let (world, mut gateway) = World::assisted();
    world.path.step();
    let woken = || tokio::time::timeout(Duration::from_millis(50), world.path.wake.notified());
    let _ = woken().await;
    for number in 0..2 {
        world.arrive(&gateway.forward(&datagram(number), &world.host));
    }
    assert!(world.path.lock().armed.is_some(), "an eACK is due");
    woken().await.unwrap();
    world.arrive(&gateway.forward(&datagram(2), &world.host));
    assert!(woken().await.is_err(), "the timer is as it was");
}

/// The client makes its connection known to the next gateway at once, and again while no datagram
/// comes.
#[test]
fn the_next_gateway_is_informed_at_once_and_again_in_silence() {
    let (world, mut gateway) = World::assisted();
    world.arrive(&gateway.forward(&datagram(0), &world.host));
    for said in gateway.goodbye() {
        world.arrive(&said);
    }
    let mut reminders = 0;
    for _ in 0..100 {
        reminders += usize::from(world.path.step() == Step::Remind);
        world.host.pass(Duration::from_millis(20));
    }
    assert!((2..8).contains(&reminders), "{reminders} in 2 s");
}

#[test]
fn without_a_shim_the_path_passes_everything_on() {
    let world = World::new(false);
    let control = [&[packrat_wire::control::FIRST_BYTE][..], &packrat_wire::control::MAGIC, &[1]];
    assert_eq!(world.arrive(&control.concat()), [control.concat()]);
    assert_eq!(world.arrive(&datagram(4)), [datagram(4)]);
    assert_eq!(world.path.health(), Health::Off);
    assert_eq!(world.path.stats().2.base_received, 2);
}

#[test]
fn a_late_token_is_shown_at_once_to_a_gateway_that_demanded_one() {
    use packrat_client::{AssistState, RefusalReason};
    use packrat_wire::control::{Control, PROTOCOL_VERSION};
    let world = World::new(true);
    let World { path, host, .. } = &world;
    path.step();
    let sent = host.sent();
    let Ok(Control::Discover { nonce, .. }) = Control::decode(&sent[0]) else { panic!("{sent:?}") };
    let mut refusal = Vec::new();
    Control::Refusal { nonce, reason: RefusalReason::Token, versions: &[1] }.encode(&mut refusal);
    assert!(world.arrive(&refusal).is_empty());
    assert_eq!(path.stats().0.state, AssistState::Refused);
    let Step::Until(Some(next)) = path.step() else { panic!("it asks again some time") };
    assert!(next > path.host().now() + Duration::from_secs(200));
    host.sent();

    let token = vec![0xab; 60];
    path.set_access(None, &Token::new(token.clone()).unwrap());
    // The driver does not have to be asked first.
    let sent = host.sent();
    let Ok(Control::Discover { nonce, .. }) = Control::decode(&sent[0]) else { panic!("{sent:?}") };
    let mut offer = Vec::new();
    Control::Offer { nonce, version: PROTOCOL_VERSION, cookie_time: 1, cookie: [2; 16] }
        .encode(&mut offer);
    world.arrive(&offer);
    path.step();
    let sent = host.sent();
    assert!(sent.iter().any(|said| match Control::decode(said) {
        Ok(Control::Init { noise, .. }) => noise.windows(token.len()).any(|window| window == token),
        _ => false,
    }));
}
