//! The programs that may use the TURN server, and the nonces of their requests.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use packrat_client::Timestamp;
use sha1::Sha1;
use sha2::Sha256;
use turn_types::stun::message::{IntegrityAlgorithm, IntegrityKey, LongTermKeyCredentials};

/// Age from which a nonce is stale (RFC 8656, section 5: an hour at most).
const NONCE_LIFETIME: Duration = Duration::from_secs(3600);
/// Bytes of a nonce that name its time; a proof follows.
const TIME_BYTES: usize = 8;
/// Bytes of a nonce's proof.
const PROOF_BYTES: usize = 16;

/// The credentials that a TURN server accepts.
#[derive(Clone, Default)]
pub struct TurnCredentials {
    /// Names and passwords without a time limit.
    pub users: BTreeMap<String, String>,
    /// The secret of time-limited credentials ("A REST API For Access To TURN Services",
    /// draft-uberti-behave-turn-rest-00): a name begins with the Unix time of its end, and its
    /// password is its HMAC-SHA1 under the secret, in base64.
    pub secret: Option<String>,
}

impl fmt::Debug for TurnCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TurnCredentials").finish_non_exhaustive()
    }
}

impl TurnCredentials {
    /// The key of a user's messages; `None`: there is no such user, or its time has passed.
    pub(super) fn key(&self, user: &str, realm: &str, unix_seconds: u64) -> Option<IntegrityKey> {
        let password = match self.users.get(user) {
            Some(password) => password.clone(),
            None => self.limited_password(user, unix_seconds)?,
        };
        let credentials = LongTermKeyCredentials::new(user.to_owned(), password, realm.to_owned());
        Some(credentials.make_key(IntegrityAlgorithm::Sha1))
    }

    fn limited_password(&self, user: &str, unix_seconds: u64) -> Option<String> {
        let end: u64 = user.split(':').next()?.parse().ok()?;
        let secret = self.secret.as_ref().filter(|_| unix_seconds < end)?;
        let mut mac = Hmac::<Sha1>::new_from_slice(secret.as_bytes()).ok()?;
        mac.update(user.as_bytes());
        Some(STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The key of the nonces: a server needs no memory of those that it has given out.
pub(super) struct Nonces(pub(super) [u8; 32]);

impl Nonces {
    /// A nonce for a program.
    pub(super) fn issue(&self, program: SocketAddr, now: Timestamp) -> String {
        let time = milliseconds(now).to_be_bytes();
        let mut nonce = time.to_vec();
        if let Some(mac) = self.mac(program, time) {
            let proof = mac.finalize().into_bytes();
            nonce.extend_from_slice(proof.get(..PROOF_BYTES).unwrap_or_default());
        }
        STANDARD.encode(nonce)
    }

    /// True if this server has given the nonce to this program, less than an hour ago.
    pub(super) fn accepts(&self, nonce: &str, program: SocketAddr, now: Timestamp) -> bool {
        let Ok(bytes) = STANDARD.decode(nonce) else { return false };
        let Some((time, proof)) = bytes.split_first_chunk::<TIME_BYTES>() else { return false };
        let issued = Timestamp::from_millis(u64::from_be_bytes(*time));
        proof.len() == PROOF_BYTES
            && self.mac(program, *time).is_some_and(|mac| mac.verify_truncated_left(proof).is_ok())
            && now < issued + NONCE_LIFETIME
    }

    fn mac(&self, program: SocketAddr, time: [u8; TIME_BYTES]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(&time);
        mac.update(program.to_string().as_bytes());
        Some(mac)
    }
}

fn milliseconds(time: Timestamp) -> u64 {
    u64::try_from(time.saturating_since(Timestamp::ZERO).as_millis()).unwrap_or(u64::MAX)
}
