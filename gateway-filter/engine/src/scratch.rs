//! Working memory that no session keeps: there may be a hundred thousand of them, and a thread
//! works on one at a time.

use std::cell::Cell;

use crate::session::Told;
use packrat_eack::{Decoder, Identifier};

thread_local! {
    /// Buffers of this thread that are not in use.
    static FREE_SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Buffers for one control datagram. Their content means nothing to the next one.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) plaintext: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) symbol: Vec<u8>,
    pub(crate) only_here: Vec<Identifier>,
    pub(crate) only_there: Vec<Identifier>,
    pub(crate) candidates: Vec<Identifier>,
    pub(crate) still_missing: Vec<u64>,
    pub(crate) sequences: Vec<u64>,
    /// Datagrams that the eACK in hand shows missing for the first time.
    pub(crate) found: Vec<u64>,
    /// Datagrams of the eACK in hand.
    pub(crate) told: Vec<Told>,
    /// Allocated with the first eACK.
    pub(crate) decoder: Option<Box<Decoder>>,
}

impl Scratch {
    /// The buffers of this thread, until [`Scratch::give_back`]; `None` the first time, or while
    /// they are in use.
    pub(crate) fn borrow() -> Option<Box<Self>> {
        FREE_SCRATCH.take()
    }

    /// Gives the thread its buffers back. Buffers that are not given back are freed, with no harm
    /// done.
    pub(crate) fn give_back(scratch: Option<Box<Self>>) {
        FREE_SCRATCH.set(scratch);
    }
}
