//! The extent of the rows of the matrix.

use crate::network::Oracle;
use serde::{Deserialize, Serialize};

/// Sizes of the small objects, bytes.
pub(super) const OBJECT_BYTES: [u64; 2] = [100_000, 1_000_000];

/// The extent of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Amount {
    /// Factor of the size of the path's download.
    pub(super) size: f64,
    /// Number of small objects of each of [`OBJECT_BYTES`], each with a connection of its own.
    pub(super) objects: [u64; 2],
    /// The operator has named the servers' congestion control.
    #[serde(default)]
    pub(super) names_senders: bool,
    /// Downloads before the measured one, each a trial in another network.
    #[serde(default)]
    pub(super) warm: u8,
    /// Knowledge that the last mile gives assisted clients.
    #[serde(default)]
    pub(super) oracle: Option<Oracle>,
}

impl Amount {
    /// The whole matrix.
    pub(super) const FULL: Self =
        Self { size: 1.0, objects: [20, 10], names_senders: false, warm: 0, oracle: None };
    /// Extent of a run with `--quick`.
    pub(super) const QUICK: Self =
        Self { size: 0.4, objects: [8, 4], names_senders: false, warm: 0, oracle: None };
    /// The sample that tests compare.
    pub(super) const SAMPLE: Self =
        Self { size: 0.05, objects: [2, 1], names_senders: false, warm: 0, oracle: None };
}
