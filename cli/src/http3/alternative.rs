//! Alternative services with HTTP/3: the header Alt-Svc of answers over TCP (RFC 7838).

use http::HeaderMap;
use http::header::ALT_SVC;

/// The first alternative with HTTP/3: its host, `None` for the same one, and its UDP port.
pub(super) fn http3(headers: &HeaderMap) -> Option<(Option<String>, u16)> {
    let values = headers.get_all(ALT_SVC).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(split).find_map(|alternative| {
        let (protocol, rest) = alternative.trim().split_once('=')?;
        let authority = rest.trim_start().strip_prefix('"')?.split('"').next()?;
        let (host, port) = authority.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (protocol.trim() == "h3").then(|| ((!host.is_empty()).then(|| host.to_owned()), port))
    })
}

/// The members of a list; a comma in a quoted text separates nothing.
fn split(value: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    value.split(move |character| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(values: &[&str]) -> Option<(Option<String>, u16)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ALT_SVC, value.parse().unwrap());
        }
        http3(&headers)
    }

    #[test]
    fn the_first_alternative_with_http3_is_taken() {
        let here = |port| Some((None, port));
        let there = |host: &str, port| Some((Some(host.to_owned()), port));
        assert_eq!(found(&[r#"h3=":443"; ma=2592000,h3-29=":444"; ma=1"#]), here(443));
        assert_eq!(
            found(&[r#"h2=":8000", h3="quic.example:4433"; persist=1"#]),
            there("quic.example", 4433)
        );
        assert_eq!(found(&[r#"h2="a,b:1", h3=":5""#]), here(5));
        assert_eq!(found(&[r#"h3="[2001:db8::1]:443""#]), there("2001:db8::1", 443));
        assert_eq!(found(&["clear", r#"h3=":443""#]), here(443));
        for none in
            ["clear", "", r#"h3-29=":443""#, r#"h3=":0""#, "h3=:443", r#"h3="443""#, r#"h3=":x""#]
        {
            assert_eq!(found(&[none]), None, "{none}");
        }
    }
}
