//! The part of a download that an earlier run has left.

/// The point at which to resume a download.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resume {
    /// Bytes that are there already.
    pub(crate) offset: u64,
    /// The ETag or Last-Modified date of the body that they belong to: the server sends everything
    /// when it has changed.
    pub(crate) validator: Option<String>,
    /// SHA-256 fed with these bytes, so that the report's digest covers the whole body.
    pub(crate) digest: sha2::Sha256,
}
