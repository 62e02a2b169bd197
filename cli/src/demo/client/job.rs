//! The work of a client, and its outcome.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::report::TimesReport;
use super::super::stage::Stage;
use super::packrat::Transfer;
use crate::http3::Report;

/// The work of a client.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) stage: &'a Stage<'a>,
    pub(crate) transfer: Transfer<'a>,
    /// The SOCKS proxy through which the client reaches the server.
    pub(crate) proxy: Option<SocketAddr>,
    /// The TURN server through which the client reaches the server.
    pub(crate) turn: Option<SocketAddr>,
    /// The directory of the arm.
    pub(crate) work: &'a Path,
    /// Answers of the server, if it counts them.
    pub(crate) answers: Option<Arc<AtomicU64>>,
}

/// What a client has done.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Report on the program's download.
    pub(crate) report: Report,
    /// Other measurements of the program.
    pub(crate) times: Option<TimesReport>,
    /// True if all received data was right; for clients that compare the data themselves, because
    /// their server is not the demo's.
    pub(crate) verified: Option<bool>,
}

impl From<Report> for Outcome {
    fn from(report: Report) -> Self {
        Self { report, times: None, verified: None }
    }
}
