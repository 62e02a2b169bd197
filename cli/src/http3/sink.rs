//! Destinations of a download's body.

use std::io;

/// Destination of the body. Every [`io::Write`] is a sink.
pub(crate) trait Sink {
    /// Begins the body at its byte `offset`: bytes behind that are thrown away. `version`: the ETag
    /// or Last-Modified date of a body that begins at byte 0, if the server sends one.
    ///
    /// # Errors
    /// When the sink cannot be written.
    fn begin(&mut self, offset: u64, version: Option<&str>) -> io::Result<()>;

    /// Takes the next bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    fn put(&mut self, data: &[u8]) -> io::Result<()>;

    /// Name of the sink, for messages.
    fn name(&self) -> String;
}

impl<W: io::Write> Sink for W {
    fn begin(&mut self, _offset: u64, _version: Option<&str>) -> io::Result<()> {
        Ok(())
    }

    fn put(&mut self, data: &[u8]) -> io::Result<()> {
        self.write_all(data)
    }

    fn name(&self) -> String {
        "the output".to_owned()
    }
}
