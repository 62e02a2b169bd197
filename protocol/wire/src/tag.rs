//! Tags: half of a keyed SHA-256 digest, by which the holder of a key knows its own words again.

/// Bytes of a tag.
pub(crate) const TAG_LENGTH: usize = 16;

/// True if both tags are the same. There is no early exit: the comparison takes the same time
/// wherever the first difference is.
pub(crate) fn is_same(expected: &[u8; TAG_LENGTH], tag: &[u8; TAG_LENGTH]) -> bool {
    expected.iter().zip(tag).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
