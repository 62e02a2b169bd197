//! The limits that the operator's installer sets to all EdgeGateways: images, the host network, and
//! the networks that no gateway forwards to, and the listeners of tenants.

use std::net::IpAddr;
use std::str::FromStr;

use crate::resource::{EdgeGatewaySpec, ExposureType};

/// The limits of all EdgeGateways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Images that EdgeGateways may name.
    pub images: Vec<ImagePattern>,
    /// True if gateways may be on the host network.
    pub host_network: bool,
    /// Networks that gateways never forward to.
    pub never: Vec<Network>,
    /// The most listeners of Services.
    pub quotas: Quotas,
}

/// The most listeners that annotated Services have at an EdgeGateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Limit of one Service.
    pub per_service: usize,
    /// Limit of all Services of a namespace.
    pub per_namespace: usize,
    /// Limit of all Services.
    pub per_gateway: usize,
}

impl Quotas {
    /// The most listeners of an EdgeGateway, including listeners that are about to go: etcd takes a
    /// status of this size.
    pub const MOST_PER_GATEWAY: u16 = 2000;
}

impl Default for Quotas {
    fn default() -> Self {
        Self { per_service: 100, per_namespace: 100, per_gateway: 1000 }
    }
}

impl Default for Policy {
    /// No image but the operator's own choice, no host network, and [`Network::LOCAL`].
    fn default() -> Self {
        Self {
            images: Vec::new(),
            host_network: false,
            never: Network::local(),
            quotas: Quotas::default(),
        }
    }
}

impl Policy {
    /// The reason for which an EdgeGateway may not be set up, and what to do about it.
    pub fn refusal(&self, spec: &EdgeGatewaySpec) -> Option<String> {
        if spec.exposure.type_ == ExposureType::HostNetwork && !self.host_network {
            return Some(
                "gateways may not be on the host network: the operator was installed without gateway.hostNetwork; choose another spec.exposure.type, or have it installed with that value".to_owned(),
            );
        }
        let image = spec.envoy.image.as_deref()?;
        (!self.images.iter().any(|pattern| pattern.matches(image))).then(|| {
            format!(
                "the image {image} is not allowed: the operator's gateway.allowedImages do not name it; remove spec.envoy.image, or have it allowed"
            )
        })
    }

    /// True if no gateway forwards to an address.
    pub fn never(&self, address: IpAddr) -> bool {
        self.never.iter().any(|network| network.contains(address))
    }
}

/// An image, or all images whose reference begins so: `registry.example/packrat/gateway:*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePattern(String);

impl ImagePattern {
    fn matches(&self, image: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => image.starts_with(prefix),
            None => image == self.0,
        }
    }
}

impl FromStr for ImagePattern {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let prefix = text.strip_suffix('*').unwrap_or(text);
        // A prefix that ends within a name would let in the names of others that begin so.
        let is_whole =
            prefix.is_empty() || prefix.len() == text.len() || prefix.ends_with([':', '/', '@']);
        if text.is_empty() || prefix.contains('*') || !is_whole {
            return Err(PolicyError::Image(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A network: an address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    length: u8,
}

impl Network {
    /// Networks of this host, of its links, of no host, and of groups, and where clouds keep the
    /// credentials of their machines.
    pub const LOCAL: [&str; 10] = [
        "0.0.0.0/8",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "255.255.255.255/32",
        "::/128",
        "::1/128",
        "fe80::/10",
        "ff00::/8",
        "fd00:ec2::254/128",
    ];

    fn local() -> Vec<Self> {
        Self::LOCAL.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// True if an address is in the network; an IPv4 address is the same in IPv6's notation.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let address = address.to_canonical();
        let other = u32::from(128 - self.length);
        address.is_ipv4() == self.address.is_ipv4()
            && (bits(address) ^ bits(self.address)).checked_shr(other).unwrap_or(0) == 0
    }
}

impl FromStr for Network {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || PolicyError::Network(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = length.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if length > most {
            return Err(wrong());
        }
        Ok(Self { address, length })
    }
}

/// A limit that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// An image.
    #[error(
        "\"{0}\" is no image; write a whole reference, or a part that ends in :*, /* or @*, for example registry.example/packrat/gateway:*"
    )]
    Image(String),
    /// A network.
    #[error("\"{0}\" is no network; write an address and a length, for example 10.96.0.0/12")]
    Network(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::EdgeGatewaySpec;

    #[test]
    fn only_images_that_the_installer_names_run() {
        let refused = |patterns: &[&str], image: Option<&str>| {
            let mut spec = EdgeGatewaySpec::default();
            spec.envoy.image = image.map(str::to_owned);
            let images = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
            Policy { images, ..Policy::default() }.refusal(&spec).is_some()
        };
        assert!(!refused(&[], None), "the operator's own choice");
        assert!(refused(&[], Some("packrat/gateway:1")));
        let patterns = ["mirror.example/packrat/gateway:*", "packrat/gateway:1"];
        for (image, expected) in [
            ("packrat/gateway:1", false),
            ("packrat/gateway:11", true),
            ("mirror.example/packrat/gateway:2", false),
            ("mirror.example/packrat/gateway-of-others:2", true),
            ("docker.io/mirror.example/packrat/gateway:2", true),
        ] {
            assert_eq!(refused(&patterns, Some(image)), expected, "{image}");
        }
        assert!(!refused(&["*"], Some("anything")));
        for wrong in ["", "mirror.example/packrat/gateway*", "*/gateway:1", "a:*:*"] {
            assert!(wrong.parse::<ImagePattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_host_network_is_the_installers_to_give() {
        let mut spec = EdgeGatewaySpec::default();
        spec.exposure.type_ = ExposureType::HostNetwork;
        assert!(Policy::default().refusal(&spec).unwrap().contains("gateway.hostNetwork"));
        assert_eq!(Policy { host_network: true, ..Policy::default() }.refusal(&spec), None);
    }

    /// No datagram is forwarded to addresses of this host, its links, or groups.
    #[test]
    fn no_datagram_goes_to_host_link_or_group_addresses() {
        let policy = Policy::default();
        for never in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "224.0.0.1",
            "239.1.2.3",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "fe80::1",
            "ff02::1",
            "fd00:ec2::254",
        ] {
            assert!(policy.never(never.parse().unwrap()), "{never}");
        }
        for address in ["10.0.0.1", "192.0.2.1", "128.0.0.1", "240.0.0.1", "fd00::1", "2001:db8::1"]
        {
            assert!(!policy.never(address.parse().unwrap()), "{address}");
        }
        let network = |text: &str| text.parse::<Network>().unwrap();
        assert!(network("10.96.0.0/12").contains("10.111.255.255".parse().unwrap()));
        assert!(!network("10.96.0.0/12").contains("10.112.0.0".parse().unwrap()));
        assert!(network("0.0.0.0/0").contains("203.0.113.1".parse().unwrap()));
        assert!(!network("0.0.0.0/0").contains("2001:db8::1".parse().unwrap()));
        assert!(network("192.0.2.1").contains("192.0.2.1".parse().unwrap()));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
