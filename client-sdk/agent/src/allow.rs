//! The destinations that programs may choose.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A rule: a host, or several, and a port, or all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    All,
    Name(String),
    /// All names with this end, which begins with a point.
    Below(String),
    Network(IpAddr, u8),
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fault = |reason: &str| {
            format!(
                "{text:?} {reason}; write HOST:PORT, where HOST is a name, *.example, an address, a network such as \
                 192.0.2.0/24 or [2001:db8::]/32, or *, and PORT is a number or *"
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(|| fault("has no port"))?;
        let port = match port {
            "*" => None,
            port => match port.parse() {
                Ok(0) | Err(_) => return Err(fault("has no port that there is")),
                Ok(port) => Some(port),
            },
        };
        let (address, length) = host.split_once('/').map_or((host, None), |(a, l)| (a, Some(l)));
        let address =
            address.strip_prefix('[').map_or(address, |inner| inner.trim_end_matches(']'));
        let hosts = if let Ok(ip) = address.parse::<IpAddr>() {
            let ip = ip.to_canonical();
            let longest = if ip.is_ipv4() { 32 } else { 128 };
            let length = match length.map(str::parse) {
                None => longest,
                Some(Ok(length)) if length <= longest => length,
                Some(_) => return Err(fault("has a network whose length is wrong")),
            };
            Hosts::Network(ip, length)
        } else if host == "*" {
            Hosts::All
        } else if host.is_empty() || length.is_some() || host.contains([':', '[', ']']) {
            return Err(fault("names no host"));
        } else {
            let name = host.to_ascii_lowercase();
            match name.strip_prefix('*') {
                Some(end) if end.starts_with('.') && !end.contains('*') => {
                    Hosts::Below(end.to_owned())
                }
                None if !name.contains('*') => Hosts::Name(name),
                _ => return Err(fault("has a * that stands for a part of a name")),
            }
        };
        Ok(Self { hosts, port })
    }
}

impl Allowed {
    /// True if a host of this name may be covered, once its address is known.
    fn may_cover(&self, name: &str, port: u16) -> bool {
        self.covers(Some(name), None, port)
            || matches!(self.hosts, Hosts::Network(..)) && self.port.is_none_or(|own| own == port)
    }

    /// True if the rule names a network of this host, or of its link, with this address: a rule for
    /// all addresses excludes these networks.
    fn names(&self, address: IpAddr, port: u16) -> bool {
        matches!(self.hosts, Hosts::Network(network, _) if is_local(network))
            && self.covers(None, Some(address), port)
    }

    /// The same rule for all ports.
    fn at_any_port(&self) -> Self {
        Self { hosts: self.hosts.clone(), port: None }
    }

    /// True for a host of this name, or this address, at a port.
    fn covers(&self, name: Option<&str>, address: Option<IpAddr>, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
            && match &self.hosts {
                Hosts::All => true,
                Hosts::Name(own) => name.is_some_and(|name| name == own),
                Hosts::Below(end) => name.is_some_and(|name| name.ends_with(end)),
                Hosts::Network(network, length) => {
                    address.is_some_and(|address| is_in(address.to_canonical(), *network, *length))
                }
            }
    }
}

/// All rules of a listener; without one, every destination is allowed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Destinations(pub(crate) Vec<Allowed>);

impl Destinations {
    /// True if a host of this name may be allowed, once its address is known.
    pub(crate) fn may_allow(&self, name: &str, port: u16) -> bool {
        port != 0 && (self.0.is_empty() || self.0.iter().any(|rule| rule.may_cover(name, port)))
    }

    /// True if a program may send there. `is_foreign`: it is another machine's, or a web page's.
    pub(crate) fn allows(&self, name: Option<&str>, to: SocketAddr, is_foreign: bool) -> bool {
        let ip = to.ip().to_canonical();
        // A foreign program would reach services that this machine offers only to itself.
        if is_local(ip) && is_foreign && !self.0.iter().any(|rule| rule.names(ip, to.port())) {
            return false;
        }
        let is_one_host = !ip.is_unspecified()
            && !ip.is_multicast()
            && !matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        let is_allowed = || self.0.iter().any(|rule| rule.covers(name, Some(ip), to.port()));
        to.port() != 0 && is_one_host && (self.0.is_empty() || is_allowed())
    }

    /// True if a foreign program may send there.
    pub(crate) fn allows_foreign(&self, to: SocketAddr) -> bool {
        self.allows(None, to, true)
    }

    /// True if a foreign program may send to some port there.
    pub(crate) fn may_allow_foreign(&self, address: IpAddr) -> bool {
        let at_any_port = Self(self.0.iter().map(Allowed::at_any_port).collect());
        at_any_port.allows_foreign(SocketAddr::new(address, 1))
    }
}

/// True for an address that leads to this host itself, or to its link.
fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

fn is_in(address: IpAddr, network: IpAddr, length: u8) -> bool {
    let (one, other, longest) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (u128::from(one.to_bits()), u128::from(other.to_bits()), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
        _ => return false,
    };
    (one ^ other).checked_shr(longest - u32::from(length)).is_none_or(|rest| rest == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_covers_what_it_says() {
        let covers = |rule: &str, name: Option<&str>, address: Option<&str>, port| {
            let address = address.map(|address| address.parse().unwrap());
            rule.parse::<Allowed>().unwrap().covers(name, address, port)
        };
        assert!(covers("*:443", Some("edge.example"), None, 443));
        assert!(!covers("*:443", Some("edge.example"), None, 80));
        assert!(covers("Edge.example:*", Some("edge.example"), None, 80));
        assert!(!covers("edge.example:*", Some("a.edge.example"), None, 80));
        assert!(covers("*.example:1", Some("edge.example"), None, 1));
        assert!(!covers("*.example:1", Some("example"), Some("192.0.2.1"), 1));
        assert!(covers("192.0.2.0/24:1", Some("edge.example"), Some("192.0.2.255"), 1));
        assert!(!covers("192.0.2.0/24:1", None, Some("192.0.3.0"), 1));
        assert!(!covers("192.0.2.0/24:1", Some("edge.example"), None, 1));
        assert!(covers("0.0.0.0/0:1", None, Some("198.51.100.1"), 1));
        assert!(!covers("0.0.0.0/0:1", None, Some("::1"), 1));
        assert!(covers("[2001:db8::]/32:1", None, Some("2001:db8:1::1"), 1));
        assert!(covers("[::]/0:1", None, Some("2001:db8:1::1"), 1));
        assert!(
            covers("[::1]:1", None, Some("::1"), 1) && !covers("[::1]:1", None, Some("::2"), 1)
        );
        assert!(covers("192.0.2.1:1", None, Some("::ffff:192.0.2.1"), 1));
    }

    #[test]
    fn a_wrong_rule_says_what_is_wrong() {
        for (wrong, why) in [
            ("edge.example", "no port"),
            ("edge.example:0", "no port that"),
            ("edge.example:x", "no port that"),
            (":443", "no host"),
            ("a/8:443", "no host"),
            ("192.0.2.0/33:1", "length"),
            ("192.0.2.0/x:1", "length"),
            ("edge*:1", "part of a name"),
            ("*edge.example:1", "part of a name"),
        ] {
            let error = wrong.parse::<Allowed>().err().unwrap();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    /// Another machine reaches services on this machine's own addresses only if an allowed network
    /// includes them.
    #[test]
    fn other_machines_reach_local_services_only_by_an_explicit_rule() {
        let allows = |rules: &[&str], from: &str, name: Option<&str>, to: &str| {
            let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
            let is_foreign = !from.parse::<IpAddr>().unwrap().is_loopback();
            Destinations(rules).allows(name, to.parse().unwrap(), is_foreign)
        };
        let all = ["*:443", "edge.example:443", "0.0.0.0/0:443", "[::]/0:443"];
        let near = ["127.0.0.1:443", "[::1]:443", "169.254.169.254:443", "[fe80::1]:443"];
        for to in near.into_iter().chain(["[::ffff:127.0.0.1]:443"]) {
            assert!(!allows(&all, "192.0.2.7", Some("edge.example"), to), "{to}");
            assert!(!allows(&all, "2001:db8::7", None, to), "{to}");
            assert!(allows(&all, "127.0.0.1", Some("edge.example"), to), "{to}");
            assert!(allows(&[], "::1", None, to), "{to}");
        }
        for (rule, to) in ["127.0.0.0/8:443", "[::1]:*", "169.254.169.254:443", "[fe80::]/10:443"]
            .iter()
            .zip(near)
        {
            assert!(allows(&["*:443", rule], "192.0.2.7", None, to), "{rule}");
            assert!(!allows(&["*:443", "127.0.0.2:443"], "192.0.2.7", None, to), "{to}");
        }
        assert!(allows(&all, "192.0.2.7", None, "198.51.100.1:443"));
    }
}
