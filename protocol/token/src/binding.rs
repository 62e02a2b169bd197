//! A token that is valid for clients of one network only.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// The network that a client must be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Binding {
    network: IpAddr,
    prefix: u8,
}

/// A prefix longer than an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a prefix of {prefix} bits is longer than the address; at most {longest} are possible")]
pub struct BindingError {
    prefix: u8,
    longest: u8,
}

impl Binding {
    /// The network of the first `prefix` bits of `address`. An IPv4-mapped IPv6 address
    /// (`::ffff:192.0.2.1`) counts as IPv4.
    ///
    /// # Errors
    /// `prefix` is above 32 (IPv4) or 128 (IPv6).
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, BindingError> {
        let address = address.to_canonical();
        let longest = if address.is_ipv4() { 32 } else { 128 };
        if prefix > longest {
            return Err(BindingError { prefix, longest });
        }
        Ok(Self { network: masked(address, prefix), prefix })
    }

    /// True if `address` is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4() && masked(address, self.prefix) == self.network
    }

    /// The first address of the network.
    pub fn network(&self) -> IpAddr {
        self.network
    }

    /// Bits of the network's prefix.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

/// Returns `address` with all bits after the first `prefix` cleared.
fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128u32.saturating_sub(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_their_addresses_and_no_others() {
        let network = Binding::new(address("192.0.2.77"), 24).unwrap();
        assert_eq!(network.network(), address("192.0.2.0"));
        assert!(
            network.contains(address("192.0.2.1")) && network.contains(address("::ffff:192.0.2.1"))
        );
        assert!(
            !network.contains(address("192.0.3.1")) && !network.contains(address("2001:db8::1"))
        );
        let network = Binding::new(address("2001:db8:0:7::1"), 64).unwrap();
        assert!(
            network.contains(address("2001:db8:0:7:ffff::"))
                && !network.contains(address("2001:db8::1"))
        );
    }

    #[test]
    fn the_ends_of_the_scale() {
        for (one, other, longest) in [("192.0.2.1", "10.0.0.1", 32), ("2001:db8::1", "::2", 128)] {
            assert!(Binding::new(address(one), 0).unwrap().contains(address(other)));
            let host = Binding::new(address(one), longest).unwrap();
            assert!(host.contains(address(one)) && !host.contains(address(other)));
            assert!(Binding::new(address(one), longest + 1).is_err());
        }
        assert!(!Binding::new(address("192.0.2.1"), 0).unwrap().contains(address("::2")));
    }
}
