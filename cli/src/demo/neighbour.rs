//! A neighbour on the last mile: a download from a server of its own, without assistance, that lasts
//! longer than the one beside it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use packrat_emulation::path::{PathConfig, UdpPath};

use super::client::Transfer;
use super::error::DemoError;
use super::options::ServerKind;
use super::profile::Network;
use super::server::{Server, ServerSetup};
use super::stage::Stage;

/// Name of the file that it downloads.
const FILE_NAME: &str = "neighbour.bin";
/// Bytes of the file: 100 s at 50 Mbit/s.
const FILE_BYTES: u64 = 625_000_000;
/// Maximum time of the download, longer than the one beside it.
const LONGEST_TRANSFER: Duration = Duration::from_secs(900);

/// The parts that are the neighbour's own; the last mile is shared.
pub(crate) struct Neighbour {
    address: SocketAddr,
    authority: PathBuf,
    bytes: AtomicU64,
    elapsed: Mutex<Duration>,
    _far: UdpPath,
    _server: Server,
}

impl Neighbour {
    /// Starts its server and its far segment, and opens the last mile for it.
    pub(crate) async fn start(
        stage: &Stage<'_>,
        network: Network,
        last_mile: &mut UdpPath,
        work: &Path,
    ) -> Result<Self, DemoError> {
        let (files, work) = (stage.work.join("neighbour"), work.join("neighbour"));
        for folder in [&files, &work] {
            fs::create_dir_all(folder).map_err(|error| DemoError::write(folder, error))?;
        }
        let file = files.join(FILE_NAME);
        // Zeros, which take no place on the disk.
        fs::File::create(&file)
            .and_then(|file| file.set_len(FILE_BYTES))
            .map_err(|error| DemoError::write(&file, error))?;
        let setup = ServerSetup {
            parts: &stage.options.parts,
            certificate: &stage.certificate,
            files: &files,
            uploads: &work,
            takes_uploads: false,
            work: &work,
        };
        let server = Server::start(stage.options, ServerKind::Caddy, setup).await?;
        let far = UdpPath::start(PathConfig {
            server: server.address,
            upward: network.links().far_up,
            downward: network.links().far_down,
        })?;
        let address = last_mile.open_door(far.address())?;
        let authority = stage.certificate.authority.clone();
        let (bytes, elapsed) = (AtomicU64::new(0), Mutex::default());
        Ok(Self { address, authority, bytes, elapsed, _far: far, _server: server })
    }

    /// Waits for `main`, and downloads until then.
    pub(crate) async fn beside<T>(
        &self,
        main: impl Future<Output = Result<T, DemoError>>,
    ) -> Result<T, DemoError> {
        let transfer = Transfer {
            server: self.address,
            file: FILE_NAME,
            authority: &self.authority,
            assist: false,
            patience: LONGEST_TRANSFER,
        };
        let begun = Instant::now();
        let own = transfer.download(|bytes| self.bytes.store(bytes, Ordering::Relaxed));
        let result = tokio::select! {
            result = main => result,
            ended = own => match ended {
                Ok(_) => Err(DemoError::Transfer("the neighbour's download ended first".to_owned())),
                Err(error) => Err(error),
            },
        };
        *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner) = begun.elapsed();
        result
    }

    /// Goodput of the neighbour while the other download lasted.
    pub(crate) fn mbps(&self) -> f64 {
        let elapsed = *self.elapsed.lock().unwrap_or_else(PoisonError::into_inner);
        self.bytes.load(Ordering::Relaxed) as f64 * 8e-6 / elapsed.as_secs_f64().max(1e-9)
    }
}
