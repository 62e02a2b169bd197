//! Keys and hashes as texts of hexadecimal digits.

use core::fmt::Write as _;

/// Lower-case hexadecimal digits, two per byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The key of 64 hexadecimal digits of either case, or `None` for anything else.
pub fn decode_key(text: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut key = [0; 32];
    if text.len() != 2 * key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = core::array::from_fn(|index| index as u8 * 8);
        assert_eq!(decode_key(encode(&key).as_bytes()), Some(key));
        assert_eq!(decode_key(encode(&key).to_uppercase().as_bytes()), Some(key));
    }

    #[test]
    fn other_texts_are_no_keys() {
        for wrong in ["", "0a", &"0a".repeat(31), &"0a".repeat(33), &"0x".repeat(32)] {
            assert_eq!(decode_key(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(decode_key("ä".repeat(32).as_bytes()), None);
    }
}
