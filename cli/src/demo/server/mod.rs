//! The unmodified HTTP/3 servers that send.

mod aioquic;
mod caddy;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::certificate::Certificate;
use super::error::DemoError;
use super::options::ServerKind;
use super::process::Process;

/// What a server needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerSetup<'a> {
    /// Where `make demo` installed the servers.
    pub(crate) parts: &'a Path,
    /// What the server shows to clients.
    pub(crate) certificate: &'a Certificate,
    /// The folder whose files are served.
    pub(crate) files: &'a Path,
    /// Where configuration, log and qlog of this server go.
    pub(crate) work: &'a Path,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    /// Where it listens, over UDP.
    pub(crate) address: SocketAddr,
    /// Where it writes its own account of what it sent and what it believed lost.
    pub(crate) qlogs: PathBuf,
}

impl Server {
    /// Starts a server of this kind and waits until it listens.
    pub(crate) async fn start(kind: ServerKind, setup: ServerSetup<'_>) -> Result<Self, DemoError> {
        let qlogs = setup.work.join("qlog");
        std::fs::create_dir_all(&qlogs).map_err(|error| DemoError::write(&qlogs, error))?;
        let address = super::process::free_address()?;
        let process = match kind {
            ServerKind::Caddy => caddy::start(setup, address, &qlogs).await?,
            ServerKind::Aioquic => aioquic::start(setup, address, &qlogs).await?,
        };
        Ok(Self { process, address, qlogs })
    }

    /// An error when the server has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        self.process.check()
    }

    /// Ends the server, so that its qlog is complete, and returns the folder of the qlog.
    pub(crate) async fn stop(self) -> PathBuf {
        self.process.stop().await;
        self.qlogs
    }
}
