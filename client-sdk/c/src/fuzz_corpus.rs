//! The entry function of the fuzz target `c_interface`: any calls in any order, with any bytes,
//! times and buffers.
//!
//! Input: steps of one byte, the kind in the lower four bits and a number in the upper four; some
//! kinds take a length byte and as many bytes.
#![allow(clippy::panic)] // a part of tests: a panic is the result
#![allow(unreachable_pub)] // public for the fuzzer alone

use packrat_fuzz_entry::take;

use crate::*;

/// Runs the steps. Panics when a call returns a code that is not its own, or writes beyond a buffer.
pub fn c_interface(data: &[u8]) {
    let mut rest = data;
    let mut now = 1_000_000;
    let mut shim = make(take(&mut rest), now);
    let mut passed = 0;
    let mut sent = 0;
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = u64::from(step >> 4);
        // SAFETY: the handle is live, and the buffers have the given lengths.
        unsafe {
            match step & 15 {
                0 | 1 => {
                    let datagram = take(&mut rest);
                    let mut skip = usize::MAX;
                    let (bytes, length) = (datagram.as_ptr(), datagram.len());
                    let code = packrat_shim_receive(shim, bytes, length, step, now, &raw mut skip);
                    match code {
                        PACKRAT_PASS => assert!(skip <= length, "{skip} of {length} bytes"),
                        PACKRAT_KEPT | PACKRAT_CONSUMED => {}
                        other => panic!("receive returned {other}"),
                    }
                    passed += usize::from(code == PACKRAT_PASS);
                }
                2 => {
                    drain(number, |out, space, length| {
                        let mut mark = 0;
                        packrat_shim_deliver(shim, out, space, length, &raw mut mark)
                    });
                }
                3 => {
                    sent += drain(number, |out, space, length| {
                        packrat_shim_transmit(shim, out, space, length, now)
                    });
                }
                4 => now = now.saturating_add(number * number * 1000),
                // Clocks that jump, in both directions.
                5 => now = [0, u64::MAX, u64::MAX / 4, 1][number as usize % 4],
                6 => now = packrat_shim_timeout(shim).min(now.saturating_add(1 << 40)),
                7 => expect(packrat_shim_on_timeout(shim, now), &[PACKRAT_OK]),
                8 => {
                    let token = take(&mut rest);
                    let code = packrat_shim_set_access(
                        shim,
                        std::ptr::null(),
                        token.as_ptr(),
                        token.len(),
                        now,
                    );
                    expect(code, &[PACKRAT_OK, PACKRAT_ARGUMENT]);
                }
                9 => expect(packrat_shim_network_changed(shim, now), &[PACKRAT_OK]),
                10 => expect(packrat_shim_overflowed(shim, now), &[PACKRAT_OK]),
                11 => expect(packrat_shim_release(shim), &[PACKRAT_OK]),
                12 => expect(packrat_shim_close(shim, now), &[PACKRAT_OK]),
                13 => expect(packrat_shim_sent(shim, number as u32, u32::MAX), &[PACKRAT_OK]),
                14 => {
                    let mut statistics = Statistics::default();
                    let size = number as usize * 16;
                    let code = packrat_shim_statistics(
                        shim,
                        &raw mut statistics,
                        size.min(size_of::<Statistics>()),
                    );
                    expect(code, &[PACKRAT_OK, PACKRAT_ARGUMENT]);
                    assert!(statistics.condition != PACKRAT_FAILED, "a shim has panicked");
                }
                _ => {
                    packrat_shim_free(shim);
                    shim = make(take(&mut rest), now);
                }
            }
        }
    }
    // SAFETY: the handle is live.
    unsafe { packrat_shim_free(shim) };
    // A program without a peer receives no additional datagrams, and the shim sends few.
    assert!(passed <= data.len() && sent <= 64 * (data.len() + 1), "{passed}, {sent}");
}

/// A shim whose settings are in `settings`.
fn make(settings: &[u8], now: u64) -> *mut Shim {
    let setting = |index: usize| settings.get(index).copied().unwrap_or_default();
    let mut config = std::mem::MaybeUninit::<Config>::uninit();
    let mut shim = std::ptr::null_mut();
    // SAFETY: all pointers are valid, and the token has this length.
    unsafe {
        expect(packrat_config_init(config.as_mut_ptr(), size_of::<Config>()), &[PACKRAT_OK]);
        let mut config = config.assume_init();
        config.scheme = u32::from(setting(0) & 1);
        config.maximum_hold = u64::from(setting(1)) * 10_000;
        config.token = settings.as_ptr();
        config.token_length = settings.len().min(Token::MAXIMUM_LENGTH);
        let seed = [setting(2); PACKRAT_SEED_LENGTH];
        if setting(0) & 2 != 0 {
            config.gateway_key = seed.as_ptr();
        }
        let code = packrat_shim_new(&raw const config, seed.as_ptr(), now, &raw mut shim);
        expect(code, &[PACKRAT_OK]);
    }
    shim
}

/// Takes all that there is with a buffer that is too small at first; returns the number.
fn drain(number: u64, mut take: impl FnMut(*mut u8, usize, *mut usize) -> i32) -> usize {
    const GUARD_BYTE: u8 = 0xa5;
    let mut buffer = vec![GUARD_BYTE; 70_000];
    let mut taken = 0;
    let mut space = number as usize * 100;
    loop {
        let mut length = 0;
        match take(buffer.as_mut_ptr(), space, &raw mut length) {
            PACKRAT_OK => {
                assert!(length <= space, "{length} bytes in {space}");
                buffer[..length].fill(GUARD_BYTE);
                taken += 1;
                space = number as usize * 100;
            }
            PACKRAT_SPACE => {
                assert!(space < length && length <= 65_536, "{length} bytes, {space} are too few");
                space = length;
            }
            PACKRAT_EMPTY => break,
            other => panic!("it returned {other}"),
        }
        assert!(buffer.iter().all(|byte| *byte == GUARD_BYTE), "it wrote beyond the datagram");
        if taken > 1000 {
            panic!("it never runs dry");
        }
    }
    taken
}

fn expect(code: i32, allowed: &[i32]) {
    assert!(allowed.contains(&code), "{code}");
}
