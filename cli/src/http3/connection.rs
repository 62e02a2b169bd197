//! A connection over HTTP/3, its exchanges, and its end.

use super::connect::{IDLE_TIMEOUT, Surroundings, connect};
use super::error::GetError;
use super::field;
use super::report::{ConnectionFigures, Progress, Report};
use super::request::Request;
use h3::client::{RequestStream, SendRequest};
use h3_util::s2n::s2n_quic_h3;
use http::header;
use packrat_s2n_quic::Assistance;
use packrat_token_client::AssistToken;
use s2n_quic::connection::Handle;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time within which the last datagrams (CONNECTION_CLOSE, Goodbye) leave.
const CLOSING_TIME: Duration = Duration::from_millis(30);
/// HTTP/3's H3_NO_ERROR (RFC 9114, section 8.1).
const H3_NO_ERROR: u32 = 0x100;

type Opener = s2n_quic_h3::OpenStreams;
/// Begins requests.
pub(crate) type Requests = SendRequest<Opener, bytes::Bytes>;
/// A request and its response.
pub(crate) type Stream = RequestStream<s2n_quic_h3::BidiStream<bytes::Bytes>, bytes::Bytes>;

/// A connection on which HTTP/3 has begun.
pub(crate) struct Http3 {
    handle: Handle,
    assistance: Assistance,
    driver: JoinHandle<()>,
    surroundings: Surroundings,
    connect_time: Duration,
}

/// The result of an exchange.
pub(crate) struct Exchanged {
    /// HTTP status code.
    pub(crate) status: u16,
    /// Bytes of the body in this run.
    pub(crate) bytes: u64,
    /// Bytes of it that were there before.
    pub(crate) resumed_from: u64,
    /// Bytes of the whole body, when they are known.
    pub(crate) expected_bytes: Option<u64>,
    /// The response's Location.
    pub(crate) location: Option<String>,
    /// Time from the request to the end.
    pub(crate) transfer_time: Duration,
    /// SHA-256 of the body, in hexadecimal.
    pub(crate) sha256: String,
    /// Stopped by [`Request::stop_after`] before the end.
    pub(crate) partial: bool,
}

impl Exchanged {
    /// The report on it alone.
    pub(super) fn report(self, protocol: &'static str, remote: SocketAddr) -> Report {
        Report {
            status: self.status,
            bytes: self.bytes,
            resumed_from: self.resumed_from,
            expected_bytes: self.expected_bytes,
            location: self.location,
            transfer_time: self.transfer_time,
            sha256: self.sha256,
            partial: self.partial,
            ..Report::new(protocol, remote)
        }
    }
}

impl Http3 {
    /// Connects and begins HTTP/3.
    ///
    /// # Errors
    /// There is no connection, or the server does not speak HTTP/3.
    pub(crate) async fn connect(
        request: &Request,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(Self, Requests), GetError> {
        let started = Instant::now();
        let (connection, surroundings) = connect(request, progress).await?;
        let connect_time = started.elapsed();
        progress(Progress::Connected { remote: surroundings.remote });

        let (quic, assistance) = connection.split();
        let mut handle = quic.handle();
        // A silent server is noticed by the idle timeout; a lost tail is asked for again.
        let _ = handle.keep_alive(true);
        let broken = |reason: String| GetError::Transfer { bytes: 0, reason };
        let (mut driver, requests) = h3::client::new(s2n_quic_h3::Connection::new(quic))
            .await
            .map_err(|error| broken(format!("HTTP/3 did not start: {error}")))?;
        let driver = tokio::spawn(async move {
            std::future::poll_fn(|context| driver.poll_close(context)).await;
        });
        let http3 = Self { handle, assistance, driver, surroundings, connect_time };
        Ok((http3, requests))
    }

    /// Does an exchange, and passes new tokens to the assistance during it.
    ///
    /// # Errors
    /// Errors of the exchange, in the connection's words if that has ended.
    pub(crate) async fn during<T>(
        &self,
        request: &Request,
        exchange: impl Future<Output = Result<T, GetError>>,
    ) -> Result<T, GetError> {
        let exchanged = tokio::select! {
            biased;
            result = exchange => result,
            never = pass_on_tokens(request.later_tokens.clone(), &self.assistance) => match never {},
        };
        exchanged.map_err(|error| match error {
            GetError::Transfer { bytes, reason } => {
                // The connection knows better why it ended than the layers above it.
                let reason = self.handle.clone().ping().map_or_else(connection_end, |()| reason);
                GetError::Transfer { bytes, reason }
            }
            error => error,
        })
    }

    /// True unless the connection has ended. It asks the server for a sign of life.
    pub(super) fn is_open(&self) -> bool {
        self.handle.clone().ping().is_ok()
    }

    /// The newest packet of the server.
    pub(super) fn newest_packet(&self) -> Option<u64> {
        self.surroundings.received.ranges().last().map(|(_, newest)| *newest)
    }

    /// Ends the connection at once.
    pub(super) fn end(&self) {
        self.handle.close(H3_NO_ERROR.into());
    }

    /// Takes leave of the server and of the gateway, after a single exchange.
    ///
    /// # Errors
    /// The error of the exchange; or the qlog can't be written.
    pub(crate) async fn close(
        self,
        request: &Request,
        requests: Requests,
        exchanged: Result<Exchanged, GetError>,
    ) -> Result<Report, GetError> {
        let report = exchanged.map(|exchanged| self.report(request, exchanged));
        drop(requests);
        let left = self.leave().await;
        report.and_then(|report| left.map(|()| report))
    }

    /// Takes leave of the server and of the gateway.
    ///
    /// # Errors
    /// The qlog can't be written.
    pub(super) async fn leave(self) -> Result<(), GetError> {
        let Self { handle, assistance, driver, surroundings, .. } = self;
        assistance.close();
        drop(assistance);
        handle.close(H3_NO_ERROR.into());
        drop(handle);
        driver.abort();
        surroundings.endpoint.wait_idle(CLOSING_TIME).await;
        let Some((qlog, path)) = surroundings.qlog else { return Ok(()) };
        let unwritable = |source| GetError::Write { target: path.display().to_string(), source };
        qlog.finish().map_err(unwritable)
    }

    /// The report on an exchange of the connection, with the connection's figures until now.
    pub(super) fn report(&self, request: &Request, exchanged: Exchanged) -> Report {
        let surroundings = &self.surroundings;
        let assist = request.assist.as_ref();
        Report {
            connect_time: self.connect_time,
            assist: assist.map(|_| self.assistance.stats()),
            gateway_key: surroundings.gateway_key,
            with_token: assist.is_some_and(|assist| !assist.access.token.is_empty()),
            connection: ConnectionFigures {
                received_packet_numbers: surroundings.received.ranges(),
                declared_lost: surroundings.lost.count(),
                round_trip: surroundings.round_trip.get(),
            },
            ..exchanged.report("h3", surroundings.remote)
        }
    }
}

/// Lets the assistance have each token that comes, and the key of its gateway.
async fn pass_on_tokens(
    tokens: Option<watch::Receiver<AssistToken>>,
    assistance: &Assistance,
) -> Infallible {
    if let Some(mut tokens) = tokens {
        while tokens.changed().await.is_ok() {
            let AssistToken { gateway_key, token, .. } = &*tokens.borrow_and_update();
            assistance.set_access(*gateway_key, token);
        }
    }
    std::future::pending().await
}

fn connection_end(error: s2n_quic::connection::Error) -> String {
    use s2n_quic::connection::Error;
    match error {
        Error::IdleTimerExpired { .. } => {
            format!(
                "the server was silent for {} s; it or the network is down",
                IDLE_TIMEOUT.as_secs()
            )
        }
        Error::StatelessReset { .. } => {
            "the server has lost the connection's state (restarted?)".to_owned()
        }
        Error::Closed { .. } | Error::Application { .. } => {
            format!("the server closed the connection ({error})")
        }
        error => error.to_string(),
    }
}

/// A request's target, without the parts that HTTP/3 forbids there, and the fields that every request
/// has: the command's and the user's.
pub(crate) fn request_head(request: &Request, method: http::Method) -> http::request::Builder {
    let mut target = request.url.clone();
    target.set_fragment(None);
    let mut head = http::Request::builder()
        .method(method)
        .uri(target.as_str())
        .header(header::USER_AGENT, concat!("packrat/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "*/*");
    if let Some(headers) = head.headers_mut() {
        if let Some(authorization) = &request.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        field::apply(&request.fields, headers);
    }
    head
}
