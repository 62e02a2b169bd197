//! The arms of trials.

/// The means against loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arm {
    /// No assistance.
    EndToEnd,
    /// Repair, and datagrams in order below an unmodified client.
    Packrat,
    /// Repair without hold.
    RepairOnly,
    /// Two QUIC connections joined at the gateway.
    Split,
    /// No loss, and no assistance.
    Ideal,
}

packrat_emulation::choices!(Arm, "arm", [
    EndToEnd "end-to-end",
    Packrat "packrat",
    RepairOnly "repair-only",
    Split "split",
    Ideal "ideal",
]);
