//! Messages to and from the other gateways that have the same static key.

use packrat_wire::peer::PeerMessage;

use crate::gateway::Gateway;
use crate::outbox::Outbox;

impl Gateway {
    /// The message of another gateway in a control datagram; `None` if it is no such message, or
    /// was not written by a gateway with this one's static key.
    pub fn peer_message(&self, datagram: &[u8]) -> Option<PeerMessage> {
        packrat_wire::peer::is_peer(datagram).then(|| self.keys().peers.open(datagram)).flatten()
    }

    /// Puts a message for another gateway into the outbox.
    pub fn tell_peer(&self, message: &PeerMessage, out: &mut Outbox) {
        let sealed = self.keys().peers.seal(message);
        out.send(|bytes| bytes.extend_from_slice(&sealed));
    }
}
