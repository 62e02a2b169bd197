//! Fields that a user adds to requests, or removes from them: `-H` in curl's grammar.

use super::error::GetError;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Fields that HTTP/3 forbids (RFC 9114, section 4.2).
const FORBIDDEN_FIELDS: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];
/// Fields that follow from the URL and from other options.
const OWN_FIELDS: [&str; 8] = [
    "content-length",
    "host",
    "if-range",
    "range",
    "tus-resumable",
    "upload-length",
    "upload-metadata",
    "upload-offset",
];
/// Fields that tell nothing about the user: they go along to another origin. Any other one may prove
/// the user's identity, such as `Authorization`, `Cookie` and `X-Api-Key`.
const HARMLESS_FIELDS: [&str; 7] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "pragma",
    "user-agent",
];

/// A field to send, or to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserField {
    pub(crate) name: HeaderName,
    /// `None`: the command's own field with this name is left out.
    pub(crate) value: Option<HeaderValue>,
}

impl UserField {
    /// Reads `Name: value`, `Name;` (an empty value) or `Name:` (no such field).
    ///
    /// # Errors
    /// The text is none of them, or the field must not be sent. The message does not show the value.
    pub(crate) fn parse(text: &str) -> Result<Self, GetError> {
        let usage = |reason: String| GetError::Usage { reason };
        let (name, value) = match (text.split_once(':'), text.strip_suffix(';')) {
            (Some((name, value)), _) => {
                let value = value.trim_matches([' ', '\t']);
                (name, (!value.is_empty()).then_some(value))
            }
            (None, Some(name)) => (name, Some("")),
            (None, None) => {
                let expected = "-H: expected \"Name: value\", \"Name;\" for an empty value, or \"Name:\" to leave a field out";
                return Err(usage(expected.to_owned()));
            }
        };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            usage("-H: the name has characters that a field's name must not have".to_owned())
        })?;
        let refused = |why: &str| Err(usage(format!("-H: {name} {why}")));
        if FORBIDDEN_FIELDS.contains(&name.as_str()) {
            return refused("must not be sent over HTTP/3; leave it out");
        }
        if name == "host" {
            return refused(
                "is the URL's host; name the host in the URL, its place with --connect-to",
            );
        }
        if OWN_FIELDS.contains(&name.as_str()) {
            return refused("is set by the command itself; leave it out");
        }
        let value = value.map(|value| {
            let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
                let what = "has a line break or another control character in its value; remove it";
                usage(format!("-H: {name} {what}"))
            })?;
            // Kept out of logs.
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self { value: value.transpose()?, name })
    }

    /// True if the field may go to an origin that the user has not named.
    pub(super) fn is_harmless(&self) -> bool {
        self.value.is_none() || HARMLESS_FIELDS.contains(&self.name.as_str())
    }
}

/// Lets the user's fields take the place of the command's.
pub(super) fn apply(fields: &[UserField], headers: &mut HeaderMap) {
    for field in fields {
        headers.remove(&field.name);
    }
    for UserField { name, value } in fields {
        if let Some(value) = value {
            headers.append(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, Option<String>), String> {
        let text_of = |value: HeaderValue| String::from_utf8(value.as_bytes().to_vec()).unwrap();
        UserField::parse(text)
            .map(|field| (field.name.to_string(), field.value.map(text_of)))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn fields_have_the_grammar_of_curl() {
        let field =
            |name: &str, value: Option<&str>| Ok((name.to_owned(), value.map(str::to_owned)));
        assert_eq!(read("X-One: a: b"), field("x-one", Some("a: b")));
        assert_eq!(read("X-One:b"), field("x-one", Some("b")));
        assert_eq!(read("X-One: ä"), field("x-one", Some("ä")));
        assert_eq!(read("X-One;"), field("x-one", Some("")));
        assert_eq!(read("Accept:"), field("accept", None));
        assert_eq!(read("Accept: "), field("accept", None));
    }

    #[test]
    fn a_refused_field_keeps_its_value_secret() {
        for (text, words) in [
            ("secret", "Name: value"),
            (":authority: secret", "characters"),
            ("X One: secret", "characters"),
            ("X: secret\r\nY: 1", "line break"),
            ("X: secret\nY: 1", "line break"),
            ("X: secret\0", "line break"),
            ("Connection: secret", "HTTP/3"),
            ("transfer-encoding: secret", "HTTP/3"),
            ("TE: secret", "HTTP/3"),
            ("Host: secret", "--connect-to"),
            ("Content-Length: secret", "itself"),
            ("Range: secret", "itself"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words) && !error.contains("secret"), "{error}");
        }
        let field = UserField::parse("X-Key: secret").unwrap();
        assert!(!format!("{field:?}").contains("secret"), "{field:?}");
    }

    #[test]
    fn fields_take_the_place_of_the_commands() {
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("*/*"));
        headers.insert("user-agent", HeaderValue::from_static("packrat"));
        let fields = ["Accept:", "User-Agent: mine", "X: 1", "X: 2"];
        apply(&fields.map(|text| UserField::parse(text).unwrap()), &mut headers);
        assert!(!headers.contains_key("accept"));
        assert_eq!(headers["user-agent"], "mine");
        assert_eq!(headers.get_all("x").iter().count(), 2);
    }
}
