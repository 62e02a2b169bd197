//! The unmodified HTTP/3 servers at the far end.

mod aioquic;
mod caddy;
mod sink;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::certificate::Certificate;
use super::error::DemoError;
use super::options::ServerKind;
use super::process::Process;

/// The parameters of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerSetup<'a> {
    /// The directory in which `make demo` installed the servers.
    pub(crate) parts: &'a Path,
    /// The certificate that the server shows to clients.
    pub(crate) certificate: &'a Certificate,
    /// The directory whose files are served.
    pub(crate) files: &'a Path,
    /// The directory in which it keeps what is uploaded.
    pub(crate) uploads: &'a Path,
    /// True if there will be any.
    pub(crate) takes_uploads: bool,
    /// The directory for configuration, log and qlog of this server.
    pub(crate) work: &'a Path,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    /// Caddy takes uploads for a program behind it.
    sink: Option<Process>,
    /// The UDP address at which it listens.
    pub(crate) address: SocketAddr,
    /// The directory of its qlogs, its own account of packets sent and declared lost.
    pub(crate) qlogs: PathBuf,
}

impl Server {
    /// Starts a server of this kind and waits until it listens.
    pub(crate) async fn start(kind: ServerKind, setup: ServerSetup<'_>) -> Result<Self, DemoError> {
        let qlogs = setup.work.join("qlog");
        std::fs::create_dir_all(&qlogs).map_err(|error| DemoError::write(&qlogs, error))?;
        let address = super::process::free_address()?;
        let (process, sink) = match kind {
            ServerKind::Caddy if setup.takes_uploads => {
                let (sink, behind) = sink::start(setup).await?;
                (caddy::start(setup, address, &qlogs, Some(behind)).await?, Some(sink))
            }
            ServerKind::Caddy => (caddy::start(setup, address, &qlogs, None).await?, None),
            ServerKind::Aioquic => (aioquic::start(setup, address, &qlogs).await?, None),
        };
        Ok(Self { process, sink, address, qlogs })
    }

    /// Fails when the server has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        self.sink.as_mut().map_or(Ok(()), Process::check)?;
        self.process.check()
    }

    /// Ends the server, so that its qlog is complete, and returns the folder of the qlog.
    pub(crate) async fn stop(self) -> PathBuf {
        self.process.stop().await;
        if let Some(sink) = self.sink {
            sink.stop().await;
        }
        self.qlogs
    }
}
