//! The body of an upload: a file, or a stream of unknown length.

use super::error::GetError;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use tokio::sync::mpsc;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Most pieces that wait for QUIC.
const WAITING_CHUNKS: usize = 4;

/// The bytes of an upload, read in a thread of their own: a slow disk or pipe does not hold up the
/// connection, and a large file is never in memory as a whole.
pub(crate) struct Source {
    name: String,
    length: Option<u64>,
    chunks: mpsc::Receiver<io::Result<Bytes>>,
}

impl Source {
    /// The file at `path`; `-` is the standard input. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The file cannot be opened, or is a folder.
    pub(crate) fn open(path: &Path) -> Result<Self, GetError> {
        if path.as_os_str() == "-" {
            return Ok(Self::reading("the standard input".to_owned(), None, io::stdin()));
        }
        Self::opened(path, opened(path))
    }

    /// Reads these bytes of the file at `path`, which may have more by now. Must be called inside a
    /// Tokio runtime.
    ///
    /// # Errors
    /// The file cannot be opened, or is a folder.
    pub(crate) fn open_range(path: &Path, bytes: Range<u64>) -> Result<Self, GetError> {
        let range = opened(path).and_then(|(mut file, _)| {
            file.seek(SeekFrom::Start(bytes.start))?;
            Ok((file, Some(bytes.end.saturating_sub(bytes.start))))
        });
        Self::opened(path, range)
    }

    fn opened(path: &Path, opened: io::Result<(File, Option<u64>)>) -> Result<Self, GetError> {
        let name = path.display().to_string();
        match opened {
            Ok((file, length)) => Ok(Self::reading(name, length, file)),
            Err(source) => Err(GetError::Read { name, source }),
        }
    }

    /// The bytes of `reader`, which are `length` bytes where that is known.
    pub(crate) fn reading(
        name: String,
        length: Option<u64>,
        reader: impl Read + Send + 'static,
    ) -> Self {
        let (sender, chunks) = mpsc::channel(WAITING_CHUNKS);
        tokio::task::spawn_blocking(move || read(reader, length, &sender));
        Self { name, length, chunks }
    }

    /// Name of the source, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of it, when they are known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// It cannot be read, or ends before its length.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, GetError> {
        let chunk = self.chunks.recv().await.transpose();
        chunk.map_err(|source| GetError::Read { name: self.name.clone(), source })
    }
}

/// The length of the file at `path`; `None` where that is not known.
///
/// # Errors
/// It cannot be opened, or is a folder.
pub(crate) fn length(path: &Path) -> io::Result<Option<u64>> {
    let is_pipe = |path: &Path| {
        let kind = std::fs::metadata(path)?;
        Ok::<_, io::Error>(!kind.is_file() && !kind.is_dir())
    };
    // Opening a pipe would wait for its writer.
    if path.as_os_str() == "-" || is_pipe(path)? { Ok(None) } else { Ok(opened(path)?.1) }
}

fn opened(path: &Path) -> io::Result<(File, Option<u64>)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // Pipes and devices do not know.
    let length = metadata.is_file().then_some(metadata.len());
    Ok((file, length))
}

/// Reads to the end, or to `length`: a file may grow while it is read.
fn read(mut reader: impl Read, length: Option<u64>, sender: &mpsc::Sender<io::Result<Bytes>>) {
    let mut left = length.unwrap_or(u64::MAX);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut chunk = vec![0; most];
        let read = match reader.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) if length.is_some() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
        let chunk = match read {
            Ok(0) => return,
            Ok(read) => {
                chunk.truncate(read);
                left -= read as u64;
                Ok(Bytes::from(chunk))
            }
            Err(error) => Err(error),
        };
        let is_last = chunk.is_err();
        // The upload may have ended.
        if sender.blocking_send(chunk).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut source: Source) -> Result<Vec<u8>, GetError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = source.next().await? {
            assert!(chunk.len() <= CHUNK_BYTES, "it is read piece by piece");
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn a_file_is_read_piece_by_piece_and_a_stream_to_its_end() {
        let bytes: Vec<u8> = (0..300_001_u32).map(|at| (at % 251) as u8).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, &bytes).unwrap();
        let source = Source::open(&path).unwrap();
        assert_eq!(source.length(), Some(300_001));
        assert_eq!(all(source).await.unwrap(), bytes);
        let stream = Source::reading("a stream".to_owned(), None, io::Cursor::new(bytes.clone()));
        assert_eq!(all(stream).await.unwrap(), bytes);
        // One that grows while it is sent has promised its length.
        let grown = Source::reading("a file".to_owned(), Some(100), io::Cursor::new(bytes.clone()));
        assert_eq!(all(grown).await.unwrap(), bytes[..100]);
        let rest = Source::open_range(&path, 200_000..300_000).unwrap();
        assert_eq!(rest.length(), Some(100_000));
        assert_eq!(all(rest).await.unwrap(), bytes[200_000..300_000]);
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_an_error() {
        let short = Source::reading("a file".to_owned(), Some(4), io::Cursor::new(b"abc"));
        let error = all(short).await.unwrap_err();
        assert_eq!((error.exit_code(), error.kind()), (26, "read"));
        assert!(error.to_string().contains("become shorter"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let error = Source::open(folder.path()).err().unwrap();
        assert!(error.to_string().contains("not a folder"), "{error}");
        let error = Source::open(&folder.path().join("missing")).err().unwrap();
        assert!(error.to_string().contains("check the name"), "{error}");
    }
}
