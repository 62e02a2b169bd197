//! Both ends of an epoch, for tests.

use core::time::Duration;

use packrat_eack::{Encoding, Identifier, Sketch, SketchLimits};
use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::GatewayParams;
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::message::Eack;

use super::EpochState;
use crate::history::{History, MAXIMUM_ENTRIES};
use crate::scratch::Scratch;

/// A gateway that has forwarded some datagrams, and a client that has received some of them.
pub(super) struct Ends {
    pub(super) epoch: EpochState,
    pub(super) history: History,
    received: Sketch,
    encoding: Encoding,
}

pub(super) fn identifier(number: u64) -> Identifier {
    Identifier::from_hash((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Ends {
    pub(super) fn new(forwarded: u64) -> Self {
        let limits = SketchLimits { coded_symbols: 0, power_sums: 20 };
        let params = GatewayParams {
            session: SessionId::new(1),
            scheme: IdentifierScheme::default(),
            limits,
            cache_bytes: 0,
            secret: [7; 32].into(),
            stream: None,
            symbols: None,
            numbered: None,
            hint: Default::default(),
            ticket: None,
            bundles: false,
            distinct: false,
        };
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        for number in 0..forwarded {
            history.make_room(10, |_| true);
            history.push(identifier(number), &[0; 10], Timestamp::ZERO);
        }
        let received = Sketch::new(params.sketch_key(), limits);
        let encoding = Encoding::PowerSums { count: 5 };
        Self { epoch: EpochState::new(&params), history, received, encoding }
    }

    pub(super) fn receive(&mut self, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.received.insert(identifier(number)));
    }

    /// Processes an eACK whose newest datagram is `newest`. Returns the identifiers only here and
    /// only there.
    pub(super) fn eack(
        &mut self,
        newest: u64,
        missing: &[u64],
        allows_costly: bool,
    ) -> Option<(Vec<Identifier>, Vec<Identifier>)> {
        let mut prefix = Vec::new();
        self.received.write_prefix(self.encoding, &mut prefix).unwrap();
        let eack = Eack {
            epoch: self.epoch.number(),
            newest: Some(identifier(newest)),
            newest_age: Duration::ZERO,
            holes: 0,
            echo: false,
            anchor: None,
            encoding: self.encoding,
            prefix: &prefix,
        };
        let Self { epoch, history, .. } = self;
        epoch.anchor(&eack, history);
        if !epoch.advance_horizon(Some(newest), history) {
            return None;
        }
        let (missing, mut scratch) = (missing.iter().copied(), Scratch::default());
        epoch.decode(&eack, missing, history, |_, _| allows_costly, &mut scratch)?;
        Some((scratch.only_here, scratch.only_there))
    }
}
