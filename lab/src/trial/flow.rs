//! A connection: its server, its client, and the gateway that may join them.

use super::split;
use crate::network::{Place, VirtualNetwork};
use crate::observer::{Observer, SenderFigures};
use crate::simulation::Simulation;
use crate::simulation::randomness::{self, Stream};
use crate::stacks::{self, Download, Order, Receiver, ReceiverSetup, ReceiverStack, Sender};
use crate::traffic::{Arrivals, Work};
use packrat_client::ClientConfig;
use packrat_wire::estimate::Timestamp;
use s2n_quic::provider::io::testing::{primary, spawn};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The kind of a flow.
pub(crate) struct FlowSetup {
    pub(crate) sender: Sender,
    /// The share of its packets that the path loses by itself.
    pub(crate) corrupted: f64,
    /// The time at which the client begins.
    pub(crate) start: Timestamp,
    /// The flow that must have ended before.
    pub(crate) after: Option<Flow>,
    /// The far segment and the last mile, by their number in the network.
    pub(crate) segments: [usize; 2],
    /// The work, and the end of everything.
    pub(crate) work: Work,
    pub(crate) end: Duration,
    pub(crate) settled_at: Timestamp,
    pub(crate) seed: u64,
    /// Two connections, joined at the gateway, and the sender there.
    pub(crate) split: Option<Sender>,
    pub(crate) receiver: ReceiverStack,
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
    done: Arc<Notify>,
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
    /// Creates a flow. `tracing`: whether to record each event.
    pub(crate) fn new(tracing: bool) -> Self {
        Self {
            sender: Observer::new(tracing),
            receiving: Observer::new(tracing),
            finished: Arc::default(),
            done: Arc::default(),
        }
    }

    /// Starts server and client; the client's address.
    pub(crate) fn start(
        &self,
        simulation: &Simulation<'_>,
        network: &VirtualNetwork,
        setup: FlowSetup,
    ) -> Result<SocketAddr, Box<dyn Error>> {
        let arrivals = Arc::new(Arrivals::new(setup.settled_at));
        let remote = self.start_server(simulation, network, &setup, &arrivals)?;
        let receiver = Receiver::start(
            simulation,
            ReceiverSetup {
                stack: setup.receiver,
                config: setup.config,
                seed: setup.seed,
                observer: self.receiving.clone(),
                uploader: setup.work.is_upload().then_some(setup.sender),
            },
        )?;
        let address = receiver.address()?;
        network.place(address, Place::Client, setup.segments[1]);
        let (finished, done) = (Arc::clone(&self.finished), Arc::clone(&self.done));
        let clock = simulation.clock;
        primary::spawn(async move {
            if let Some(before) = setup.after {
                before.done.notified().await;
            }
            if setup.start > clock.now() {
                clock.sleep_until(setup.start).await;
            }
            let limit = setup.end.saturating_sub(clock.now().saturating_since(Timestamp::ZERO));
            let order = Order { work: setup.work, limit, arrivals };
            let download = if limit.is_zero() {
                Download::never_begun()
            } else {
                receiver.download(remote, order).await
            };
            *finished.lock().unwrap_or_else(PoisonError::into_inner) = Some((download, address));
            done.notify_one();
        });
        Ok(address)
    }

    /// Starts the server, and the gateway that splits the connection, if one does; the address
    /// that the client connects to.
    fn start_server(
        &self,
        simulation: &Simulation<'_>,
        network: &VirtualNetwork,
        setup: &FlowSetup,
        arrivals: &Arc<Arrivals>,
    ) -> Result<SocketAddr, Box<dyn Error>> {
        // The server behind a split connection is not observed.
        let behind = if setup.split.is_some() { Observer::default() } else { self.sender.clone() };
        let random = randomness::generator(setup.seed, Stream::Server);
        let server = stacks::start(simulation, setup.sender, setup.corrupted, random, behind)?;
        let remote = server.address()?;
        network.place(remote, Place::Server, setup.segments[0]);
        // The side that receives counts.
        let uploaded = match setup.work.is_upload() {
            true => Arc::clone(arrivals),
            false => Arc::new(Arrivals::new(setup.settled_at)),
        };
        spawn(stacks::serve(server, uploaded, simulation.clock));
        let Some(sender) = setup.split else { return Ok(remote) };
        let sender = (sender, setup.corrupted);
        let (front, back) =
            split::start(simulation, sender, remote, setup.seed, self.sender.clone())?;
        network.place(front, Place::Gateway, 0);
        network.place(back, Place::Gateway, 0);
        Ok(front)
    }

    /// The flow's outcome; `None` before its end.
    pub(crate) fn outcome(&self) -> Option<FlowOutcome> {
        let (download, client) =
            self.finished.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (sender, receiving) = (self.sender.figures(), self.receiving.figures());
        Some(FlowOutcome { download, client, sender, receiving })
    }
}
