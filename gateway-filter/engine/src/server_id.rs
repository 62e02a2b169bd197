//! The server that a connection ID names (QUIC-LB, draft-ietf-quic-load-balancers-21): a server
//! with such connection IDs is found through every gateway, also by a client whose address has
//! changed.
//!
//! ```text
//!   connection ID:  first octet   server ID | nonce   more, which is the server's own
//!                   3 bits: which configuration; then plain, or encrypted with its key
//! ```

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};

/// Bytes of a block of AES.
const BLOCK_BYTES: usize = 16;
/// Most bytes of server ID and nonce together: the longest connection ID without its first octet
/// (RFC 9000, section 17.2).
const LONGEST_PLAINTEXT_BYTES: usize = 19;
/// Fewest bytes of a nonce.
const SHORTEST_NONCE_BYTES: usize = 4;
/// Number of configurations; the next number means that there is no configuration.
const CONFIGURATION_COUNT: u8 = 7;
/// The longest connection ID of QUIC version 1.
const LONGEST_CONNECTION_ID: usize = 20;

/// The number of a server in connection IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId {
    bytes: [u8; LONGEST_PLAINTEXT_BYTES],
    length: u8,
}

impl ServerId {
    /// A server ID of these bytes; `None` if it is empty, or longer than a connection ID has room
    /// for beside a nonce.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > LONGEST_PLAINTEXT_BYTES - SHORTEST_NONCE_BYTES {
            return None;
        }
        let mut id =
            Self { bytes: [0; LONGEST_PLAINTEXT_BYTES], length: u8::try_from(bytes.len()).ok()? };
        id.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(id)
    }

    /// The bytes of the server ID.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// Reason why a configuration is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerIdError {
    /// The number of the configuration.
    #[error("config must be 0 to 6: 7 says that a connection ID names no server")]
    Configuration,
    /// A length.
    #[error(
        "server_id_bytes must be 1 or more, nonce_bytes 4 or more, and both together at most 19"
    )]
    Length,
}

/// Reads the server IDs in connection IDs of one configuration.
pub struct ServerIdDecoder {
    configuration: u8,
    server_id_length: usize,
    /// Bytes of server ID and nonce.
    length: usize,
    cipher: Option<Aes128>,
}

impl std::fmt::Debug for ServerIdDecoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key stays out of logs.
        formatter
            .debug_struct("ServerIdDecoder")
            .field("configuration", &self.configuration)
            .field("server_id_length", &self.server_id_length)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl ServerIdDecoder {
    /// A configuration. Without a key, everybody can read the server IDs.
    ///
    /// # Errors
    /// When the number or a length is out of its range.
    pub fn new(
        configuration: u8,
        server_id_length: usize,
        nonce_length: usize,
        key: Option<&[u8; BLOCK_BYTES]>,
    ) -> Result<Self, ServerIdError> {
        if configuration >= CONFIGURATION_COUNT {
            return Err(ServerIdError::Configuration);
        }
        let length = server_id_length.saturating_add(nonce_length);
        if server_id_length == 0
            || nonce_length < SHORTEST_NONCE_BYTES
            || length > LONGEST_PLAINTEXT_BYTES
        {
            return Err(ServerIdError::Length);
        }
        let cipher = key.map(|key| Aes128::new(&(*key).into()));
        Ok(Self { configuration, server_id_length, length, cipher })
    }

    /// The server that a connection ID names; it need not exist. `None` for another configuration,
    /// and for a connection ID that is too short.
    pub fn server_of(&self, connection_id: &[u8]) -> Option<ServerId> {
        let (first, rest) = connection_id.split_first()?;
        if first >> 5 != self.configuration {
            return None;
        }
        let content = rest.get(..self.length)?;
        match &self.cipher {
            None => ServerId::new(content.get(..self.server_id_length)?),
            Some(cipher) if self.length == BLOCK_BYTES => {
                let mut block = Block::try_from(content).ok()?;
                cipher.decrypt_block(&mut block);
                ServerId::new(block.get(..self.server_id_length)?)
            }
            Some(cipher) => {
                let plain = self.four_passes(cipher, content)?;
                ServerId::new(plain.get(..self.server_id_length)?)
            }
        }
    }

    /// Undoes the passes of section 5.4.2; the last only if the server ID reaches into its half.
    fn four_passes(
        &self,
        cipher: &Aes128,
        content: &[u8],
    ) -> Option<[u8; LONGEST_PLAINTEXT_BYTES]> {
        let half = self.length.div_ceil(2);
        let is_odd = self.length % 2 == 1;
        let (mut left, mut right) =
            (Half::new(content.get(..half)?)?, { Half::new(content.get(self.length - half..)?)? });
        if is_odd {
            // The octet in the middle is shared: its first four bits are on the left.
            left.keep(half - 1, 0xf0);
            right.keep(0, 0x0f);
        }
        for pass in (1..=4).rev() {
            if pass == 1 && self.server_id_length <= self.length / 2 {
                break;
            }
            let (from, to) = if pass % 2 == 0 { (&right, &mut left) } else { (&left, &mut right) };
            to.mix(&from.encrypted(cipher, self.length, pass)?, half);
            if is_odd {
                if pass % 2 == 0 { left.keep(half - 1, 0xf0) } else { right.keep(0, 0x0f) }
            }
        }
        let mut plain = [0; LONGEST_PLAINTEXT_BYTES];
        for (place, octet) in plain.iter_mut().zip(left.octets(half)) {
            *place = *octet;
        }
        for (place, octet) in plain.iter_mut().skip(self.length - half).zip(right.octets(half)) {
            *place |= octet;
        }
        Some(plain)
    }
}

/// A half of server ID and nonce, with zeros behind it.
struct Half([u8; BLOCK_BYTES]);

impl Half {
    fn new(octets: &[u8]) -> Option<Self> {
        let mut half = Self([0; BLOCK_BYTES]);
        half.0.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(half)
    }

    fn octets(&self, length: usize) -> &[u8] {
        self.0.get(..length).unwrap_or_default()
    }

    /// Clears the other bits of an octet.
    fn keep(&mut self, octet: usize, bits: u8) {
        if let Some(octet) = self.0.get_mut(octet) {
            *octet &= bits;
        }
    }

    fn mix(&mut self, other: &[u8; BLOCK_BYTES], length: usize) {
        for (octet, other) in self.0.iter_mut().zip(other).take(length) {
            *octet ^= other;
        }
    }

    /// The block of this half, the total length and the number of a pass, encrypted.
    fn encrypted(&self, cipher: &Aes128, length: usize, pass: u8) -> Option<[u8; BLOCK_BYTES]> {
        let mut block = self.0;
        let [.., place_of_length, place_of_pass] = &mut block;
        *place_of_length = u8::try_from(length).ok()?;
        *place_of_pass = pass;
        let mut block = Block::from(block);
        cipher.encrypt_block(&mut block);
        Some(block.into())
    }
}

/// The connection ID that a client's datagram is sent to, if it is QUIC (RFC 8999). For a short
/// header, all bytes that may belong to it: its length is known to the server only.
pub fn destination(datagram: &[u8]) -> Option<&[u8]> {
    match *datagram.first()? {
        first if first & 0xc0 == 0x40 => {
            let rest = datagram.get(1..)?;
            Some(rest.get(..LONGEST_CONNECTION_ID).unwrap_or(rest))
        }
        first if first & 0x80 != 0 => {
            let rest = datagram.get(5..)?;
            let (&length, rest) = rest.split_first()?;
            rest.get(..usize::from(length))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn octets(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn decoder(configuration: u8, lengths: (usize, usize), key: &str) -> ServerIdDecoder {
        let key: Option<[u8; 16]> = octets(key).try_into().ok();
        ServerIdDecoder::new(configuration, lengths.0, lengths.1, key.as_ref()).unwrap()
    }

    /// Appendix B of the draft, and the example of section 5.4.2. In the last one of the appendix
    /// the first octet does not belong to its configuration, 3.
    #[test]
    fn the_vectors_of_the_draft() {
        let key = "8f95f09245765f80256934e50c66207f";
        for (configuration, key, server, nonce, connection_id) in [
            (0, "", "c4605e", "4504cc4f", "07c4605e4504cc4f"),
            (0, key, "ed793a", "ee080dbf", "0720b1d07b359d3c"),
            (1, key, "ed793a51d49b8f5fab65", "ee080dbf48", "2fcc381bc74cb4fbad2823a3d1f8fed2"),
            (2, key, "ed793a51d49b8f5f", "ee080dbf48c0d1e5", "504dd2d05a7b0de9b2b9907afb5ecf8cc3"),
            (
                0,
                key,
                "ed793a51d49b8f5fab",
                "ee080dbf48c0d1e55d",
                "125779c9cc86beb3a3a4a3ca96fce4bfe0cdbc",
            ),
            (0, "fdf726a9893ec05c0632d3956680baf0", "31441a", "9c69c275", "0767947d29be054a"),
        ] {
            let (server, connection_id) = (octets(server), octets(connection_id));
            let decoder = decoder(configuration, (server.len(), nonce.len() / 2), key);
            let found = decoder.server_of(&connection_id).unwrap();
            assert_eq!(found.as_bytes(), server);
            // What the server has added of its own does not matter; less is no such connection ID,
            // and so is another configuration.
            assert_eq!(decoder.server_of(&[&connection_id[..], b"more"].concat()), Some(found));
            assert_eq!(decoder.server_of(&connection_id[..connection_id.len() - 1]), None);
            let mut other = connection_id;
            other[0] ^= 0x80;
            assert_eq!(decoder.server_of(&other), None);
        }
    }

    #[test]
    fn configurations_have_the_ranges_of_the_draft() {
        let new = |configuration, server, nonce| {
            ServerIdDecoder::new(configuration, server, nonce, None).map(|_| ())
        };
        for (configuration, server, nonce) in [(0, 1, 4), (6, 15, 4), (6, 1, 18)] {
            assert_eq!(new(configuration, server, nonce), Ok(()));
        }
        assert_eq!(new(7, 1, 4), Err(ServerIdError::Configuration));
        for (server, nonce) in [(0, 8), (1, 3), (16, 4), (usize::MAX, 4)] {
            assert_eq!(new(0, server, nonce), Err(ServerIdError::Length));
        }
    }

    #[test]
    fn connection_ids_are_found_in_both_headers() {
        assert_eq!(destination(b"\x41abc"), Some(&b"abc"[..]));
        let long = [&[0x40][..], &[7; 30]].concat();
        assert_eq!(destination(&long), Some(&[7; 20][..]));
        assert_eq!(destination(b"\xc0\0\0\0\x01\x03abc\x02de"), Some(&b"abc"[..]));
        assert_eq!(destination(b"\xc0\0\0\0\x01\x09abc"), None);
        for other in [&b""[..], b"\x16\xfe\xfd", b"\xc0\0\0"] {
            assert_eq!(destination(other), None);
        }
    }

    /// Encrypts as a server does.
    fn connection_id(decoder: &ServerIdDecoder, plain: &[u8]) -> Vec<u8> {
        let first = decoder.configuration << 5;
        let Some(cipher) = &decoder.cipher else { return [&[first][..], plain].concat() };
        if plain.len() == BLOCK_BYTES {
            let mut block = Block::try_from(plain).unwrap();
            cipher.encrypt_block(&mut block);
            return [&[first][..], &block[..]].concat();
        }
        let half = plain.len().div_ceil(2);
        let is_odd = plain.len() % 2 == 1;
        let mut halves =
            [Half::new(&plain[..half]).unwrap(), Half::new(&plain[plain.len() - half..]).unwrap()];
        let clear = |halves: &mut [Half; 2]| {
            if is_odd {
                halves[0].keep(half - 1, 0xf0);
                halves[1].keep(0, 0x0f);
            }
        };
        clear(&mut halves);
        for pass in 1..=4_u8 {
            let (from, to) = if pass % 2 == 1 { (0, 1) } else { (1, 0) };
            let mask = halves[from].encrypted(cipher, plain.len(), pass).unwrap();
            halves[to].mix(&mask, half);
            clear(&mut halves);
        }
        let mut content = halves[0].octets(half).to_vec();
        content.resize(plain.len(), 0);
        for (place, octet) in content[plain.len() - half..].iter_mut().zip(halves[1].octets(half)) {
            *place |= octet;
        }
        [&[first][..], &content].concat()
    }

    proptest! {
        #[test]
        fn what_a_server_encodes_is_decoded(
            configuration in 0..CONFIGURATION_COUNT,
            key in any::<Option<[u8; 16]>>(),
            content in prop::collection::vec(any::<u8>(), 5..=LONGEST_PLAINTEXT_BYTES),
            share in any::<prop::sample::Index>(),
        ) {
            let server_id_length = 1 + share.index(content.len() - SHORTEST_NONCE_BYTES);
            let decoder = ServerIdDecoder::new(
                configuration, server_id_length, content.len() - server_id_length, key.as_ref(),
            ).unwrap();
            let connection_id = connection_id(&decoder, &content);
            prop_assert_eq!(connection_id.len(), content.len() + 1);
            let found = decoder.server_of(&connection_id).unwrap();
            prop_assert_eq!(found.as_bytes(), &content[..server_id_length]);
        }

        #[test]
        fn hostile_datagrams_do_no_harm(datagram in prop::collection::vec(any::<u8>(), 0..64)) {
            let decoder = decoder(0, (10, 5), "8f95f09245765f80256934e50c66207f");
            let _ = destination(&datagram).and_then(|id| decoder.server_of(id));
        }
    }
}
