//! s2n-quic clients, with Packrat's client in their I/O provider.

use super::host::VirtualHost;
use super::limits::limits;
use crate::connection::{ClientConnection, Outcome};
use crate::observer::Observer;
use crate::simulation::certificate::SERVER_NAME;
use crate::simulation::randomness::{self, ConnectionIds, Seeded, Stream};
use crate::simulation::{Simulation, tls};
use crate::stacks::download::{Download, Order};
use crate::stacks::sender::Sender;
use crate::traffic::{Work, Working};
use packrat_client::ClientConfig;
use packrat_s2n_quic::{Assistance, Attachment, ReceivedPacketNumbers};
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::provider::congestion_controller::Bbr;
use s2n_quic::provider::io::testing::spawn;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

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
    ) -> Outcome {
        let connect = Connect::new(server).with_server_name(SERVER_NAME);
        let connection = self.client.connect(connect).await?;
        assistance.connected(&connection);
        // The connection stays open until its work is done.
        working.perform(work, ClientConnection::S2n(connection.handle())).await
    }
}
