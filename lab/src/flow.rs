//! One download: its server, its client, and who joins them.

use crate::certificate::Certificate;
use crate::clock::VirtualClock;
use crate::observer::{Observer, SenderFigures};
use crate::randomness::{self, Stream};
use crate::receiver::{Download, Order, Receiver};
use crate::sender::{self, Sender};
use crate::split;
use crate::world::{Place, World};
use packrat_client::ClientConfig;
use s2n_quic::provider::io::testing::{Handle, primary, spawn};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The parts of a simulation that starting a flow needs.
pub(crate) struct Simulation<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) clock: VirtualClock,
    pub(crate) world: &'a World,
    pub(crate) certificate: Certificate,
}

/// The kind of a flow.
pub(crate) struct FlowSetup {
    pub(crate) sender: Sender,
    pub(crate) seed: u64,
    /// Two connections, joined at the gateway, and the sender there.
    pub(crate) split: Option<Sender>,
    /// The client's assistance, if it has any.
    pub(crate) config: Option<ClientConfig>,
}

/// A flow while it lasts.
#[derive(Clone, Default)]
pub(crate) struct Flow {
    /// The sender that the client sees: with a split connection that is the gateway.
    sender: Observer,
    receiving: Observer,
    finished: Arc<Mutex<Option<(Download, SocketAddr)>>>,
}

/// A flow afterwards.
pub(crate) struct FlowOutcome {
    pub(crate) download: Download,
    pub(crate) client: SocketAddr,
    /// The sender that the client saw.
    pub(crate) sender: SenderFigures,
    pub(crate) receiving: SenderFigures,
}

impl Flow {
    /// `tracing`: whether to remember each event.
    pub(crate) fn new(tracing: bool) -> Self {
        Self {
            sender: Observer::new(tracing),
            receiving: Observer::new(tracing),
            finished: Arc::default(),
        }
    }

    /// Starts server and client; the client's address.
    pub(crate) fn start(
        &self,
        simulation: &Simulation<'_>,
        setup: FlowSetup,
        order: Order,
    ) -> Result<SocketAddr, Box<dyn Error>> {
        let Simulation { handle, clock, world, certificate } = simulation;
        let FlowSetup { sender, seed, split, config } = setup;
        // The server behind a split connection is not the one that is watched.
        let behind = if split.is_some() { Observer::default() } else { self.sender.clone() };
        let random = randomness::generator(seed, Stream::Server);
        let server = sender::start(handle, sender, *clock, certificate, random, behind)?;
        let mut remote = server.address()?;
        world.place(remote, Place::Server);
        spawn(sender::serve(server));
        if let Some(sender) = split {
            let watched = self.sender.clone();
            let (front, back) =
                split::start(handle, sender, *clock, certificate, remote, seed, watched)?;
            world.place(front, Place::Gateway);
            world.place(back, Place::Gateway);
            remote = front;
        }
        let receiver =
            Receiver::start(handle, *clock, certificate, config, seed, self.receiving.clone())?;
        let address = receiver.address()?;
        world.place(address, Place::Client);
        let finished = Arc::clone(&self.finished);
        primary::spawn(async move {
            let download = receiver.download(remote, order).await;
            *finished.lock().unwrap_or_else(PoisonError::into_inner) = Some((download, address));
        });
        Ok(address)
    }

    /// The flow's outcome; `None` before its end.
    pub(crate) fn outcome(&self) -> Option<FlowOutcome> {
        let (download, client) =
            self.finished.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (sender, receiving) = (self.sender.figures(), self.receiving.figures());
        Some(FlowOutcome { download, client, sender, receiving })
    }
}
