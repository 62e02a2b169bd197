//! The interface as a program sees it, and its failures.

use super::*;

const NOW: u64 = 1_000_000;

fn new() -> *mut Shim {
    let mut config = std::mem::MaybeUninit::<Config>::uninit();
    let mut shim = std::ptr::null_mut();
    // SAFETY: all of them are places.
    unsafe {
        let size = size_of::<Config>();
        assert_eq!(packrat_config_init(config.as_mut_ptr(), size), PACKRAT_OK);
        let made = packrat_shim_new(config.as_ptr(), [7; 32].as_ptr(), NOW, &raw mut shim);
        assert_eq!(made, PACKRAT_OK);
    }
    shim
}

fn condition(shim: *mut Shim) -> u32 {
    let mut statistics = Statistics::default();
    // SAFETY: a handle, and a place.
    let code =
        unsafe { packrat_shim_statistics(shim, &raw mut statistics, size_of::<Statistics>()) };
    assert_eq!((code, statistics.size as usize), (PACKRAT_OK, size_of::<Statistics>()));
    statistics.condition
}

#[test]
fn a_panic_becomes_a_code() {
    assert_eq!(guarded(|| panic!("as the test wants it")), PACKRAT_INTERNAL);
}

#[test]
fn a_shim_that_has_failed_passes_what_comes() {
    let shim = new();
    // SAFETY: it is this test's alone.
    let handle = unsafe { &mut *shim };
    handle.0.shim.fail_at(1);
    let mut skip = 9;
    let datagram = b"a datagram";
    // SAFETY: a handle, bytes, a place.
    let code = unsafe {
        let (bytes, length) = (datagram.as_ptr(), datagram.len());
        packrat_shim_receive(shim, bytes, length, 0, NOW, &raw mut skip)
    };
    assert_eq!((code, skip), (PACKRAT_PASS, 0));
    assert_eq!(condition(shim), PACKRAT_FAILED);
    // SAFETY: a handle.
    unsafe {
        assert_eq!(packrat_shim_timeout(shim), PACKRAT_NEVER);
        packrat_shim_free(shim);
    }
}

#[test]
fn an_older_header_has_smaller_statistics() {
    let shim = new();
    let mut bytes = [0xff; size_of::<Statistics>()];
    let statistics = bytes.as_mut_ptr().cast::<Statistics>();
    if statistics.is_aligned() {
        // SAFETY: a handle, and a place of 16 bytes.
        assert_eq!(unsafe { packrat_shim_statistics(shim, statistics, 16) }, PACKRAT_OK);
        assert_eq!(bytes[..4], 16u32.to_ne_bytes());
        assert!(bytes[16..].iter().all(|byte| *byte == 0xff), "the rest is the caller's");
    }
    // SAFETY: a handle.
    unsafe { packrat_shim_free(shim) };
}

/// The settings of a later version, which has one more.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Later {
    config: Config,
    more: u64,
}

#[test]
fn an_older_header_has_fewer_settings_and_the_others_keep_their_defaults() {
    if size_of::<usize>() == 8 {
        assert_eq!(OLDEST_CONFIG, 40, "programs are built with the settings of 0.1");
    }
    let defaults = Later { config: Config::default(), more: 7 };
    let mut of_caller = Later { config: Config::default(), more: 99 };
    let size = size_of::<Config>() as u32;
    of_caller.config.size = size;
    of_caller.config.maximum_hold = 5;
    // SAFETY: all of it is there.
    let read = |of_caller: &Later| unsafe { read_sized(of_caller, defaults, OLDEST_CONFIG) };
    let known = read(&of_caller).unwrap();
    assert_eq!((known.config.maximum_hold, known.more), (5, 7), "99 is not the library's");
    of_caller.config.size = size_of::<Later>() as u32;
    assert_eq!(read(&of_caller).unwrap().more, 99);
    of_caller.config.size = OLDEST_CONFIG as u32 - 1;
    assert_eq!(read(&of_caller).unwrap_err(), PACKRAT_ARGUMENT);
    let mut out = of_caller;
    // SAFETY: all of it is there.
    let mut write = |size| unsafe {
        let code = write_sized(&defaults, &raw mut out, size, OLDEST_CONFIG);
        (code, out.more)
    };
    assert_eq!(write(OLDEST_CONFIG - 1), (Err(PACKRAT_ARGUMENT), 99));
    assert_eq!(write(size_of::<Config>()), (Ok(()), 99), "what is behind is the caller's");
    assert_eq!(write(size_of::<Later>() + 8), (Ok(()), 7));
    assert_eq!(out.config.maximum_hold, defaults.config.maximum_hold);
}

#[test]
fn a_newer_header_has_more_settings_which_are_left_alone() {
    let mut later = Later { config: Config::default(), more: 99 };
    let mut shim = std::ptr::null_mut();
    // SAFETY: all of them are places.
    unsafe {
        let config = (&raw mut later).cast::<Config>();
        assert_eq!(packrat_config_init(config, size_of::<Later>()), PACKRAT_OK);
        let made = packrat_shim_new(config, [7; 32].as_ptr(), NOW, &raw mut shim);
        assert_eq!(made, PACKRAT_OK);
        packrat_shim_free(shim);
    }
    assert_eq!((later.config.size as usize, later.more), (size_of::<Later>(), 99));
}

#[test]
fn the_committed_inputs_of_the_fuzz_target() {
    let expected = ["empty", "every_call", "times_that_jump"];
    packrat_fuzz_entry::corpus::run("c_interface", &expected, fuzz_corpus::c_interface);
}
