//! Operations of this thread, counted where they are executed: a check on
//! [`crate::Decoder::take_work`], which counts the planned work. An operation is about a
//! multiplication in the field.

use core::cell::Cell;

std::thread_local! {
    /// Operations of this thread.
    static OPERATION_COUNT: Cell<u64> = const { Cell::new(0) };
    /// Operations of this thread's insertions and removals.
    static INSERTION_COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts operations.
#[inline]
pub fn count(operations: usize) {
    OPERATION_COUNT.set(OPERATION_COUNT.get().wrapping_add(operations as u64));
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
        INSERTION_COUNT.set(INSERTION_COUNT.get().wrapping_add(operations));
    }
}

/// Operations of this thread's insertions into sketches, and removals, so far.
pub fn counted_insertions() -> u64 {
    INSERTION_COUNT.get()
}

/// Operations of this thread so far.
pub fn counted() -> u64 {
    OPERATION_COUNT.get()
}
