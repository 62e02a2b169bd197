//! Operations of this thread, counted where they are executed: a check on
//! [`crate::Decoder::take_work`], which counts the planned work. An operation is about a
//! multiplication in the field.

use core::cell::Cell;

std::thread_local! {
    static OPERATIONS: Cell<u64> = const { Cell::new(0) };
    static INSERTIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts operations.
#[inline]
pub fn count(operations: usize) {
    OPERATIONS.set(OPERATIONS.get().wrapping_add(operations as u64));
}

/// An insertion into a sketch, or a removal, in progress: operations counted until it ends belong
/// to it.
#[derive(Debug)]
pub(crate) struct Insertion {
    before: u64,
}

impl Insertion {
    pub(crate) fn begin() -> Self {
        Self { before: counted() }
    }
}

impl Drop for Insertion {
    #[inline]
    fn drop(&mut self) {
        let operations = counted().wrapping_sub(self.before);
        INSERTIONS.set(INSERTIONS.get().wrapping_add(operations));
    }
}

/// Operations of this thread's insertions into sketches, and removals, so far.
pub fn counted_insertions() -> u64 {
    INSERTIONS.get()
}

/// Operations of this thread so far.
pub fn counted() -> u64 {
    OPERATIONS.get()
}
