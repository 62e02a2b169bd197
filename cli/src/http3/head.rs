//! Head of a response to a download.

use http::header::{self, HeaderMap};
use url::Url;

use super::error::GetError;
use super::resume::Resume;

/// Header of a response.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// The first byte of the body's that follows.
    pub(crate) offset: u64,
    /// Length of the whole body.
    pub(crate) expected_bytes: Option<u64>,
    /// The version of the body: an ETag or a date.
    pub(crate) validator: Option<String>,
    /// The file is complete already: a message for humans follows, not the body.
    pub(crate) complete: bool,
}

impl Head {
    /// Reads a response. `resume`: the part that the request asked for.
    ///
    /// # Errors
    /// The response has no body for the request.
    pub(crate) fn read(
        url: &Url,
        resume: Option<&Resume>,
        status: u16,
        headers: &HeaderMap,
    ) -> Result<Self, GetError> {
        let text =
            |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let url = || url.to_string();
        let length: Option<u64> =
            text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        // Weak validators do not vouch for single bytes (RFC 9110, section 13.1.5).
        let validator = text(header::ETAG)
            .filter(|tag| !tag.starts_with("W/"))
            .or_else(|| text(header::LAST_MODIFIED))
            .map(str::to_owned);
        let asked = resume.map_or(0, |resume| resume.offset);
        let cannot_resume = |reason: String| GetError::Range { offset: asked, reason };
        if asked > 0
            && matches!(status, 206 | 416)
            && let Some(known) = resume.and_then(|resume| resume.validator.as_deref())
            && let Some(current) = validator.as_deref()
            // An ETag is no evidence about a date. Servers that heed If-Range never get here with
            // another version.
            && known.starts_with('"') == current.starts_with('"')
            && known != current
        {
            return Err(cannot_resume("the server has another version of the file now".to_owned()));
        }
        match status {
            206 if asked > 0 => {
                let range = text(header::CONTENT_RANGE).unwrap_or_default();
                let expected_bytes = bytes_of_whole(range, length, asked).map_err(cannot_resume)?;
                Ok(Self { status, offset: asked, expected_bytes, validator, complete: false })
            }
            416 if asked > 0 => match text(header::CONTENT_RANGE).and_then(parse_unsatisfied_range)
            {
                // An earlier run was stopped after the last byte, before the file got its name.
                Some(length) if length == asked => Ok(Self {
                    status,
                    offset: asked,
                    expected_bytes: Some(length),
                    validator,
                    complete: true,
                }),
                _ => Err(cannot_resume("the server has no such byte (HTTP status 416)".to_owned())),
            },
            301 | 302 | 303 | 307 | 308 => Err(GetError::Redirect {
                url: url(),
                status,
                location: text(header::LOCATION).map(str::to_owned),
            }),
            200..=299 => {
                Ok(Self { status, offset: 0, expected_bytes: length, validator, complete: false })
            }
            _ => Err(GetError::Status { url: url(), status }),
        }
    }

    /// Checks that the body has the announced length. `bytes`: the bytes that have arrived now.
    ///
    /// # Errors
    /// It ended before, or went on.
    pub(crate) fn check_length(&self, bytes: u64) -> Result<(), GetError> {
        let bytes = self.offset.saturating_add(bytes);
        match self.expected_bytes {
            Some(expected) if bytes != expected => Err(GetError::Truncated { bytes, expected }),
            _ => Ok(()),
        }
    }
}

/// Bytes of the whole body, if the server's `range` begins at `asked`. `length`: of the rest.
fn bytes_of_whole(range: &str, length: Option<u64>, asked: u64) -> Result<Option<u64>, String> {
    let (first, complete) = parse_content_range(range)
        .ok_or_else(|| format!("the server's Content-Range is {range:?}"))?;
    if first != asked {
        return Err(format!("the server continues at byte {first}"));
    }
    let whole = |length: u64| {
        length.checked_add(asked).ok_or_else(|| format!("the server's Content-Length is {length}"))
    };
    match complete {
        Some(complete) => Ok(Some(complete)),
        None => length.map(whole).transpose(),
    }
}

/// First byte and complete length out of `bytes 100-199/200` (RFC 9110, section 14.4).
fn parse_content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, complete) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.parse().ok()?, complete.parse().ok()))
}

/// Complete length out of `bytes */200`, which answers a request for missing bytes (RFC 9110,
/// section 14.4).
fn parse_unsatisfied_range(value: &str) -> Option<u64> {
    value.strip_prefix("bytes */")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        "https://host/path".parse().unwrap()
    }

    fn resume() -> Resume {
        Resume { offset: 10, validator: Some("\"a\"".to_owned()), ..Resume::default() }
    }

    #[test]
    fn content_range() {
        assert_eq!(parse_content_range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(parse_content_range("bytes 0-0/*"), Some((0, None)));
        assert_eq!(parse_content_range("bytes */200"), None);
        assert_eq!(parse_content_range("items 1-2/3"), None);
    }

    #[test]
    fn the_rest_is_taken_when_it_is_of_the_same_version() {
        let resume = resume();
        let head =
            |status: u16, headers: &HeaderMap| Head::read(&url(), Some(&resume), status, headers);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_RANGE, "bytes 10-19/20".parse().unwrap());
        let answer = head(206, &headers).unwrap();
        assert_eq!((answer.offset, answer.expected_bytes), (10, Some(20)));
        // The body has changed: the server sends all of it.
        assert_eq!(head(200, &HeaderMap::new()).unwrap().offset, 0);
        headers.insert(header::CONTENT_RANGE, "bytes 5-19/20".parse().unwrap());
        assert!(matches!(head(206, &headers), Err(GetError::Range { offset: 10, .. })));
        // A server that does not understand If-Range must not get two versions mixed.
        headers.insert(header::CONTENT_RANGE, "bytes 10-19/20".parse().unwrap());
        headers.insert(header::ETAG, "\"b\"".parse().unwrap());
        assert!(matches!(head(206, &headers), Err(GetError::Range { offset: 10, .. })));
    }

    #[test]
    fn nothing_is_missing_when_the_body_ends_where_the_part_does() {
        let resume = resume();
        let answer = |range: Option<&str>, tag: Option<&str>| {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::CONTENT_RANGE, range), (header::ETAG, tag)] {
                value.and_then(|value| headers.insert(name, value.parse().unwrap()));
            }
            Head::read(&url(), Some(&resume), 416, &headers)
        };
        for tag in [None, Some("\"a\"")] {
            let head = answer(Some("bytes */10"), tag).unwrap();
            assert_eq!((head.complete, head.offset, head.expected_bytes), (true, 10, Some(10)));
        }
        for (range, tag) in [
            (Some("bytes */9"), None),
            (Some("bytes */*"), None),
            (None, None),
            (Some("bytes */10"), Some("\"b\"")),
        ] {
            assert!(
                matches!(answer(range, tag), Err(GetError::Range { offset: 10, .. })),
                "{range:?} {tag:?}"
            );
        }
    }

    #[test]
    fn statuses_become_errors() {
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, "https://elsewhere/".parse().unwrap());
        let redirect = Head::read(&url(), None, 302, &headers).err().unwrap();
        assert!(redirect.to_string().contains("https://elsewhere/"), "{redirect}");
        assert_eq!(Head::read(&url(), None, 503, &headers).err().unwrap().exit_code(), 22);
    }
}
