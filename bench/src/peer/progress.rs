//! A count that the clients write and the server reads, beside the measured path.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Number of datagrams received between two writes.
pub(crate) const WRITE_INTERVAL: u64 = 64;

/// The number of datagrams that all clients have received, in a file that both ends have open.
#[derive(Debug)]
pub(crate) struct Progress(File);

impl Progress {
    /// The file must exist.
    pub(crate) fn open(file: &Path) -> io::Result<Self> {
        Ok(Self(File::options().read(true).write(true).open(file)?))
    }

    /// The last number written; zero at first.
    pub(crate) fn received(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without a number nothing is known to have arrived, and the generator is slow.
        self.0.read_exact_at(&mut bytes, 0).map_or(0, |()| u64::from_le_bytes(bytes))
    }

    /// Writes the number.
    pub(crate) fn report(&self, received: u64) {
        // The next report replaces one that was not written.
        let _ = self.0.write_all_at(&received.to_le_bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_reads_the_last_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [clients, server] = [(); 2].map(|()| Progress::open(file.path()).unwrap());
        assert_eq!(server.received(), 0);
        clients.report(7);
        clients.report(1 << 40);
        assert_eq!(server.received(), 1 << 40);
    }
}
