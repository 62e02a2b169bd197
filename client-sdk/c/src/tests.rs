//! The interface as a program sees it, and its failures.

use super::*;

use std::collections::VecDeque;

use packrat_wire::SessionId;
use packrat_wire::control::Control;
use packrat_wire::handshake::{Established, GatewayParams, Numbered, respond};
use packrat_wire::registry::GREASE_VALUES;

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

/// A datagram arrives at a program: the code, and how often the program has it by then.
fn receive(shim: *mut Shim, datagram: &[u8], now: u64) -> (i32, Vec<Vec<u8>>) {
    let (mut skip, mut length, mut mark) = (0, 0, 0);
    let (bytes, mut buffer) = (datagram.as_ptr(), [0; 2048]);
    // SAFETY: a handle, bytes, places.
    let code = unsafe { packrat_shim_receive(shim, bytes, datagram.len(), 0, now, &raw mut skip) };
    let mut passed = Vec::new();
    if code == PACKRAT_PASS {
        passed.push(datagram[skip..].to_vec());
    }
    // SAFETY: a handle, and places.
    while unsafe {
        let (out, length) = (buffer.as_mut_ptr(), &raw mut length);
        packrat_shim_deliver(shim, out, buffer.len(), length, &raw mut mark) == PACKRAT_OK
    } {
        passed.push(buffer[..length].to_vec());
    }
    (code, passed)
}

/// The next message of a shim, if any.
fn transmit(shim: *mut Shim, now: u64) -> Option<Vec<u8>> {
    let (mut buffer, mut length) = ([0; 2048], 0);
    // SAFETY: a handle, and places.
    let code = unsafe {
        packrat_shim_transmit(shim, buffer.as_mut_ptr(), buffer.len(), &raw mut length, now)
    };
    (code == PACKRAT_OK).then(|| buffer[..length].to_vec())
}

/// The gateway's half of a session in which datagrams are numbered.
fn session(shim: *mut Shim) -> Established {
    let question = transmit(shim, NOW).unwrap();
    let Ok(Control::Discover { nonce, noise, .. }) = Control::decode(&question) else {
        panic!("{question:x?}")
    };
    let grant = |client: &packrat_wire::handshake::ClientParams| GatewayParams {
        session: SessionId::new(5),
        scheme: client.scheme,
        limits: client.limits,
        cache_bytes: 1 << 20,
        secret: [6; 32].into(),
        stream: None,
        symbols: None,
        numbered: Some(Numbered { to_client: true, to_server: false, coded: false, largest: 1464 }),
        hint: Default::default(),
        ticket: None,
        bundles: false,
        distinct: true,
    };
    let (gateway, _, noise) =
        respond([2; 32], &[3; 32], nonce, noise, |client, _| grant(client)).unwrap();
    let mut answer = Vec::new();
    Control::InitAck { nonce, noise: &noise }.encode(&mut answer);
    assert_eq!(receive(shim, &answer, NOW), (PACKRAT_CONSUMED, Vec::new()));
    assert_eq!(condition(shim), PACKRAT_ASSISTED);
    gateway
}

/// A gateway repairs each loss twice, and probes the tail.
#[test]
fn a_program_gets_each_datagram_once() {
    const COUNT: u64 = 1500;
    for hold in [0, 1_000_000] {
        let mut config = Config { maximum_hold: hold, ..Config::default() };
        config.size = size_of::<Config>() as u32;
        let mut shim = std::ptr::null_mut();
        // SAFETY: all of them are places.
        let made =
            unsafe { packrat_shim_new(&raw const config, [7; 32].as_ptr(), NOW, &raw mut shim) };
        assert_eq!(made, PACKRAT_OK);
        let mut gateway = session(shim);
        let params = gateway.gateway_params.clone();
        let (mut now, mut passed, mut repairs) = (NOW, Vec::new(), VecDeque::new());
        for place in (0..COUNT).chain([COUNT - 1]) {
            let base = [&place.to_be_bytes()[..], &[7; 1192]].concat();
            let identifier = params.identifier_key().identify(params.scheme, &base);
            let numbered = [&params.number_key().header(place, identifier)[..], &base].concat();
            if place % 33 == 7 {
                repairs.extend([40, 41].map(|after| (place + after, numbered.clone())));
            } else {
                passed.extend(receive(shim, &numbered, now).1);
            }
            while let Some((_, repair)) = repairs.pop_front_if(|(at, _)| *at <= place) {
                passed.extend(receive(shim, &repair, now).1);
            }
            if place % 50 == 0 {
                // It is there.
                let mut message = Vec::new();
                gateway.sealer.seal(&[*GREASE_VALUES.start()], &mut message).unwrap();
                receive(shim, &message, now);
            }
            now += 1000;
            // SAFETY: a handle.
            unsafe {
                if packrat_shim_timeout(shim) <= now {
                    packrat_shim_on_timeout(shim, now);
                }
            }
            while transmit(shim, now).is_some() {}
        }
        for (_, repair) in repairs {
            passed.extend(receive(shim, &repair, now).1);
        }
        // SAFETY: a handle.
        unsafe { packrat_shim_close(shim, now) };
        passed.extend(receive(shim, b"the end", now).1);
        let mut numbers: Vec<u64> = passed
            .iter()
            .filter_map(|base| Some(u64::from_be_bytes(*base.first_chunk()?)))
            .filter(|number| *number < COUNT)
            .collect();
        numbers.sort_unstable();
        let came: Vec<u64> = (0..COUNT).collect();
        assert!(numbers == came[..], "{hold}: {} of {COUNT}", numbers.len());
        // SAFETY: a handle.
        unsafe { packrat_shim_free(shim) };
    }
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
fn settings_missing_from_an_older_header_keep_their_defaults() {
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
