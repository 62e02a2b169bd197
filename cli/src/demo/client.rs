//! The client of the demo: the downloader of `packrat get`.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use packrat_s2n_quic::ClientConfig;

use super::error::DemoError;
use crate::get::{Progress, Report, Request, Trust, download, read_certificates};

/// The parameters of a download.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Download<'a> {
    /// The near end of the last mile.
    pub(crate) server: SocketAddr,
    /// Name of the file.
    pub(crate) file: &'a str,
    /// PEM file of the only trusted authority.
    pub(crate) authority: &'a Path,
    /// True if the client looks for a gateway.
    pub(crate) assist: bool,
    /// Time after which the download stops in any case.
    pub(crate) patience: Duration,
}

impl Download<'_> {
    /// Downloads; calls `progress` with the number of bytes that have arrived. The file is hashed
    /// and not kept.
    pub(crate) async fn run(&self, progress: impl Fn(u64)) -> Result<Report, DemoError> {
        let failed = |error: crate::get::GetError| DemoError::Download(error.to_string());
        let mut request =
            Request::new(&format!("https://localhost/{}", self.file)).map_err(failed)?;
        request.connect_to = Some((self.server.ip().to_string(), self.server.port()));
        let additional = read_certificates(self.authority).map_err(failed)?;
        request.trust = Trust { system_roots: false, additional };
        request.assist = self.assist.then(ClientConfig::default);
        request.stop_after = Some(self.patience);
        let mut nowhere = io::sink();
        let report = download(&request, &mut nowhere, |event| {
            if let Progress::Data { bytes } = event {
                progress(bytes);
            }
        });
        report.await.map_err(failed)
    }
}
