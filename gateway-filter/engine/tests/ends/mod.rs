//! A gateway's flow and a client's shim in virtual time: messages to the gateway, and whose turn it
//! is.
#![allow(dead_code)] // every test uses a part of it

use std::net::SocketAddr;

use packrat_client::{Input, Shim, Timestamp};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{Flow, Gateway, Outbox, Received};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A control datagram of the client at `from` reaches the gateway. A session that begins takes
/// `random`.
pub(crate) fn hear(
    gateway: &Gateway,
    flow: &mut Flow,
    said: &[u8],
    from: SocketAddr,
    random: [u8; 32],
    now: Timestamp,
    out: &mut Outbox,
) {
    match gateway.receive(said, from, now, out) {
        Received::Done(_) => {}
        Received::Begin(begin) => {
            flow.begin(begin, random, now, out);
        }
        Received::ForFlow => flow.control(said, now, out),
    }
}

/// A datagram that looks like one of QUIC, and contains its number.
pub(crate) fn datagram(number: u64, length: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut bytes = vec![0x40; length];
    random.fill_bytes(&mut bytes[1..]);
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The next occurrence in virtual time.
#[derive(Debug)]
pub(crate) enum Turn<E> {
    /// A timeout of the flow, with its outbox.
    Flow(Outbox),
    /// A timeout of the shim.
    Shim,
    /// A planned event.
    Event(E),
}

/// Goes on to the next occurrence; `None` if there will be no other. Timeouts come first at the
/// same time. `flow`: `None` when the gateway is gone.
pub(crate) fn next<M: Clone, E>(
    now: &mut Timestamp,
    flow: Option<&mut Flow>,
    shim: &mut Shim<M>,
    schedule: &mut Schedule<E>,
) -> Option<Turn<E>> {
    let of_flow = flow.as_ref().and_then(|flow| flow.next_timeout());
    let of_shim = shim.next_timeout();
    let at = [schedule.next_at(), of_flow, of_shim].into_iter().flatten().min()?;
    *now = at.max(*now);
    if let Some(flow) = flow.filter(|_| of_flow == Some(at)) {
        let mut out = Outbox::new();
        flow.handle_timeout(*now, &mut out);
        Some(Turn::Flow(out))
    } else if of_shim == Some(at) {
        shim.handle(Input::Timeout, *now);
        Some(Turn::Shim)
    } else {
        schedule.pop().map(|(_, event)| Turn::Event(event))
    }
}
