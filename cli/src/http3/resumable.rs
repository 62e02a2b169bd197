//! Uploads that continue after a break, by the tus protocol (tus.io, version 1.0.0, with its
//! creation extension): the server gives an upload a URL of its own, which reports how much of it
//! has come.
//!
//! ```text
//!   POST URL, Upload-Length    --> 201, Location    a new upload
//!   HEAD Location              --> Upload-Offset    after a break, and for one of an earlier run
//!   PATCH Location, the rest   --> 204
//! ```

use super::connection::{Exchanged, Http3, Requests, request_head};
use super::error::GetError;
use super::report::{Progress, Report};
use super::request::Request;
use super::source::{self, Source};
use super::upload::{Begun, UPLOAD_OFFSET, Upload, exchange, judge, number, response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use packrat_wire::hexadecimal;
use sha2::Digest;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
/// Version of the protocol of resumable uploads.
const TUS_VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
/// Media type of the rest of an upload.
const REST_TYPE: HeaderValue = HeaderValue::from_static("application/offset+octet-stream");

/// Attempts in a row without progress before an upload is given up.
const MOST_ATTEMPTS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An upload that the server remembers.
pub(crate) struct Resumable {
    file: PathBuf,
    length: u64,
    content_type: Option<HeaderValue>,
    /// URL of the upload, once the server has given it one.
    place: Option<Url>,
    /// Bytes that the server is known to have.
    offset: u64,
    /// Begin anew when the server has forgotten the upload.
    restarts: bool,
}

impl Resumable {
    /// The upload of this file: a new one, or the one at `place`.
    ///
    /// # Errors
    /// The file cannot be opened, or has no length.
    pub(crate) fn new(
        file: &Path,
        content_type: Option<HeaderValue>,
        place: Option<Url>,
    ) -> Result<Self, GetError> {
        let name = file.display().to_string();
        let length = source::length(file).and_then(|length| {
            length.ok_or_else(|| {
                io::Error::other("what can be continued must be a file, not a stream")
            })
        });
        let length = length.map_err(|source| GetError::Read { name, source })?;
        Ok(Self { file: file.to_owned(), length, content_type, place, offset: 0, restarts: false })
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
    /// `paused` is called with the reason of a pause, and its length.
    ///
    /// # Errors
    /// See [`GetError`]. The server may have a part of the file by then, at [`Self::place`].
    pub(crate) async fn run(
        &mut self,
        request: &Request,
        mut progress: impl FnMut(Progress),
        mut paused: impl FnMut(&GetError, Duration),
    ) -> Result<Report, GetError> {
        let limit = request.max_time;
        let run = async {
            let (mut attempts, mut pause) = (0, FIRST_PAUSE);
            loop {
                let before = self.offset;
                let error = match self.attempt(request, &mut progress).await {
                    Ok(report) => return Ok(report),
                    Err(error) => error,
                };
                if self.offset > before {
                    (attempts, pause) = (0, FIRST_PAUSE);
                }
                attempts += 1;
                let begins_anew = self.restarts && matches!(error, GetError::Vanished { .. });
                let may_pass = begins_anew || (self.place.is_some() && may_pass(&error));
                if begins_anew {
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
        progress: &mut impl FnMut(Progress),
    ) -> Result<Report, GetError> {
        let (http3, mut requests) = Http3::connect(request, progress).await?;
        let rest = self.send_rest(request, &mut requests, progress);
        let exchanged = http3.during(request, rest).await;
        http3.close(request, requests, exchanged).await
    }

    async fn send_rest(
        &mut self,
        request: &Request,
        requests: &mut Requests,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Exchanged, GetError> {
        let place = match &self.place {
            Some(place) => {
                let place = place.clone();
                self.offset = self.ask_offset(request, &place, requests).await?;
                place
            }
            None => {
                let place = self.create(request, requests).await?;
                self.place.insert(place).clone()
            }
        };
        let begun = Begun::of(&self.file, self.offset).await?;
        if self.offset == self.length {
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
        let headers = [
            (TUS_RESUMABLE, TUS_VERSION),
            (UPLOAD_OFFSET, HeaderValue::from(self.offset)),
            (header::CONTENT_TYPE, REST_TYPE),
        ];
        let mut upload = Upload {
            method: Method::PATCH,
            headers: HeaderMap::from_iter(headers),
            source: Source::open_range(&self.file, self.offset..self.length)?,
            begun,
            whole: Some(self.length),
        };
        let request = Request { url: place.clone(), ..request.clone() };
        let mut bytes = 0;
        let sent =
            exchange(&request, &mut upload, requests, &mut io::sink(), progress, &mut bytes).await;
        let mut exchanged = sent?;
        if !exchanged.partial {
            self.offset = self.length;
        }
        exchanged.location = Some(place.to_string());
        Ok(exchanged)
    }

    /// Creates an upload, and returns its URL.
    async fn create(&self, request: &Request, requests: &mut Requests) -> Result<Url, GetError> {
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
        let response = ask(message.body(()), requests).await?;
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

    /// Asks how much of the upload the server has.
    async fn ask_offset(
        &self,
        request: &Request,
        place: &Url,
        requests: &mut Requests,
    ) -> Result<u64, GetError> {
        let request = Request { url: place.clone(), ..request.clone() };
        let message = request_head(&request, Method::HEAD).header(TUS_RESUMABLE, TUS_VERSION);
        let response = ask(message.body(()), requests).await?;
        let unusable = |reason| Err(GetError::Resumable { url: place.to_string(), reason });
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Err(GetError::Vanished { url: place.to_string(), status: status.as_u16() });
        }
        judge(place, &Method::HEAD, &response)?;
        match (number(&response, &UPLOAD_OFFSET), number(&response, &UPLOAD_LENGTH)) {
            (None, _) => unusable(
                "there is no tus upload: the server does not say how much it has; check the URL"
                    .to_owned(),
            ),
            (_, Some(length)) if length != self.length => unusable(format!(
                "the upload there has {length} bytes, the file {}: name the file that it was begun with",
                self.length
            )),
            (Some(offset), _) if offset > self.length => {
                unusable(format!("the server has {offset} bytes, the file only {}", self.length))
            }
            (Some(offset), _) => Ok(offset),
        }
    }
}

/// A request without a body.
async fn ask(
    message: Result<http::Request<()>, http::Error>,
    requests: &mut Requests,
) -> Result<Response<()>, GetError> {
    let broken = |reason: String| GetError::Transfer { bytes: 0, reason };
    let message = message.map_err(|error| broken(error.to_string()))?;
    let stream = requests.send_request(message).await;
    let mut stream = stream.map_err(|error| broken(error.to_string()))?;
    stream.finish().await.map_err(|error| broken(error.to_string()))?;
    let (_sending, mut receiving) = stream.split();
    response(&mut receiving).await.map_err(|error| broken(format!("no response: {error}")))
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
