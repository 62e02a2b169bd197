//! Headers for the collector, from an environment variable in the syntax of OpenTelemetry's
//! specification.

use percent_encoding::percent_decode_str;

/// The environment variable with headers for the collector: `key=value,key=value`, values
/// percent-encoded. A vendor's token is such a header, so that it is never an argument.
pub const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

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
