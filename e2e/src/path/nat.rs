//! A NAT before the client that can forget its mappings, and give the client another address.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::packet::{End, set_udp_end, udp_end};

/// First port that is assigned after a rebinding.
const FIRST_PORT: u16 = 20_000;

/// The address outside of a client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum OutsideAddress {
    /// The one that it has inside.
    #[default]
    Own,
    /// All clients have this address.
    One(Ipv4Addr),
    /// Each client has an address of its own, from this one on, and keeps it.
    Each(Ipv4Addr),
}

/// A NAT that translates nothing before its first rebinding.
#[derive(Debug, Default)]
pub(crate) struct Nat {
    /// The clients' addresses outside; `None` before the first rebinding.
    mappings: Option<Mappings>,
    /// Numbers of the clients that have addresses of their own.
    numbers: HashMap<SocketAddrV4, u32>,
}

#[derive(Debug)]
struct Mappings {
    outside_address: OutsideAddress,
    next_port: u16,
    outside: HashMap<SocketAddrV4, SocketAddrV4>,
    inside: HashMap<SocketAddrV4, SocketAddrV4>,
}

impl Nat {
    /// Forgets all mappings. Every client gets another port outside, and this address. Packets to an
    /// old mapping are lost.
    pub(crate) fn rebind(&mut self, outside_address: OutsideAddress) {
        let next_port = self.mappings.as_ref().map_or(FIRST_PORT, |mappings| mappings.next_port);
        self.mappings = Some(Mappings {
            outside_address,
            next_port,
            outside: HashMap::new(),
            inside: HashMap::new(),
        });
    }

    /// Translates a packet of a client.
    pub(crate) fn outwards(&mut self, packet: &mut [u8]) {
        let Some(mappings) = &mut self.mappings else { return };
        let Some(client) = udp_end(packet, End::Source) else { return };
        let outside = mappings.outside.get(&client).copied().unwrap_or_else(|| {
            let address = match mappings.outside_address {
                OutsideAddress::Own => *client.ip(),
                OutsideAddress::One(address) => address,
                OutsideAddress::Each(first) => {
                    let next = self.numbers.len() as u32;
                    let number = *self.numbers.entry(client).or_insert(next);
                    Ipv4Addr::from_bits(first.to_bits().wrapping_add(number))
                }
            };
            let outside = SocketAddrV4::new(address, mappings.next_port);
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
    fn answers_find_a_rebound_client_and_old_mappings_are_dead() {
        let mut nat = Nat::default();
        nat.rebind(OutsideAddress::Own);
        let first = seen_by_server(&mut nat);
        assert_eq!(first, seen_by_server(&mut nat), "a mapping lasts");
        assert!(!nat.inwards(&mut packet(SERVER, CLIENT)), "the address before");
        let mut down = packet(SERVER, bytes(first));
        assert!(nat.inwards(&mut down));
        assert_eq!(bytes(udp_end(&down, End::Destination).unwrap()), CLIENT);

        let second_address = Ipv4Addr::new(10, 0, 0, 77);
        nat.rebind(OutsideAddress::One(second_address));
        let second = seen_by_server(&mut nat);
        assert_ne!(first, second);
        assert_eq!(*second.ip(), second_address);
        assert!(!nat.inwards(&mut packet(SERVER, bytes(first))));

        for _ in 0..2 {
            nat.rebind(OutsideAddress::Each(second_address));
            let mut of_another = packet([10, 0, 0, 1, 0x30, 0x40], SERVER);
            let third = seen_by_server(&mut nat);
            nat.outwards(&mut of_another);
            let fourth = udp_end(&of_another, End::Source).unwrap();
            let expected = [second_address, Ipv4Addr::new(10, 0, 0, 78)];
            assert_eq!([*third.ip(), *fourth.ip()], expected, "addresses are kept");
        }
    }
}
