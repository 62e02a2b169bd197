//! One flow: a program's socket, and the shim for what comes back to it.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use packrat_client::{AssistStats, Released, Shim, ShimStats, Timestamp, Verdict};
use packrat_wire::control::is_control;
use packrat_wire::number::split;

use crate::statistics::{Condition, Counters};

/// Takes what leaves a flow.
pub trait Outlet<M> {
    /// A datagram for the program.
    fn deliver(&mut self, datagram: &[u8], metadata: M);
    /// A control datagram, for the upstream socket.
    fn transmit(&mut self, control: &[u8]);
}

/// Control datagrams sent at one go: a shim that never runs dry must not starve the others.
const TRANSMIT_BATCH: usize = 64;

/// A shim that is put away for good when it panics: the flow goes on as a plain one.
struct Guarded<M> {
    shim: Option<Box<Shim<M>>>,
    last: (AssistStats, ShimStats),
}

impl<M: Clone> Guarded<M> {
    fn call<R>(&mut self, call: impl FnOnce(&mut Shim<M>) -> R) -> Option<R> {
        let shim = self.shim.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| call(shim))) {
            Ok(result) => Some(result),
            Err(_) => {
                let broken = self.shim.take();
                // Its destructor may panic as well.
                let _ = catch_unwind(AssertUnwindSafe(move || drop(broken)));
                tracing::error!("assistance failed and is off for this flow, which goes on");
                None
            }
        }
    }

    fn stats(&mut self) -> (AssistStats, ShimStats) {
        if let Some(stats) = self.call(|shim| (shim.assistance(), shim.stats())) {
            self.last = stats;
        }
        self.last
    }
}

/// A flow of the table.
pub(crate) struct Flow<M> {
    pub(crate) service: usize,
    pub(crate) program: SocketAddr,
    guarded: Guarded<M>,
    counters: Counters,
    /// When a datagram passed last, in either direction.
    pub(crate) last_active: Timestamp,
    /// The deadline under which the table has it.
    pub(crate) armed: Option<Timestamp>,
}

impl<M: Clone> Flow<M> {
    pub(crate) fn new(service: usize, program: SocketAddr, shim: Shim<M>, now: Timestamp) -> Self {
        Self {
            service,
            program,
            guarded: Guarded { shim: Some(Box::new(shim)), last: Default::default() },
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
        let verdict = self.guarded.call(|shim| {
            let verdict = shim.on_datagram(datagram, metadata.clone(), now);
            // Nearly always nothing follows.
            (verdict, shim.poll_deliver())
        });
        let Some((verdict, mut next)) = verdict else {
            if let Some(base) = without_shim(datagram) {
                self.deliver(base, metadata, outlet);
            }
            return;
        };
        if let Verdict::Now { skip, metadata } = verdict {
            self.deliver(datagram.get(skip..).unwrap_or_default(), metadata, outlet);
        }
        while let Some(Released { datagram, metadata }) = next {
            self.deliver(&datagram, metadata, outlet);
            next = self.guarded.call(Shim::poll_deliver).flatten();
        }
    }

    fn deliver(&mut self, datagram: &[u8], metadata: M, outlet: &mut impl Outlet<M>) {
        self.counters.delivered_datagrams += 1;
        self.counters.delivered_bytes += datagram.len() as u64;
        outlet.deliver(datagram, metadata);
    }

    /// Lets go of what is ready.
    pub(crate) fn drain(&mut self, now: Timestamp, outlet: &mut impl Outlet<M>) {
        while let Some(Released { datagram, metadata }) =
            self.guarded.call(Shim::poll_deliver).flatten()
        {
            self.deliver(&datagram, metadata, outlet);
        }
        for _ in 0..TRANSMIT_BATCH {
            let control = self.guarded.call(|shim| shim.poll_transmit(now)).flatten();
            let Some(control) = control else { return };
            outlet.transmit(&control);
        }
    }

    /// Calls the shim, where there is one.
    pub(crate) fn with_shim(&mut self, call: impl FnOnce(&mut Shim<M>)) {
        self.guarded.call(call);
    }

    pub(crate) fn waiting_bytes(&mut self) -> usize {
        self.guarded.call(|shim| shim.waiting_bytes()).unwrap_or_default()
    }

    pub(crate) fn next_timeout(&mut self) -> Option<Timestamp> {
        self.guarded.call(|shim| shim.next_timeout()).flatten()
    }

    pub(crate) fn condition(&mut self) -> Condition {
        match self.guarded.stats() {
            _ if self.guarded.shim.is_none() => Condition::Failed,
            (assist, _) => assist.into(),
        }
    }

    pub(crate) fn counters(&mut self) -> Counters {
        let (assist, shim) = self.guarded.stats();
        self.counters.with(&assist, &shim)
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
        let mut flow = Flow::new(0, "127.0.0.1:9".parse().unwrap(), shim, now);
        flow.with_shim(|_| panic!("as the test wants it"));
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
