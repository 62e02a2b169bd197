//! A dropped secret is erased from memory that its owner continues to use.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use packrat_assist_token::{Key, Keys};

const SECRET: [u8; 32] = *b"thirty-two bytes that are secret";

/// The bytes of a place in this process, of any content: the view of a core dump.
fn memory<T>(place: &T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    let at = std::ptr::from_ref(place) as u64;
    File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// Largest number of the secret's bytes that a place contains in their order.
fn left(bytes: &[u8]) -> usize {
    let same = |part: &[u8]| part.iter().zip(SECRET).filter(|(one, other)| *one == other).count();
    bytes.windows(SECRET.len()).map(same).max().unwrap()
}

#[test]
fn a_key_that_is_dropped_overwrites_its_secret() {
    let mut place = Box::new(Some(Key::new(7, SECRET)));
    assert_eq!(left(&memory(&*place)), 32, "the secret is found where it is");
    *place = None;
    assert!(left(&memory(&*place)) < 8, "the place still has it");
    assert_eq!(*place, None);
}

#[test]
fn so_do_both_keys_in_force() {
    let mut place =
        Box::new(Some(Keys { current: Key::new(7, [1; 32]), previous: Some(Key::new(6, SECRET)) }));
    assert_eq!(left(&memory(&*place)), 32);
    *place = None;
    assert!(left(&memory(&*place)) < 8);
    assert_eq!(*place, None);
}
