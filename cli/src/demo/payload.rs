//! The file that is transferred: random bytes, which nothing can compress or guess.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use packrat_wire::hexadecimal;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::error::DemoError;

/// Bytes that are made at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// The bytes that follow from a seed; they can be made again at any time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload {
    seed: u64,
    /// Length in bytes.
    pub(crate) size: u64,
}

impl Payload {
    /// `size` bytes that follow from `seed`.
    pub(crate) fn new(seed: u64, size: u64) -> Self {
        Self { seed, size }
    }

    /// Writes all of it into `file`.
    pub(crate) fn write(&self, file: &Path) -> Result<(), DemoError> {
        let written = File::create(file).and_then(|opened| {
            let mut writer = BufWriter::new(opened);
            self.chunks(self.size, |chunk| writer.write_all(chunk))?;
            writer.flush()
        });
        written.map_err(|error| DemoError::write(file, error))
    }

    /// SHA-256, in hexadecimal, of the first `length` bytes: the hash of a download stopped after
    /// them.
    pub(crate) fn sha256_of_first(&self, length: u64) -> String {
        let mut hash = Sha256::new();
        let hashed: Result<(), std::convert::Infallible> = self.chunks(length, |chunk| {
            hash.update(chunk);
            Ok(())
        });
        match hashed {
            Ok(()) => hexadecimal::encode(&hash.finalize()),
        }
    }

    fn chunks<E>(
        &self,
        length: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut left = length.min(self.size);
        while left > 0 {
            random.fill_bytes(&mut buffer);
            let take = (left as usize).min(CHUNK_BYTES);
            each(&buffer[..take])?;
            left -= take as u64;
        }
        Ok(())
    }
}

/// Length and SHA-256, in hexadecimal, of the content of `reader`.
pub(crate) fn hash(mut reader: impl Read) -> io::Result<(u64, String)> {
    let (mut hash, mut buffer, mut length) = (Sha256::new(), vec![0; CHUNK_BYTES], 0);
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((length, hexadecimal::encode(&hash.finalize()))),
            Ok(read) => {
                hash.update(&buffer[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_beginning_is_that_of_the_files_beginning() {
        let payload = Payload::new(3, 200_001);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("payload");
        payload.write(&file).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes.len(), 200_001);
        for length in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 200_001] {
            let expected = format!("{:x}", Sha256::digest(&bytes[..length]));
            assert_eq!(payload.sha256_of_first(length as u64), expected, "{length}");
        }
        assert_ne!(Payload::new(4, 200_001).sha256_of_first(100), payload.sha256_of_first(100));
    }
}
