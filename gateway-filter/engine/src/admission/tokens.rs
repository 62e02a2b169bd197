//! Tokens: permissions to be assisted, which the gateway's token endpoint has issued.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::PoisonError;

use packrat_assist_token::{Keys, RouteHash, TokenError, verify};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::client_params_in;

use crate::gateway::HandshakeOutcome;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Admission of clients by their tokens, with the keys that decide. Plain forwarding needs no
/// token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TokenAdmission {
    /// Tokens are not looked at.
    #[default]
    Off,
    /// A client without a token is assisted, one with a wrong token is not.
    Optional(TokenCheck),
    /// Only clients with a valid token are assisted.
    Required(TokenCheck),
}

/// Keys and route that tokens are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCheck {
    /// The keys of the issuer.
    pub keys: Keys,
    /// The route that tokens must be for.
    pub route: RouteHash,
}

/// Reason to refuse a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    Missing,
    Expired,
    Forged,
    OtherScope,
}

impl TokenRefusal {
    pub(crate) const fn outcome(self) -> HandshakeOutcome {
        match self {
            Self::Missing => HandshakeOutcome::RefusedTokenMissing,
            Self::Expired => HandshakeOutcome::RefusedTokenExpired,
            Self::Forged => HandshakeOutcome::RefusedTokenForged,
            Self::OtherScope => HandshakeOutcome::RefusedTokenElsewhere,
        }
    }
}

/// The token admission in force, and the calendar by which tokens expire.
#[derive(Debug)]
pub(crate) struct TokenGate {
    admission: RwLock<TokenAdmission>,
    /// Seconds since 1970 at [`Timestamp::ZERO`].
    unix_origin: AtomicU64,
}

/// Calendar's time, seconds, until the shell has set it: every token has expired.
const UNKNOWN_CALENDAR: u64 = u64::MAX;

impl Default for TokenGate {
    fn default() -> Self {
        Self { admission: RwLock::default(), unix_origin: AtomicU64::new(UNKNOWN_CALENDAR) }
    }
}

impl TokenGate {
    pub(crate) fn set(&self, admission: TokenAdmission) {
        *self.admission.write().unwrap_or_else(PoisonError::into_inner) = admission;
    }

    pub(crate) fn set_unix_origin(&self, origin: Duration) {
        self.unix_origin.store(origin.as_secs(), Ordering::Relaxed);
    }

    /// Checks the token in a client's first Noise message. Comes before everything that costs more
    /// than a hash.
    pub(crate) fn check(
        &self,
        noise: &[u8],
        peer: IpAddr,
        now: Timestamp,
    ) -> Result<(), TokenRefusal> {
        let admission = self.admission.read().unwrap_or_else(PoisonError::into_inner);
        if *admission == TokenAdmission::Off {
            return Ok(());
        }
        let client_params = client_params_in(noise).map_err(|_| TokenRefusal::Forged)?;
        let origin = self.unix_origin.load(Ordering::Relaxed);
        let since = now.saturating_since(Timestamp::ZERO).as_secs();
        admission.admit(&client_params.token, origin.saturating_add(since), peer)
    }
}

impl TokenAdmission {
    /// `token`: as in the client's params, or empty; `unix_now`: seconds since 1970.
    fn admit(&self, token: &[u8], unix_now: u64, peer: IpAddr) -> Result<(), TokenRefusal> {
        let check = match self {
            Self::Off => return Ok(()),
            Self::Optional(_) if token.is_empty() => return Ok(()),
            Self::Required(_) if token.is_empty() => return Err(TokenRefusal::Missing),
            Self::Optional(check) | Self::Required(check) => check,
        };
        match verify(token, &check.keys, unix_now, peer, check.route) {
            Ok(_) => Ok(()),
            Err(TokenError::Expired { .. }) => Err(TokenRefusal::Expired),
            Err(TokenError::OtherRoute | TokenError::OtherNetwork) => Err(TokenRefusal::OtherScope),
            Err(_) => Err(TokenRefusal::Forged),
        }
    }
}
