//! The environment that all arms of a demo share.

use std::fs;
use std::path::{Path, PathBuf};

use super::certificate::Certificate;
use super::error::DemoError;
use super::options::{ArmName, ClientKind, DemoOptions};
use super::page;
use super::payload::Payload;
use super::profile::Network;

/// Name of the file that is transferred.
pub(crate) const FILE_NAME: &str = "payload.bin";
/// Name of a file that shows a server to be there.
pub(crate) const SMALL_FILE: &str = "ready";

/// The environment that all arms share.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// The user's options.
    pub(crate) options: &'a DemoOptions,
    /// The network with its loss.
    pub(crate) network: Network,
    /// The file to transfer.
    pub(crate) payload: Payload,
    /// The directory that servers serve.
    pub(crate) files: PathBuf,
    /// The certificate that servers show and clients trust.
    pub(crate) certificate: Certificate,
    /// The directory for everything that arms write.
    pub(crate) work: PathBuf,
    /// True if an unassisted download shares the last mile.
    pub(crate) neighbour: bool,
}

impl<'a> Stage<'a> {
    /// The network of an arm.
    pub(crate) fn network_of(&self, name: ArmName) -> Network {
        match name {
            ArmName::Lossless => self.network.without_loss(),
            _ => self.network,
        }
    }

    /// The directory of an arm.
    pub(crate) fn work_of(&self, name: ArmName) -> PathBuf {
        self.work.join(name.to_string())
    }

    /// The directory in which an arm's server keeps uploads.
    pub(crate) fn uploads_of(&self, name: ArmName) -> PathBuf {
        self.work_of(name).join("uploads")
    }

    /// Makes files and certificates in the folder `work`.
    pub(crate) fn new(
        options: &'a DemoOptions,
        network: Network,
        work: &Path,
        neighbour: bool,
    ) -> Result<Self, DemoError> {
        let files = work.join("files");
        fs::create_dir_all(&files).map_err(|error| DemoError::write(&files, error))?;
        let payload = Payload::new(options.seed, options.size.0);
        payload.write(&files.join(FILE_NAME))?;
        let small = files.join(SMALL_FILE);
        fs::write(&small, "ready").map_err(|error| DemoError::write(&small, error))?;
        if options.program.client == ClientKind::Chromium {
            page::write(&files, options.seed)?;
        }
        let certificate = Certificate::create(work)?;
        Ok(Self { options, network, payload, files, certificate, work: work.to_owned(), neighbour })
    }
}
