//! Random bytes for keys and seeds.

/// A source of random bytes.
#[derive(Debug, Default)]
pub(crate) enum Random {
    /// The operating system.
    #[default]
    System,
    /// The caller, so that a run can be repeated.
    #[cfg(feature = "virtual-time")]
    Seeded(Box<parking_lot::Mutex<rand_chacha::ChaCha8Rng>>),
}

impl Random {
    /// Fresh bytes.
    pub(crate) fn bytes<const N: usize>(&self) -> Result<[u8; N], getrandom::Error> {
        let mut bytes = [0; N];
        match self {
            Self::System => getrandom::fill(&mut bytes)?,
            #[cfg(feature = "virtual-time")]
            Self::Seeded(generator) => {
                rand_chacha::rand_core::RngCore::fill_bytes(&mut *generator.lock(), &mut bytes);
            }
        }
        Ok(bytes)
    }
}
