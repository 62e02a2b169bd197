//! An allocator that counts for each thread by itself: a test's counts do not depend on the tests
//! that run beside it.
#![allow(unsafe_code)] // an allocator; each call is passed on to the system's

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

/// Counts of one thread since it began.
#[derive(Clone, Copy)]
struct Counts {
    allocations: usize,
    allocated_bytes: usize,
    freed_bytes: usize,
}

thread_local! {
    static COUNTS: Cell<Counts> =
        const { Cell::new(Counts { allocations: 0, allocated_bytes: 0, freed_bytes: 0 }) };
}

fn count(allocations: usize, allocated_bytes: usize, freed_bytes: usize) {
    let counts = COUNTS.get();
    COUNTS.set(Counts {
        allocations: counts.allocations + allocations,
        allocated_bytes: counts.allocated_bytes + allocated_bytes,
        freed_bytes: counts.freed_bytes + freed_bytes,
    });
}

// SAFETY: every call goes to the system's allocator as it came, and the counts neither allocate nor
// have a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, 0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(1, new_size, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// The moment from which a thread's allocations are counted.
pub(crate) struct Since(Counts);

impl Since {
    pub(crate) fn now() -> Self {
        Self(COUNTS.get())
    }

    /// Number of allocations, with each that enlarges another one.
    pub(crate) fn allocations(&self) -> usize {
        COUNTS.get().allocations - self.0.allocations
    }

    /// Bytes allocated since then and not freed.
    pub(crate) fn held_bytes(&self) -> usize {
        let now = COUNTS.get();
        (now.allocated_bytes + self.0.freed_bytes) - (self.0.allocated_bytes + now.freed_bytes)
    }

    /// Bytes freed since then, less the bytes allocated.
    pub(crate) fn freed_bytes(&self) -> usize {
        let now = COUNTS.get();
        (now.freed_bytes + self.0.allocated_bytes) - (self.0.freed_bytes + now.allocated_bytes)
    }
}
