//! Trials of streams with many receivers.

use packrat_emulation::scenario::Scenario;
use packrat_engine::StreamConfig;
use std::time::Duration;

/// The means against loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MulticastArm {
    /// Receivers ask the server.
    EndToEnd,
    /// The gateway repairs, to one receiver each.
    Packrat,
    /// The gateway repairs, to all when several miss the same packet.
    PackratGroup,
    /// The gateway repairs as in `PackratGroup`, and sends symbols to all, each of which repairs
    /// another packet at each receiver.
    PackratSymbols,
}

packrat_emulation::choices!(MulticastArm, "arm", [
    EndToEnd "end-to-end",
    Packrat "packrat",
    PackratGroup "packrat-group",
    PackratSymbols "packrat-symbols",
]);

/// A trial of one stream with many receivers.
#[derive(Debug, Clone)]
pub struct MulticastTrial {
    /// The network: one far segment, and a last mile for each receiver.
    pub scenario: Scenario,
    /// The means against loss.
    pub arm: MulticastArm,
    /// Decides everything random.
    pub seed: u64,
    /// Number of receivers.
    pub receivers: usize,
    /// Packets per second.
    pub rate: u64,
    /// The length of the stream.
    pub duration: Duration,
    /// The stream at the gateway.
    pub stream: StreamConfig,
}

impl MulticastTrial {
    /// The trial of Packrat26, section 7.2.3: 16 receivers, a cache of 64 kB.
    pub fn new(scenario: Scenario, arm: MulticastArm, seed: u64) -> Self {
        let has_group = matches!(arm, MulticastArm::PackratGroup | MulticastArm::PackratSymbols);
        let stream = StreamConfig {
            group_repairs_from: has_group.then_some(3),
            group_symbols: arm == MulticastArm::PackratSymbols,
            ..StreamConfig::default()
        };
        Self {
            scenario,
            arm,
            seed,
            receivers: 16,
            rate: 1000,
            duration: Duration::from_secs(180),
            stream,
        }
    }
}
