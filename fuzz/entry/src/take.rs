//! Parts of a fuzz input.

/// A length byte, and as many of the remaining bytes as it says.
pub fn take<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((&length, tail)) = rest.split_first() else { return &[] };
    let (taken, tail) = tail.split_at(tail.len().min(usize::from(length)));
    *rest = tail;
    taken
}
