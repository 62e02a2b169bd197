//! Messages to and from the other gateways that have the same secret.

use packrat_wire::peer::PeerMessage;

use crate::gateway::Gateway;
use crate::outbox::Outbox;

impl Gateway {
    /// The message of another gateway in a control datagram; `None` if it is no such message, or
    /// was not written with a secret that this one knows.
    pub fn peer_message(&self, datagram: &[u8]) -> Option<PeerMessage> {
        if !packrat_wire::peer::is_peer(datagram) {
            return None;
        }
        self.keys().understood().find_map(|keys| keys.peers.open(datagram))
    }

    /// Puts a message for another gateway into the outbox.
    pub fn tell_peer(&self, message: &PeerMessage, out: &mut Outbox) {
        let sealed = self.keys().shared.peers.seal(message);
        out.send(|bytes| bytes.extend_from_slice(&sealed));
    }
}
