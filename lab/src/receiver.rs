//! The receiver: an unmodified QUIC client, with Packrat's client under it.

use crate::certificate::SERVER_NAME;
use crate::flow::Simulation;
use crate::host::VirtualHost;
use crate::observer::Observer;
use crate::quinn_client::QuinnReceiver;
use crate::randomness::{self, ConnectionIds, Seeded, Stream};
use crate::s2n_server::limits;
use crate::sender::Sender;
use crate::tls;
use crate::traffic::arrivals::Arrivals;
use crate::traffic::exchange::{ClientConnection, Failure};
use crate::traffic::work::{Work, WorkOutcome, Working};
use packrat_client::ClientConfig;
use packrat_s2n_quic::{Assistance, AssistanceStats, Attachment, ReceivedPacketNumbers};
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::provider::congestion_controller::Bbr;
use s2n_quic::provider::io::testing::spawn;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The work of a client, and its time limit.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The transfers asked for.
    pub(crate) work: Work,
    /// Longest time from the request on.
    pub(crate) limit: Duration,
    /// The bytes that arrive, at the client or, of uploads, at the server.
    pub(crate) arrivals: Arc<Arrivals>,
}

/// The outcome of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Download {
    /// Time from the request to the last byte.
    pub(crate) seconds: f64,
    /// Time from the beginning of the connection to the first byte of an answer.
    pub(crate) first_byte: Option<f64>,
    pub(crate) received: u64,
    /// The objects, pages and videos among it.
    pub(crate) work: WorkOutcome,
    /// Received bytes since the path has settled, and the length of that time.
    pub(crate) counted: u64,
    pub(crate) counted_seconds: f64,
    /// The reason why the connection ended early, if it did.
    pub(crate) failure: Option<String>,
    pub(crate) assistance: AssistanceStats,
    /// 1-RTT packet numbers that arrived, as ascending inclusive ranges.
    pub(crate) packet_numbers: Vec<(u64, u64)>,
}

impl Download {
    /// The outcome of work that ends now.
    pub(crate) fn of(working: Working, result: Result<(), Failure>) -> Self {
        let (now, begun) = (working.clock.now(), working.begun());
        let arrivals = Arc::clone(&working.arrivals);
        Self {
            seconds: now.saturating_since(begun).as_secs_f64(),
            first_byte: arrivals
                .first_at()
                .map(|at| at.saturating_since(working.connected_from).as_secs_f64()),
            received: arrivals.all(),
            counted: arrivals.counted(),
            counted_seconds: now.saturating_since(begun.max(arrivals.settled_at())).as_secs_f64(),
            failure: result.err().map(|error| error.to_string()),
            work: working.outcome(),
            ..Self::default()
        }
    }

    /// The outcome of a connection whose turn came after the end of the trial.
    pub(crate) fn never_begun() -> Self {
        Self {
            failure: Some("the trial ended before it could begin".to_owned()),
            ..Self::default()
        }
    }

    /// Mbit/s of the bytes that count.
    pub(crate) fn goodput_mbps(&self) -> f64 {
        if self.counted_seconds > 0.0 {
            self.counted as f64 * 8e-6 / self.counted_seconds
        } else {
            0.0
        }
    }

    /// True if this 1-RTT packet has arrived.
    pub(crate) fn has_received(&self, number: u64) -> bool {
        let after = self.packet_numbers.partition_point(|(first, _)| *first <= number);
        after > 0 && self.packet_numbers[after - 1].1 >= number
    }
}

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

impl Receiver {
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

/// An s2n-quic client on its simulated host.
pub(crate) struct S2nReceiver {
    client: Client,
    host: Arc<VirtualHost>,
    attachment: Attachment,
    packet_numbers: ReceivedPacketNumbers,
    config: Option<ClientConfig>,
    seed: u64,
}

impl S2nReceiver {
    /// Starts a client; `config`: `None` without assistance. `uploader`: of uploads, the sender
    /// whose congestion control the client has, s2n-quic's CUBIC or BBR.
    pub(crate) fn start(
        simulation: &Simulation<'_>,
        config: Option<ClientConfig>,
        seed: u64,
        observer: Observer,
        uploader: Option<Sender>,
    ) -> Result<Self, Box<dyn Error>> {
        let Simulation { handle, clock, certificate, memory, .. } = simulation;
        let host = Arc::new(VirtualHost { clock: *clock, socket: OnceLock::new() });
        let observer = if config.is_some() { observer } else { observer.recording() };
        let mut attachment = Attachment::new(host.clone())
            .with_observer(observer.of_client())
            .with_memory(Arc::clone(memory));
        if config.as_ref().is_some_and(|config| config.uploads) {
            attachment = attachment.with_uploads();
        }
        let of_socket = host.clone();
        let io = handle.builder().on_socket(move |socket| {
            let _ = of_socket.socket.set(socket);
        });
        let packet_numbers = ReceivedPacketNumbers::default();
        let random = randomness::generator(seed, Stream::Client);
        let builder = Client::builder()
            .with_tls(tls::client(certificate)?)?
            .with_io(attachment.io(io.build()?))?
            .with_event((observer, (packet_numbers.clone(), attachment.subscriber())))?
            .with_limits(limits()?)?
            .with_connection_id(ConnectionIds::new(random.clone())?)?
            .with_random(Seeded(random))?;
        let client = match uploader {
            Some(Sender::S2nBbr) => builder.with_congestion_controller(Bbr::default())?.start()?,
            _ => builder.start()?,
        };
        Ok(Self { client, host, attachment, packet_numbers, config, seed })
    }

    /// Address of the receiver.
    pub(crate) fn address(&self) -> Result<SocketAddr, Box<dyn Error>> {
        Ok(self.client.local_addr()?)
    }

    /// Downloads from `server`.
    pub(crate) async fn download(mut self, server: SocketAddr, order: Order) -> Download {
        let secret = randomness::bytes(&mut randomness::generator(self.seed, Stream::Assist));
        let assisted = self.config.take().map(|config| (config, secret));
        let (assistance, driver) = self.attachment.assist(server, assisted);
        spawn(driver);
        let Order { work, limit, arrivals } = order;
        let mut working = Working::new(self.host.clock, arrivals, limit);
        let result = self.transfer(server, &work, &assistance, &mut working).await;
        let mut download = Download::of(working, result);
        download.assistance = assistance.stats();
        download.packet_numbers = self.packet_numbers.ranges();
        assistance.close();
        download
    }

    async fn transfer(
        &self,
        server: SocketAddr,
        work: &Work,
        assistance: &Assistance,
        working: &mut Working,
    ) -> Result<(), Failure> {
        let connect = Connect::new(server).with_server_name(SERVER_NAME);
        let connection = self.client.connect(connect).await?;
        assistance.connected(&connection);
        // The connection stays open until its work is done.
        working.perform(work, ClientConnection::S2n(connection.handle())).await
    }
}
