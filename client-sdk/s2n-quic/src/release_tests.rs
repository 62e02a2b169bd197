//! Datagrams between a provider's queue and s2n-quic.

use super::*;
use crate::test_gateway::{SERVER_ADDRESS, TestGateway, TestHost, metadata, new_path};
use s2n_quic_core::inet::ExplicitCongestionNotification;
use s2n_quic_core::path::LocalAddress;
use std::time::Duration;

struct World {
    paths: Arc<Paths>,
    host: Arc<TestHost>,
    gateway: TestGateway,
}

fn server() -> SocketAddr {
    SERVER_ADDRESS.parse().unwrap()
}

impl World {
    fn new() -> Self {
        let paths = Arc::new(Paths::default());
        let (path, host) = new_path(true, paths.released.clone());
        let (path, _) = paths.join(server(), || path);
        let gateway = TestGateway::meet(&path, &host);
        Self { paths, host, gateway }
    }

    /// Datagrams that s2n-quic sees when a datagram arrives.
    fn arrive_with(&mut self, header: Metadata, mut datagram: Vec<u8>) -> Vec<(Metadata, Vec<u8>)> {
        let mut seen = Vec::new();
        arrive(&self.paths, header, &mut datagram, &mut |header, bytes| {
            seen.push((header, bytes.to_vec()));
        });
        seen
    }

    fn arrive(&mut self, datagram: Vec<u8>) -> Vec<Vec<u8>> {
        let seen = self.arrive_with(metadata(server()), datagram);
        seen.into_iter().map(|(_, bytes)| bytes).collect()
    }

    fn forward(&mut self, number: u8) -> Vec<u8> {
        self.gateway.forward(&packet(number), &self.host)
    }
}

fn packet(number: u8) -> Vec<u8> {
    [&[0x41][..], &[number; 60]].concat()
}

#[test]
fn only_control_datagrams_are_hidden_others_pass_unchanged() {
    let mut world = World::new();
    let mut control = vec![packrat_wire::control::FIRST_BYTE];
    control.extend_from_slice(&packrat_wire::control::MAGIC);
    control.extend_from_slice(&[1; 60]);
    assert!(world.arrive(control.clone()).is_empty());
    assert_eq!(world.arrive(packet(1)), [packet(1)]);
    // Datagrams from another address are unchanged; s2n-quic drops them by itself.
    let another = metadata(SocketAddr::new(server().ip(), 10));
    assert_eq!(world.arrive_with(another, control.clone()), [(another, control)]);
}

#[test]
fn waiting_datagrams_keep_their_addresses_and_ecn_codepoints() {
    let mut world = World::new();
    let sent: Vec<_> = (0..4).map(|number| world.forward(number)).collect();
    world.arrive(sent[0].clone());
    let header = |ecn, host: u8| {
        let mut header = Metadata { ecn, ..metadata(server()) };
        let local: SocketAddr = ([192, 0, 2, host], 4000).into();
        header.path.local_address = LocalAddress(local.into());
        header
    };
    let marked = header(ExplicitCongestionNotification::Ce, 7);
    let unmarked = header(ExplicitCongestionNotification::Ect1, 8);
    assert!(world.arrive_with(marked, sent[2].clone()).is_empty());
    assert!(world.arrive_with(unmarked, sent[3].clone()).is_empty());
    let seen = world.arrive_with(metadata(server()), sent[1].clone());
    let expected = [(metadata(server()), packet(1)), (marked, packet(2)), (unmarked, packet(3))];
    assert_eq!(seen, expected);
    let local = |header: &Metadata| header.path.local_address;
    assert!(seen.iter().zip(&expected).all(|(seen, other)| local(&seen.0) == local(&other.0)));
}

#[test]
fn forged_numbers_keep_nothing_back_and_replace_nothing() {
    let mut world = World::new();
    let sent: Vec<_> = (0..6).map(|number| world.forward(number)).collect();
    world.arrive(sent[0].clone());
    // A number in an unproven datagram: s2n-quic receives and drops it.
    let forged =
        |number: [u8; 3], fill: u8| [&sent[1][..5], &number, &[0x41], &[fill; 60]].concat();
    for attempt in 0..100u8 {
        let number = [attempt.wrapping_mul(37), attempt.wrapping_mul(91), attempt];
        let datagram = forged(number, 0xee ^ attempt);
        assert_eq!(world.arrive(datagram.clone()), [datagram[8..].to_vec()], "{attempt}");
    }
    for number in 1..5 {
        assert_eq!(world.arrive(sent[number as usize].clone()), [packet(number)], "it waits");
    }
    // The number of a datagram that has arrived, on another one.
    let repeated = [&sent[4][..8], &[0x41], &[0xdd; 60]].concat();
    assert_eq!(world.arrive(repeated.clone()), [repeated[8..].to_vec()]);
    assert_eq!(world.arrive(sent[5].clone()), [packet(5)]);
    assert_eq!(world.paths.get(server()).unwrap().stats().0.holes, 0);
}

#[test]
fn what_the_driver_has_released_comes_before_what_arrives() {
    let mut world = World::new();
    let sent: Vec<_> = (0..4).map(|number| world.forward(number)).collect();
    world.arrive(sent[0].clone());
    assert!(world.arrive(sent[2].clone()).is_empty());
    let path = world.paths.get(server()).unwrap();
    // A hold that ends late is extended once.
    for _ in 0..2 {
        world.host.pass(Duration::from_secs(2));
        path.step();
    }
    assert!(!world.paths.released.is_empty());
    assert_eq!(world.arrive(sent[3].clone()), [2, 3].map(packet));
}

#[test]
fn what_is_kept_back_outlives_the_assistance() {
    let mut world = World::new();
    let sent: Vec<_> = (0..3).map(|number| world.forward(number)).collect();
    world.arrive(sent[0].clone());
    assert!(world.arrive(sent[2].clone()).is_empty());
    let path = world.paths.get(server()).unwrap();
    world.paths.on_handle_dropped(&path);
    assert!(world.paths.get(server()).is_none());
    let mut seen = Vec::new();
    release::<Tuple>(&world.paths, &mut |_, bytes| seen.push(bytes.to_vec()));
    assert_eq!(seen, [packet(2)]);
}
