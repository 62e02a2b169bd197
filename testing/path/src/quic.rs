//! An unmodified QUIC server, quinn's, and a client that trusts it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use sha2::{Digest, Sha256};

use crate::{ANY_PORT, STEP_PATIENCE};

/// The server's name.
pub const SERVER_NAME: &str = "server.example";
/// Bytes of the file.
pub const FILE_BYTES: usize = 3_000_000;
/// ALPN protocol of the server: any client of these tests.
const APPLICATION_PROTOCOL: &[u8] = b"packrat-test";

/// The server's file.
pub fn file() -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

/// SHA-256 of the file.
pub fn expected() -> Vec<u8> {
    Sha256::digest(file()).to_vec()
}

/// A server that sends the file on the first stream of each connection. If that stream is
/// unidirectional from the client, the server answers with the SHA-256 of the received bytes
/// instead.
pub struct Quic {
    server: quinn::Endpoint,
    certificate: Vec<u8>,
    client: quinn::ClientConfig,
    figures: Arc<Figures>,
}

/// Counts of the downloads.
#[derive(Default)]
struct Figures {
    begun: AtomicU64,
    over: AtomicU64,
    lost: AtomicU64,
}

impl Quic {
    /// Starts one. Must be called inside a Tokio runtime.
    pub fn start() -> Self {
        let certificate = rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions = &[&rustls::version::TLS13];
        let key = certificate.signing_key.serialize_der().try_into().unwrap();
        let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], key)
            .unwrap();
        server.alpn_protocols = vec![APPLICATION_PROTOCOL.to_vec()];
        let server = QuicServerConfig::try_from(server).unwrap();
        let server = quinn::ServerConfig::with_crypto(Arc::new(server));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.cert.der().clone()).unwrap();
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![APPLICATION_PROTOCOL.to_vec()];
        let client = QuicClientConfig::try_from(client).unwrap();
        let mut client = quinn::ClientConfig::new(Arc::new(client));
        // After a gateway's restart the server sees a new client address and sends no packets to it
        // until the client has sent from there.
        let mut transport = quinn::TransportConfig::default();
        transport.keep_alive_interval(Some(Duration::from_millis(500)));
        client.transport_config(Arc::new(transport));
        let server = quinn::Endpoint::server(server, ANY_PORT).unwrap();
        let endpoint = server.clone();
        let figures = Arc::new(Figures::default());
        let counted = Arc::clone(&figures);
        tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                tokio::spawn(serve(incoming, Arc::clone(&counted)));
            }
        });
        let certificate = certificate.cert.pem().into_bytes();
        Self { server, certificate, client, figures }
    }

    /// Address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.local_addr().unwrap()
    }

    /// The server's certificate, PEM, which is its own authority.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The settings of a client that trusts it.
    pub fn client(&self) -> quinn::ClientConfig {
        self.client.clone()
    }

    /// Packets that the server has declared lost in all downloads, once the downloads in progress
    /// are over.
    pub async fn declared_lost(&self) -> u64 {
        let Figures { begun, over, lost } = &*self.figures;
        let are_over = async {
            while over.load(Ordering::Acquire) < begun.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(STEP_PATIENCE, are_over)
            .await
            .expect("the server sees the downloads' end");
        lost.load(Ordering::Relaxed)
    }

    /// The SHA-256 of what a plain client gets that connects to `at`.
    pub async fn download(&self, at: SocketAddr) -> Vec<u8> {
        self.download_with(&quinn::Endpoint::client(ANY_PORT).unwrap(), at).await
    }

    /// Downloads the file with any client.
    pub async fn download_with(&self, client: &quinn::Endpoint, at: SocketAddr) -> Vec<u8> {
        let work = async {
            let connection = client.connect_with(self.client(), at, SERVER_NAME).unwrap();
            let connection = connection.await.unwrap();
            let (mut sending, mut receiving) = connection.open_bi().await.unwrap();
            sending.write_all(b"the file").await.unwrap();
            let bytes = receiving.read_to_end(FILE_BYTES + 1).await.unwrap();
            connection.close(0u32.into(), b"");
            Sha256::digest(bytes).to_vec()
        };
        tokio::time::timeout(STEP_PATIENCE, work).await.expect("the download ends")
    }

    /// The SHA-256 of the file as the server gets it from a plain client that connects to `at`.
    pub async fn upload(&self, at: SocketAddr) -> Vec<u8> {
        self.upload_with(&quinn::Endpoint::client(ANY_PORT).unwrap(), at).await
    }

    /// Uploads the file with any client.
    pub async fn upload_with(&self, client: &quinn::Endpoint, at: SocketAddr) -> Vec<u8> {
        let work = async {
            let connection = client.connect_with(self.client(), at, SERVER_NAME).unwrap();
            let connection = connection.await.unwrap();
            let mut sending = connection.open_uni().await.unwrap();
            sending.write_all(&file()).await.unwrap();
            sending.finish().unwrap();
            let mut receiving = connection.accept_uni().await.unwrap();
            let sum = receiving.read_to_end(64).await.unwrap();
            connection.close(0u32.into(), b"");
            sum
        };
        tokio::time::timeout(STEP_PATIENCE, work).await.expect("the upload ends")
    }
}

/// Takes an upload.
async fn take(connection: &quinn::Connection, mut receiving: quinn::RecvStream) {
    let Ok(bytes) = receiving.read_to_end(FILE_BYTES + 1).await else { return };
    let Ok(mut sending) = connection.open_uni().await else { return };
    let _ = sending.write_all(&Sha256::digest(bytes)).await;
    let _ = sending.finish();
    connection.closed().await;
}

async fn serve(incoming: quinn::Incoming, figures: Arc<Figures>) {
    let Ok(connection) = incoming.await else { return };
    let mut sending = tokio::select! {
        Ok((sending, _)) = connection.accept_bi() => sending,
        Ok(receiving) = connection.accept_uni() => return take(&connection, receiving).await,
        else => return,
    };
    figures.begun.fetch_add(1, Ordering::AcqRel);
    let _ = sending.write_all(&file()).await;
    let _ = sending.finish();
    // All of it has been acknowledged, or the client has gone.
    let _ = sending.stopped().await;
    figures.lost.fetch_add(connection.stats().path.lost_packets, Ordering::Relaxed);
    figures.over.fetch_add(1, Ordering::AcqRel);
    connection.closed().await;
}
