//! A connection: its server, its client, and the gateway that may join them.

use crate::certificate::Certificate;
use crate::clock::VirtualClock;
use crate::observer::{Observer, SenderFigures};
use crate::quinn_client::QuinnReceiver;
use crate::randomness::{self, Stream};
use crate::receiver::{Download, Order, Receiver, ReceiverStack, S2nReceiver};
use crate::sender::{self, Sender};
use crate::split;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::work::Work;
use crate::world::{Place, World};
use packrat_client::{ClientConfig, LossMemory};
use packrat_wire::estimate::Timestamp;
use s2n_quic::provider::io::testing::{Handle, primary, spawn};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The parts of a simulation that starting a flow needs.
pub(crate) struct Simulation<'a> {
    pub(crate) handle: &'a Handle,
    pub(crate) clock: VirtualClock,
    pub(crate) world: &'a World,
    pub(crate) certificate: Certificate,
    /// Memory of the clients' last miles.
    pub(crate) memory: Arc<LossMemory>,
}

/// The kind of a flow.
pub(crate) struct FlowSetup {
    pub(crate) sender: Sender,
    /// The share of its packets that the path loses by itself.
    pub(crate) corrupted: f64,
    /// The time at which the client begins.
    pub(crate) start: Timestamp,
    /// The flow that must have ended before.
    pub(crate) after: Option<Flow>,
    /// The far segment and the last mile, by their number in the world.
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
        setup: FlowSetup,
    ) -> Result<SocketAddr, Box<dyn Error>> {
        let Simulation { handle, clock, world, certificate, .. } = simulation;
        let FlowSetup { sender, seed, split, config, start, after, segments, .. } = setup;
        let [far, last_mile] = segments;
        let (clock, arrivals) = (*clock, Arc::new(Arrivals::new(setup.settled_at)));
        // The server behind a split connection is not observed.
        let behind = if split.is_some() { Observer::default() } else { self.sender.clone() };
        let random = randomness::generator(seed, Stream::Server);
        let server =
            sender::start(handle, sender, setup.corrupted, clock, certificate, random, behind)?;
        let mut remote = server.address()?;
        world.place(remote, Place::Server, far);
        let is_upload = setup.work.is_upload();
        // The side that receives counts.
        let uploaded = match is_upload {
            true => Arc::clone(&arrivals),
            false => Arc::new(Arrivals::new(setup.settled_at)),
        };
        spawn(sender::serve(server, uploaded, clock));
        if let Some(sender) = split {
            let watched = self.sender.clone();
            let (front, back) = split::start(
                handle,
                (sender, setup.corrupted),
                clock,
                certificate,
                remote,
                seed,
                watched,
            )?;
            world.place(front, Place::Gateway, 0);
            world.place(back, Place::Gateway, 0);
            remote = front;
        }
        let observer = self.receiving.clone();
        let uploader = is_upload.then_some(sender);
        let receiver = match setup.receiver {
            ReceiverStack::S2n => Receiver::S2n(Box::new(S2nReceiver::start(
                simulation, config, seed, observer, uploader,
            )?)),
            ReceiverStack::Quinn => Receiver::Quinn(QuinnReceiver::start(
                handle,
                clock,
                certificate,
                seed,
                observer,
                uploader,
            )?),
        };
        let address = receiver.address()?;
        world.place(address, Place::Client, last_mile);
        let (finished, done) = (Arc::clone(&self.finished), Arc::clone(&self.done));
        primary::spawn(async move {
            if let Some(before) = after {
                before.done.notified().await;
            }
            if start > clock.now() {
                clock.sleep_until(start).await;
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

    /// The flow's outcome; `None` before its end.
    pub(crate) fn outcome(&self) -> Option<FlowOutcome> {
        let (download, client) =
            self.finished.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (sender, receiving) = (self.sender.figures(), self.receiving.figures());
        Some(FlowOutcome { download, client, sender, receiving })
    }
}
