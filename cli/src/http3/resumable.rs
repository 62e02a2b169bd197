//! Uploads that continue after a break: the server gives an upload a URL of its own, which reports
//! how much of it has come. By Resumable Uploads for HTTP (draft-ietf-httpbis-resumable-upload), the
//! offer comes with any upload; by tus (tus.io, version 1.0.0, with its creation extension), the
//! upload is created first.
//!
//! ```text
//!   PUT URL, Upload-Complete: ?1, all of it  --> 104, Location    the draft: an offer
//!   POST URL, Upload-Length                  --> 201, Location    tus: a new upload
//!   HEAD Location                            --> Upload-Offset    after a break, or in a later run
//!   PATCH Location, the rest                 --> 2xx
//! ```

use super::connection::{Exchanged, Http3, Requests, request_head};
use super::error::GetError;
use super::report::{Progress, Report};
use super::request::Request;
use super::source::{self, Source};
use super::upload::{
    Begun, INTEROP_VERSION, UPLOAD_COMPLETE, UPLOAD_OFFSET, Upload, answered, content_type,
    exchange, judge, number, response,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use packrat_wire::hexadecimal;
use sha2::Digest;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
/// Version of the protocol of resumable uploads.
const TUS_VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
/// Media type of the rest of an upload.
const TUS_REST_TYPE: HeaderValue = HeaderValue::from_static("application/offset+octet-stream");
/// Interoperability version of the draft that is spoken, of its revision 12 and later.
const DRAFT_VERSION: HeaderValue = HeaderValue::from_static("9");
/// Media type of the rest of an upload.
const DRAFT_REST_TYPE: HeaderValue = HeaderValue::from_static("application/partial-upload");
/// The true of structured fields (RFC 9651).
const TRUE: HeaderValue = HeaderValue::from_static("?1");

/// Attempts in a row without progress before an upload is given up.
const MOST_ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The beginning of an upload.
#[derive(Debug, Clone)]
pub(crate) enum Beginning {
    /// A request with all of it, which a server may offer to resume.
    Whole(Method),
    /// The creation of an upload, by tus.
    Created,
    /// An earlier run, which has left the upload at this URL.
    Earlier(Url),
}

/// An upload that the server remembers.
pub(crate) struct Resumable {
    file: PathBuf,
    length: u64,
    content_type: Option<HeaderValue>,
    beginning: Beginning,
    /// URL of the upload, once the server has given it one.
    place: Option<Url>,
    /// Bytes that the server is known to have.
    offset: u64,
    /// Begin anew when the server has forgotten the upload.
    restarts: bool,
}

impl Resumable {
    /// The upload of this file.
    ///
    /// # Errors
    /// The file cannot be opened, or has no length.
    pub(crate) fn new(
        file: &Path,
        content_type: Option<HeaderValue>,
        beginning: Beginning,
    ) -> Result<Self, GetError> {
        let name = file.display().to_string();
        let length = source::length(file).and_then(|length| {
            length.ok_or_else(|| {
                io::Error::other("what can be continued must be a file, not a stream")
            })
        });
        let length = length.map_err(|source| GetError::Read { name, source })?;
        let place = match &beginning {
            Beginning::Earlier(place) => Some(place.clone()),
            _ => None,
        };
        let file = file.to_owned();
        Ok(Self { file, length, content_type, beginning, place, offset: 0, restarts: false })
    }

    /// Lets an upload that this run has created begin anew when the server has forgotten it.
    pub(crate) fn restarting(self, restarts: bool) -> Self {
        Self { restarts, ..self }
    }

    /// The URL of the upload, once the server has given it one.
    pub(crate) fn place(&self) -> Option<&Url> {
        self.place.as_ref()
    }

    /// Uploads, and continues after a break as long as an attempt in [`MOST_ATTEMPTS`] makes progress.
    /// `paused` is called with the reason of a pause, and its length; `answer` gets the body of the
    /// server's answer to a whole upload.
    ///
    /// # Errors
    /// See [`GetError`]. The server may have a part of the file by then, at [`Self::place`].
    pub(crate) async fn run(
        &mut self,
        request: &Request,
        answer: &mut impl Write,
        mut progress: impl FnMut(Progress),
        mut paused: impl FnMut(&GetError, Duration),
    ) -> Result<Report, GetError> {
        let limit = request.max_time;
        let run = async {
            let (mut attempts, mut pause) = (0, FIRST_PAUSE);
            loop {
                let before = self.offset;
                let error = match self.attempt(request, answer, &mut progress).await {
                    Ok(report) => return Ok(report),
                    Err(error) => error,
                };
                if self.offset > before {
                    (attempts, pause) = (0, FIRST_PAUSE);
                }
                attempts += 1;
                let is_gone = matches!(error, GetError::Vanished { .. });
                let may_pass = match is_gone {
                    true => self.restarts,
                    false => self.place.is_some() && may_pass(&error),
                };
                if is_gone {
                    (self.place, self.offset) = (None, 0);
                }
                if !may_pass || attempts == MOST_ATTEMPTS {
                    return Err(error);
                }
                paused(&error, pause);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        let Some(limit) = limit else { return run.await };
        let result = tokio::time::timeout(limit, run).await;
        result.unwrap_or(Err(GetError::TimedOut { after: limit, bytes: self.offset }))
    }

    async fn attempt(
        &mut self,
        request: &Request,
        answer: &mut impl Write,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Report, GetError> {
        let (http3, mut requests) = Http3::connect(request, progress).await?;
        let exchange = self.exchange(request, &mut requests, answer, progress);
        let exchanged = http3.during(request, exchange).await;
        http3.close(request, requests, exchanged).await
    }

    async fn exchange(
        &mut self,
        request: &Request,
        requests: &mut Requests,
        answer: &mut impl Write,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Exchanged, GetError> {
        let (place, asked) = match (&self.place, &self.beginning) {
            (Some(place), _) => {
                let place = place.clone();
                let asked = self.ask(request, &place, requests, progress).await?;
                self.offset = asked.offset;
                (place, asked)
            }
            (None, Beginning::Whole(method)) => {
                let method = method.clone();
                return self.send_whole(request, method, requests, answer, progress).await;
            }
            (None, _) => {
                let place = self.create(request, requests, progress).await?;
                (self.place.insert(place).clone(), Asked::default())
            }
        };
        let begun = Begun::of(&self.file, self.offset).await?;
        let is_complete = asked.is_complete.unwrap_or(self.offset == self.length);
        if is_complete {
            return Ok(Exchanged {
                status: StatusCode::NO_CONTENT.as_u16(),
                bytes: 0,
                resumed_from: self.offset,
                expected_bytes: Some(self.length),
                location: Some(place.to_string()),
                transfer_time: Duration::ZERO,
                sha256: hexadecimal::encode(&begun.digest.finalize()),
                partial: false,
            });
        }
        let by_draft = asked.is_complete.is_some();
        let mut upload = self.rest(begun, by_draft)?;
        let request = Request { url: place.clone(), ..request.clone() };
        let mut bytes = 0;
        let sent = exchange(&request, &mut upload, requests, answer, progress, &mut bytes).await;
        let mut exchanged = sent?;
        if !exchanged.partial {
            self.offset = self.length;
        }
        if !by_draft {
            exchanged.location = Some(place.to_string());
        }
        Ok(exchanged)
    }

    /// The request with the rest of the file.
    fn rest(&self, begun: Begun, by_draft: bool) -> Result<Upload, GetError> {
        let mut headers = HeaderMap::from_iter([(UPLOAD_OFFSET, HeaderValue::from(self.offset))]);
        headers.extend(match by_draft {
            true => vec![
                (INTEROP_VERSION, DRAFT_VERSION),
                (UPLOAD_COMPLETE, TRUE),
                (header::CONTENT_TYPE, DRAFT_REST_TYPE),
            ],
            false => vec![(TUS_RESUMABLE, TUS_VERSION), (header::CONTENT_TYPE, TUS_REST_TYPE)],
        });
        Ok(Upload {
            method: Method::PATCH,
            headers,
            source: Source::open_range(&self.file, self.offset..self.length)?,
            begun,
            whole: (!by_draft).then_some(self.length),
            offered: None,
        })
    }

    /// Sends all of the file, and remembers the place at which the server offers to resume.
    async fn send_whole(
        &mut self,
        request: &Request,
        method: Method,
        requests: &mut Requests,
        answer: &mut impl Write,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Exchanged, GetError> {
        let mut headers = content_type(self.content_type.clone());
        headers.extend([(INTEROP_VERSION, DRAFT_VERSION), (UPLOAD_COMPLETE, TRUE)]);
        let mut upload = Upload {
            method,
            headers,
            source: Source::open_range(&self.file, 0..self.length)?,
            begun: Begun::default(),
            whole: None,
            offered: None,
        };
        let mut bytes = 0;
        let sent = exchange(request, &mut upload, requests, answer, progress, &mut bytes).await;
        let offered = upload.offered.as_deref();
        // An offer that is of no use is none.
        self.place = offered.and_then(|location| place_of(&request.url, location).ok());
        sent
    }

    /// Creates an upload, and returns its URL.
    async fn create(
        &self,
        request: &Request,
        requests: &mut Requests,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Url, GetError> {
        let mut message = request_head(request, Method::POST)
            .header(TUS_RESUMABLE, TUS_VERSION)
            .header(UPLOAD_LENGTH, self.length)
            .header(header::CONTENT_LENGTH, 0);
        let name = self.file.file_name().unwrap_or_default().as_encoded_bytes();
        let mut metadata = format!("filename {}", STANDARD.encode(name));
        if let Some(content_type) = &self.content_type {
            metadata = format!("{metadata},filetype {}", STANDARD.encode(content_type));
        }
        message = message.header(UPLOAD_METADATA, metadata);
        let response = ask(message.body(()), requests, progress).await?;
        let unusable =
            |reason: String| GetError::Resumable { url: request.url.to_string(), reason };
        judge(&request.url, &Method::POST, &response)?;
        let location = response.headers().get(header::LOCATION);
        let location = location.and_then(|location| location.to_str().ok());
        let (StatusCode::CREATED, Some(location)) = (response.status(), location) else {
            return Err(unusable(format!(
                "no tus upload can be created here: the server answered with HTTP status {} and names no place for it; \
                 check the URL, or leave --tus out",
                response.status().as_u16()
            )));
        };
        place_of(&request.url, location).map_err(unusable)
    }

    /// Asks how much of the upload the server has, in both protocols.
    async fn ask(
        &self,
        request: &Request,
        place: &Url,
        requests: &mut Requests,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Asked, GetError> {
        let request = Request { url: place.clone(), ..request.clone() };
        let mut message = request_head(&request, Method::HEAD).header(TUS_RESUMABLE, TUS_VERSION);
        if let Some(headers) = message.headers_mut() {
            headers.entry(INTEROP_VERSION).or_insert(DRAFT_VERSION);
        }
        let response = ask(message.body(()), requests, progress).await?;
        let unusable = |reason| Err(GetError::Resumable { url: place.to_string(), reason });
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Err(GetError::Vanished { url: place.to_string(), status: status.as_u16() });
        }
        judge(place, &Method::HEAD, &response)?;
        match (number(&response, &UPLOAD_OFFSET), number(&response, &UPLOAD_LENGTH)) {
            (None, _) => unusable(
                "there is no upload: the server does not say how much it has; check the URL"
                    .to_owned(),
            ),
            (_, Some(length)) if length != self.length => unusable(format!(
                "the upload there has {length} bytes, the file {}: name the file that it was begun with",
                self.length
            )),
            (Some(offset), _) if offset > self.length => {
                unusable(format!("the server has {offset} bytes, the file only {}", self.length))
            }
            (Some(offset), _) => {
                let complete = response.headers().get(UPLOAD_COMPLETE);
                Ok(Asked { offset, is_complete: complete.map(|complete| complete == TRUE) })
            }
        }
    }
}

/// The state of an upload at the server.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    offset: u64,
    /// The server's word for that, which only the draft has.
    is_complete: Option<bool>,
}

/// A request without a body.
async fn ask(
    message: Result<http::Request<()>, http::Error>,
    requests: &mut Requests,
    progress: &mut impl FnMut(Progress),
) -> Result<Response<()>, GetError> {
    let broken = |reason: String| GetError::Transfer { bytes: 0, reason };
    let message = message.map_err(|error| broken(error.to_string()))?;
    let stream = requests.send_request(message).await;
    let mut stream = stream.map_err(|error| broken(error.to_string()))?;
    stream.finish().await.map_err(|error| broken(error.to_string()))?;
    let (_sending, mut receiving) = stream.split();
    let response = response(&mut receiving, |_| ()).await;
    let response = response.map_err(|error| broken(format!("no response: {error}")))?;
    progress(answered(&response));
    Ok(response)
}

/// True if another attempt may succeed: the network or the server may be back then, or the server
/// has not noticed yet that the previous connection has ended.
fn may_pass(error: &GetError) -> bool {
    match error {
        GetError::Refused { status, .. } => {
            matches!(status, 408 | 409 | 423 | 425 | 429 | 500..=599)
        }
        GetError::Resolve { .. }
        | GetError::Unreachable { .. }
        | GetError::Connect { .. }
        | GetError::ConnectTimedOut { .. }
        | GetError::Unread { .. }
        | GetError::Transfer { .. } => true,
        _ => false,
    }
}

/// The URL of an upload. A server behind a proxy knows neither the scheme nor the port that its clients use:
/// these are the request's.
fn place_of(asked: &Url, location: &str) -> Result<Url, String> {
    let said = format!("the server names {location:?} as the place of the upload");
    let mut place = asked.join(location).map_err(|error| format!("{said}: {error}"))?;
    if place.host() != asked.host() {
        return Err(format!("{said}, which is another host; create the upload there"));
    }
    let schemed = place.set_scheme(asked.scheme());
    schemed
        .and_then(|()| place.set_port(asked.port()))
        .map_err(|()| format!("{said}: no https URL"))?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_at_the_host_that_was_asked() {
        let asked = Url::parse("https://host:8443/files/?to=me").unwrap();
        for (location, place) in [
            ("/files/7", "https://host:8443/files/7"),
            ("7", "https://host:8443/files/7"),
            // Behind a proxy.
            ("http://host/files/7", "https://host:8443/files/7"),
            ("http://host:1080/files/7", "https://host:8443/files/7"),
            ("//host/files/7", "https://host:8443/files/7"),
        ] {
            assert_eq!(place_of(&asked, location).unwrap().as_str(), place, "{location}");
        }
        let error = place_of(&asked, "https://elsewhere/7").unwrap_err();
        assert!(error.contains("another host"), "{error}");
        assert!(place_of(&asked, "mailto:me").is_err());
        assert!(place_of(&asked, "https://:7/").is_err());
    }

    #[test]
    fn a_break_is_repeated_and_a_refusal_is_not() {
        let refused =
            |status| GetError::Refused { url: String::new(), method: Method::PATCH, status };
        for status in [409, 423, 500, 503] {
            assert!(may_pass(&refused(status)), "{status}");
        }
        for status in [400, 403, 404, 410, 413] {
            assert!(!may_pass(&refused(status)), "{status}");
        }
        assert!(may_pass(&GetError::Transfer { bytes: 0, reason: String::new() }));
        assert!(!may_pass(&GetError::TimedOut { after: Duration::ZERO, bytes: 0 }));
    }
}
