//! Tickets: a client's server, named so that every gateway with the same secret can read it.

use std::net::{IpAddr, SocketAddr};

use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ServerTicket, TICKET_LENGTH};
use sha2::{Digest, Sha256};

use crate::gateway::Gateway;

/// Random bytes of a ticket.
pub const TICKET_NONCE_BYTES: usize = 8;
/// Servers with which a ticket is compared; each takes a hash, or two while the secret changes,
/// which the source is charged for.
const MOST_SERVERS: usize = 1024;
/// Servers up to which a ticket is compared before its client has echoed a cookie: with more of
/// them a forged question would be dear.
pub const MOST_SERVERS_UNPROVEN: usize = 16;

impl Gateway {
    /// A ticket for this server. `nonce`: fresh random bytes, so that no two tickets look alike.
    pub fn ticket(&self, server: SocketAddr, nonce: [u8; TICKET_NONCE_BYTES]) -> ServerTicket {
        ticket(&self.keys().shared.tickets, server, nonce)
    }

    /// The server that a ticket is for, if it is one of these and a gateway with a secret of this one
    /// has made the ticket. The client that has shown it is charged for each comparison.
    pub fn server_of(
        &self,
        shown: ServerTicket,
        client: IpAddr,
        servers: impl IntoIterator<Item = SocketAddr>,
        now: Timestamp,
    ) -> Option<SocketAddr> {
        let mut nonce = [0; TICKET_NONCE_BYTES];
        nonce.copy_from_slice(&shown.as_bytes()[..TICKET_NONCE_BYTES]);
        let mut compared = 0;
        let found = {
            let keys = self.keys();
            let mut is_for = |server: SocketAddr| {
                keys.understood().any(|keys| {
                    compared += 1;
                    ticket(&keys.tickets, server, nonce) == shown
                })
            };
            servers.into_iter().take(MOST_SERVERS).find(|server| is_for(*server))
        };
        self.admission.charge_ticket(client, compared, now);
        found
    }
}

/// The nonce, and eight bytes of a hash of key, nonce and server. The client cannot choose another
/// server with it than one that a gateway has given to a client, and a gateway compares it with the
/// servers that it has.
fn ticket(key: &[u8; 32], server: SocketAddr, nonce: [u8; TICKET_NONCE_BYTES]) -> ServerTicket {
    let address = match server.ip().to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let digest = Sha256::new_with_prefix(key)
        .chain_update(nonce)
        .chain_update(address.octets())
        .chain_update(server.port().to_be_bytes())
        .finalize();
    let mut bytes = [0; TICKET_LENGTH];
    let (front, back) = bytes.split_at_mut(TICKET_NONCE_BYTES);
    front.copy_from_slice(&nonce);
    back.copy_from_slice(&digest[..TICKET_LENGTH - TICKET_NONCE_BYTES]);
    ServerTicket::new(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::TICKET_WORK;
    use crate::config::GatewayConfig;

    #[test]
    fn a_ticket_is_readable_with_the_same_key_only() {
        let of = |key| Gateway::new(GatewayConfig::default(), [key; 32], [2; 32]);
        let (one, same, other) = (of(1), of(1), of(9));
        let client = IpAddr::from([198, 51, 100, 1]);
        let now = Timestamp::ZERO;
        let servers: Vec<SocketAddr> =
            (1..=20u8).map(|host| ([192, 0, 2, host], 443).into()).collect();
        for (number, server) in servers.iter().enumerate() {
            let ticket = one.ticket(*server, [number as u8; TICKET_NONCE_BYTES]);
            let spent = same.work().spent();
            let found = same.server_of(ticket, client, servers.clone(), now);
            assert_eq!(found, Some(*server));
            assert_eq!(same.work().spent() - spent, TICKET_WORK * (number as u64 + 1));
            assert_eq!(other.server_of(ticket, client, servers.clone(), now), None);
            let without = servers.iter().copied().filter(|known| known != server);
            assert_eq!(same.server_of(ticket, client, without, now), None, "a server that is gone");
            for byte in 0..TICKET_LENGTH {
                let mut forged = *ticket.as_bytes();
                forged[byte] ^= 1;
                let forged = ServerTicket::new(forged);
                assert_eq!(one.server_of(forged, client, servers.clone(), now), None);
            }
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:443".parse().unwrap();
        assert_eq!(
            one.server_of(one.ticket(mapped, [0; 8]), client, servers.clone(), now),
            Some(servers[0])
        );
    }

    #[test]
    fn tickets_outlive_a_change_of_the_secret_and_no_second_one() {
        let of = |secrets: &[[u8; 32]]| {
            let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
            gateway.set_keys([1; 32], &secrets.iter().copied().map(Into::into).collect::<Vec<_>>());
            gateway
        };
        let server: SocketAddr = ([192, 0, 2, 1], 443).into();
        let client = IpAddr::from([198, 51, 100, 1]);
        let read = |gateway: &Gateway, ticket| {
            gateway.server_of(ticket, client, [server], Timestamp::ZERO) == Some(server)
        };
        let (first, second) = ([5; 32], [6; 32]);
        let written = of(&[first]).ticket(server, [3; TICKET_NONCE_BYTES]);
        assert!(read(&of(&[first, second]), written), "the next secret is announced");
        assert!(read(&of(&[second, first]), written), "it is in use");
        assert!(!read(&of(&[second]), written), "it is the only one");
        assert!(!read(&of(&[]), written), "the static key reads no ticket");
        let new = of(&[second, first]).ticket(server, [3; TICKET_NONCE_BYTES]);
        assert!(read(&of(&[first, second]), new) && !read(&of(&[first]), new));
    }
}
