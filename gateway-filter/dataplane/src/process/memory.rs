//! Memory that datagrams have taken goes back to the operating system after they have passed.
//!
//! An allocator keeps what was freed, for the next allocation. After a burst of thousands of sessions
//! that is most of the process's memory, which the rest of the machine could use.

/// Less than this is not worth the system calls.
const WORTH: usize = 8 << 20;

/// The tide of the memory that is kept for datagrams.
#[derive(Debug, Default)]
pub(super) struct Tide {
    /// Most bytes since memory was given back.
    high: usize,
}

impl Tide {
    /// So many bytes are kept now. True if so many less are kept than before that memory should be
    /// given back.
    pub(super) fn has_ebbed(&mut self, kept: usize) -> bool {
        self.high = self.high.max(kept);
        let has_ebbed = self.high >= WORTH && kept <= self.high / 2;
        if has_ebbed {
            self.high = kept;
        }
        has_ebbed
    }
}

/// Has the C library give back what is free. Other threads that allocate wait meanwhile, for some
/// milliseconds at most: what is kept for datagrams is limited.
pub(super) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: a number as argument, no pointers; it may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_when_a_burst_has_passed() {
        let mut tide = Tide::default();
        assert!(!tide.has_ebbed(WORTH - 1) && !tide.has_ebbed(0), "a little stays");
        assert!(!tide.has_ebbed(40 << 20) && !tide.has_ebbed(22 << 20));
        assert!(tide.has_ebbed(20 << 20));
        assert!(!tide.has_ebbed(19 << 20) && !tide.has_ebbed(20 << 20), "it has been given back");
        assert!(tide.has_ebbed(0) && !tide.has_ebbed(0));
    }
}
