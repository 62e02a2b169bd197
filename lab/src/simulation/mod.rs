//! Time, randomness and keys of a trial, all of which follow from its seed.

pub(crate) mod certificate;
pub(crate) mod clock;
pub(crate) mod randomness;
pub(crate) mod tls;

use certificate::Certificate;
use clock::VirtualClock;
use packrat_client::LossMemory;
use s2n_quic::provider::io::testing::Handle;
use std::sync::Arc;

/// The parts of a simulation that starting a client or a server needs.
pub(crate) struct Simulation<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) clock: VirtualClock,
    pub(crate) certificate: Certificate,
    /// Memory of the clients' last miles.
    pub(crate) memory: Arc<LossMemory>,
}
