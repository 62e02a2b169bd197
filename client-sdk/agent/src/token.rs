//! The tokens by which the system identifies a ready socket.

use std::io;

use mio::Token;
use packrat_socket::FlowId;

use crate::socks::AssociationId;

const WAKER: usize = 0;
const NETWORK: usize = usize::MAX - 1;
/// Flows have the numbers from here on, listeners those between the waker's and this.
const FIRST_FLOW: usize = 1 << 16;
/// Numbers of control connections and of relays have one of these bits set.
const CONNECTION: usize = 1 << (usize::BITS - 2);
const RELAY: usize = 1 << (usize::BITS - 3);

/// Listeners of one agent at most.
pub(crate) const MOST_LISTENERS: usize = FIRST_FLOW - 1;

/// A source of events that is ready, in the order in which sockets are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ready {
    /// Another thread has a command.
    Waker,
    /// A service's socket, or the SOCKS listener, by its index.
    Listener(usize),
    /// A flow's upstream socket.
    Flow(FlowId),
    /// An association's relay.
    Relay(AssociationId),
    /// An association's control connection.
    Connection(AssociationId),
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
            Self::Waker => WAKER,
            Self::Listener(index) => index + 1,
            Self::Flow(FlowId(id)) => usize::try_from(id)
                .ok()
                .and_then(|id| id.checked_add(FIRST_FLOW))
                .ok_or_else(|| io::Error::other("the numbers are used up"))?,
            Self::Relay(association) => RELAY | association,
            Self::Connection(association) => CONNECTION | association,
            Self::Network => NETWORK,
        };
        Ok(Token(number))
    }
}

impl From<Token> for Ready {
    fn from(Token(number): Token) -> Self {
        match number {
            WAKER => Self::Waker,
            NETWORK => Self::Network,
            _ if number & CONNECTION != 0 => Self::Connection(number & !CONNECTION),
            _ if number & RELAY != 0 => Self::Relay(number & !RELAY),
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
            Ready::Network,
        ] {
            assert_eq!(Ready::from(ready.token().unwrap()), ready);
        }
    }
}
