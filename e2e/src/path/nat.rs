//! A NAT before the client that can forget its mappings, and give the client another address.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::packet::{End, set_udp_end, udp_end};

/// First port that is assigned after a rebinding.
const FIRST_PORT: u16 = 20_000;

/// A NAT that translates nothing before its first rebinding.
#[derive(Debug, Default)]
pub(crate) struct Nat {
    /// The clients' addresses outside; `None` before the first rebinding.
    mappings: Option<Mappings>,
}

#[derive(Debug)]
struct Mappings {
    /// The address outside; `None`: the client's own.
    address: Option<Ipv4Addr>,
    next_port: u16,
    outside: HashMap<SocketAddrV4, SocketAddrV4>,
    inside: HashMap<SocketAddrV4, SocketAddrV4>,
}

impl Nat {
    /// Forgets all mappings. Every client gets another port outside, and `address` if there is one.
    /// Packets to an old mapping are lost.
    pub(crate) fn rebind(&mut self, address: Option<Ipv4Addr>) {
        let next_port = self.mappings.as_ref().map_or(FIRST_PORT, |mappings| mappings.next_port);
        self.mappings =
            Some(Mappings { address, next_port, outside: HashMap::new(), inside: HashMap::new() });
    }

    /// Translates a packet of a client.
    pub(crate) fn outwards(&mut self, packet: &mut [u8]) {
        let Some(mappings) = &mut self.mappings else { return };
        let Some(client) = udp_end(packet, End::Source) else { return };
        let outside = mappings.outside.get(&client).copied().unwrap_or_else(|| {
            let outside =
                SocketAddrV4::new(mappings.address.unwrap_or(*client.ip()), mappings.next_port);
            mappings.next_port = mappings.next_port.checked_add(1).unwrap_or(FIRST_PORT);
            mappings.outside.insert(client, outside);
            mappings.inside.insert(outside, client);
            outside
        });
        set_udp_end(packet, End::Source, outside);
    }

    /// Translates a packet to a client; false if no client has that address, so that it is lost.
    pub(crate) fn inwards(&self, packet: &mut [u8]) -> bool {
        let Some(mappings) = &self.mappings else { return true };
        let Some(outside) = udp_end(packet, End::Destination) else { return true };
        let Some(client) = mappings.inside.get(&outside) else { return false };
        set_udp_end(packet, End::Destination, *client);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: [u8; 6] = [10, 0, 0, 1, 0x30, 0x39];
    const SERVER: [u8; 6] = [192, 0, 2, 1, 0x01, 0xbb];

    fn packet(source: [u8; 6], destination: [u8; 6]) -> Vec<u8> {
        let mut packet = vec![0; 32];
        packet[0] = 0x45;
        packet[9] = 17;
        packet[12..16].copy_from_slice(&source[..4]);
        packet[16..20].copy_from_slice(&destination[..4]);
        packet[20..22].copy_from_slice(&source[4..]);
        packet[22..24].copy_from_slice(&destination[4..]);
        packet
    }

    fn bytes(address: SocketAddrV4) -> [u8; 6] {
        let [a, b, c, d] = address.ip().octets();
        let [e, f] = address.port().to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// The client's address outside, as the server sees it.
    fn seen_by_server(nat: &mut Nat) -> SocketAddrV4 {
        let mut up = packet(CLIENT, SERVER);
        nat.outwards(&mut up);
        udp_end(&up, End::Source).unwrap()
    }

    #[test]
    fn nothing_is_translated_before_the_first_rebinding() {
        let mut nat = Nat::default();
        assert_eq!(bytes(seen_by_server(&mut nat)), CLIENT);
        assert!(nat.inwards(&mut packet(SERVER, CLIENT)));
    }

    #[test]
    fn after_a_rebinding_answers_find_the_client_and_old_mappings_are_dead() {
        let mut nat = Nat::default();
        nat.rebind(None);
        let first = seen_by_server(&mut nat);
        assert_eq!(first, seen_by_server(&mut nat), "a mapping lasts");
        assert!(!nat.inwards(&mut packet(SERVER, CLIENT)), "the address before");
        let mut down = packet(SERVER, bytes(first));
        assert!(nat.inwards(&mut down));
        assert_eq!(bytes(udp_end(&down, End::Destination).unwrap()), CLIENT);

        let second_address = Ipv4Addr::new(10, 0, 0, 77);
        nat.rebind(Some(second_address));
        let second = seen_by_server(&mut nat);
        assert_ne!(first, second);
        assert_eq!(*second.ip(), second_address);
        assert!(!nat.inwards(&mut packet(SERVER, bytes(first))));
    }
}
