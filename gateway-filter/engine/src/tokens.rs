//! Who may be assisted: tokens that the gateway's token endpoint has issued.

use core::net::IpAddr;

use packrat_assist_token::{Keys, RouteHash, TokenError, verify};

use crate::gateway::HandshakeOutcome;

/// Whether clients need a token to be assisted. Plain forwarding never does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TokenPolicy {
    /// Tokens are not looked at.
    #[default]
    Off,
    /// A client without a token is assisted, one with a wrong token is not.
    Optional(TokenCheck),
    /// Only clients with a valid token are assisted.
    Required(TokenCheck),
}

/// What tokens are checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCheck {
    /// The keys of the issuer.
    pub keys: Keys,
    /// The route that tokens must be for.
    pub route: RouteHash,
}

/// Why a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    Missing,
    Expired,
    Forged,
    Elsewhere,
}

impl TokenRefusal {
    pub(crate) const fn outcome(self) -> HandshakeOutcome {
        match self {
            Self::Missing => HandshakeOutcome::RefusedTokenMissing,
            Self::Expired => HandshakeOutcome::RefusedTokenExpired,
            Self::Forged => HandshakeOutcome::RefusedTokenForged,
            Self::Elsewhere => HandshakeOutcome::RefusedTokenElsewhere,
        }
    }
}

impl TokenPolicy {
    /// `token`: as in the client's wishes, empty for none; `unix_now`: seconds since 1970.
    pub(crate) fn admit(&self, token: &[u8], unix_now: u64, peer: IpAddr) -> Result<(), TokenRefusal> {
        let check = match self {
            Self::Off => return Ok(()),
            Self::Optional(_) if token.is_empty() => return Ok(()),
            Self::Required(_) if token.is_empty() => return Err(TokenRefusal::Missing),
            Self::Optional(check) | Self::Required(check) => check,
        };
        match verify(token, &check.keys, unix_now, peer, check.route) {
            Ok(_) => Ok(()),
            Err(TokenError::Expired { .. }) => Err(TokenRefusal::Expired),
            Err(TokenError::OtherRoute | TokenError::OtherNetwork) => Err(TokenRefusal::Elsewhere),
            Err(_) => Err(TokenRefusal::Forged),
        }
    }
}
