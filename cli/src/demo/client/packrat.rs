//! The client of the demo: the downloader of `packrat get`, and the uploader of `packrat put`.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::Method;
use packrat_s2n_quic::ClientConfig;

use super::super::error::DemoError;
use crate::http3::{
    Begun, Connections, GetError, Progress, Report, Request, Source, Trust, Upload, download,
    read_certificates, upload,
};

/// The parameters of a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer<'a> {
    /// The near end of the last mile.
    pub(crate) server: SocketAddr,
    /// Name of the file.
    pub(crate) file: &'a str,
    /// PEM file of the only trusted authority.
    pub(crate) authority: &'a Path,
    /// True if the client looks for a gateway.
    pub(crate) assist: bool,
    /// Time after which the transfer stops in any case.
    pub(crate) patience: Duration,
}

impl Transfer<'_> {
    /// Downloads; calls `progress` with the number of bytes that have arrived. The file is hashed
    /// and not kept.
    pub(crate) async fn download(&self, progress: impl Fn(u64)) -> Result<Report, DemoError> {
        let request = self.request().map_err(failed)?;
        let connections = Connections::default();
        let report = download(&connections, &request, &mut io::sink(), bytes_of(progress)).await;
        connections.close().await.and(report).map_err(failed)
    }

    /// Uploads `source`, a file; calls `progress` with the number of bytes that QUIC has taken.
    pub(crate) async fn upload(
        &self,
        source: &Path,
        progress: impl Fn(u64),
    ) -> Result<Report, DemoError> {
        let mut request = self.request().map_err(failed)?;
        request.assist = request.assist.map(|assist| assist.with_uploads(true));
        let source = Source::open(source).map_err(failed)?;
        let body = Upload {
            method: Method::PUT,
            headers: http::HeaderMap::new(),
            source,
            begun: Begun::default(),
            whole: None,
            offered: None,
        };
        let report = upload(&request, body, &mut io::sink(), bytes_of(progress)).await;
        report.map_err(failed)
    }

    fn request(&self) -> Result<Request, GetError> {
        let mut request = Request::new(&format!("https://localhost/{}", self.file))?;
        request.connect_to = Some((self.server.ip().to_string(), self.server.port()));
        let additional = read_certificates(self.authority)?;
        request.trust = Trust { system_roots: false, additional };
        request.assist = self.assist.then(ClientConfig::default);
        request.stop_after = Some(self.patience);
        Ok(request)
    }
}

fn failed(error: GetError) -> DemoError {
    DemoError::Transfer(error.to_string())
}

fn bytes_of(progress: impl Fn(u64)) -> impl FnMut(Progress) {
    move |event| {
        if let Progress::Data { bytes } = event {
            progress(bytes);
        }
    }
}
