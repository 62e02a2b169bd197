//! The client core for programs in C: libpackrat.
//!
//! `include/packrat.h` is generated from this file by cbindgen, and contains its documentation.
//! Every function checks its arguments and catches panics: [`guarded`].
// A C interface is made of pointers of the caller's; each use states the caller's promise.
#![allow(unsafe_code)]
// The header states the safety conditions, which are the same for all functions.
#![allow(clippy::missing_safety_doc)]

mod interface;

#[cfg(any(test, fuzzing))]
mod fuzz_corpus;
#[cfg(fuzzing)]
pub use fuzz_corpus::c_interface;

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use interface::{Handle, bytes, place, read_sized, write_out, write_sized};
use packrat_client::{Access, ClientConfig, Condition, IdentifierScheme, Input, Token, Verdict};

/// The version of this interface. Functions are added to it, never changed.
pub const PACKRAT_ABI: u32 = 1;
/// The value of packrat_shim_timeout() when no timer is set.
pub const PACKRAT_NEVER: u64 = u64::MAX;

/// Done.
pub const PACKRAT_OK: i32 = 0;
/// Result of packrat_shim_receive(): the datagram is the transport's, now, without its first bytes.
pub const PACKRAT_PASS: i32 = 0;
/// Result of packrat_shim_receive(): the datagram was copied, and comes out of
/// packrat_shim_deliver().
pub const PACKRAT_KEPT: i32 = 1;
/// Result of packrat_shim_receive(): the datagram is not the transport's, or the second copy of one
/// that was passed on or copied. Discard it.
pub const PACKRAT_CONSUMED: i32 = 2;
/// There is no result (any more).
pub const PACKRAT_EMPTY: i32 = -1;
/// An argument is NULL or out of its range.
pub const PACKRAT_ARGUMENT: i32 = -2;
/// The buffer is too small. The length needed was stored, and the datagram remains.
pub const PACKRAT_SPACE: i32 = -3;
/// The library has failed. The handle is still usable.
pub const PACKRAT_INTERNAL: i32 = -4;

/// A gateway repairs for this shim.
pub const PACKRAT_ASSISTED: u32 = 0;
/// A gateway is asked.
pub const PACKRAT_ASKING: u32 = 1;
/// No gateway answers; it is asked again now and then.
pub const PACKRAT_NO_GATEWAY: u32 = 2;
/// A gateway will not assist.
pub const PACKRAT_REFUSED: u32 = 3;
/// Assistance has failed in this process; datagrams pass.
pub const PACKRAT_FAILED: u32 = 4;

/// Identifiers of all bytes: right for every transport.
pub const PACKRAT_SCHEME_PAYLOAD: u32 = 0;
/// Identifiers of the last 16 bytes, which are faster: for QUIC, whose packets end with a tag.
pub const PACKRAT_SCHEME_TRAILER: u32 = 1;

/// Bytes of a gateway's key.
pub const PACKRAT_KEY_LENGTH: usize = 32;
/// Bytes in front of a datagram that packrat_shim_send() has taken.
pub const PACKRAT_NUMBER_LENGTH: usize = 8;
/// Bytes of a seed.
pub const PACKRAT_SEED_LENGTH: usize = 32;

/// Settings of a shim. packrat_config_init() sets the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes of this structure, as the caller knows it.
    pub size: u32,
    /// PACKRAT_SCHEME_PAYLOAD (the default) or PACKRAT_SCHEME_TRAILER.
    pub scheme: u32,
    /// Longest time that a datagram waits for the repair of an earlier one, in microseconds; 0:
    /// datagrams never wait. Defaults to 1 s; the actual time follows the measured last mile.
    pub maximum_hold: u64,
    /// The gateway's static public key, PACKRAT_KEY_LENGTH bytes: another gateway is refused. NULL
    /// (the default): the first one is trusted.
    pub gateway_key: *const u8,
    /// The token that a token endpoint has issued; NULL (the default): no token.
    pub token: *const u8,
    /// Bytes of the token.
    pub token_length: usize,
    /// 1: repairs the program's own datagrams as well; the program passes each to
    /// packrat_shim_send(). For transports that reduce their rate after each loss (CUBIC, NewReno),
    /// not for BBR. Defaults to 0.
    pub uploads: u32,
    /// 0.
    pub reserved: u32,
}

/// Bytes of the settings of version 0.1: every program's header has these.
const OLDEST_CONFIG: usize = std::mem::offset_of!(Config, token_length) + size_of::<usize>();

/// Figures of a shim, the same as in every SDK.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    /// Bytes of this structure that were filled in.
    pub size: u32,
    /// PACKRAT_ASSISTED, PACKRAT_ASKING, PACKRAT_NO_GATEWAY, PACKRAT_REFUSED or PACKRAT_FAILED.
    pub condition: u32,
    /// Round trip to the gateway in microseconds; 0: not measured yet.
    pub round_trip: u64,
    /// Bytes that wait for repairs now.
    pub waiting_bytes: u64,
    /// Datagrams that the program has sent: packrat_shim_sent().
    pub sent_datagrams: u64,
    /// Bytes of the datagrams that the program has sent (UDP payload).
    pub sent_bytes: u64,
    /// Datagrams that the program got.
    pub delivered_datagrams: u64,
    /// Bytes of the datagrams that the program got (UDP payload).
    pub delivered_bytes: u64,
    /// Sessions with gateways that were begun.
    pub sessions: u64,
    /// Datagrams that were missing when a later one arrived.
    pub holes: u64,
    /// Missing datagrams that were repaired before the program could notice.
    pub repaired_in_time: u64,
    /// Missing datagrams that were repaired after a later one had been passed on.
    pub repaired_late: u64,
    /// Missing datagrams whose wait ended without a repair.
    pub given_up: u64,
    /// Datagrams that were put together from the gateway's repair symbols.
    pub recovered: u64,
    /// Datagrams that waited for a repair of an earlier one.
    pub kept: u64,
    /// Datagrams that came more than once.
    pub duplicates: u64,
    /// Control datagrams that were dropped as malformed, forged or replayed.
    pub control_dropped: u64,
    /// eACKs to gateways.
    pub eacks: u64,
    /// Bytes of eACKs to gateways (UDP payload).
    pub eack_bytes: u64,
    /// Bytes of all control datagrams to gateways (UDP payload).
    pub control_bytes_sent: u64,
    /// Bytes of all control datagrams from gateways (UDP payload).
    pub control_bytes_received: u64,
    /// Datagrams of the program's that left with a number, so that they can be repaired.
    pub upward_numbered: u64,
    /// Numbered datagrams that the gateway was missing when a later one had arrived.
    pub upward_missing: u64,
    /// Datagrams of the program's that were sent again, repetitions included.
    pub upward_repairs: u64,
}

/// A shim: the assistance of one peer's datagrams over one socket.
pub struct Shim(Handle);

/// Runs a call on the caller's pointers; a panic ends here.
fn guarded(call: impl FnOnce() -> Result<i32, i32>) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code) | Err(code)) => code,
        Err(_) => PACKRAT_INTERNAL,
    }
}

/// The handle behind a pointer.
///
/// # Safety
/// `shim` is NULL, or of packrat_shim_new() and not freed, and no other thread uses it.
unsafe fn handle<'a>(shim: *mut Shim) -> Result<&'a mut Handle, i32> {
    // SAFETY: the caller's promise.
    unsafe { shim.as_mut() }.map(|shim| &mut shim.0).ok_or(PACKRAT_ARGUMENT)
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn packrat_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version of the library's interface: PACKRAT_ABI of the header that it was built with.
#[unsafe(no_mangle)]
pub extern "C" fn packrat_abi() -> u32 {
    PACKRAT_ABI
}

/// The version of the protocol that the library speaks with gateways.
#[unsafe(no_mangle)]
pub extern "C" fn packrat_protocol_version() -> u32 {
    packrat_wire::control::PROTOCOL_VERSION.into()
}

/// The meaning of a code, in English. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn packrat_error_text(code: i32) -> *const c_char {
    let text = match code {
        PACKRAT_OK => c"done, or: the datagram is the transport's",
        PACKRAT_KEPT => c"the datagram waits, and is delivered later",
        PACKRAT_CONSUMED => c"the datagram is not the transport's, or a second copy",
        PACKRAT_EMPTY => c"there is nothing",
        PACKRAT_ARGUMENT => c"an argument is NULL or out of its range",
        PACKRAT_SPACE => c"the buffer is too small; the length needed was stored",
        PACKRAT_INTERNAL => c"the library has failed; the handle is still usable",
        _ => c"no code of this version of the library",
    };
    text.as_ptr()
}

/// The name of a condition, such as "assisted". Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn packrat_condition_text(condition: u32) -> *const c_char {
    let text = match condition {
        PACKRAT_ASSISTED => c"assisted",
        PACKRAT_ASKING => c"asking",
        PACKRAT_NO_GATEWAY => c"no_gateway",
        PACKRAT_REFUSED => c"refused",
        PACKRAT_FAILED => c"failed",
        _ => c"no condition of this version of the library",
    };
    text.as_ptr()
}

/// Sets the defaults. `size`: sizeof(packrat_config); settings that the caller's header lacks have
/// theirs without it.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_config_init(config: *mut Config, size: usize) -> i32 {
    guarded(|| {
        let size_told = u32::try_from(size).map_err(|_| PACKRAT_ARGUMENT)?;
        let defaults = Config { size: size_told, ..Config::default() };
        // SAFETY: the caller's buffer has this length.
        unsafe { write_sized(&defaults, config, size, OLDEST_CONFIG) }?;
        Ok(PACKRAT_OK)
    })
}

impl Default for Config {
    fn default() -> Self {
        let hold = Access::default().maximum_hold.as_micros();
        Self {
            size: 0,
            scheme: PACKRAT_SCHEME_PAYLOAD,
            maximum_hold: u64::try_from(hold).unwrap_or(u64::MAX),
            gateway_key: std::ptr::null(),
            token: std::ptr::null(),
            token_length: 0,
            uploads: 0,
            reserved: 0,
        }
    }
}

/// # Safety
/// Its pointers are NULL, or have the lengths that the header requires.
unsafe fn client_config(config: &Config) -> Result<ClientConfig, i32> {
    let scheme = match config.scheme {
        PACKRAT_SCHEME_PAYLOAD => IdentifierScheme::Payload,
        PACKRAT_SCHEME_TRAILER => IdentifierScheme::Trailer,
        _ => return Err(PACKRAT_ARGUMENT),
    };
    let uploads = match config.uploads {
        0 => false,
        1 => true,
        _ => return Err(PACKRAT_ARGUMENT),
    };
    // SAFETY: NULL, or a key's bytes.
    let key = unsafe { config.gateway_key.cast::<[u8; PACKRAT_KEY_LENGTH]>().as_ref() };
    // SAFETY: the pointer is NULL, or has this length.
    let token = unsafe { bytes(config.token, config.token_length) }?;
    let token = Token::new(token.to_vec()).map_err(|_| PACKRAT_ARGUMENT)?;
    Ok(ClientConfig::default()
        .with_scheme(scheme)
        .with_maximum_hold(Duration::from_micros(config.maximum_hold))
        .with_gateway_key(key.copied())
        .with_token(token)
        .with_uploads(uploads))
}

/// Makes a shim for one peer. `seed`: PACKRAT_SEED_LENGTH fresh random bytes of the operating
/// system, of which the session's keys are made. `out` gets the handle: packrat_shim_free().
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT; of the latter also for a token that is too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_new(
    config: *const Config,
    seed: *const u8,
    now: u64,
    out: *mut *mut Shim,
) -> i32 {
    guarded(|| {
        // SAFETY: NULL, or a place for a pointer.
        let out = unsafe { place(out) }?;
        *out = std::ptr::null_mut();
        // SAFETY: NULL, or packrat_config_init() has set it up.
        let config = unsafe { read_sized(config, Config::default(), OLDEST_CONFIG) }?;
        // SAFETY: the promises of the header.
        let config = unsafe { client_config(&config) }?;
        // SAFETY: NULL, or a seed's bytes.
        let seed = unsafe { seed.cast::<[u8; PACKRAT_SEED_LENGTH]>().as_ref() };
        let seed = seed.ok_or(PACKRAT_ARGUMENT)?;
        *out = Box::into_raw(Box::new(Shim(Handle::new(config, *seed, now))));
        Ok(PACKRAT_OK)
    })
}

/// Frees a shim. NULL is allowed. Call packrat_shim_close() first, and send the shim's remaining
/// messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_free(shim: *mut Shim) {
    guarded(|| {
        if !shim.is_null() {
            // SAFETY: of packrat_shim_new(), and not freed.
            drop(unsafe { Box::from_raw(shim) });
        }
        Ok(PACKRAT_OK)
    });
}

/// A UDP payload arrived from the peer, exactly as received. `mark` passes through untouched, such
/// as the datagram's ECN bits. `skip` gets the number of bytes in front that are not the
/// transport's. Afterwards call packrat_shim_deliver() and packrat_shim_transmit() until they are
/// empty.
///
/// Returns PACKRAT_PASS: hand on `datagram + *skip` before anything that is delivered; PACKRAT_KEPT;
/// PACKRAT_CONSUMED; or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_receive(
    shim: *mut Shim,
    datagram: *const u8,
    length: usize,
    mark: u8,
    now: u64,
    skip: *mut usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the header requires a handle, this length, and a valid pointer.
        let (handle, datagram, skip) =
            unsafe { (handle(shim)?, bytes(datagram, length)?, place(skip)?) };
        *skip = 0;
        let now = handle.time(now);
        match handle.shim.on_datagram(datagram, mark, now) {
            Verdict::Now { skip: front, .. } => {
                *skip = front;
                Ok(PACKRAT_PASS)
            }
            Verdict::Later => Ok(PACKRAT_KEPT),
            Verdict::Never => Ok(PACKRAT_CONSUMED),
        }
    })
}

/// The next datagram for the transport, and its mark.
///
/// Returns PACKRAT_OK, PACKRAT_EMPTY, PACKRAT_SPACE or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_deliver(
    shim: *mut Shim,
    out: *mut u8,
    space: usize,
    length: *mut usize,
    mark: *mut u8,
) -> i32 {
    guarded(|| {
        // SAFETY: the promises of the header: a handle, and places.
        let (handle, length, mark) = unsafe { (handle(shim)?, place(length)?, place(mark)?) };
        let next = handle.next_released().ok_or(PACKRAT_EMPTY)?;
        // SAFETY: the caller's buffer has this length.
        unsafe { write_out(&next.datagram, out, space, length) }?;
        *mark = next.metadata;
        handle.released = None;
        Ok(PACKRAT_OK)
    })
}

/// Call before sending a datagram to the peer, with config.uploads: returns the number to put in
/// front of it. `number` gets PACKRAT_NUMBER_LENGTH bytes, which the gateway removes. Call
/// packrat_shim_timeout() afterwards. If the datagram then does not leave, it counts as lost on the
/// path.
///
/// Returns PACKRAT_OK: send `number` and the datagram behind it as one; PACKRAT_EMPTY: send the
/// datagram as it is; or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_send(
    shim: *mut Shim,
    datagram: *const u8,
    length: usize,
    now: u64,
    number: *mut u8,
) -> i32 {
    guarded(|| {
        // SAFETY: the header requires a handle, this length, and room for a number.
        let (handle, datagram, number) = unsafe {
            let number = place(number.cast::<[u8; PACKRAT_NUMBER_LENGTH]>())?;
            (handle(shim)?, bytes(datagram, length)?, number)
        };
        let now = handle.time(now);
        *number = handle.shim.on_send(datagram, now).ok_or(PACKRAT_EMPTY)?;
        Ok(PACKRAT_OK)
    })
}

/// Call before sending a datagram to the peer: takes the datagram if it can leave together with
/// others, such as QUIC's acknowledgements in a download. packrat_shim_transmit() then returns it;
/// call that and packrat_shim_timeout() afterwards. The datagram waits for at most 8 ms, and only
/// if that makes the download no slower. Call before packrat_shim_send(), or not at all: a program
/// without this call sends more datagrams.
///
/// Returns PACKRAT_KEPT: do not send it; PACKRAT_EMPTY: send it; or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_bundle(
    shim: *mut Shim,
    datagram: *const u8,
    length: usize,
    now: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the header requires a handle and this length.
        let (handle, datagram) = unsafe { (handle(shim)?, bytes(datagram, length)?) };
        let now = handle.time(now);
        if handle.shim.bundle(datagram, now) { Ok(PACKRAT_KEPT) } else { Err(PACKRAT_EMPTY) }
    })
}

/// Counts datagrams and their bytes that the program has sent without numbers, for the figures.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_sent(shim: *mut Shim, datagrams: u32, bytes: u32) -> i32 {
    guarded(|| {
        // SAFETY: NULL, or a handle.
        unsafe { handle(shim) }?.shim.on_sent(datagrams.into(), bytes.into());
        Ok(PACKRAT_OK)
    })
}

/// The next control datagram, to send to the peer's address from the program's own socket. Call it
/// after every other call until it is empty. One that cannot be sent may be forgotten. With
/// config.uploads or packrat_shim_bundle(), one whose fifth byte is 0x29 or 0x2a, or that does not begin with
/// 0x0b 'P' 'k' 'r', has the program's own datagrams, and leaves with the ECN mark of its last one.
///
/// Returns PACKRAT_OK, PACKRAT_EMPTY, PACKRAT_SPACE or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_transmit(
    shim: *mut Shim,
    out: *mut u8,
    space: usize,
    length: *mut usize,
    now: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the promises of the header: a handle, and a place.
        let (handle, length) = unsafe { (handle(shim)?, place(length)?) };
        let now = handle.time(now);
        let next = handle.next_control(now).ok_or(PACKRAT_EMPTY)?;
        // SAFETY: the caller's buffer has this length.
        unsafe { write_out(next, out, space, length) }?;
        handle.control = None;
        Ok(PACKRAT_OK)
    })
}

/// The time at which to call packrat_shim_on_timeout() at the latest; PACKRAT_NEVER: not at all, so
/// far. It changes with every other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_timeout(shim: *mut Shim) -> u64 {
    let mut at = PACKRAT_NEVER;
    guarded(|| {
        // SAFETY: NULL, or a handle.
        let next = unsafe { handle(shim) }?.shim.next_timeout();
        at = next.map_or(PACKRAT_NEVER, |next| next.as_micros());
        Ok(PACKRAT_OK)
    });
    at
}

/// Runs the timers that are due. Call packrat_shim_deliver() and packrat_shim_transmit() afterwards
/// until they are empty.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_on_timeout(shim: *mut Shim, now: u64) -> i32 {
    // SAFETY: NULL, or a handle.
    unsafe { take(shim, Input::Timeout, now) }
}

/// The gateway to accept and another token, for gateways that ask for one.
///
/// `gateway_key`: the 32 bytes of its static key, or NULL to accept any on first use. A session with
/// another gateway than this ends.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT, the latter also for a token that is too long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_set_access(
    shim: *mut Shim,
    gateway_key: *const u8,
    token: *const u8,
    length: usize,
    now: u64,
) -> i32 {
    guarded(|| {
        // SAFETY: the header requires a handle and this length.
        let (handle, token) = unsafe { (handle(shim)?, bytes(token, length)?) };
        // SAFETY: the promise of the header: 32 bytes, or NULL.
        let gateway_key = unsafe { gateway_key.cast::<[u8; 32]>().as_ref() }.copied();
        let token = Token::new(token.to_vec()).map_err(|_| PACKRAT_ARGUMENT)?;
        let now = handle.time(now);
        handle.shim.handle(Input::Access { gateway_key, token: &token }, now);
        Ok(PACKRAT_OK)
    })
}

/// The program's address changes, such as from Wi-Fi to cellular: call it before a datagram is sent
/// from the new address. The session continues.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_network_changed(shim: *mut Shim, now: u64) -> i32 {
    // SAFETY: NULL, or a handle.
    unsafe { take(shim, Input::NetworkChange, now) }
}

/// Datagrams of the peer's were dropped before packrat_shim_receive() saw them, and are not to be
/// repaired.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_overflowed(shim: *mut Shim, now: u64) -> i32 {
    // SAFETY: NULL, or a handle.
    unsafe { take(shim, Input::DatagramsDropped, now) }
}

/// Everything that waits is to be had from packrat_shim_deliver(), such as when it is too much.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_release(shim: *mut Shim) -> i32 {
    // SAFETY: NULL, or a handle.
    unsafe { take(shim, Input::Crowded { most: 0 }, 0) }
}

/// Ends the connection: packrat_shim_transmit() then returns a last message for the gateway, and
/// packrat_shim_deliver() the waiting datagrams.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_close(shim: *mut Shim, now: u64) -> i32 {
    // SAFETY: NULL, or a handle.
    unsafe { take(shim, Input::Close, now) }
}

/// # Safety
/// As [`handle`].
unsafe fn take(shim: *mut Shim, input: Input<'_>, now: u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(shim) }?;
        let now = handle.time(now);
        handle.shim.handle(input, now);
        Ok(PACKRAT_OK)
    })
}

/// Figures of a shim. `size`: sizeof(packrat_statistics); fields that the caller's header lacks are
/// omitted.
///
/// Returns PACKRAT_OK or PACKRAT_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packrat_shim_statistics(
    shim: *mut Shim,
    out: *mut Statistics,
    size: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: NULL, or a handle.
        let handle = unsafe { handle(shim) }?;
        let filled = size.min(size_of::<Statistics>());
        let statistics =
            Statistics { size: u32::try_from(filled).unwrap_or(u32::MAX), ..handle.statistics() };
        // SAFETY: the caller's buffer has this length.
        unsafe { write_sized(&statistics, out, size, size_of::<[u32; 2]>()) }?;
        Ok(PACKRAT_OK)
    })
}

const fn code(condition: Condition) -> u32 {
    match condition {
        Condition::Assisted => PACKRAT_ASSISTED,
        Condition::Asking => PACKRAT_ASKING,
        Condition::NoGateway => PACKRAT_NO_GATEWAY,
        Condition::Refused => PACKRAT_REFUSED,
        Condition::Failed => PACKRAT_FAILED,
    }
}

#[cfg(test)]
mod tests;
