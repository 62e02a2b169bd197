//! Reports of congestion on datagrams that are sent again, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use packrat_client::{ClientConfig, Shim, Timestamp};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox};
use packrat_wire::{is_control, number};

use crate::ends::{Turn, datagram, hear, next};

const DATAGRAMS: u64 = 3000;
const DELAY: Duration = Duration::from_millis(5);

#[derive(Debug)]
enum Event {
    Server(u64),
    ToClient(Vec<u8>),
    ToGateway(Vec<u8>),
}

/// A queue before the gateway marks each third datagram, and the last mile loses some of each kind.
fn is_marked(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// The number of a datagram of the server, with or without the gateway's number.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let base = number::split(bytes).map_or(bytes, |(_, base)| base);
    (!is_control(base)).then(|| u64::from_be_bytes(base[1..9].try_into().unwrap()))
}

#[test]
fn a_repair_bears_its_originals_report_of_congestion() {
    let mut now = Timestamp::from_millis(1000);
    let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
    let mut flow = Flow::new(Arc::clone(&gateway));
    flow.on_server_answered(Duration::from_millis(1));
    let mut shim = Shim::new(ClientConfig::default(), [9; 32], now);
    let mut schedule = Schedule::new();
    schedule.plan(now + Duration::from_millis(100), Event::Server(0));
    // Repairs of originals without and with a report.
    let mut repairs = [0, 0];
    while now < Timestamp::from_millis(5000) {
        while let Some(said) = shim.poll_transmit(now) {
            schedule.plan(now + DELAY, Event::ToGateway(said));
        }
        while shim.poll_deliver().is_some() {}
        let Some(turn) = next(&mut now, Some(&mut flow), &mut shim, &mut schedule) else { break };
        let mut out = Outbox::new();
        match turn {
            Turn::Flow(sent) => out = sent,
            Turn::Shim => {}
            Turn::Event(Event::Server(number)) => {
                let bytes = datagram(number, 1000);
                let front = flow.forward_marked(&bytes, is_marked(number), now);
                let front = front.as_ref().map_or(&[][..], |front| front);
                if number % 25 != 7 {
                    schedule.plan(now + DELAY, Event::ToClient([front, &bytes].concat()));
                }
                if number + 1 < DATAGRAMS {
                    schedule.plan(now + Duration::from_micros(800), Event::Server(number + 1));
                }
            }
            Turn::Event(Event::ToClient(bytes)) => drop(shim.on_datagram(&bytes, (), now)),
            Turn::Event(Event::ToGateway(said)) => {
                let from = "192.0.2.1:5000".parse().unwrap();
                hear(&gateway, &mut flow, &said, from, [5; 32], now, &mut out);
            }
        }
        for (position, bytes) in out.datagrams().enumerate() {
            let is_marked = number_of(bytes).is_some_and(is_marked);
            assert_eq!(out.is_congested(position), is_marked, "{:?}", number_of(bytes));
            repairs[usize::from(is_marked)] += u32::from(number_of(bytes).is_some());
            schedule.plan(now + DELAY, Event::ToClient(bytes.to_vec()));
        }
    }
    assert!(repairs[0] > 20 && repairs[1] > 10, "{repairs:?}");
}
