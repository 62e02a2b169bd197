//! The second receiver: an unmodified quinn client, all of whose randomness follows from the seed.
//!
//! Packrat cannot join it as it joins s2n-quic; a shim below it can.

use super::observer::{QlogReader, ReceivedNumbers};
use super::server::{congestion_of, endpoint_config};
use crate::connection::{ClientConnection, Outcome};
use crate::observer::Observer;
use crate::simulation::certificate::SERVER_NAME;
use crate::simulation::clock::VirtualClock;
use crate::simulation::randomness::{self, Stream};
use crate::simulation::{Simulation, tls};
use crate::stacks::download::{Download, Order};
use crate::stacks::runtime::{VirtualRuntime, VirtualSocket};
use crate::stacks::s2n::WINDOW_BYTES;
use crate::stacks::sender::Sender;
use crate::traffic::{Work, Working};
use quinn::{ClientConfig, ConnectionId, Endpoint, TransportConfig, VarInt};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

/// A client on its simulated host.
pub(crate) struct QuinnReceiver {
    endpoint: Endpoint,
    clock: VirtualClock,
    received: ReceivedNumbers,
}

impl QuinnReceiver {
    /// Starts a client. `uploader`: of uploads, the sender whose congestion control the client has.
    pub(crate) fn start(
        Simulation { handle, clock, certificate, .. }: &Simulation<'_>,
        seed: u64,
        observer: Observer,
        uploader: Option<Sender>,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = VirtualRuntime::new(*clock);
        let received = ReceivedNumbers::default();
        let mut transport = TransportConfig::default();
        if let Some(sender) = uploader {
            congestion_of(sender, &mut transport, runtime, &observer);
        }
        let window = VarInt::try_from(WINDOW_BYTES)?;
        transport.receive_window(window).stream_receive_window(window).send_window(WINDOW_BYTES);
        let reader = QlogReader::new(*clock, observer).of_receiver(received.clone());
        transport.qlog_stream(reader.stream(runtime));
        let (config, identifiers) = endpoint_config(randomness::generator(seed, Stream::Client));
        let mut client = ClientConfig::new(Arc::new(tls::quinn_client(certificate)?));
        client.transport_config(Arc::new(transport));
        client.initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&identifiers.draw())));
        let socket = Arc::new(VirtualSocket(handle.builder().build()?.socket()));
        let mut endpoint =
            Endpoint::new_with_abstract_socket(config, None, socket, Arc::new(runtime))?;
        endpoint.set_default_client_config(client);
        Ok(Self { endpoint, clock: *clock, received })
    }

    /// Address of the client.
    pub(crate) fn address(&self) -> Result<SocketAddr, Box<dyn Error>> {
        Ok(self.endpoint.local_addr()?)
    }

    /// Downloads from `server`.
    pub(crate) async fn download(self, server: SocketAddr, order: Order) -> Download {
        let Order { work, limit, arrivals } = order;
        let mut working = Working::new(self.clock, arrivals, limit);
        let result = self.transfer(server, &work, &mut working).await;
        let mut download = Download::of(working, result);
        download.packet_numbers = self.received.ranges();
        download
    }

    async fn transfer(&self, server: SocketAddr, work: &Work, working: &mut Working) -> Outcome {
        let connection = self.endpoint.connect(server, SERVER_NAME)?.await?;
        // The connection stays open until its work is done.
        working.perform(work, ClientConnection::Quinn(connection)).await
    }
}
