//! The stateless proof that a client can receive at the address it sends from.
//!
//! As in RFC 9000 section 8.1 (Retry) and WireGuard's cookie: the gateway keeps one secret and no
//! state; the cookie is a keyed hash of the client's address, its nonce and the gateway's time.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::estimate::Timestamp;
use crate::tag::{TAG_LENGTH, is_same};
use sha2::{Digest, Sha256};
use zeroize::ZeroizeOnDrop;

/// Bytes of a cookie.
pub const COOKIE_LENGTH: usize = TAG_LENGTH;
/// A cookie is accepted for this long after it was made.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(10);

/// Makes and checks cookies.
#[derive(ZeroizeOnDrop)]
pub struct CookieKey([u8; 32]);

impl core::fmt::Debug for CookieKey {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("CookieKey(..)")
    }
}

impl CookieKey {
    /// Creates the source of cookies from `secret`: 32 random bytes, known to this gateway only.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// The time and the cookie to put into an Offer.
    pub fn make(
        &self,
        client: SocketAddr,
        nonce: u64,
        now: Timestamp,
    ) -> (u32, [u8; COOKIE_LENGTH]) {
        let time = coarse(now);
        (time, self.tag(client, nonce, time))
    }

    /// True if this gateway made an Init's cookie for this address and nonce, within
    /// [`COOKIE_LIFETIME`].
    pub fn check(
        &self,
        client: SocketAddr,
        nonce: u64,
        time: u32,
        cookie: &[u8; COOKIE_LENGTH],
        now: Timestamp,
    ) -> bool {
        // Wrapping: the time is a 32-bit count of milliseconds, the window is short.
        let age = coarse(now).wrapping_sub(time);
        let is_authentic = is_same(&self.tag(client, nonce, time), cookie);
        u128::from(age) <= COOKIE_LIFETIME.as_millis() && is_authentic
    }

    fn tag(&self, client: SocketAddr, nonce: u64, time: u32) -> [u8; COOKIE_LENGTH] {
        let mut hash = Sha256::new();
        hash.update(self.0);
        match client.ip() {
            IpAddr::V4(address) => hash.update(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => hash.update(address.octets()),
        }
        hash.update(client.port().to_be_bytes());
        hash.update(nonce.to_be_bytes());
        hash.update(time.to_be_bytes());
        // The secret comes first and every field has a fixed length; only half of the digest is
        // revealed. Length extension is therefore impossible.
        let digest = hash.finalize();
        let mut tag = [0; COOKIE_LENGTH];
        tag.copy_from_slice(&digest[..COOKIE_LENGTH]);
        tag
    }
}

/// Milliseconds, wrapping after 49 days.
fn coarse(now: Timestamp) -> u32 {
    (now.as_micros() / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_bound_to_address_nonce_and_time() {
        let key = CookieKey::new([3; 32]);
        let client: SocketAddr = "192.0.2.7:4433".parse().unwrap();
        let now = Timestamp::from_millis(1_000_000);
        let (time, cookie) = key.make(client, 42, now);
        assert!(key.check(client, 42, time, &cookie, now + Duration::from_secs(9)));
        assert!(!key.check(client, 42, time, &cookie, now + Duration::from_secs(11)));
        assert!(!key.check(client, 43, time, &cookie, now));
        assert!(!key.check("192.0.2.7:4434".parse().unwrap(), 42, time, &cookie, now));
        assert!(!key.check("192.0.2.8:4433".parse().unwrap(), 42, time, &cookie, now));
        assert!(!key.check(client, 42, time.wrapping_add(1), &cookie, now));
        assert!(!CookieKey::new([4; 32]).check(client, 42, time, &cookie, now));
        let mut bent = cookie;
        bent[15] ^= 1;
        assert!(!key.check(client, 42, time, &bent, now));
    }

    #[test]
    fn the_clock_may_wrap() {
        let key = CookieKey::new([3; 32]);
        let client: SocketAddr = "[2001:db8::1]:1".parse().unwrap();
        let now = Timestamp::from_millis(u64::from(u32::MAX) - 5);
        let (time, cookie) = key.make(client, 1, now);
        assert!(key.check(client, 1, time, &cookie, now + Duration::from_millis(100)));
    }

    #[test]
    fn a_key_is_overwritten_when_it_is_dropped() {
        fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<CookieKey>();
    }
}
