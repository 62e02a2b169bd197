//! Keys and hashes as texts of hexadecimal digits.

/// Lower-case hexadecimal digits, two per byte.
pub fn encode(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

/// The key of 64 hexadecimal digits of either case, or `None` for anything else.
pub fn decode_key(text: &[u8]) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let read = base16ct::mixed::decode(text, &mut key).ok()?.len();
    (read == key.len()).then_some(key)
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
