//! One flow: a program's socket, and the shim for what comes back to it.

use packrat_client::{GuardedShim, Health, Released, Shim, Timestamp, Verdict};
use packrat_wire::control::is_control;
use packrat_wire::number::split;

use crate::statistics::{Condition, Counters};
use crate::table::Peer;

/// Takes what leaves a flow.
pub trait Outlet<M> {
    /// A datagram for the program.
    fn deliver(&mut self, datagram: &[u8], metadata: M);
    /// A control datagram, for the upstream socket.
    fn transmit(&mut self, control: &[u8]);
}

/// A flow of the table.
pub(crate) struct Flow<M> {
    pub(crate) peer: Peer,
    guarded: GuardedShim<M>,
    counters: Counters,
    /// When a datagram passed last, in either direction.
    pub(crate) last_active: Timestamp,
    /// The deadline under which the table has it.
    pub(crate) armed: Option<Timestamp>,
}

impl<M: Clone> Flow<M> {
    pub(crate) fn new(peer: Peer, shim: Shim<M>, now: Timestamp) -> Self {
        Self {
            peer,
            guarded: GuardedShim::new(Some(Box::new(shim))),
            counters: Counters::default(),
            last_active: now,
            armed: None,
        }
    }

    /// The program has sent so much.
    pub(crate) fn on_sent(&mut self, datagrams: u64, bytes: u64, now: Timestamp) {
        self.counters.sent_datagrams += datagrams;
        self.counters.sent_bytes += bytes;
        self.last_active = now;
    }

    /// A datagram from upstream.
    pub(crate) fn on_received(
        &mut self,
        datagram: &[u8],
        metadata: M,
        now: Timestamp,
        outlet: &mut impl Outlet<M>,
    ) {
        self.last_active = now;
        let (passed, metadata) = (metadata.clone(), metadata);
        let on_datagram = |shim: &mut Shim<M>| shim.on_datagram(datagram, passed, now);
        match self.guarded.call("on_datagram", on_datagram) {
            Some(Verdict::Now { skip, metadata }) => {
                self.deliver(datagram.get(skip..).unwrap_or_default(), metadata, outlet);
            }
            Some(Verdict::Later | Verdict::Never) => {}
            None => {
                if let Some(base) = without_shim(datagram) {
                    self.deliver(base, metadata, outlet);
                }
            }
        }
        self.deliver_released(outlet);
    }

    fn deliver_released(&mut self, outlet: &mut impl Outlet<M>) {
        while let Some(Released { datagram, metadata }) = self.guarded.poll_deliver() {
            self.deliver(&datagram, metadata, outlet);
        }
    }

    fn deliver(&mut self, datagram: &[u8], metadata: M, outlet: &mut impl Outlet<M>) {
        self.counters.delivered_datagrams += 1;
        self.counters.delivered_bytes += datagram.len() as u64;
        outlet.deliver(datagram, metadata);
    }

    /// Lets go of what is ready.
    pub(crate) fn drain(&mut self, now: Timestamp, outlet: &mut impl Outlet<M>) {
        self.deliver_released(outlet);
        self.guarded.transmit(now, |control| outlet.transmit(&control));
    }

    /// Calls the shim, where there is one. `what`: the call, for the log.
    pub(crate) fn with_shim(&mut self, what: &'static str, call: impl FnOnce(&mut Shim<M>)) {
        self.guarded.call(what, call);
    }

    pub(crate) fn waiting_bytes(&mut self) -> usize {
        self.guarded.call("waiting_bytes", |shim| shim.waiting_bytes()).unwrap_or_default()
    }

    pub(crate) fn next_timeout(&mut self) -> Option<Timestamp> {
        self.guarded.next_timeout()
    }

    pub(crate) fn condition(&mut self) -> Condition {
        let (assist, _) = self.guarded.stats();
        if self.guarded.health() == Health::Failed { Condition::Failed } else { assist.into() }
    }

    pub(crate) fn counters(&mut self) -> Counters {
        let (assist, shim) = self.guarded.stats();
        self.counters.with(&assist, &shim)
    }

    /// Bytes that have passed, in both directions.
    pub(crate) fn carried_bytes(&self) -> u64 {
        self.counters.delivered_bytes + self.counters.sent_bytes
    }

    pub(crate) fn round_trip(&mut self) -> Option<std::time::Duration> {
        self.guarded.stats().0.round_trip
    }
}

/// The part of a datagram that is the program's where the shim has failed; `None`: all of it is the
/// gateway's.
fn without_shim(datagram: &[u8]) -> Option<&[u8]> {
    match split(datagram) {
        Some((_, base)) => Some(base),
        None if is_control(datagram) => None,
        None => Some(datagram),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_client::ClientConfig;
    use packrat_wire::number::NumberKey;

    #[derive(Default)]
    struct Taken(Vec<Vec<u8>>);

    impl Outlet<()> for Taken {
        fn deliver(&mut self, datagram: &[u8], (): ()) {
            self.0.push(datagram.to_vec());
        }

        fn transmit(&mut self, _: &[u8]) {}
    }

    #[test]
    fn a_flow_whose_shim_has_failed_still_gets_its_datagrams_without_the_numbers() {
        let now = Timestamp::from_millis(1000);
        let shim = Shim::new(ClientConfig::default(), [1; 32], now);
        let peer = Peer { service: 0, program: "127.0.0.1:9".parse().unwrap(), through: None };
        let mut flow = Flow::new(peer, shim, now);
        flow.with_shim("test", |_| panic!("as the test wants it"));
        assert_eq!(flow.condition(), Condition::Failed);
        let identifier = packrat_eack::Identifier::from_hash(7);
        let header = NumberKey::new([1, 2]).header(5, identifier);
        let numbered = [&header[..], b"numbered"].concat();
        let mut taken = Taken::default();
        for datagram in [&b"plain"[..], &numbered, b"\x0bPkr\x15 a message of the gateway's"] {
            flow.on_received(datagram, (), now, &mut taken);
        }
        assert_eq!(taken.0, [b"plain".to_vec(), b"numbered".to_vec()]);
        assert_eq!(flow.next_timeout(), None);
    }
}
