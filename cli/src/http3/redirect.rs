//! The request that follows a redirect (RFC 9110, section 15.4).

use super::credentials::{self, basic};
use super::error::{GetError, redacted};
use super::request::Request;
use packrat_client::Token;

/// Redirects that a download follows.
pub(super) const MOST_REDIRECTS: usize = 10;

/// The request for the place that a server has named. To another origin, that is another scheme, host
/// or port, goes nothing that proves the user's identity, apart from that host's own entry in the
/// user's `.netrc`.
///
/// # Errors
/// The place is no `https` URL.
pub(super) fn next(request: &Request, location: &str) -> Result<Request, GetError> {
    let refused = |exit_code, reason: String| GetError::RefusedRedirect {
        url: request.url.to_string(),
        location: redacted(location),
        exit_code,
        reason,
    };
    let mut url = request.url.join(location).map_err(|error| refused(3, error.to_string()))?;
    if url.scheme() != "https" {
        return Err(refused(1, "only https is followed".to_owned()));
    }
    if url.host().is_none() {
        return Err(refused(3, "it names no host".to_owned()));
    }
    credentials::remove(&mut url);
    let mut next = Request { url, ..request.clone() };
    if next.url.origin() == request.url.origin() {
        return Ok(next);
    }
    next.fields.retain(super::field::UserField::is_harmless);
    let login = request.netrc.as_ref().and_then(|netrc| netrc.find(&next.server_name(), false));
    next.authorization =
        login.map(|(user, password)| basic(user.as_bytes(), password.as_bytes())).transpose()?;
    next.connect_to = next.places.connect_to(&next.url);
    next.later_tokens = None;
    if let Some(assist) = &mut next.assist {
        assist.access.token = Token::default();
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http3::{Netrc, UserField};

    fn request() -> Request {
        let mut request = Request::new("https://me:secret@one.example/a/b").unwrap();
        request.fields = ["Cookie: a", "X-Api-Key: b", "User-Agent: c", "Accept:"]
            .map(|text| UserField::parse(text).unwrap())
            .to_vec();
        request.assist.as_mut().unwrap().access.token = Token::new([1]).unwrap();
        request
    }

    #[test]
    fn the_same_origin_gets_everything() {
        for location in ["c", "/c", "https://one.example/c", "//one.example:443/c"] {
            let next = next(&request(), location).unwrap();
            assert!(next.authorization.is_some(), "{location}");
            assert_eq!(next.fields.len(), 4);
            assert!(!next.assist.unwrap().access.token.is_empty());
        }
        assert_eq!(next(&request(), "c").unwrap().url.as_str(), "https://one.example/a/c");
    }

    #[test]
    fn another_origin_gets_no_credentials() {
        for location in [
            "https://two.example/",
            "https://one.example:8443/",
            "//me:secret@two.example/",
            "https://one.example.two.example/",
        ] {
            let next = next(&request(), location).unwrap();
            assert_eq!(next.authorization, None, "{location}");
            let names: Vec<_> = next.fields.iter().map(|field| field.name.as_str()).collect();
            assert_eq!(names, ["user-agent", "accept"]);
            assert!(next.assist.unwrap().access.token.is_empty());
            assert!(!next.url.as_str().contains("secret"));
        }
    }

    #[test]
    fn another_host_gets_its_own_entry_of_netrc() {
        let mut request = request();
        let text = "machine two.example login you password p\ndefault login d password d";
        request.netrc = Some(std::sync::Arc::new(Netrc::parse(text).unwrap()));
        let field = next(&request, "https://two.example/").unwrap().authorization;
        assert_eq!(field, Some(basic(b"you", b"p").unwrap()));
        assert_eq!(next(&request, "https://three.example/").unwrap().authorization, None);
    }

    #[test]
    fn only_https_is_followed() {
        for (location, code) in [
            ("http://one.example/", 1),
            ("ftp://me:secret@one.example/", 1),
            ("file:///etc/passwd", 1),
            ("https://", 3),
            ("https://me:secret@host:port/", 3),
        ] {
            let error = next(&request(), location).unwrap_err();
            assert_eq!(error.exit_code(), code, "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
