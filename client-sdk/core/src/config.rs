//! What an application may set.

use core::time::Duration;

use packrat_wire::handshake::Live;
use packrat_wire::identifier::IdentifierScheme;

/// What an application may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Longest time an acknowledgement is withheld for a hole; the actual hold follows the measured last mile below it.
    pub maximum_hold: Duration,
    /// Whether acknowledgements may be withheld at all.
    pub hold: bool,
    /// The gateway's static public key, when known: another gateway is refused. `None`: trust on first use.
    pub gateway_key: Option<[u8; 32]>,
    /// How datagrams get their identifiers.
    pub scheme: IdentifierScheme,
    /// The permission that the gateway's token endpoint has issued, where one is asked for; empty: none.
    pub token: Vec<u8>,
    /// For the receiver of a live stream: when eACKs are sent, and until when a repair is of use.
    pub live: Option<Live>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            maximum_hold: Duration::from_millis(1000),
            hold: true,
            gateway_key: None,
            scheme: IdentifierScheme::Trailer,
            token: Vec::new(),
            live: None,
        }
    }
}
