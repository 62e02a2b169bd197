//! Quacks that are no sketches.

use sha2::{Digest, Sha256};
use std::collections::VecDeque;

/// Strawman 1b: each quACK lists the most recent identifiers, so that a lost quACK does no harm
/// while others come. With a window of one it is strawman 1a, and over TCP 1c.
#[derive(Debug, Clone)]
pub(crate) struct SlidingWindow {
    length: usize,
    last: VecDeque<u32>,
}

impl SlidingWindow {
    /// A window of this many identifiers.
    pub(crate) fn new(length: usize) -> Self {
        Self { length, last: VecDeque::with_capacity(length) }
    }

    /// Writes the quACK that follows the arrival of `identifier` behind `out`.
    pub(crate) fn quack(&mut self, identifier: u32, out: &mut Vec<u8>) {
        if self.last.len() == self.length {
            self.last.pop_front();
        }
        self.last.push_back(identifier);
        for identifier in &self.last {
            out.extend_from_slice(&identifier.to_be_bytes());
        }
    }
}

/// Strawman 2: a SHA-256 hash of all that has arrived, sorted, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashQuack {
    hash: [u8; 32],
    count: u32,
}

fn hash_of(sorted: impl Iterator<Item = u32>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for identifier in sorted {
        hash.update(identifier.to_be_bytes());
    }
    hash.finalize().into()
}

impl HashQuack {
    /// Bytes of its hash and its count.
    pub(crate) const LENGTH: usize = 32 + 4;

    /// The quACK of the packets received.
    pub(crate) fn new(mut received: Vec<u32>) -> Self {
        received.sort_unstable();
        let count = received.len() as u32;
        Self { hash: hash_of(received.into_iter()), count }
    }

    /// The identifiers of `sent` that are missing, and how many subsets were hashed: every subset of the
    /// right size is tried until one has the hash.
    pub(crate) fn decode(&self, mut sent: Vec<u32>) -> (Option<Vec<u32>>, u64) {
        sent.sort_unstable();
        let Some(missing) = sent.len().checked_sub(self.count as usize) else { return (None, 0) };
        // The chosen places, ascending; the next choice in lexicographic order each time.
        let mut chosen: Vec<usize> = (0..missing).collect();
        let mut tried = 0;
        loop {
            tried += 1;
            let left = sent.iter().enumerate().filter(|(at, _)| chosen.binary_search(at).is_err());
            if hash_of(left.map(|(_, identifier)| *identifier)) == self.hash {
                return (Some(chosen.iter().map(|at| sent[*at]).collect()), tried);
            }
            let last_free = (0..missing).rfind(|at| chosen[*at] < sent.len() - missing + at);
            let Some(at) = last_free else { return (None, tried) };
            let first = chosen[at] + 1;
            for (offset, place) in chosen[at..].iter_mut().enumerate() {
                *place = first + offset;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_what_is_missing_after_at_most_all_subsets() {
        let sent: Vec<u32> = (0..12_u32).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
        let quack = HashQuack::new(sent.iter().copied().skip(3).collect());
        let (missing, tried) = quack.decode(sent.clone());
        let mut expected = sent[..3].to_vec();
        expected.sort_unstable();
        assert_eq!(missing, Some(expected));
        assert!((1..=220).contains(&tried), "{tried}");
        let foreign = HashQuack::new((100..109).collect());
        assert_eq!(foreign.decode(sent), (None, 220), "all subsets of three of twelve");
    }

    #[test]
    fn a_window_repeats_the_last_identifiers() {
        let mut window = SlidingWindow::new(2);
        let quacks = [1, 2, 3].map(|identifier| {
            let mut out = Vec::new();
            window.quack(identifier, &mut out);
            out
        });
        assert_eq!(quacks.map(|quack| quack.len()), [4, 8, 8]);
    }
}
