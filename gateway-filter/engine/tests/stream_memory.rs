//! Memory of a thousand subscribers of a stream, counted by the allocator: everything that the
//! engine keeps because of them.
use std::time::Duration;

use packrat_client::{Assist, AssistState, ClientConfig, Datagram, Live, PacketNumber};
use packrat_engine::{Gateway, GatewayConfig, Stream, StreamConfig, StreamOutbox};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;

use crate::allocator::Since;
use crate::audience::LIVE;

const SUBSCRIBERS: u16 = 1000;
const PACKETS: u64 = 100;
/// Packets before the first subscriber.
const BEFORE: u64 = 45;

fn packet(number: u64) -> Vec<u8> {
    let mut bytes = vec![0x80; 200];
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes[184..192].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[192..200].copy_from_slice(&number.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).to_be_bytes());
    bytes
}

fn stream() -> Stream {
    let limits = GatewayConfig {
        handshakes_per_second_per_source: u32::MAX,
        sessions_per_source: u32::MAX,
        ..GatewayConfig::default()
    };
    Stream::new(Gateway::new(limits, [1; 32], [2; 32]), StreamConfig::default(), [3; 32])
}

/// Runs a stream with this many subscribers, each of which misses a packet, and has it repaired;
/// returns the bytes that are freed when it ends, at once or when the gateway knows that the
/// repairs have arrived.
fn bytes(subscribers: u16, settled: bool) -> usize {
    let live = Live { window: Duration::from_secs(1), ..LIVE };
    let scheme = IdentifierScheme::Payload;
    let mut now = Timestamp::from_millis(1000);
    let mut stream = stream();
    let mut out = StreamOutbox::new();
    let mut clients: Vec<Assist> = (0..subscribers)
        .map(|number| {
            let mut seed = [7; 32];
            seed[..2].copy_from_slice(&number.to_be_bytes());
            Assist::new(ClientConfig::default().with_live(live).with_scheme(scheme), seed, now)
        })
        .collect();
    let mut turn = |clients: &mut Vec<Assist>, stream: &mut Stream, now: Timestamp| {
        for (number, client) in (0..).zip(&mut *clients) {
            // All come at once, but not from one network.
            let address = ([192, 0, (number % 10) as u8, 1], 1000 + number).into();
            // Each a moment after the one before: a thread has only so much time for all of them.
            let now = now + Duration::from_micros(50) * u32::from(number);
            client.handle_timeout(now);
            while let Some(datagram) = client.poll_transmit(now) {
                let mut seed = [9; 32];
                seed[..8].copy_from_slice(&now.as_micros().to_be_bytes());
                seed[8..10].copy_from_slice(&u16::to_be_bytes(number));
                stream.receive(&datagram, address, || seed, now, &mut out);
                for (_, answer) in out.datagrams() {
                    if client.on_datagram(answer, now) == Datagram::Base {
                        let packet = u64::from_be_bytes(answer[1..9].try_into().unwrap());
                        client.on_packet_number(PacketNumber::new(packet), now);
                    }
                }
                out.clear();
            }
        }
    };
    // They come late, so that there is something from before them that they will never get.
    for number in 0..BEFORE {
        stream.forward(&packet(u64::MAX - number), now);
    }
    // Subscribers for whom there is no time at once ask again.
    for _ in 0..40 {
        turn(&mut clients, &mut stream, now);
        now = now + Duration::from_millis(55);
    }
    for number in 0..PACKETS {
        now = now + Duration::from_millis(20);
        stream.forward(&packet(number), now);
        for (index, client) in (0..).zip(&mut clients) {
            if number != 10 + index % 50 {
                client.on_datagram(&packet(number), now);
                client.on_packet_number(PacketNumber::new(number), now);
            }
        }
        turn(&mut clients, &mut stream, now);
    }
    if settled {
        // They report now and then that all is well.
        now = now + Duration::from_secs(6);
        turn(&mut clients, &mut stream, now);
    }
    assert!(clients.iter().all(|client| client.stats().state == AssistState::Established));
    assert_eq!(stream.take_counters().stream_repairs, u64::from(subscribers));
    let gauges = stream.gauges();
    assert_eq!(gauges.stream_subscribers, u64::from(subscribers));
    assert_eq!(gauges.stream_outstanding, if settled { 0 } else { u64::from(subscribers) });
    println!("{subscribers} subscribers, {gauges:?}");
    let region = Since::now();
    drop(stream);
    region.freed_bytes()
}

#[test]
fn a_subscriber_costs_less_than_256_bytes_with_its_keys() {
    let each =
        |settled| (bytes(SUBSCRIBERS, settled) - bytes(0, settled)) / usize::from(SUBSCRIBERS);
    let (one_under_repair, nothing_under_repair) = (each(false), each(true));
    println!("{nothing_under_repair} bytes each, {one_under_repair} with a packet under repair");
    assert!(nothing_under_repair <= 256, "{nothing_under_repair} bytes each");
    // A vector of its own, with room for two.
    assert!(one_under_repair - nothing_under_repair <= 80, "{one_under_repair} bytes each");
}
