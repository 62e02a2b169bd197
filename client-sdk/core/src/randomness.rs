//! Randomness of one client, from the seed that it was given.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use zeroize::Zeroizing;

/// Generator of nonces and of the seeds of handshakes. Between two uses it keeps only its seed and
/// its position in memory, and overwrites the seed when it is dropped.
pub(crate) struct Randomness {
    seed: Zeroizing<[u8; 32]>,
    position: u128,
}

impl core::fmt::Debug for Randomness {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Randomness(..)")
    }
}

impl Randomness {
    /// Creates the generator from `seed`: 32 fresh random bytes.
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed: Zeroizing::new(seed), position: 0 }
    }

    fn generate<R>(&mut self, draw: impl FnOnce(&mut ChaCha20Rng) -> R) -> R {
        let mut generator = ChaCha20Rng::from_seed(*self.seed);
        generator.set_word_pos(self.position);
        let drawn = draw(&mut generator);
        self.position = generator.get_word_pos();
        drawn
    }

    /// Nonce and seed of one handshake attempt.
    pub(crate) fn attempt(&mut self) -> (u64, [u8; 32]) {
        self.generate(|generator| {
            let mut seed = [0; 32];
            generator.fill_bytes(&mut seed);
            (generator.next_u64(), seed)
        })
    }

    /// Four bytes.
    pub(crate) fn word(&mut self) -> u32 {
        self.generate(RngCore::next_u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_repeat_and_follow_one_generator_from_the_seed() {
        let mut generator = ChaCha20Rng::from_seed([7; 32]);
        let mut random = Randomness::new([7; 32]);
        for _ in 0..100 {
            let (nonce, seed) = random.attempt();
            let mut expected = [0; 32];
            generator.fill_bytes(&mut expected);
            assert_eq!((seed, nonce), (expected, generator.next_u64()));
            assert_eq!(random.word(), generator.next_u32());
        }
    }

    #[test]
    fn the_seed_is_overwritten_when_it_is_dropped() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        is_wiped(&Randomness::new([7; 32]).seed);
    }
}
