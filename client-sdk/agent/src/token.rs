//! The tokens by which the system identifies a ready socket.

use std::io;

use mio::Token;
use packrat_socket::FlowId;

use crate::socks::AssociationId;

/// Token of the waker.
const WAKER_TOKEN: usize = 0;
/// Token of the socket that reports changes of the network.
const NETWORK_TOKEN: usize = usize::MAX - 1;
/// Flows have the numbers from here on, listeners those between the waker's and this.
const FIRST_FLOW: usize = 1 << 16;
/// Bit that is set in the tokens of control connections.
const CONNECTION_BIT: usize = 1 << (usize::BITS - 2);
/// Bit that is set in the tokens of relays.
const RELAY_BIT: usize = 1 << (usize::BITS - 3);
/// Bit that is set in the tokens of relayed addresses.
const RELAYED_BIT: usize = 1 << (usize::BITS - 4);

/// Listeners of one agent at most.
pub(crate) const MOST_LISTENERS: usize = FIRST_FLOW - 1;

/// A source of events that is ready, in the order in which sockets are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ready {
    /// Another thread has a command.
    Waker,
    /// A service's socket, or the SOCKS or TURN listener, by its index.
    Listener(usize),
    /// A flow's upstream socket.
    Flow(FlowId),
    /// An association's relay.
    Relay(AssociationId),
    /// An association's control connection.
    Connection(AssociationId),
    /// The socket of a TURN allocation, which its peers send to.
    Relayed(AssociationId),
    /// The host's addresses or routes have changed.
    Network,
}

impl Ready {
    /// The number to register it with.
    ///
    /// # Errors
    /// When the numbers of flows are used up.
    pub(crate) fn token(self) -> io::Result<Token> {
        let number = match self {
            Self::Waker => WAKER_TOKEN,
            Self::Listener(index) => index + 1,
            Self::Flow(FlowId(id)) => usize::try_from(id)
                .ok()
                .and_then(|id| id.checked_add(FIRST_FLOW))
                .ok_or_else(|| io::Error::other("the numbers are used up"))?,
            Self::Relay(association) => RELAY_BIT | association,
            Self::Connection(association) => CONNECTION_BIT | association,
            Self::Relayed(allocation) => RELAYED_BIT | allocation,
            Self::Network => NETWORK_TOKEN,
        };
        Ok(Token(number))
    }
}

impl From<Token> for Ready {
    fn from(Token(number): Token) -> Self {
        match number {
            WAKER_TOKEN => Self::Waker,
            NETWORK_TOKEN => Self::Network,
            _ if number & CONNECTION_BIT != 0 => Self::Connection(number & !CONNECTION_BIT),
            _ if number & RELAY_BIT != 0 => Self::Relay(number & !RELAY_BIT),
            _ if number & RELAYED_BIT != 0 => Self::Relayed(number & !RELAYED_BIT),
            _ => match number.checked_sub(FIRST_FLOW) {
                Some(flow) => Self::Flow(FlowId(flow as u64)),
                None => Self::Listener(number - 1),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_back_to_its_socket() {
        for ready in [
            Ready::Waker,
            Ready::Listener(0),
            Ready::Listener(MOST_LISTENERS - 1),
            Ready::Flow(FlowId(0)),
            Ready::Flow(FlowId(70_000)),
            Ready::Relay(0),
            Ready::Relay(70_000),
            Ready::Connection(0),
            Ready::Connection(70_000),
            Ready::Relayed(0),
            Ready::Relayed(70_000),
            Ready::Network,
        ] {
            assert_eq!(Ready::from(ready.token().unwrap()), ready);
        }
    }
}
