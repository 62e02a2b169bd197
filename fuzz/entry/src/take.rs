//! Parts of a fuzz input.

/// Takes a length byte, and that many of the remaining bytes.
pub fn take<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((&length, tail)) = rest.split_first() else { return &[] };
    let (taken, tail) = tail.split_at(tail.len().min(usize::from(length)));
    *rest = tail;
    taken
}
