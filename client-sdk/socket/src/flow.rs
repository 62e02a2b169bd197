//! One flow: its address, and the shim for the datagrams that come back.

use packrat_client::{
    Condition, GuardedShim, Input, NumberHeader, Released, Shim, Timestamp, Verdict, bears_mark,
};

use crate::batch::{Mark, capable};
use crate::table::{FlowFigures, Peer};

/// The destination of a flow's datagrams.
pub trait Outlet<M> {
    /// A datagram for the program.
    fn deliver(&mut self, datagram: &[u8], metadata: M);
    /// A control datagram, to the peer from the socket that the flow has.
    fn transmit(&mut self, control: &[u8]);
    /// Sends a datagram of the program again, a repair or a copy, or several in a bundle. It bears
    /// the ECN mark of the program's last one, if the shell knows that mark: without one it would
    /// contradict the counts of the program's transport (RFC 9000, section 13.4.2.1).
    fn repeat(&mut self, datagram: &[u8], _: Mark) {
        self.transmit(datagram);
    }
}

/// Bytes of a flow, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes of the waiting datagrams.
    pub(crate) waiting: usize,
    /// Bytes of memory, including the record of past datagrams, and the copies kept for repeats.
    pub(crate) memory: usize,
}

/// A flow of the table.
pub(crate) struct Flow<M> {
    pub(crate) peer: Peer,
    pub(crate) shim: GuardedShim<M>,
    /// The ECN mark of the program's last datagram, but for a network's report of congestion.
    pub(crate) mark: Mark,
    /// Time of the last datagram, in either direction.
    pub(crate) last_active: Timestamp,
    /// Set if the flow's memory was returned since.
    pub(crate) is_trimmed: bool,
    /// Bytes that wait, and bytes that it takes with them, as the table has counted them.
    pub(crate) size: Size,
    /// The deadline under which the table has it.
    pub(crate) armed: Option<Timestamp>,
    /// The condition of the last event.
    reported: Option<Condition>,
}

impl<M: Clone> Flow<M> {
    pub(crate) fn new(peer: Peer, shim: Shim<M>, now: Timestamp) -> Self {
        let shim = GuardedShim::new(Some(Box::new(shim)));
        let size = Size::default();
        Self {
            peer,
            shim,
            mark: None,
            last_active: now,
            is_trimmed: false,
            size,
            armed: None,
            reported: None,
        }
    }

    /// Called when the program sends a datagram. Returns the number to put in front of it.
    pub(crate) fn on_send(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        self.shim.on_send(datagram, now)
    }

    /// Sets the ECN mark of the program's next datagrams: waiting ones leave with the mark that
    /// they were sent with.
    pub(crate) fn set_mark(&mut self, mark: Mark, now: Timestamp, outlet: &mut impl Outlet<M>) {
        let mark = capable(mark, self.mark);
        if mark != self.mark {
            self.shim.handle(Input::MarkChanges, now);
            self.drain(now, outlet);
            self.mark = mark;
        }
    }

    /// True if a datagram with this mark does not change the flow's.
    pub(crate) fn has_mark(&self, mark: Mark) -> bool {
        capable(mark, self.mark) == self.mark
    }

    /// Takes a datagram of the program's that leaves with others.
    pub(crate) fn bundle(&mut self, datagram: &[u8], now: Timestamp) -> bool {
        self.shim.bundle(datagram, now)
    }

    /// Counts datagrams and bytes that the program has sent.
    pub(crate) fn on_sent(&mut self, datagrams: u64, bytes: u64, now: Timestamp) {
        self.shim.on_sent(datagrams, bytes);
        (self.last_active, self.is_trimmed) = (now, false);
    }

    /// A datagram from upstream.
    pub(crate) fn on_received(
        &mut self,
        datagram: &[u8],
        metadata: M,
        now: Timestamp,
        outlet: &mut impl Outlet<M>,
    ) {
        (self.last_active, self.is_trimmed) = (now, false);
        let verdict = self.shim.on_datagram(datagram, metadata, now);
        if let Verdict::Now { skip, metadata } = verdict {
            outlet.deliver(datagram.get(skip..).unwrap_or_default(), metadata);
        }
        self.deliver_released(outlet);
    }

    fn deliver_released(&mut self, outlet: &mut impl Outlet<M>) {
        while let Some(Released { datagram, metadata }) = self.shim.poll_deliver() {
            outlet.deliver(&datagram, metadata);
        }
    }

    /// Releases the ready datagrams.
    pub(crate) fn drain(&mut self, now: Timestamp, outlet: &mut impl Outlet<M>) {
        self.deliver_released(outlet);
        let mark = self.mark;
        self.shim.transmit(now, |datagram| match bears_mark(&datagram) {
            true => outlet.repeat(&datagram, mark),
            false => outlet.transmit(&datagram),
        });
    }

    /// Reports a change of the condition: a session begins or ends, or the assistance falls back.
    pub(crate) fn report(&mut self) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let condition = self.shim.condition();
        if self.reported.replace(condition) != Some(condition) {
            let condition = condition.name();
            tracing::debug!(peer = %self.peer.address, condition, "a flow's condition has changed");
        }
    }

    /// Updates the flow's size, and its share in the size of all flows.
    pub(crate) fn count(&mut self, all: &mut Size) {
        let Self { shim, size: before, .. } = self;
        let size = Size { waiting: shim.waiting_bytes(), memory: shim.memory() };
        all.waiting = all.waiting - before.waiting + size.waiting;
        all.memory = all.memory - before.memory + size.memory;
        *before = size;
    }

    pub(crate) fn figures(&mut self, now: Timestamp) -> FlowFigures {
        FlowFigures {
            peer: self.peer,
            condition: self.shim.condition(),
            idle: now.saturating_since(self.last_active),
            round_trip: self.shim.stats().0.round_trip,
            counters: self.shim.counters(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_client::{ClientConfig, Condition, IdentifierScheme, LossClass, Remembered};
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
    fn a_flow_with_a_failed_shim_gets_datagrams_without_numbers() {
        let now = Timestamp::from_millis(1000);
        let shim = Shim::new(ClientConfig::default(), [1; 32], now);
        let peer = Peer { service: 0, address: "127.0.0.1:9".parse().unwrap(), through: None };
        let mut flow = Flow::new(peer, shim, now);
        let failed: Option<()> = flow.shim.call("test", |_| panic!("as the test wants it"));
        assert_eq!(failed, None);
        assert_eq!(flow.shim.condition(), Condition::Failed);
        let identifier = packrat_eack::Identifier::from_hash(7);
        let header = NumberKey::new([1, 2]).header(5, identifier);
        let numbered = [&header[..], b"numbered"].concat();
        let mut taken = Taken::default();
        for datagram in [&b"plain"[..], &numbered, b"\x0bPkr\x15 a message of the gateway's"] {
            flow.on_received(datagram, (), now, &mut taken);
        }
        assert_eq!(taken.0, [b"plain".to_vec(), b"numbered".to_vec()]);
        assert_eq!(flow.shim.next_timeout(), None);
    }

    #[derive(Default)]
    struct Sent {
        control: usize,
        again: Vec<Vec<u8>>,
    }

    impl Outlet<()> for Sent {
        fn deliver(&mut self, _: &[u8], (): ()) {}

        fn transmit(&mut self, _: &[u8]) {
            self.control += 1;
        }

        fn repeat(&mut self, datagram: &[u8], _: Mark) {
            self.again.push(datagram.to_vec());
        }
    }

    #[test]
    fn a_copy_of_the_programs_own_is_told_from_control() {
        let mut now = Timestamp::from_millis(1000);
        let config = ClientConfig::default().with_scheme(IdentifierScheme::Trailer);
        let mut shim = Shim::new(config, [1; 32], now);
        shim.remember(Remembered { loss: LossClass::FromThree, round_trip: None });
        let peer = Peer { service: 0, address: "127.0.0.1:9".parse().unwrap(), through: None };
        let (mut flow, mut sent) = (Flow::new(peer, shim, now), Sent::default());
        assert_eq!(flow.on_send(b"hello", now), None);
        for _ in 0..20 {
            flow.shim.handle(Input::Timeout, now);
            flow.drain(now, &mut sent);
            now = now + std::time::Duration::from_millis(1);
        }
        assert!(!sent.again.is_empty() && sent.again.iter().all(|again| again == b"hello"));
        assert!(sent.control > 0);
    }
}
