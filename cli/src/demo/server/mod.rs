//! The unmodified HTTP/3 servers at the far end, and the servers of other clients.

mod aioquic;
mod caddy;
mod echo;
mod ngtcp2;
mod setup;
mod sink;
mod webrtc;
mod wireguard;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::error::DemoError;
use super::options::{ClientKind, DemoOptions, ServerKind};
use super::process::Process;

pub(crate) use setup::ServerSetup;

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    running: Running,
    /// Caddy takes uploads for a program behind it.
    sink: Option<Process>,
    /// The UDP address at which it listens.
    pub(crate) address: SocketAddr,
    /// The directory of its qlogs, its own account of packets sent and declared lost.
    pub(crate) qlogs: PathBuf,
}

#[derive(Debug)]
enum Running {
    Process(Process),
    Echo(echo::Echo),
}

impl Server {
    /// Starts a server of this kind, or the one for the options' client, and waits until it
    /// listens.
    pub(crate) async fn start(
        options: &DemoOptions,
        kind: ServerKind,
        setup: ServerSetup<'_>,
    ) -> Result<Self, DemoError> {
        let qlogs = setup.work.join("qlog");
        std::fs::create_dir_all(&qlogs).map_err(|error| DemoError::write(&qlogs, error))?;
        let address = super::process::free_address()?;
        let mut sink = None;
        let (process, address) = match (options.program.client, kind) {
            (ClientKind::Echo, _) => {
                let echo = echo::Echo::start().map_err(DemoError::Port)?;
                let address = echo.address;
                return Ok(Self { running: Running::Echo(echo), sink, address, qlogs });
            }
            (ClientKind::Webrtc, _) => webrtc::start(setup).await?,
            (ClientKind::BrowserWebrtc, _) => webrtc::forward(setup).await?,
            (ClientKind::Wireguard, _) => (wireguard::start(setup, address).await?, address),
            (_, ServerKind::Caddy) => {
                let mut behind = None;
                if setup.takes_uploads {
                    let (process, its_address) = sink::start(setup).await?;
                    (sink, behind) = (Some(process), Some(its_address));
                }
                (caddy::start(setup, address, &qlogs, behind).await?, address)
            }
            (_, ServerKind::Ngtcp2) => (ngtcp2::start(setup, address, &qlogs).await?, address),
            (_, ServerKind::Aioquic) => (aioquic::start(setup, address, &qlogs).await?, address),
        };
        Ok(Self { running: Running::Process(process), sink, address, qlogs })
    }

    /// Fails when the server has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        self.sink.as_mut().map_or(Ok(()), Process::check)?;
        match &mut self.running {
            Running::Process(process) => process.check(),
            Running::Echo(_) => Ok(()),
        }
    }

    /// The number of answers of an echo.
    pub(crate) fn echo(&self) -> Option<Arc<AtomicU64>> {
        match &self.running {
            Running::Process(_) => None,
            Running::Echo(echo) => Some(Arc::clone(&echo.answers)),
        }
    }

    /// Ends the server, so that its qlog is complete, and returns the folder of the qlog.
    pub(crate) async fn stop(self) -> PathBuf {
        if let Running::Process(process) = self.running {
            process.stop().await;
        }
        if let Some(sink) = self.sink {
            sink.stop().await;
        }
        self.qlogs
    }
}
