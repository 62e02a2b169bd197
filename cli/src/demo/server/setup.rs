//! The parameters of a server.

use std::path::Path;

use super::super::certificate::Certificate;

/// The parameters of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerSetup<'a> {
    /// The directory in which `make demo` installed the servers.
    pub(crate) parts: &'a Path,
    /// The certificate that the server shows to clients.
    pub(crate) certificate: &'a Certificate,
    /// The directory whose files are served.
    pub(crate) files: &'a Path,
    /// The directory in which the server keeps uploads.
    pub(crate) uploads: &'a Path,
    /// True if there will be any.
    pub(crate) takes_uploads: bool,
    /// The directory for configuration, log and qlog of this server.
    pub(crate) work: &'a Path,
}
