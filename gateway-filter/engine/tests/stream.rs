//! One stream, many receivers: repairs for each, little memory, and no receiver that harms the
//! others.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use packrat_client::{Assist, AssistState, ClientConfig, PacketNumber};
use packrat_engine::{Gateway, GatewayConfig, Stream, StreamConfig, Target};
use rand_chacha::rand_core::RngCore;

use crate::audience::{LIVE, World, packet};

/// A stream and a gateway with the default configuration.
fn plain() -> World {
    world(StreamConfig::default(), GatewayConfig::default())
}

fn world(config: StreamConfig, limits: GatewayConfig) -> World {
    World::new(7, config, limits)
}

fn address(number: u16) -> SocketAddr {
    ([192, 0, 2, 1], 1000 + number).into()
}

/// A host of its own.
fn host(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    ([10, high, low, 1], 1000).into()
}

#[test]
fn every_subscriber_gets_its_own_repairs_from_one_cache() {
    let mut world = plain();
    for number in 0..16 {
        world.join(address(number), 0.1);
    }
    world.run(300, false);
    world.run(3000, true);
    let gauges = world.stream.gauges();
    assert_eq!(gauges.stream_subscribers, 16);
    assert!(gauges.stream_cache_bytes <= 64 * 1024);
    let outstanding = gauges.stream_outstanding;
    assert!(
        gauges.stream_state_bytes <= 16 * (352 + 24 + 4 * 24) + outstanding * 2 * 24,
        "{gauges:?}"
    );
    for member in 0..16 {
        assert!(world.members[member].lost > 250);
        assert!(world.missing(member) <= 3, "member {member} misses {}", world.missing(member));
    }
    assert_eq!((world.counters.stream_resets, world.counters.stream_foreign), (0, 0));
    assert!(
        world.counters.stream_eacks_failed * 100 < world.counters.stream_eacks,
        "{:?}",
        world.counters
    );
    assert_eq!(world.counters.stream_group_repairs, 0);
}

#[test]
fn members_come_late_go_and_vanish() {
    let config = StreamConfig { silence: Duration::from_secs(8), ..StreamConfig::default() };
    let mut world = world(config, GatewayConfig::default());
    let early = world.join(address(0), 0.05);
    world.run(200, false);
    world.run(1000, true);
    let late = world.join(address(1), 0.05);
    world.run(1000, true);
    assert!(world.members[late].first.is_some_and(|first| first >= 1000));
    assert!(world.missing(early) <= 1 && world.missing(late) <= 1);
    // One says goodbye, the other one's host is switched off.
    world.members[late].loss = 0.0;
    let now = world.now;
    world.members[late].assist.close(now);
    world.run(50, true);
    assert_eq!(world.stream.gauges().stream_subscribers, 1);
    world.members[early].loss = 1.1;
    world.run(9_500, true);
    assert_eq!(world.stream.gauges().stream_subscribers, 0);
    assert_eq!(world.counters.subscriptions_ended, 2);
}

#[test]
fn what_a_member_will_never_get_is_not_kept_for_it() {
    let mut world = plain();
    world.run(500, true);
    let mut members: Vec<usize> = (1..=8).map(|number| world.join(address(number), 0.1)).collect();
    world.run(3_000, true);
    // Two receive no packets for longer than the cache remembers: hundreds of packets are given up.
    for member in &members[..2] {
        world.members[*member].loss = 1.0;
    }
    world.run(800, true);
    for member in &members[..2] {
        world.members[*member].loss = 0.1;
    }
    world.run(20_000, true);
    for member in &members {
        world.members[*member].loss = 0.0;
    }
    world.run(12_000, true);
    let gauges = world.stream.gauges();
    assert_eq!((gauges.stream_subscribers, gauges.stream_outstanding), (8, 0));
    // No memory for packets from before their subscription, nor for packets lost for good.
    assert!(gauges.stream_state_bytes <= 8 * 256, "{gauges:?}");
    assert_eq!(world.members[members.pop().unwrap()].duplicates, 0);
    for member in members.split_off(2) {
        assert_eq!(world.missing(member), 0, "member {member}");
    }
}

#[test]
fn one_repair_for_all_when_several_miss_the_same_packet() {
    let config = StreamConfig { group_repairs_from: Some(2), ..StreamConfig::default() };
    let mut world = world(config, GatewayConfig::default());
    for number in 0..40 {
        world.join(host(number), 0.1);
    }
    world.run(300, false);
    world.run(1500, true);
    let counters = world.counters;
    assert!(counters.stream_group_repairs > 500, "{counters:?}");
    // Four miss a packet in the mean: the first gets its own, the second makes it the group's as
    // far as the group's budget allows.
    assert!(counters.stream_repairs < counters.stream_missing * 9 / 10, "{counters:?}");
    for member in 0..40 {
        assert!(world.missing(member) <= 3, "member {member} misses {}", world.missing(member));
    }
    assert_eq!(counters.stream_resets, 0);
}

#[test]
fn a_greedy_member_gets_its_share_and_the_others_theirs() {
    let mut world = plain();
    for number in 0..4 {
        world.join(address(number), 0.1);
    }
    let greedy = world.join(address(9), 0.0);
    world.run(300, false);
    world.run(500, true);
    let before = world.members[greedy].packets;
    // From now on it claims again and again to have no packet.
    world.members[greedy].honest = false;
    for _ in 0..400 {
        world.run(5, true);
        let now = world.now;
        world.members[greedy].assist.on_overdue(PacketNumber::new(u64::from(u16::MAX)), now);
    }
    for member in 0..4 {
        assert!(world.missing(member) <= 3, "member {member} misses {}", world.missing(member));
    }
    // The stream, a quarter of it, and the savings.
    let sent = world.members[greedy].packets - before;
    assert!(sent > 2200 && sent <= 2000 + 500 + 32 * 1024 / 240, "{sent} packets");
}

/// Group repairs of two seconds of a stream of 2000 packets, and all repairs' bytes, when
/// `claimers` claim again and again to miss all packets, beside 20 honest members.
fn claimed(claimers: impl Iterator<Item = SocketAddr>) -> (u64, u64) {
    let config = StreamConfig { group_repairs_from: Some(3), ..StreamConfig::default() };
    let mut world = world(config, GatewayConfig::default());
    for number in 0..20 {
        world.join(host(number), 0.02);
    }
    let greedy: Vec<usize> = claimers.map(|address| world.join(address, 0.0)).collect();
    world.run(300, false);
    world.run(500, true);
    let before = world.counters;
    for &index in &greedy {
        world.members[index].honest = false;
    }
    for _ in 0..400 {
        world.run(5, true);
        let now = world.now;
        for &index in &greedy {
            world.members[index].assist.on_overdue(PacketNumber::new(u64::from(u16::MAX)), now);
        }
    }
    for member in 0..20 {
        assert!(world.missing(member) <= 3, "member {member} misses {}", world.missing(member));
    }
    let group = world.counters.stream_group_repairs - before.stream_group_repairs;
    (group, world.counters.stream_repair_bytes - before.stream_repair_bytes)
}

#[test]
fn members_of_one_host_have_nothing_more_sent_to_the_group() {
    let (honest, _) = claimed(std::iter::empty());
    for members in [1, 4, 16, 64, 99] {
        let (group, bytes) = claimed((0..members).map(|number| address(100 + number)));
        println!(
            "{members} on one host: {group} repairs for the group, {honest} without; {bytes} bytes"
        );
        // They are one source: with two others that miss a packet they make a third.
        assert!(group <= honest + 60, "{members}: {group} repairs for the group, {honest} without");
        // A quarter of the stream each, and the savings; no more than 64 of them.
        let each = 2000 * 240 / 4 + 32 * 1024;
        assert!(bytes <= u64::from(members.min(64) + 20) * each, "{members}: {bytes} bytes");
    }
}

#[test]
fn many_hosts_cannot_exceed_the_groups_budget() {
    for (hosts, share) in [(4, 50), (64, 100)] {
        let (group, _) = claimed((0..hosts).map(|number| host(100 + number)));
        println!("{hosts} hosts: {group} repairs for the group");
        let allowed = 2000 * share / 100 + 2 * 32 * 1024 / 240;
        assert!(group > 100 && group <= allowed, "{hosts} hosts: {group} of {allowed}");
    }
}

#[test]
fn a_source_has_few_subscriptions_to_a_group() {
    for (group, expected) in [(Some(3), 64), (None, 90)] {
        let config = StreamConfig { group_repairs_from: group, ..StreamConfig::default() };
        let mut world = world(config, GatewayConfig::default());
        for number in 0..90 {
            world.join(address(number), 0.0);
        }
        world.join(host(5), 0.0);
        world.run(300, false);
        assert_eq!(world.stream.subscribers().count(), expected + 1);
        assert!(world.stream.subscribers().any(|address| address == host(5)));
    }
}

/// Subscribers to a group of at most 400: this many at each of these addresses.
fn subscribed(addresses: impl IntoIterator<Item = (Ipv6Addr, u16)>) -> World {
    let config = StreamConfig {
        group_repairs_from: Some(3),
        maximum_subscribers: 400,
        ..StreamConfig::default()
    };
    let limits =
        GatewayConfig { handshakes_per_second_per_source: 1000, ..GatewayConfig::default() };
    let mut world = world(config, limits);
    subscribe(&mut world, addresses);
    world
}

fn subscribe(world: &mut World, addresses: impl IntoIterator<Item = (Ipv6Addr, u16)>) {
    for (address, subscriptions) in addresses {
        for port in 0..subscriptions {
            world.join(SocketAddr::from((address, 5000 + port)), 0.0);
        }
    }
    world.run(300, false);
}

/// An address of 2001:db8:1::/48: this host of this link.
fn of_organisation(link: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, link, 0, 0, 0, host)
}

#[test]
fn a_lan_subscribes_and_each_host_has_few_subscriptions() {
    let lan = subscribed((0..150).map(|host| (of_organisation(7, host), 1)));
    assert_eq!(lan.stream.subscribers().count(), 150);
    let host = subscribed([(of_organisation(7, 1), 150)]);
    assert_eq!(host.stream.subscribers().count(), 64);
    // Beyond the source's subscriptions, each address has four.
    let hosts = subscribed(
        [(of_organisation(7, 1), 64)]
            .into_iter()
            .chain((2..12).map(|host| (of_organisation(7, host), 9))),
    );
    assert_eq!(hosts.stream.subscribers().count(), 64 + 10 * 4);
}

#[test]
fn a_network_takes_half_of_the_room_at_most() {
    let taken = |links: u16| {
        let of_attacker = (0..390).map(move |number| (of_organisation(number % links, number), 1));
        let of_others =
            (0..100).map(|number| (Ipv6Addr::new(0x2001, 0xdb8, 100 + number, 0, 0, 0, 0, 1), 1));
        let mut world = subscribed(of_attacker);
        subscribe(&mut world, of_others);
        let is_attacker = |address: &SocketAddr| match address.ip() {
            IpAddr::V6(address) => address.segments()[2] == 1,
            IpAddr::V4(_) => false,
        };
        let (attacker, others): (Vec<_>, Vec<_>) =
            world.stream.subscribers().partition(is_attacker);
        (attacker.len(), others.len())
    };
    for links in [1, 40, 390] {
        let (attacker, others) = taken(links);
        assert!((150..=200).contains(&attacker), "{links} links: {attacker}");
        assert_eq!(others, 100, "{links} links");
    }
}

#[test]
fn subscribers_decodes_are_limited_and_others_get_repairs() {
    let mut world = plain();
    for number in 0..4 {
        world.join(host(number), 0.05);
    }
    let claimers: Vec<usize> = (0..40).map(|number| world.join(address(number), 0.0)).collect();
    world.run(300, false);
    world.run(200, true);
    let mut invented = 1_000_000;
    for _ in 0..600 {
        let now = world.now;
        for &claimer in &claimers {
            for _ in 0..20 {
                invented += 1;
                let assist = &mut world.members[claimer].assist;
                assist.on_datagram(&packet(invented, 240), now);
                assist.on_authentic(now);
            }
            world.members[claimer].assist.on_overdue(PacketNumber::new(1_000_000 + invented), now);
        }
        world.run(5, true);
    }
    println!("{:?}", world.counters);
    assert!(world.counters.stream_foreign > 0 && world.counters.stream_eacks_limited > 0);
    for member in 0..4 {
        assert!(world.members[member].lost > 50);
        assert!(world.missing(member) <= 5, "member {member} misses {}", world.missing(member));
    }
}

#[test]
fn ten_thousand_joins_leave_room_for_others() {
    let limits = GatewayConfig {
        sessions_per_source: 50,
        handshakes_per_second_per_source: 20,
        ..GatewayConfig::default()
    };
    let config = StreamConfig { maximum_subscribers: 60, ..StreamConfig::default() };
    let mut world = world(config, limits);
    let member = world.join(([198, 51, 100, 1], 7).into(), 0.0);
    world.run(100, false);
    // One host, a handshake each from ever new ports, and from one and the same.
    for number in 0..10_000u16 {
        let from = if number % 2 == 0 { address(number % 30_000) } else { address(0) };
        world.join(from, 0.0);
        if number % 100 == 99 {
            world.run(70, true);
            world.members.truncate(1);
        }
    }
    let gauges = world.stream.gauges();
    assert!(gauges.stream_subscribers <= 51, "{gauges:?}");
    assert!(world.counters.subscriptions <= 200, "{:?}", world.counters);
    assert!(world.counters.subscriptions_refused > 0);
    assert_eq!(world.members[member].assist.stats().state, AssistState::Established);
    assert_eq!(world.missing(member), 0);
}

#[test]
fn identifiers_of_another_stream_get_nothing() {
    let mut world = plain();
    let honest = world.join(address(0), 0.1);
    let prober = world.join(address(1), 0.0);
    world.run(300, false);
    world.run(300, true);
    let now = world.now;
    for number in 0..20u64 {
        let mut foreign = packet(1_000_000 + number, 240);
        foreign[0] = 0x80;
        world.members[prober].assist.on_datagram(&foreign, now);
        world.members[prober].assist.on_authentic(now);
        world.members[prober].assist.on_overdue(PacketNumber::new(5000 + number), now);
        world.run(20, true);
    }
    assert!(world.counters.stream_foreign > 0);
    assert_eq!(world.members[prober].duplicates, 0, "it was sent something that it had");
    assert!(world.missing(honest) <= 1);
}

#[test]
fn a_message_from_another_address_does_nothing_to_its_owner() {
    let mut world = plain();
    let member = world.join(address(0), 0.0);
    world.run(300, false);
    world.run(100, true);
    let now = world.now;
    world.members[member].assist.on_overdue(PacketNumber::new(500), now);
    let sealed = world.members[member].assist.poll_transmit(now).unwrap();
    let other: SocketAddr = ([203, 0, 113, 9], 9).into();
    world.stream.receive(&sealed, other, || [0; 32], now, &mut world.out);
    let answers: Vec<(Target, usize)> =
        world.out.datagrams().map(|(target, bytes)| (target, bytes.len())).collect();
    assert!(
        matches!(answers[..], [(Target::One(to), length)] if to == other && length <= sealed.len())
    );
    // Garbage that names the session, from the right address: dropped as well.
    let mut bent = sealed.clone();
    let last = bent.len() - 1;
    bent[last] ^= 1;
    world.out.clear();
    world.stream.receive(&bent, address(0), || [0; 32], now, &mut world.out);
    assert_eq!(world.out.datagrams().count(), 0);
    assert_eq!(world.stream.gauges().stream_subscribers, 1);
    world.members[member].loss = 0.2;
    world.run(1000, true);
    assert!(world.missing(member) <= 3);
}

#[test]
fn a_member_whose_address_changes_is_challenged_and_stays() {
    let mut world = plain();
    let member = world.join(address(0), 0.1);
    let other = world.join(address(1), 0.1);
    world.run(300, false);
    world.run(500, true);
    let session = world.counters.subscriptions;
    // Its NAT gives it another port, and then its network another address.
    for next in [address(77), ([203, 0, 113, 5], 4000).into()] {
        world.members[member].address = next;
        world.run(700, true);
        assert!(world.stream.subscribers().any(|address| address == next));
        assert_eq!(world.stream.subscribers().count(), 2);
    }
    assert_eq!(world.counters.subscriptions, session, "it did not have to subscribe anew");
    assert_eq!(world.counters.subscriptions_moved, 2);
    assert!(world.counters.subscriptions_challenged >= 2);
    // Packets sent to the old address are repaired from the cache, as far as it goes back.
    assert!(world.missing(member) < 400, "{} missing", world.missing(member));
    assert!(world.missing(other) <= 3);
    world.run(2000, true);
    let missing = world.missing_of(member, world.number - 1500..world.number - 200);
    assert!(missing <= 3, "{missing} missing after the moves");
}

#[test]
fn a_challenge_is_for_one_address_and_shorter() {
    let mut world = plain();
    let member = world.join(address(0), 0.0);
    world.run(300, false);
    world.run(100, true);
    // An attacker on the path copies a message and sends it from addresses of others before it
    // arrives itself.
    let victim: SocketAddr = ([203, 0, 113, 9], 9).into();
    let (mut sent, mut answered) = (0, 0);
    for number in 0..200 {
        let now = world.now;
        world.members[member].assist.on_overdue(PacketNumber::new(10_000 + number), now);
        while let Some(sealed) = world.members[member].assist.poll_transmit(now) {
            sent += sealed.len();
            world.stream.receive(&sealed, victim, || [4; 32], now, &mut world.out);
            answered += world.out.datagrams().map(|(_, bytes)| bytes.len()).sum::<usize>();
            world.out.clear();
        }
        world.run(5, true);
    }
    assert!(sent > 1000 && answered > 0 && answered < sent, "{answered} bytes for {sent}");
    assert_eq!(world.stream.subscribers().collect::<Vec<_>>(), [address(0)]);
    assert_eq!(world.counters.subscriptions_moved, 0);
}

#[test]
fn a_stream_asks_for_tokens_as_its_gateway_does() {
    use packrat_engine::assist_token::{Claims, Key, Keys, RouteHash};
    use packrat_engine::{TokenAdmission, TokenCheck};
    let key = |id: u8| Key::from_text(&format!("{id}:{}", "ab".repeat(32))).unwrap();
    let check = TokenCheck {
        keys: Keys { current: key(1), previous: None },
        route: RouteHash::of("video"),
    };
    let token = |expires, route: &str| {
        key(1).issue(&Claims { expires, route: RouteHash::of(route), binding: None, nonce: 1 })
    };
    let now = 2_000_000_000;
    for (policy, given, expected) in [
        (TokenAdmission::Off, Vec::new(), true),
        (TokenAdmission::Optional(check.clone()), Vec::new(), true),
        (TokenAdmission::Optional(check.clone()), token(now - 600, "video"), false),
        (TokenAdmission::Required(check.clone()), Vec::new(), false),
        (TokenAdmission::Required(check.clone()), token(now - 600, "video"), false),
        (TokenAdmission::Required(check.clone()), token(now + 500, "other"), false),
        (TokenAdmission::Required(check.clone()), token(now + 500, "video"), true),
    ] {
        let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
        gateway.set_tokens(policy.clone());
        gateway.set_unix_origin(Duration::from_secs(now));
        let mut world = plain();
        world.stream = Stream::new(gateway, StreamConfig::default(), [3; 32]);
        world.token = given;
        let member = world.join(address(0), 0.0);
        world.run(500, true);
        let subscribed = world.stream.subscribers().count() == 1;
        assert_eq!(subscribed, expected, "{policy:?}");
        assert_eq!(world.members[member].first.is_some(), expected, "{policy:?}");
    }
}

#[test]
fn another_configuration_costs_nobody_the_subscription() {
    let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
    let mut world = plain();
    world.stream = Stream::new(std::sync::Arc::clone(&gateway), StreamConfig::default(), [3; 32]);
    let members = [world.join(address(0), 0.1), world.join(address(1), 0.1)];
    world.run(300, false);
    world.run(500, true);
    assert_eq!(gateway.sessions(), 2);
    let limits = GatewayConfig { repair_budget: 0.5, ..GatewayConfig::default() };
    gateway.reconfigure(limits);
    let config =
        StreamConfig { maximum_subscribers: 2, cache_bytes: 32_768, ..StreamConfig::default() };
    world.stream.reconfigure(config);
    assert!(world.stream.gauges().stream_cache_bytes <= 32_768);
    let third = world.join(address(2), 0.0);
    world.run(1000, true);
    assert!(members.iter().all(|member| world.missing(*member) <= 3));
    assert!(world.members[third].first.is_none(), "there is no room for a third");
    world.stream.close(packrat_wire::message::GoodbyeReason::Idle, &mut world.out);
    assert_eq!(world.out.datagrams().count(), 2);
    assert_eq!((world.stream.subscribers().count(), gateway.sessions()), (0, 0));
}

#[test]
fn a_fault_costs_no_subscription_and_no_place() {
    let limits = GatewayConfig { maximum_sessions: 3, ..GatewayConfig::default() };
    let mut world = world(StreamConfig::default(), limits);
    let member = world.join(address(0), 0.0);
    world.join(address(1), 0.0);
    world.run(300, true);
    // The randomness of a challenge is asked for in the middle of a subscriber's message.
    let now = world.now;
    world.members[member].assist.on_overdue(PacketNumber::new(10_000), now);
    let sealed = world.members[member].assist.poll_transmit(now).unwrap();
    let World { stream, out, .. } = &mut world;
    let fault = || -> [u8; 32] { panic!("deliberate, in a test") };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stream.receive(&sealed, address(77), fault, now, out)
    }));
    assert!(result.is_err());
    world.out.clear();
    assert_eq!(world.stream.subscribers().count(), 2);
    world.members.iter_mut().for_each(|member| member.loss = 0.1);
    world.run(1000, true);
    assert!(world.missing(0) <= 3 && world.missing(1) <= 3);
    // A subscriber that leaves makes room, once.
    world.join(address(2), 0.0);
    world.run(300, true);
    assert_eq!(world.stream.subscribers().count(), 3);
}

#[test]
fn random_datagrams_harm_nobody() {
    let mut world = plain();
    let member = world.join(address(0), 0.05);
    world.run(200, false);
    for _ in 0..2000 {
        let mut bytes = vec![0; 5 + (world.random.next_u32() % 300) as usize];
        world.random.fill_bytes(&mut bytes);
        bytes[..4].copy_from_slice(&[packrat_wire::control::FIRST_BYTE, b'P', b'k', b'r']);
        world.receive(address(0), &bytes);
        world.run(1, true);
    }
    assert!(world.missing(member) <= 2);
}

#[test]
fn an_address_subscribes_only_with_its_cookie() {
    let mut world = plain();
    let victim: SocketAddr = "192.0.2.99:4000".parse().unwrap();
    let config = ClientConfig::default().with_live(LIVE);
    // The first question has everything that a gateway with few handshakes needs for a session,
    // except a proof of the address.
    let discover = Assist::new(config, [9; 32], world.now).poll_transmit(world.now).unwrap();
    for _ in 0..10 {
        world.stream.receive(&discover, victim, || [5; 32], world.now, &mut world.out);
    }
    let answered: usize = world.out.datagrams().map(|(_, bytes)| bytes.len()).sum();
    assert!(answered > 0 && answered <= 10 * discover.len(), "{answered} bytes");
    assert_eq!(world.stream.subscribers().count(), 0);
}
