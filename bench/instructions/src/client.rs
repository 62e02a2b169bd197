//! A client's shim with the real engine as its gateway, without sockets: what the SDK takes for each
//! datagram that it receives.

use std::error::Error;
use std::time::Duration;

use packrat_client::{AssistState, ClientConfig, Input, Shim};
use packrat_engine::{Flow, Outbox, Received};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::scene::{gateway, peer};

/// Datagrams that arrive together.
pub const PER_TURN: usize = 16;

/// A client that receives.
#[derive(Debug)]
pub struct Receiver {
    flow: Flow,
    shim: Shim<()>,
    random: ChaCha8Rng,
    now: Timestamp,
    spacing: Duration,
    number: u64,
    loss: f64,
    bytes: usize,
    out: Outbox,
    messages: Vec<Vec<u8>>,
    /// Times at which the client's timers have been due.
    wakeups: u64,
}

impl Receiver {
    /// A client after the handshake; datagrams are of `bytes` bytes and `spacing` apart, and the
    /// last mile loses a share `loss`.
    pub fn new(bytes: usize, loss: f64, spacing: Duration) -> Result<Self, Box<dyn Error>> {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut seed = || {
            let mut seed = [0; 32];
            random.fill_bytes(&mut seed);
            seed
        };
        let gateway = gateway(1 << 20);
        let now = Timestamp::from_millis(1000);
        let mut flow = Flow::new(gateway.clone());
        let mut shim = Shim::new(ClientConfig::default(), seed(), now);
        let mut out = Outbox::new();
        for _ in 0..6 {
            while let Some(question) = shim.poll_transmit(now) {
                match gateway.receive(&question, peer(1), now, &mut out) {
                    Received::Begin(begin) => {
                        flow.begin(begin, seed(), now, &mut out);
                    }
                    Received::ForFlow => flow.control(&question, now, &mut out),
                    Received::Done(_) => {}
                }
            }
            for answer in out.datagrams() {
                let _ = shim.on_datagram(answer, (), now);
            }
            out.clear();
        }
        if shim.assistance().state != AssistState::Established {
            return Err("the handshake of a client failed".into());
        }
        let messages = Vec::new();
        let (number, wakeups) = (0, 0);
        Ok(Self { flow, shim, random, now, spacing, number, loss, bytes, out, messages, wakeups })
    }

    /// The number of times that the client's timers have been due.
    pub fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// Runs a turn: sixteen datagrams, the client's messages about them, and the repairs.
    pub fn turn(&mut self) {
        let mut arrived = Vec::with_capacity(PER_TURN);
        for _ in 0..PER_TURN {
            self.now = self.now + self.spacing;
            let mut datagram = vec![0x40; self.bytes];
            datagram[1..9].copy_from_slice(&self.number.to_be_bytes());
            let tail = self.bytes - 16;
            self.random.fill_bytes(&mut datagram[tail..]);
            self.number += 1;
            if let Some(header) = self.flow.forward(&datagram, self.now) {
                datagram.splice(..0, header.iter().copied());
            }
            if f64::from(self.random.next_u32()) >= self.loss * f64::from(u32::MAX) {
                arrived.push((datagram, self.now));
            }
        }
        measured_receive(&mut self.shim, &arrived, &mut self.messages);
        self.answer();
    }

    /// Lets `time` pass without a datagram.
    pub fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = [self.shim.next_timeout(), self.flow.next_timeout()]
            .into_iter()
            .flatten()
            .min()
            .filter(|at| *at <= end)
        {
            self.now = self.now.max(at);
            if self.flow.next_timeout().is_some_and(|at| at <= self.now) {
                self.flow.handle_timeout(self.now, &mut self.out);
            }
            if self.shim.next_timeout().is_some_and(|at| at <= self.now) {
                self.wakeups += 1;
                self.shim.handle(Input::Timeout, self.now);
                self.messages.extend(std::iter::from_fn(|| self.shim.poll_transmit(self.now)));
            }
            self.answer();
        }
        self.now = end;
    }

    /// Exchanges messages of client and gateway, until neither has another one.
    fn answer(&mut self) {
        loop {
            for message in self.messages.drain(..) {
                self.flow.control(&message, self.now, &mut self.out);
            }
            let repairs: Vec<_> =
                self.out.datagrams().map(|datagram| (datagram.to_vec(), self.now)).collect();
            self.out.clear();
            if repairs.is_empty() {
                return;
            }
            measured_receive(&mut self.shim, &repairs, &mut self.messages);
        }
    }
}

/// All that a shell has the shim do for datagrams that have arrived.
#[inline(never)]
fn measured_receive(
    shim: &mut Shim<()>,
    arrived: &[(Vec<u8>, Timestamp)],
    messages: &mut Vec<Vec<u8>>,
) {
    for (datagram, now) in arrived {
        let _ = shim.on_datagram(datagram, (), *now);
        while shim.poll_deliver().is_some() {}
        if shim.next_timeout().is_some_and(|at| at <= *now) {
            shim.handle(Input::Timeout, *now);
            while shim.poll_deliver().is_some() {}
        }
        messages.extend(std::iter::from_fn(|| shim.poll_transmit(*now)));
    }
}

/// The workload whose instructions are counted: datagrams at 100 Mbit/s.
pub fn workload(bytes: usize, loss: f64, turns: usize) -> Result<(), Box<dyn Error>> {
    let spacing = Duration::from_nanos(bytes as u64 * 80);
    let mut receiver = Receiver::new(bytes, loss, spacing)?;
    (0..turns).for_each(|_| receiver.turn());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_last_mile_loses_is_repaired() -> Result<(), Box<dyn Error>> {
        let mut receiver = Receiver::new(1200, 0.04, Duration::from_micros(96))?;
        (0..500).for_each(|_| receiver.turn());
        receiver.wait(Duration::from_secs(1));
        let counters = receiver.flow.take_counters();
        assert_eq!(counters.datagrams_recorded, 8000);
        assert!(counters.repairs > 200 && counters.repairs_arrived > counters.repairs / 2);
        Ok(())
    }

    #[test]
    fn a_client_that_receives_nothing_sleeps() -> Result<(), Box<dyn Error>> {
        let mut receiver = Receiver::new(1200, 0.0, Duration::from_micros(96))?;
        (0..10).for_each(|_| receiver.turn());
        receiver.wait(Duration::from_secs(10));
        let before = receiver.wakeups();
        receiver.wait(Duration::from_secs(600));
        let wakeups = receiver.wakeups() - before;
        println!("{wakeups} wake-ups in ten minutes");
        assert!(wakeups <= 60, "{wakeups} wake-ups in ten minutes");
        Ok(())
    }
}
