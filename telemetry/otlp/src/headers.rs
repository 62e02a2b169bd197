//! Headers for the collector, from an environment variable in the syntax of OpenTelemetry's
//! specification.

use std::net::IpAddr;

use percent_encoding::percent_decode_str;

/// The environment variable with headers for the collector: `key=value,key=value`, values
/// percent-encoded. A vendor's token is such a header, so that it is never an argument.
pub const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// The environment variable that permits, with `true`, to send headers over a network without TLS.
pub const PLAIN_HEADERS_VARIABLE: &str = "PACKRAT_OTLP_PLAIN_HEADERS";

/// True if a host, with a port or without, is this one, by the loopback interface.
pub(crate) fn is_loopback(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') => port.parse::<u16>().is_ok().then_some(name),
        _ => Some(host),
    };
    without_port.is_some_and(|name| {
        let address =
            name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        name == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// Parses them; `None` when one of them is invalid. No error repeats a header, as it may be secret.
pub(crate) fn parse(text: &str) -> Option<Vec<(String, String)>> {
    text.split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let name = name.trim();
            let is_token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            let is_right = !name.is_empty()
                && name.bytes().all(is_token)
                && value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
            is_right.then(|| (name.to_owned(), value.into_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stay_on_this_host() {
        for own in
            ["127.0.0.1", "127.1.2.3:4318", "localhost", "localhost:4318", "[::1]", "[::1]:4318"]
        {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "collector",
            "collector:4318",
            "10.0.0.1:4318",
            "[fd00::1]:4318",
            "localhost.example",
            "127.0.0.1@collector",
            "localhost:80@collector",
            "localhost:80@collector:4318",
            "::1",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn headers_are_pairs_and_nothing_else_gets_through() {
        let pairs = |text: &str| parse(text).unwrap();
        assert_eq!(pairs(""), []);
        let expected = [("api-key", "a=b"), ("Authorization", "Bearer x,y")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs(" api-key=a=b, Authorization=Bearer%20x%2Cy,"), expected);
        for wrong in ["key", "=value", "a b=c", "key=a%0d%0aHost: b", "key=%ff"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
