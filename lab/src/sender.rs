//! The sender: an unmodified QUIC server that sends as many bytes as it is asked for, and takes
//! uploads.

use crate::certificate::Certificate;
use crate::clock::VirtualClock;
use crate::observer::Observer;
use crate::server::Server;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::exchange;
use crate::{noq_server, quinn_server, s2n_server};
use packrat_engine::SenderAnswer;
use rand_chacha::ChaCha8Rng;
use s2n_quic::provider::io::testing::{Handle, spawn};
use std::error::Error;
use std::sync::Arc;

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
    pub(crate) fn versions(self) -> String {
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

/// Starts a server. `corrupted`: the share of packets that the path loses by itself, for CETEN.
pub(crate) fn start(
    handle: &Handle,
    sender: Sender,
    corrupted: f64,
    clock: VirtualClock,
    certificate: &Certificate,
    random: ChaCha8Rng,
    observer: Observer,
) -> Result<Server, Box<dyn Error>> {
    match sender {
        Sender::S2nCubic | Sender::S2nBbr => {
            s2n_server::start(handle, sender, certificate, random, observer).map(Server::S2n)
        }
        Sender::QuinnCubic
        | Sender::QuinnNewReno
        | Sender::QuinnBbr
        | Sender::CetenP
        | Sender::CetenA => {
            quinn_server::start(handle, sender, corrupted, clock, certificate, random, observer)
                .map(Server::Quinn)
        }
        Sender::NoqCubic | Sender::NoqBbr => {
            noq_server::start(handle, sender, clock, certificate, random, observer).map(Server::Noq)
        }
    }
}

/// Answers every stream; `arrivals` counts the bytes of uploads.
pub(crate) async fn serve(mut server: Server, arrivals: Arc<Arrivals>, clock: VirtualClock) {
    while let Some(mut connection) = server.accept().await {
        let arrivals = Arc::clone(&arrivals);
        spawn(async move {
            while let Some(stream) = connection.accept_stream().await {
                spawn(exchange::answer(stream, Arc::clone(&arrivals), clock));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_of_the_lock_file() {
        let lock = include_str!("../../Cargo.lock");
        for sender in Sender::ALL {
            let versions = sender.versions();
            let stack = versions.split(',').next().and_then(|stack| stack.split_once(' '));
            let (name, version) = stack.unwrap();
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&entry), "{name} is another version now");
        }
    }
}
