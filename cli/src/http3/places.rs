//! Other places for a URL's host: `--connect-to` and `--resolve` in curl's grammar, `-4` and `-6`.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use url::{Host, Url};

/// The rules of the user about addresses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    pub(crate) connect_to: Vec<ConnectTo>,
    pub(crate) resolve: Vec<Resolve>,
    /// Only addresses of this family.
    pub(crate) family: Option<Family>,
}

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Places {
    /// Host and port to connect to for a URL, if a rule names them: the first that fits.
    pub(crate) fn connect_to(&self, url: &Url) -> Option<(String, u16)> {
        let (host, port) = host_and_port_of(url);
        let rule = self.connect_to.iter().find(|rule| {
            rule.host.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(&host))
                && rule.port.is_none_or(|own| own == port)
        })?;
        Some((rule.to_host.clone().unwrap_or(host), rule.to_port.unwrap_or(port)))
    }

    /// The addresses that a rule gives to a host and port: the first that fits.
    pub(crate) fn addresses(&self, host: &str, port: u16) -> Option<Vec<SocketAddr>> {
        let rule = self.resolve.iter().find(|rule| {
            rule.port == port && rule.host.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(host))
        })?;
        Some(rule.addresses.iter().map(|address| (*address, port).into()).collect())
    }

    /// True unless the address is of another family than the user wants.
    pub(crate) fn takes(&self, address: &SocketAddr) -> bool {
        match self.family {
            None => true,
            Some(Family::V4) => address.is_ipv4(),
            Some(Family::V6) => address.is_ipv6(),
        }
    }
}

/// A URL's host, an IPv6 address without brackets, and its port.
pub(crate) fn host_and_port_of(url: &Url) -> (String, u16) {
    let host = match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    (host, url.port().unwrap_or(443))
}

/// A rule of `--connect-to`: `HOST1:PORT1:HOST2:PORT2`. Each part may be empty: any host or port, or
/// the same one. `HOST:PORT` is `::HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectTo {
    host: Option<String>,
    port: Option<u16>,
    to_host: Option<String>,
    to_port: Option<u16>,
}

impl FromStr for ConnectTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = || {
            "expected HOST1:PORT1:HOST2:PORT2 as curl does, or HOST2:PORT2; an IPv6 address in brackets"
                .to_owned()
        };
        let parts = split(text).ok_or_else(expected)?;
        let port = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| expected()),
        };
        let host = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        match parts[..] {
            [from, from_port, to, to_port] => Ok(Self {
                host: host(from),
                port: port(from_port)?,
                to_host: host(to),
                to_port: port(to_port)?,
            }),
            [to, to_port] if !to.is_empty() && !to_port.is_empty() => {
                Ok(Self { host: None, port: None, to_host: host(to), to_port: port(to_port)? })
            }
            _ => Err(expected()),
        }
    }
}

/// Reads `HOST:PORT`.
pub(crate) fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let expected = || "expected HOST:PORT, an IPv6 address in brackets".to_owned();
    match split(text).as_deref() {
        Some([host, port]) if !host.is_empty() => {
            Ok(((*host).to_owned(), port.parse().map_err(|_| expected())?))
        }
        _ => Err(expected()),
    }
}

/// A rule of `--resolve`: `HOST:PORT:ADDRESS[,ADDRESS]...`; `*` is any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolve {
    host: Option<String>,
    port: u16,
    addresses: Vec<IpAddr>,
}

impl FromStr for Resolve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = || {
            "expected HOST:PORT:ADDRESS[,ADDRESS]... as curl does; * is any host, an IPv6 host in brackets"
                .to_owned()
        };
        // With curl, + lets the entry grow old.
        let text = text.strip_prefix('+').unwrap_or(text);
        let (host, rest) = part(text).ok_or_else(expected)?;
        let (port, addresses) = rest
            .and_then(|rest| rest.split_once(':'))
            .filter(|_| !host.is_empty() && !host.starts_with('-'))
            .ok_or_else(expected)?;
        let address = |text: &str| {
            let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            bare.unwrap_or(text).parse().map_err(|_| expected())
        };
        Ok(Self {
            host: (host != "*").then(|| host.to_owned()),
            port: port.parse().map_err(|_| expected())?,
            addresses: addresses.split(',').map(address).collect::<Result<_, _>>()?,
        })
    }
}

/// The text before the first colon, without its brackets, and the rest behind it.
fn part(text: &str) -> Option<(&str, Option<&str>)> {
    let Some(bracketed) = text.strip_prefix('[') else {
        return Some(text.split_once(':').map_or((text, None), |(part, rest)| (part, Some(rest))));
    };
    let (part, rest) = bracketed.split_once(']')?;
    match rest {
        "" => Some((part, None)),
        rest => rest.strip_prefix(':').map(|rest| (part, Some(rest))),
    }
}

fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut rest) = (Vec::new(), Some(text));
    while let Some(text) = rest {
        let (next, behind) = part(text)?;
        parts.push(next);
        rest = behind;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(rules: &[&str], url: &str) -> Option<(String, u16)> {
        let connect_to = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let places = Places { connect_to, ..Places::default() };
        places.connect_to(&Url::parse(url).unwrap())
    }

    #[test]
    fn connect_to_has_the_grammar_of_curl() {
        let to = |host: &str, port| Some((host.to_owned(), port));
        let url = "https://Shop.example/";
        assert_eq!(connected(&["shop.example:443:edge:8443"], url), to("edge", 8443));
        assert_eq!(connected(&["other:443:edge:8443"], url), None);
        assert_eq!(connected(&["shop.example:444:edge:8443"], url), None);
        assert_eq!(connected(&["::edge:"], url), to("edge", 443));
        assert_eq!(connected(&[":443::8443"], url), to("shop.example", 8443));
        assert_eq!(connected(&["other::a:1", "::b:2", "::c:3"], url), to("b", 2));
        assert_eq!(connected(&["[::1]:443:[::2]:1"], "https://[::1]/"), to("::2", 1));
        assert_eq!(connected(&["[::2]:1"], url), to("::2", 1), "the short form");
        for wrong in ["", "host", ":1", "host:", "a:b", "a:1:b", "a:1:b:x", "a:1:b:2:3"] {
            let error = wrong.parse::<ConnectTo>().unwrap_err();
            assert!(error.contains("HOST1:PORT1:HOST2:PORT2"), "{wrong}");
        }
        assert!("[::1:1:a:2".parse::<ConnectTo>().is_err());
    }

    #[test]
    fn targets_are_checked() {
        assert_eq!(host_and_port("host:1"), Ok(("host".to_owned(), 1)));
        assert_eq!(host_and_port("[::1]:1"), Ok(("::1".to_owned(), 1)));
        for wrong in ["::1:1", "host", ":1", "host:", "[::1:1"] {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn resolve_has_the_grammar_of_curl() {
        let rules = ["Shop.example:443:192.0.2.1,[2001:db8::1]", "*:8443:2001:db8::2"];
        let resolve = rules.map(|rule| rule.parse().unwrap()).to_vec();
        let mut places = Places { resolve, ..Places::default() };
        let found = places.addresses("shop.example", 443).unwrap();
        assert_eq!(found, ["192.0.2.1:443", "[2001:db8::1]:443"].map(|text| text.parse().unwrap()));
        assert_eq!(places.addresses("any", 8443).unwrap().len(), 1);
        assert_eq!(places.addresses("any", 443), None);
        places.family = Some(Family::V6);
        assert!(!places.takes(&found[0]) && places.takes(&found[1]));
        for wrong in ["", "a", "a:1", "a:1:", "a:1:b", "-a:1", "a:x:192.0.2.1", ":1:192.0.2.1"] {
            assert!(wrong.parse::<Resolve>().is_err(), "{wrong}");
        }
    }
}
