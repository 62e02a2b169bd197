//! Datagrams recovered by code: what has arrived at which place, and the gateway's symbols.

use std::collections::VecDeque;

use packrat_code::{Arrival, Decoder, DecoderLimits};

use crate::coded::Symbol;

/// Recovered places that are remembered: a repair that was on its way comes within a round trip.
const REMEMBERED: usize = 64;

/// The decoder of one session. `M` belongs to the datagram that arrived last, and
/// stands for that of one that did not: same path, same marks.
#[derive(Debug)]
pub(super) struct Recovery<M> {
    decoder: Decoder,
    last: Option<M>,
    /// Places of what was recovered, and may still arrive; the newest are at the end.
    recovered: VecDeque<u64>,
}

impl<M: Clone> Recovery<M> {
    pub(super) fn new() -> Self {
        Self {
            decoder: Decoder::new(DecoderLimits::DEFAULT),
            last: None,
            recovered: VecDeque::new(),
        }
    }

    /// A datagram has arrived at a place. True if the transport has it, as it was recovered: once, as
    /// a server may send the same twice.
    pub(super) fn on_datagram(&mut self, place: u64, datagram: &[u8], metadata: &M) -> bool {
        self.last = Some(metadata.clone());
        let is_known = self.decoder.on_datagram(place, datagram) == Arrival::Duplicate;
        let recovered = self.recovered.iter().position(|recovered| *recovered == place);
        let recovered = recovered.filter(|_| is_known);
        recovered.is_some_and(|index| self.recovered.remove(index).is_some())
    }

    /// A symbol has arrived; `expected`: the place behind the newest.
    pub(super) fn on_symbol(&mut self, symbol: &Symbol, expected: u64) {
        if let Some(repair) = symbol.repair(expected) {
            self.decoder.on_repair(&repair);
        }
    }

    /// The next recovered datagram, its place, and what stands for its metadata.
    pub(super) fn next_recovered(&mut self) -> Option<(u64, Vec<u8>, M)> {
        let metadata = self.last.clone()?;
        let (place, datagram) = self.decoder.next_recovered()?;
        self.recovered.push_back(place);
        if self.recovered.len() > REMEMBERED {
            self.recovered.pop_front();
        }
        Some((place, datagram.to_vec(), metadata))
    }
}
