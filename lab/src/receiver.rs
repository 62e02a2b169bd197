//! The receiver: an unmodified QUIC client with Packrat's client joined to it.

use crate::certificate::{Certificate, SERVER_NAME};
use crate::clock::VirtualClock;
use crate::host::VirtualHost;
use crate::observer::Observer;
use crate::randomness::{self, ConnectionIds, Seeded, Stream};
use crate::s2n_server::limits;
use crate::sender::request;
use crate::tls;
use packrat_client::ClientConfig;
use packrat_s2n_quic::{Assistance, AssistanceStats, Attachment};
use packrat_wire::estimate::Timestamp;
use s2n_quic::Client;
use s2n_quic::client::Connect;
use s2n_quic::provider::io::testing::{Handle, spawn};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The size of a download, and its time limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// Bytes asked for.
    pub(crate) size: u64,
    /// From the request on.
    pub(crate) limit: Duration,
    /// Bytes that arrive earlier than this, from the beginning of virtual time on, do not count.
    pub(crate) settled_at: Timestamp,
}

/// The outcome of a download.
#[derive(Debug, Clone, Default)]
pub(crate) struct Download {
    /// From the request to the last byte.
    pub(crate) seconds: f64,
    pub(crate) received: u64,
    /// Of these, since everything has settled; and the length of that time.
    pub(crate) counted: u64,
    pub(crate) counted_seconds: f64,
    /// The reason why the connection ended early, if it did.
    pub(crate) failure: Option<String>,
    pub(crate) assistance: AssistanceStats,
    /// 1-RTT packet numbers that arrived, as ascending inclusive ranges.
    pub(crate) packet_numbers: Vec<(u64, u64)>,
}

impl Download {
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

/// A client on its simulated host.
pub(crate) struct Receiver {
    client: Client,
    host: Arc<VirtualHost>,
    attachment: Attachment,
    config: Option<ClientConfig>,
    seed: u64,
}

impl Receiver {
    /// Starts a client; `config`: `None` without assistance.
    pub(crate) fn start(
        handle: &Handle,
        clock: VirtualClock,
        certificate: &Certificate,
        config: Option<ClientConfig>,
        seed: u64,
        observer: Observer,
    ) -> Result<Self, Box<dyn Error>> {
        let host = Arc::new(VirtualHost { clock, socket: OnceLock::new() });
        let observer = if config.is_some() { observer } else { observer.recording() };
        let attachment = Attachment::new(host.clone()).with_observer(observer.of_client());
        let of_socket = host.clone();
        let io = handle.builder().on_socket(move |socket| {
            let _ = of_socket.socket.set(socket);
        });
        let random = randomness::generator(seed, Stream::Client);
        let client = Client::builder()
            .with_tls(attachment.tls(tls::client(certificate)?))?
            .with_io(attachment.io(io.build()?))?
            .with_event((observer, attachment.subscriber()))?
            .with_limits(limits()?)?
            .with_connection_id(ConnectionIds::new(random.clone())?)?
            .with_random(Seeded(random))?
            .with_packet_interceptor(attachment.interceptor())?
            .start()?;
        Ok(Self { client, host, attachment, config, seed })
    }

    /// Its address.
    pub(crate) fn address(&self) -> Result<SocketAddr, Box<dyn Error>> {
        Ok(self.client.local_addr()?)
    }

    /// Downloads from `server`.
    pub(crate) async fn download(mut self, server: SocketAddr, order: Order) -> Download {
        let secret = randomness::bytes(&mut randomness::generator(self.seed, Stream::Assist));
        let assisted = self.config.take().map(|config| (config, secret));
        // The only connection of this client: its path is free.
        let Some((assistance, driver)) = self.attachment.assist(server, assisted) else {
            return Download::default();
        };
        spawn(driver);
        let clock = self.host.clock;
        let mut download = Download::default();
        let mut begun = clock.now();
        let result = self.transfer(server, order, &assistance, &mut begun, &mut download).await;
        download.failure = result.err().map(|error| error.to_string());
        download.seconds = clock.now().saturating_since(begun).as_secs_f64();
        download.counted_seconds =
            clock.now().saturating_since(begun.max(order.settled_at)).as_secs_f64();
        download.assistance = assistance.stats();
        download.packet_numbers = assistance.received_packet_numbers();
        assistance.close();
        download
    }

    async fn transfer(
        &self,
        server: SocketAddr,
        order: Order,
        assistance: &Assistance,
        begun: &mut Timestamp,
        download: &mut Download,
    ) -> Result<(), Box<dyn Error>> {
        let connect = Connect::new(server).with_server_name(SERVER_NAME);
        let mut connection = self.client.connect(connect).await?;
        assistance.connected(&connection);
        let mut stream = connection.open_bidirectional_stream().await?;
        let clock = self.host.clock;
        *begun = clock.now();
        stream.send(request(order.size)).await?;
        while download.received < order.size && clock.now().saturating_since(*begun) < order.limit {
            match stream.receive().await? {
                Some(data) => {
                    download.received += data.len() as u64;
                    if clock.now() >= order.settled_at {
                        download.counted += data.len() as u64;
                    }
                }
                None => break,
            }
        }
        Ok(())
    }
}
