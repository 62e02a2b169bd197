//! A shim on a client's host, below its QUIC stack: the real one, in virtual time.

use super::oracle::{Shown, Told};
use crate::simulation::randomness::{self, Stream};
use packrat_client::{AssistStats, ClientConfig, Input, Released, Shim, Verdict, bears_mark};
use packrat_wire::estimate::Timestamp;
use s2n_quic::provider::io::testing::network::Packet;
use s2n_quic_core::inet::ExplicitCongestionNotification::{self, NotEct};
use s2n_quic_core::path::Tuple;
use std::collections::VecDeque;

/// A packet that leaves a shim; it takes the path of its receiver, or of its sender.
#[derive(Debug)]
pub(crate) enum Delivery {
    ToClient(Packet),
    ToGateway(Packet),
}

/// The shim of one client, which is not assisted itself.
#[derive(Debug)]
pub(crate) struct ShimNode {
    shim: Shim<(Tuple, ExplicitCongestionNotification)>,
    /// The client's way to its server, once the client has sent something.
    path: Option<Tuple>,
    /// The codepoint of the client's last packet.
    ecn: ExplicitCongestionNotification,
    ready: VecDeque<Packet>,
    shown: Shown,
}

impl ShimNode {
    pub(crate) fn new(config: ClientConfig, seed: u64, now: Timestamp) -> Self {
        let secret = randomness::bytes(&mut randomness::generator(seed, Stream::Assist));
        Self {
            shim: Shim::new(config, secret, now),
            path: None,
            ecn: NotEct,
            ready: VecDeque::new(),
            shown: Shown::default(),
        }
    }

    /// The client sends a packet. False: it leaves with others.
    pub(crate) fn send(&mut self, packet: &mut Packet, now: Timestamp) -> bool {
        (self.path, self.ecn) = (Some(packet.path), packet.ecn);
        if self.shim.bundle(&packet.payload, now) {
            return false;
        }
        if let Some(number) = self.shim.on_send(&packet.payload, now) {
            drop(packet.payload.splice(..0, number));
        }
        true
    }

    /// Processes a packet at the client's host, or the report of its fate.
    pub(crate) fn receive(&mut self, packet: Packet, told: Told, now: Timestamp) {
        match told {
            Told::Recovered if self.shim.waiting() == 0 => return,
            Told::Shown => self.shown.insert(&packet.payload),
            Told::Recovered | Told::Arrives => {}
        }
        let Packet { path, ecn, mut payload } = packet;
        match self.shim.on_datagram(&payload, (path, ecn), now) {
            Verdict::Now { skip, metadata: (path, ecn) } => {
                payload.drain(..skip);
                if self.shown.admits(&payload) {
                    self.ready.push_back(Packet { path, ecn, payload });
                }
            }
            Verdict::Later | Verdict::Never => {}
        }
        self.take_released();
    }

    fn take_released(&mut self) {
        let released = std::iter::from_fn(|| self.shim.poll_deliver())
            .filter(|released| self.shown.admits(&released.datagram));
        self.ready.extend(released.map(|Released { datagram, metadata: (path, ecn) }| Packet {
            path,
            ecn,
            payload: datagram,
        }));
    }

    /// The time at which [`Self::serve`] must be called.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        // No timer runs before the client knows its server.
        self.path.and(self.shim.next_timeout())
    }

    /// Takes the packets that are to be delivered and sent now.
    pub(crate) fn serve(&mut self, now: Timestamp, deliveries: &mut Vec<Delivery>) {
        let Some(path) = self.path else { return };
        if self.shim.next_timeout().is_some_and(|at| at <= now) {
            self.shim.handle(Input::Timeout, now);
            self.take_released();
        }
        deliveries.extend(self.ready.drain(..).map(Delivery::ToClient));
        while let Some(payload) = self.shim.poll_transmit(now) {
            let ecn = if bears_mark(&payload) { self.ecn } else { NotEct };
            deliveries.push(Delivery::ToGateway(Packet { path, ecn, payload }));
        }
    }

    /// The counters of the assistance.
    pub(crate) fn figures(&self) -> AssistStats {
        self.shim.assistance()
    }
}
