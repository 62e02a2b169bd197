//! A listener whose socket can't be found when its filter is made: the filter looks for it again,
//! also at a wildcard, where Envoy names the address of each datagram instead of the listener's.
//!
//! Envoy itself has the socket open by then, so this test stands in for Envoy: it calls the
//! module's hooks, and has the functions of Envoy's that they call.
#![allow(unsafe_code)] // hooks and functions of Envoy's are in C

use std::ffi::c_void;
use std::net::UdpSocket;
use std::ptr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

// The hooks.
use packrat_envoy as _;

type Pointer = *mut c_void;

/// Envoy's buffer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Buffer {
    pointer: *const u8,
    length: usize,
}

impl Buffer {
    fn of(bytes: &'static [u8]) -> Self {
        Self { pointer: bytes.as_ptr(), length: bytes.len() }
    }
}

const WILDCARD: &[u8] = b"0.0.0.0";
const LOOPBACK: &[u8] = b"127.0.0.1";
const DATAGRAM: &[u8] = b"from a client";
const CLIENT_PORT: u32 = 9;
/// Longest time that the test waits for the second attempt, which is due after a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// The address that Envoy names: the listener's outside of `on_data`, the datagram's inside.
static LOCAL: Mutex<(&[u8], u32)> = Mutex::new((WILDCARD, 0));

/// Defines functions of Envoy's that return this whenever they are called.
macro_rules! envoy {
    ($($name:ident($($kind:ty),*) $(-> $result:ty = $value:expr)?;)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $kind),*) $(-> $result)? { $($value)? }
        )*
    };
}

envoy! {
    envoy_dynamic_module_callback_get_concurrency() -> u32 = 1;
    envoy_dynamic_module_callback_is_validation_mode() -> bool = false;
    envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_chunks_size(Pointer) -> usize = 1;
    envoy_dynamic_module_callback_udp_listener_filter_get_worker_index(Pointer) -> u32 = 0;
    envoy_dynamic_module_callback_bootstrap_extension_config_signal_init_complete(Pointer);
    envoy_dynamic_module_callback_bootstrap_extension_config_define_counter(Pointer, Buffer, *mut Buffer, usize, *mut usize) -> u32 = 0;
    envoy_dynamic_module_callback_bootstrap_extension_config_define_gauge(Pointer, Buffer, *mut Buffer, usize, *mut usize) -> u32 = 0;
    envoy_dynamic_module_callback_bootstrap_extension_config_increment_counter(Pointer, usize, *mut Buffer, usize, u64) -> u32 = 0;
    envoy_dynamic_module_callback_bootstrap_extension_config_set_gauge(Pointer, usize, *mut Buffer, usize, u64) -> u32 = 0;
    envoy_dynamic_module_callback_bootstrap_extension_timer_new(Pointer) -> Pointer = ptr::null_mut();
    envoy_dynamic_module_callback_bootstrap_extension_timer_enable(Pointer, u64);
    envoy_dynamic_module_callback_bootstrap_extension_timer_delete(Pointer);
    envoy_dynamic_module_callback_bootstrap_extension_register_admin_handler(Pointer, Buffer, Buffer, bool, bool) -> bool = true;
    envoy_dynamic_module_callback_bootstrap_extension_admin_set_response(Pointer, Buffer);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_callback_udp_listener_filter_get_datagram_data_chunks(
    _: Pointer,
    chunks: *mut Buffer,
) -> bool {
    // SAFETY: the module has room for one.
    unsafe { chunks.write(Buffer::of(DATAGRAM)) };
    true
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_callback_udp_listener_filter_get_peer_address(
    _: Pointer,
    ip: *mut Buffer,
    port: *mut u32,
) -> bool {
    // SAFETY: the module has room for both.
    unsafe {
        ip.write(Buffer::of(LOOPBACK));
        port.write(CLIENT_PORT);
    }
    true
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_callback_udp_listener_filter_get_local_address(
    _: Pointer,
    ip: *mut Buffer,
    port: *mut u32,
) -> bool {
    let (text, number) = *LOCAL.lock().unwrap();
    // SAFETY: as above.
    unsafe {
        ip.write(Buffer::of(text));
        port.write(number);
    }
    true
}

unsafe extern "C" {
    fn envoy_dynamic_module_on_udp_listener_filter_config_new(
        envoy: Pointer,
        name: Buffer,
        config: Buffer,
    ) -> *const c_void;
    fn envoy_dynamic_module_on_udp_listener_filter_new(
        config: *const c_void,
        envoy: Pointer,
    ) -> *const c_void;
    fn envoy_dynamic_module_on_udp_listener_filter_on_data(
        envoy: Pointer,
        filter: *const c_void,
    ) -> u32;
    fn envoy_dynamic_module_on_udp_listener_filter_destroy(filter: *const c_void);
    fn envoy_dynamic_module_on_udp_listener_filter_config_destroy(config: *const c_void);
}

#[test]
fn a_wildcard_listeners_late_socket_is_found() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    // A port that is free, until the listener is there.
    let port = packrat_real_envoy::free_port();
    LOCAL.lock().unwrap().1 = port.into();
    let config =
        format!(r#"{{"route": "web", "endpoints": ["{}"]}}"#, server.local_addr().unwrap());
    let config = Buffer::of(config.leak().as_bytes());
    // SAFETY: the hooks are called as Envoy calls them: with what they have returned, one at a time.
    let (config, filter) = unsafe {
        let config = envoy_dynamic_module_on_udp_listener_filter_config_new(
            ptr::null_mut(),
            Buffer::of(b"packrat"),
            config,
        );
        assert!(!config.is_null(), "the configuration is refused");
        (config, envoy_dynamic_module_on_udp_listener_filter_new(config, ptr::null_mut()))
    };
    let _listener = UdpSocket::bind(("0.0.0.0", port)).unwrap();
    // Inside `on_data` Envoy names the address that the datagram was sent to.
    LOCAL.lock().unwrap().0 = LOOPBACK;
    let (begun, mut taken) = (Instant::now(), 0);
    let mut received = [0; 100];
    let length = loop {
        // SAFETY: as above.
        unsafe {
            envoy_dynamic_module_on_udp_listener_filter_on_data(ptr::null_mut(), filter);
        }
        taken += 1;
        if let Ok(length) = server.recv(&mut received) {
            break length;
        }
        assert!(begun.elapsed() < PATIENCE, "none of {taken} datagrams has reached the server");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(received.get(..length), Some(DATAGRAM));
    assert!(taken > 1, "the listener was there from the start");
    // SAFETY: as above; neither is used again.
    unsafe {
        envoy_dynamic_module_on_udp_listener_filter_destroy(filter);
        envoy_dynamic_module_on_udp_listener_filter_config_destroy(config);
    }
}
