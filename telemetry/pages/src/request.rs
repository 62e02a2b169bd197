//! The head of an HTTP/1 request (RFC 9112).

use std::net::IpAddr;

/// Longest head that is read.
pub const LONGEST_HEAD: usize = 8 * 1024;

/// The parts of a request that answers depend on.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// GET, POST and so on.
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// The address that it comes from, where that is known.
    pub peer: Option<IpAddr>,
    host: Option<&'a str>,
    /// True if it has a header that a page of another site cannot send without asking first.
    is_deliberate: bool,
}

impl<'a> Request<'a> {
    /// The request that begins with these bytes; `None` while its head is not complete. `Err`: it
    /// is none.
    pub fn parse(bytes: &'a [u8]) -> Option<Result<Self, &'static str>> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else {
            return (bytes.len() >= LONGEST_HEAD).then_some(Err("the head is too long"));
        };
        let head = bytes.get(..end).and_then(|head| std::str::from_utf8(head).ok());
        Some(head.and_then(Self::of_head).ok_or("this is not HTTP/1"))
    }

    fn of_head(head: &'a str) -> Option<Self> {
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return None;
        }
        let headers = lines.filter_map(|line| line.split_once(':'));
        let value = |wanted: &str| {
            let mut named = headers.clone().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            named.next().map(|(_, value)| value.trim())
        };
        let is_deliberate = value("X-Requested-With").is_some_and(|value| !value.is_empty());
        Some(Self { method, target, peer: None, host: value("Host"), is_deliberate })
    }

    /// The reason why the request must not change anything: a page in a browser that can reach the
    /// gateway may have made it. `None`: it may.
    pub fn objection(&self) -> Option<&'static str> {
        if !self.is_deliberate {
            return Some("a change needs the header X-Requested-With, with any value");
        }
        // A name may be an attacker's, resolved to this address: for a browser its pages and the
        // gateway are then one site.
        let is_literal = self.host.map(without_port).is_some_and(|host| {
            host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        });
        (!is_literal).then_some("a change must name the gateway by an IP address or localhost")
    }
}

/// A host without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Result<Request<'_>, &'static str>> {
        Request::parse(text.as_bytes())
    }

    #[test]
    fn a_request_is_complete_with_its_empty_line() {
        let text = "GET /packrat?x=1 HTTP/1.1\r\nHost: [::1]:9100\r\n\r\n";
        assert_eq!(parse(&text[..text.len() - 1]), None);
        let request = parse(text).unwrap().unwrap();
        assert_eq!((request.method, request.target), ("GET", "/packrat?x=1"));
        for garbage in
            ["GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET x HTTP/1.1\r\n\r\n", "\r\n\r\n"]
        {
            assert!(parse(garbage).unwrap().is_err(), "{garbage}");
        }
        assert!(parse(&"x".repeat(LONGEST_HEAD)).unwrap().is_err());
        assert!(Request::parse(b"GET /\xff HTTP/1.1\r\n\r\n").unwrap().is_err());
    }

    #[test]
    fn only_a_deliberate_request_to_an_address_may_change_something() {
        for (headers, may) in [
            ("Host: 127.0.0.1:9100\r\nX-Requested-With: curl\r\n", true),
            ("host: [::1]:9100\r\nx-requested-with: curl\r\n", true),
            ("Host: ::1\r\nX-Requested-With: curl\r\n", false),
            ("Host: localhost\r\nX-Requested-With: curl\r\n", true),
            ("Host: 127.0.0.1:9100\r\n", false),
            ("Host: 127.0.0.1:9100\r\nX-Requested-With: \r\n", false),
            ("Host: evil.example:9100\r\nX-Requested-With: curl\r\n", false),
            ("X-Requested-With: curl\r\n", false),
        ] {
            let text = format!("POST /packrat/log HTTP/1.1\r\n{headers}\r\n");
            let request = parse(&text).unwrap().unwrap();
            assert_eq!(request.objection().is_none(), may, "{headers}");
        }
    }
}
