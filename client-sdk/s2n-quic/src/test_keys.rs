//! Keys that anybody can seal with, and packets under them: for tests and fuzz targets.

use s2n_quic_core::crypto::packet_protection::Error;
use s2n_quic_core::crypto::tls::CipherSuite;
use s2n_quic_core::crypto::{HeaderKey, HeaderProtectionMask, Key, OneRttKey, scatter};

/// The connection identifier of the packets here.
pub(crate) const IDENTIFIER: [u8; 8] = [9; 8];

/// A mask that is the first bytes of the sample.
pub(crate) struct Plain;

impl HeaderKey for Plain {
    fn opening_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        [sample[0], sample[1], sample[2], sample[3], sample[4]]
    }
    fn opening_sample_len(&self) -> usize {
        16
    }
    fn sealing_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        self.opening_header_protection_mask(sample)
    }
    fn sealing_sample_len(&self) -> usize {
        16
    }
}

/// A datagram that begins with a packet of the handshake.
pub(crate) fn long_header() -> Vec<u8> {
    [&[0xc3, 0, 0, 0, 1, 8][..], &IDENTIFIER, &[0; 40]].concat()
}

/// A datagram with the lowest two bytes of `number`, protected by a mask of `mask` alone.
pub(crate) fn short_header(identifier: &[u8], number: u64, mask: u8) -> Vec<u8> {
    let number = (number as u16).to_be_bytes().map(|byte| byte ^ mask);
    [&[0x41 ^ (mask & 0x1f)][..], identifier, &number, &[7, 7], &[mask; 16], &[1; 30]].concat()
}

/// A key whose tag is its own number in the last byte.
pub(crate) struct Numbered(pub(crate) u8);

impl Key for Numbered {
    fn decrypt(&self, _: u64, _: &[u8], payload: &mut [u8]) -> Result<(), Error> {
        let tag = std::mem::take(&mut payload[payload.len() - 1]);
        if tag == self.0 { Ok(()) } else { Err(Error::DECRYPT_ERROR) }
    }
    fn encrypt(&mut self, _: u64, _: &[u8], _: &mut scatter::Buffer<'_>) -> Result<(), Error> {
        Ok(())
    }
    fn tag_len(&self) -> usize {
        1
    }
    fn aead_confidentiality_limit(&self) -> u64 {
        u64::MAX
    }
    fn aead_integrity_limit(&self) -> u64 {
        u64::MAX
    }
    fn cipher_suite(&self) -> CipherSuite {
        CipherSuite::Unknown
    }
}

impl OneRttKey for Numbered {
    fn derive_next_key(&self) -> Self {
        Self(self.0 + 1)
    }
}
