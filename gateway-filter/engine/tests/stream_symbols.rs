//! Symbols to a group: one repairs another loss at each receiver, old receivers have no
//! disadvantage, and each that can't use them still has repairs.

use packrat_client::Live;
use packrat_engine::{GatewayConfig, StreamConfig};

use crate::audience::{LIVE, Symbols, World};

/// A stream with this many members, who take symbols and lose a tenth.
fn world(seed: u64, members: usize) -> World {
    let config = StreamConfig {
        group_repairs_from: Some(3),
        cache_bytes: 256 * 1024,
        ..StreamConfig::default()
    };
    let mut world = World::new(seed, config, GatewayConfig::default());
    for _ in 0..members {
        join(&mut world, 0.1, true);
    }
    world
}

fn join(world: &mut World, loss: f64, symbols: bool) -> usize {
    let address = ([10, 0, world.members.len() as u8, 1], 1000).into();
    world.join_with(address, loss, Live { symbols, ..LIVE })
}

/// Packets that a member misses, from a while after its first one until a while ago.
fn missing(world: &World, member: usize) -> usize {
    let first = world.members[member].first.unwrap() + 200;
    world.missing_of(member, first..world.number - 500)
}

fn recovered(world: &World, member: usize) -> u64 {
    world.members[member].assist.stats().recovered_from_group
}

/// Each of them misses hardly a packet, as symbols recover more than these.
fn assert_recovered(world: &World, members: std::ops::Range<usize>, least: u64) {
    for member in members {
        assert!(missing(world, member) <= 2, "member {member} misses {}", missing(world, member));
        assert!(recovered(world, member) > least, "{}", recovered(world, member));
    }
}

#[test]
fn one_symbol_repairs_another_loss_at_each_receiver() {
    let mut world = world(11, 16);
    world.run(1000, false);
    world.run(3000, true);
    assert_recovered(&world, 0..16, 150);
    let sent = world.counters.stream_symbols + world.counters.stream_repairs;
    let per_packet = sent as f64 / world.number as f64;
    // Repairs to each, or to all who miss the same, were 1.6.
    assert!(per_packet < 0.4, "{} {:?}", per_packet, world.counters);
    assert_eq!(world.counters.stream_resets, 0);
}

#[test]
fn long_packets_have_two_halves() {
    let mut world = world(12, 6);
    world.length = 1200;
    world.run(500, false);
    world.run(2000, true);
    assert_recovered(&world, 0..6, 50);
}

#[test]
fn nothing_is_sent_where_nothing_is_lost_or_nobody_takes_it() {
    for (loss, symbols) in [(0.0, true), (0.1, false)] {
        let mut world = world(13, 0);
        for _ in 0..8 {
            join(&mut world, loss, symbols);
        }
        world.run(500, false);
        world.run(1500, true);
        assert_eq!(world.counters.stream_symbols, 0);
        assert!(
            (0..8).all(|member| missing(&world, member) <= 2 && recovered(&world, member) == 0)
        );
    }
}

#[test]
fn receivers_without_symbols_have_their_repairs() {
    let mut world = world(14, 0);
    for member in 0..16 {
        join(&mut world, 0.1, member % 4 != 0);
    }
    world.run(1000, false);
    for member in [1, 2] {
        world.members[member].symbols = Symbols::Lost;
        world.members[member + 4].symbols = Symbols::Forged;
    }
    world.run(2500, true);
    assert!(world.counters.stream_symbols > 150, "{:?}", world.counters);
    for member in 0..16 {
        assert!(
            missing(&world, member) <= 10,
            "member {member} misses {}",
            missing(&world, member)
        );
        let has_symbols = member % 4 != 0 && world.members[member].symbols == Symbols::Pass;
        assert_eq!(recovered(&world, member) > 0, has_symbols, "member {member}");
    }
}

#[test]
fn a_late_receiver_soon_uses_symbols_and_misses_nothing_before() {
    let mut world = world(15, 8);
    world.run(1000, false);
    world.run(1000, true);
    let late = join(&mut world, 0.1, true);
    world.run(2000, true);
    assert_recovered(&world, late..late + 1, 80);
}

#[test]
fn datagrams_out_of_order_are_recovered_all_the_same() {
    let mut world = world(16, 8);
    world.members.iter_mut().for_each(|member| member.jitter = 6);
    world.run(500, false);
    world.run(2000, true);
    assert_recovered(&world, 0..8, 80);
}

#[test]
fn the_loss_of_a_few_does_not_drive_the_rate_for_all() {
    let mut world = world(17, 0);
    for member in 0..24 {
        join(&mut world, if member < 2 { 0.4 } else { 0.05 }, true);
    }
    world.run(500, false);
    world.run(2000, true);
    let symbols = world.counters.stream_symbols as f64 / world.number as f64;
    assert!(symbols < 0.35, "{symbols}");
    assert!((2..24).all(|member| missing(&world, member) <= 2));
}
