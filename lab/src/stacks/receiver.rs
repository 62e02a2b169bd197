//! The receiver: an unmodified QUIC client, with Packrat's client under it.

use super::download::{Download, Order};
use super::quinn::client::QuinnReceiver;
use super::s2n::client::S2nReceiver;
use super::sender::Sender;
use crate::observer::Observer;
use crate::simulation::Simulation;
use packrat_client::ClientConfig;
use std::error::Error;
use std::net::SocketAddr;

/// The QUIC stack of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiverStack {
    /// s2n-quic, with Packrat's client in its I/O provider.
    S2n,
    /// quinn, with a shim at its host.
    Quinn,
}

packrat_emulation::choices!(ReceiverStack, "receiver", [S2n "s2n-quic", Quinn "quinn"]);

/// A client.
pub(crate) enum Receiver {
    S2n(Box<S2nReceiver>),
    Quinn(QuinnReceiver),
}

/// A client to start.
pub(crate) struct ReceiverSetup {
    pub(crate) stack: ReceiverStack,
    /// The client's assistance; `None` without any.
    pub(crate) config: Option<ClientConfig>,
    pub(crate) seed: u64,
    pub(crate) observer: Observer,
    /// The sender whose congestion control a client that uploads has.
    pub(crate) uploader: Option<Sender>,
}

impl Receiver {
    /// Starts a client.
    pub(crate) fn start(
        simulation: &Simulation<'_>,
        setup: ReceiverSetup,
    ) -> Result<Self, Box<dyn Error>> {
        let ReceiverSetup { stack, config, seed, observer, uploader } = setup;
        Ok(match stack {
            ReceiverStack::S2n => Self::S2n(Box::new(S2nReceiver::start(
                simulation, config, seed, observer, uploader,
            )?)),
            ReceiverStack::Quinn => {
                Self::Quinn(QuinnReceiver::start(simulation, seed, observer, uploader)?)
            }
        })
    }

    /// Address of the receiver.
    pub(crate) fn address(&self) -> Result<SocketAddr, Box<dyn Error>> {
        match self {
            Self::S2n(receiver) => receiver.address(),
            Self::Quinn(receiver) => receiver.address(),
        }
    }

    /// Downloads from `server`.
    pub(crate) async fn download(self, server: SocketAddr, order: Order) -> Download {
        match self {
            Self::S2n(receiver) => receiver.download(server, order).await,
            Self::Quinn(receiver) => receiver.download(server, order).await,
        }
    }
}
