//! A shim with the state of its handle, and the caller's memory.

use packrat_client::{ClientConfig, GuardedShim, Released, Shim, Timestamp};

use crate::{PACKRAT_ARGUMENT, PACKRAT_SPACE, Statistics, code};

/// A handle's contents.
pub(crate) struct Handle {
    pub(crate) shim: GuardedShim<u8>,
    /// The next datagram for the transport, while its buffer is too small.
    pub(crate) released: Option<Released<u8>>,
    /// The next control datagram, likewise.
    pub(crate) control: Option<Vec<u8>>,
    /// The latest time that the caller has passed.
    now: Timestamp,
}

impl Handle {
    pub(crate) fn new(config: ClientConfig, seed: [u8; 32], now: u64) -> Self {
        let now = Timestamp::of_caller(now);
        let shim = Shim::new(config, seed, now);
        let shim = GuardedShim::new(Some(Box::new(shim)));
        Self { shim, released: None, control: None, now }
    }

    /// The caller's time, which does not go back.
    pub(crate) fn time(&mut self, now: u64) -> Timestamp {
        self.now = self.now.max(Timestamp::of_caller(now));
        self.now
    }

    pub(crate) fn next_released(&mut self) -> Option<&Released<u8>> {
        if self.released.is_none() {
            self.released = self.shim.poll_deliver();
        }
        self.released.as_ref()
    }

    pub(crate) fn next_control(&mut self, now: Timestamp) -> Option<&[u8]> {
        if self.control.is_none() {
            self.control = self.shim.poll_transmit(now);
        }
        self.control.as_deref()
    }

    pub(crate) fn statistics(&mut self) -> Statistics {
        let counters = self.shim.counters();
        let round_trip = self.shim.stats().0.round_trip.map_or(0, |time| time.as_micros());
        Statistics {
            size: 0,
            condition: code(self.shim.condition()),
            round_trip: u64::try_from(round_trip).unwrap_or(u64::MAX),
            waiting_bytes: self.shim.waiting_bytes() as u64,
            sent_datagrams: counters.sent_datagrams,
            sent_bytes: counters.sent_bytes,
            delivered_datagrams: counters.delivered_datagrams,
            delivered_bytes: counters.delivered_bytes,
            sessions: counters.sessions,
            holes: counters.holes,
            repaired_in_time: counters.repaired_in_time,
            repaired_late: counters.repaired_late,
            given_up: counters.given_up,
            recovered: counters.recovered,
            kept: counters.kept,
            duplicates: counters.duplicates,
            control_dropped: counters.control_dropped,
            eacks: counters.eacks,
            eack_bytes: counters.eack_bytes,
            control_bytes_sent: counters.control_bytes_sent,
            control_bytes_received: counters.control_bytes_received,
            upward_numbered: counters.upward_numbered,
            upward_missing: counters.upward_missing,
            upward_repairs: counters.upward_repairs,
        }
    }
}

/// The caller's bytes. NULL is allowed if there are none.
///
/// # Safety
/// `data` has `length` bytes that do not change before the function of the interface returns.
pub(crate) unsafe fn bytes<'a>(data: *const u8, length: usize) -> Result<&'a [u8], i32> {
    match length {
        0 => Ok(&[]),
        _ if data.is_null() || isize::try_from(length).is_err() => Err(PACKRAT_ARGUMENT),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(data, length) }),
    }
}

/// A place of the caller's for a value.
///
/// # Safety
/// `place` is NULL, or the caller's, for a value that has been initialised or needs not to be.
pub(crate) unsafe fn place<'a, T>(place: *mut T) -> Result<&'a mut T, i32> {
    if !place.is_aligned() {
        return Err(PACKRAT_ARGUMENT);
    }
    // SAFETY: the caller's promise.
    unsafe { place.as_mut() }.ok_or(PACKRAT_ARGUMENT)
}

/// Reads a structure of the caller's that begins with its size, as the caller's header has it.
/// Fields that the structure lacks are as in `defaults`. `oldest`: bytes that every header has.
///
/// # Safety
/// `from` is NULL, or has the number of bytes given by its first four. `T` is a C structure, begins
/// with its size as u32, and every bit pattern is valid.
pub(crate) unsafe fn read_sized<T: Copy>(
    from: *const T,
    defaults: T,
    oldest: usize,
) -> Result<T, i32> {
    if from.is_null() || !from.is_aligned() {
        return Err(PACKRAT_ARGUMENT);
    }
    // SAFETY: the size is there.
    let size = unsafe { from.cast::<u32>().read() } as usize;
    if size < oldest {
        return Err(PACKRAT_ARGUMENT);
    }
    let mut value = defaults;
    let known = size.min(size_of::<T>());
    // SAFETY: both have this length, and do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), known);
    }
    Ok(value)
}

/// Copies a structure to the caller's, whose header has `size` bytes of it: no byte behind them is
/// written. `oldest`: bytes that every header has.
///
/// # Safety
/// `to` is NULL, or has `size` bytes.
pub(crate) unsafe fn write_sized<T: Copy>(
    value: &T,
    to: *mut T,
    size: usize,
    oldest: usize,
) -> Result<(), i32> {
    if to.is_null() || !to.is_aligned() || size < oldest {
        return Err(PACKRAT_ARGUMENT);
    }
    let known = size.min(size_of::<T>());
    // SAFETY: both have this length, and do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), to.cast(), known);
    }
    Ok(())
}

/// Copies `from` to the caller's buffer of `space` bytes, and stores its length in any case.
///
/// # Safety
/// `out` has `space` bytes, or is NULL.
pub(crate) unsafe fn write_out(
    from: &[u8],
    out: *mut u8,
    space: usize,
    length: &mut usize,
) -> Result<(), i32> {
    *length = from.len();
    if from.len() > space {
        return Err(PACKRAT_SPACE);
    }
    if from.is_empty() {
        return Ok(());
    }
    if out.is_null() {
        return Err(PACKRAT_ARGUMENT);
    }
    // SAFETY: there is space; the library's memory and the caller's do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out, from.len()) };
    Ok(())
}
