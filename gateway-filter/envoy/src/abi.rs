//! The part of Envoy's dynamic module interface (ABI v0.2.0, Envoy 1.40) that is used here, and
//! safe wrappers of it.
//!
//! The only place with declarations of Envoy's functions.

use std::ffi::{c_char, c_void};
use std::net::{IpAddr, SocketAddr};

use packrat_dataplane::log::{Level, StandardOutput};

/// The version that [`envoy_dynamic_module_on_program_init`] reports.
const ABI_VERSION: &std::ffi::CStr = c"v0.2.0";

/// A pointer that belongs to Envoy.
pub(crate) type EnvoyPointer = *mut c_void;
/// A pointer that belongs to the module.
pub(crate) type ModulePointer = *const c_void;

/// Bytes that are passed by reference, in both directions.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pointer: *const u8,
    length: usize,
}

impl Buffer {
    pub(crate) const EMPTY: Self = Self { pointer: std::ptr::null(), length: 0 };

    pub(crate) const fn of(bytes: &[u8]) -> Self {
        Self { pointer: bytes.as_ptr(), length: bytes.len() }
    }

    /// The bytes.
    ///
    /// # Safety
    /// The buffer must come from Envoy, and must not be used longer than the hook that it was given
    /// to.
    pub(crate) const unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.pointer.is_null() || self.length == 0 {
            return &[];
        }
        // SAFETY: Envoy's buffers are valid for their length during the hook, as the caller
        // promises.
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }
}

/// `StopIteration`: the filter has consumed the datagram.
pub(crate) const STOP_ITERATION: u32 = 1;

/// The call with which [`bootstrap_hooks`](crate::bootstrap) tell Envoy that they have shut down.
pub(crate) type ShutdownCallback = Option<unsafe extern "C" fn(EnvoyPointer)>;

macro_rules! declare {
    ($($name:ident: fn($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $(fn $name($($argument: $kind),*) $(-> $result)?;)*
        }
    };
}

declare! {
    envoy_dynamic_module_callback_get_concurrency: fn() -> u32;
    envoy_dynamic_module_callback_is_validation_mode: fn() -> bool;
    envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_chunks_size: fn(filter: EnvoyPointer) -> usize;
    envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_chunks: fn(filter: EnvoyPointer, chunks: *mut Buffer) -> bool;
    envoy_dynamic_module_callback_udp_listener_filter_get_peer_address: fn(filter: EnvoyPointer, ip: *mut Buffer, port: *mut u32) -> bool;
    envoy_dynamic_module_callback_udp_listener_filter_get_local_address: fn(filter: EnvoyPointer, ip: *mut Buffer, port: *mut u32) -> bool;
    envoy_dynamic_module_callback_udp_listener_filter_get_worker_index: fn(filter: EnvoyPointer) -> u32;
    envoy_dynamic_module_callback_bootstrap_extension_config_signal_init_complete: fn(config: EnvoyPointer);
    envoy_dynamic_module_callback_bootstrap_extension_config_define_counter: fn(config: EnvoyPointer, name: Buffer, labels: *mut Buffer, count: usize, id: *mut usize) -> u32;
    envoy_dynamic_module_callback_bootstrap_extension_config_define_gauge: fn(config: EnvoyPointer, name: Buffer, labels: *mut Buffer, count: usize, id: *mut usize) -> u32;
    envoy_dynamic_module_callback_bootstrap_extension_config_increment_counter: fn(config: EnvoyPointer, id: usize, values: *mut Buffer, count: usize, amount: u64) -> u32;
    envoy_dynamic_module_callback_bootstrap_extension_config_set_gauge: fn(config: EnvoyPointer, id: usize, values: *mut Buffer, count: usize, value: u64) -> u32;
    envoy_dynamic_module_callback_bootstrap_extension_timer_new: fn(config: EnvoyPointer) -> EnvoyPointer;
    envoy_dynamic_module_callback_bootstrap_extension_timer_enable: fn(timer: EnvoyPointer, milliseconds: u64);
    envoy_dynamic_module_callback_bootstrap_extension_timer_delete: fn(timer: EnvoyPointer);
    envoy_dynamic_module_callback_bootstrap_extension_register_admin_handler: fn(config: EnvoyPointer, path: Buffer, help: Buffer, removable: bool, mutates: bool) -> bool;
    envoy_dynamic_module_callback_bootstrap_extension_admin_set_response: fn(config: EnvoyPointer, body: Buffer);
}

/// Number of Envoy's worker threads.
pub(crate) fn concurrency() -> usize {
    // SAFETY: no arguments; called on Envoy's main thread.
    unsafe { envoy_dynamic_module_callback_get_concurrency() as usize }
}

/// True if Envoy only checks a configuration and will not serve.
pub(crate) fn is_validation_mode() -> bool {
    // SAFETY: no arguments.
    unsafe { envoy_dynamic_module_callback_is_validation_mode() }
}

/// Envoy's side of one filter instance.
///
/// Made from the pointer of a hook, used in that hook only.
#[derive(Clone, Copy)]
pub(crate) struct EnvoyFilter(EnvoyPointer);

impl EnvoyFilter {
    /// # Safety
    /// `pointer` must be the filter pointer that Envoy has given to the hook that is running; the
    /// value must not outlive it.
    pub(crate) const unsafe fn new(pointer: EnvoyPointer) -> Self {
        Self(pointer)
    }

    /// Index of the worker thread, from 0.
    pub(crate) fn worker_index(self) -> usize {
        // SAFETY: the pointer is valid, see `new`.
        unsafe {
            envoy_dynamic_module_callback_udp_listener_filter_get_worker_index(self.0) as usize
        }
    }

    /// The address of the listener; inside `on_data` the address that the datagram was sent to.
    pub(crate) fn local_address(self) -> Option<SocketAddr> {
        self.address(envoy_dynamic_module_callback_udp_listener_filter_get_local_address)
    }

    /// The sender of the datagram.
    pub(crate) fn peer_address(self) -> Option<SocketAddr> {
        self.address(envoy_dynamic_module_callback_udp_listener_filter_get_peer_address)
    }

    fn address(
        self,
        get: unsafe extern "C" fn(EnvoyPointer, *mut Buffer, *mut u32) -> bool,
    ) -> Option<SocketAddr> {
        let (mut ip, mut port) = (Buffer::EMPTY, 0);
        // SAFETY: the pointer is valid, and both results have a place.
        if !unsafe { get(self.0, &raw mut ip, &raw mut port) } {
            return None;
        }
        // SAFETY: Envoy keeps the text for the time of the hook.
        let text = std::str::from_utf8(unsafe { ip.bytes() }).ok()?;
        Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, u16::try_from(port).ok()?))
    }

    /// Calls `action` with the datagram in one piece; `scratch` is used when Envoy holds it in
    /// several.
    pub(crate) fn with_datagram<R>(
        self,
        scratch: &mut Vec<u8>,
        action: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        const MOST_CHUNKS: usize = 16;
        // SAFETY: the pointer is valid, see `new`.
        let count = unsafe {
            envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_chunks_size(self.0)
        };
        if count == 0 {
            return Some(action(&[]));
        }
        let mut few = [Buffer::EMPTY; MOST_CHUNKS];
        let mut many = Vec::new();
        let chunks = match few.get_mut(..count) {
            Some(chunks) => chunks,
            None => {
                many.resize(count, Buffer::EMPTY);
                many.as_mut_slice()
            }
        };
        // SAFETY: there is room for the number of chunks that Envoy has just named.
        if !unsafe {
            envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_chunks(
                self.0,
                chunks.as_mut_ptr(),
            )
        } {
            return None;
        }
        if let [chunk] = chunks {
            // SAFETY: Envoy keeps the datagram for the time of the hook.
            return Some(action(unsafe { chunk.bytes() }));
        }
        scratch.clear();
        for chunk in chunks {
            // SAFETY: as above.
            scratch.extend_from_slice(unsafe { chunk.bytes() });
        }
        Some(action(scratch))
    }
}

/// Envoy's side of the bootstrap extension. To be used on Envoy's main thread only: a labelled
/// metric that is touched from another thread takes Envoy down.
pub(crate) struct EnvoyBootstrap(EnvoyPointer);

impl EnvoyBootstrap {
    /// # Safety
    /// `pointer` must be the pointer that Envoy gives to the hooks of the extension's
    /// configuration; the value must be used on Envoy's main thread and not after the
    /// configuration was destroyed.
    pub(crate) const unsafe fn new(pointer: EnvoyPointer) -> Self {
        Self(pointer)
    }

    /// Lets Envoy go on with its start.
    pub(crate) fn signal_init_complete(&self) {
        // SAFETY: the pointer is valid, see `new`.
        unsafe {
            envoy_dynamic_module_callback_bootstrap_extension_config_signal_init_complete(self.0)
        }
    }

    /// Defines a counter or (with `gauge`) a gauge; `None` when Envoy refuses.
    pub(crate) fn define_metric(&self, gauge: bool, name: &str, labels: &[&str]) -> Option<usize> {
        let mut labels: Vec<Buffer> =
            labels.iter().map(|label| Buffer::of(label.as_bytes())).collect();
        let define = if gauge {
            envoy_dynamic_module_callback_bootstrap_extension_config_define_gauge
        } else {
            envoy_dynamic_module_callback_bootstrap_extension_config_define_counter
        };
        let mut id = 0;
        // SAFETY: the pointer is valid, the labels live for the whole call, the result has a place.
        let result = unsafe {
            define(
                self.0,
                Buffer::of(name.as_bytes()),
                labels.as_mut_ptr(),
                labels.len(),
                &raw mut id,
            )
        };
        (result == 0).then_some(id)
    }

    /// Adds to a counter.
    pub(crate) fn increment_counter(&self, id: usize, labels: &[&str], amount: u64) {
        let mut values: Vec<Buffer> =
            labels.iter().map(|label| Buffer::of(label.as_bytes())).collect();
        // SAFETY: the pointer is valid, the values live for the whole call. An unknown id gives an
        // error code only.
        unsafe {
            envoy_dynamic_module_callback_bootstrap_extension_config_increment_counter(
                self.0,
                id,
                values.as_mut_ptr(),
                values.len(),
                amount,
            )
        };
    }

    /// Sets a gauge.
    pub(crate) fn set_gauge(&self, id: usize, labels: &[&str], value: u64) {
        let mut values: Vec<Buffer> =
            labels.iter().map(|label| Buffer::of(label.as_bytes())).collect();
        // SAFETY: as for counters.
        unsafe {
            envoy_dynamic_module_callback_bootstrap_extension_config_set_gauge(
                self.0,
                id,
                values.as_mut_ptr(),
                values.len(),
                value,
            )
        };
    }

    /// Makes a timer on Envoy's main thread.
    pub(crate) fn new_timer(&self) -> Timer {
        // SAFETY: the pointer is valid, see `new`.
        Timer(unsafe { envoy_dynamic_module_callback_bootstrap_extension_timer_new(self.0) })
    }

    /// Adds an administration endpoint; whether Envoy accepted it. One that `changes` something
    /// answers POST alone.
    pub(crate) fn register_admin_handler(&self, path: &str, help: &str, changes: bool) -> bool {
        // SAFETY: the pointer is valid, Envoy copies both texts.
        unsafe {
            envoy_dynamic_module_callback_bootstrap_extension_register_admin_handler(
                self.0,
                Buffer::of(path.as_bytes()),
                Buffer::of(help.as_bytes()),
                true,
                changes,
            )
        }
    }

    /// Sets the body of the answer to the administration request that is running.
    pub(crate) fn set_admin_response(&self, body: &str) {
        // SAFETY: the pointer is valid, Envoy copies the body.
        unsafe {
            envoy_dynamic_module_callback_bootstrap_extension_admin_set_response(
                self.0,
                Buffer::of(body.as_bytes()),
            )
        }
    }
}

/// A timer on Envoy's main thread; to be used and dropped there.
pub(crate) struct Timer(EnvoyPointer);

impl Timer {
    /// Fires once after `milliseconds`.
    pub(crate) fn enable(&self, milliseconds: u64) {
        if !self.0.is_null() {
            // SAFETY: made by Envoy and not deleted yet.
            unsafe {
                envoy_dynamic_module_callback_bootstrap_extension_timer_enable(self.0, milliseconds)
            }
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by Envoy, deleted once.
            unsafe { envoy_dynamic_module_callback_bootstrap_extension_timer_delete(self.0) }
        }
    }
}

/// Runs a hook; a panic must not cross into Envoy, which it would abort.
pub(crate) fn hook<R>(name: &str, after_panic: R, action: impl FnOnce() -> R) -> R {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(action)).unwrap_or_else(|_| {
        StandardOutput::line(Level::Error, "hook_panicked", [("hook", name.into())]);
        after_panic
    })
}

/// Envoy asks for the version of the interface when it has loaded the module.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    ABI_VERSION.as_ptr()
}
