//! The senders: QUIC stacks and their congestion controls.

use packrat_engine::SenderAnswer;

/// A QUIC stack and its congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    /// s2n-quic with CUBIC.
    S2nCubic,
    /// s2n-quic with BBR, version 2.
    S2nBbr,
    /// quinn with CUBIC.
    QuinnCubic,
    /// quinn with NewReno.
    QuinnNewReno,
    /// quinn with BBR, version 1.
    QuinnBbr,
    /// quinn with CETEN<sub>P</sub>, which knows the share that the path corrupts.
    CetenP,
    /// quinn with CETEN<sub>A</sub>.
    CetenA,
    /// noq with CUBIC and HyStart++, a tolerance of reordering, and undo of spurious losses.
    NoqCubic,
    /// noq with BBR, version 3.
    NoqBbr,
}

impl Sender {
    /// The senders of the committed tables: another one would change the rows.
    pub const OF_TABLES: [Self; 5] =
        [Self::S2nCubic, Self::S2nBbr, Self::QuinnCubic, Self::QuinnNewReno, Self::QuinnBbr];

    /// The sender's reaction to losses, in an operator's terms.
    pub(crate) const fn answer(self) -> SenderAnswer {
        match self {
            Self::S2nCubic
            | Self::QuinnCubic
            | Self::QuinnNewReno
            | Self::NoqCubic
            | Self::CetenP
            | Self::CetenA => SenderAnswer::Always,
            Self::S2nBbr | Self::NoqBbr => SenderAnswer::AboveTolerance,
            Self::QuinnBbr => SenderAnswer::Never,
        }
    }

    /// True if a client of its stack can upload with it.
    pub(crate) const fn uploads(self) -> bool {
        self.is_of_quinn() || matches!(self, Self::S2nCubic | Self::S2nBbr)
    }

    /// True if it is a sender of quinn's own.
    pub(crate) const fn is_of_quinn(self) -> bool {
        matches!(self, Self::QuinnCubic | Self::QuinnNewReno | Self::QuinnBbr)
    }

    /// The stack and the laboratory with their versions: measurements of others are not the same.
    pub fn versions(self) -> String {
        let stack = match self {
            Self::S2nCubic | Self::S2nBbr => "s2n-quic 1.91.0",
            Self::QuinnCubic
            | Self::QuinnNewReno
            | Self::QuinnBbr
            | Self::CetenP
            | Self::CetenA => "quinn-proto 0.11.19",
            Self::NoqCubic | Self::NoqBbr => "noq-proto 1.4.0",
        };
        format!("{stack}, packrat-lab {}", env!("CARGO_PKG_VERSION"))
    }
}

packrat_emulation::choices!(Sender, "sender", [
    S2nCubic "s2n-cubic",
    S2nBbr "s2n-bbr",
    QuinnCubic "quinn-cubic",
    QuinnNewReno "quinn-newreno",
    QuinnBbr "quinn-bbr",
    CetenP "ceten-p",
    CetenA "ceten-a",
    NoqCubic "noq-cubic",
    NoqBbr "noq-bbr3",
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_of_the_lock_file() {
        let lock = include_str!("../../../Cargo.lock");
        for sender in Sender::ALL {
            let versions = sender.versions();
            let stack = versions.split(',').next().and_then(|stack| stack.split_once(' '));
            let (name, version) = stack.unwrap();
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&entry), "{name} is another version now");
        }
    }
}
